"""What every broker of the tests can do, whatever it is and wherever it runs."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlencode

from integration.brokers import choice, containers, tls
from integration.brokers.ports import HOST, free_ports
from integration.brokers.process import ServerProcess
from integration.brokers.toolchain import BrokerError, fetch, missing, missing_java, progress
from integration.eventually import eventually
from integration.running import Running
from redelivery.core.tested_versions import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from integration.brokers.process import Server
    from integration.brokers.toolchain import Distribution


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker runs, as it sees that itself: on this machine, or inside a container."""

    home: str  # the folder of its distribution
    folder: str  # its settings, and its data
    bind: str  # the address that it listens on
    ports: Mapping[str, int]


class Broker(Running):
    """A real broker: same ports and same data over stop, kill and start again.

    It runs as a local process, or in a container where that is asked for and possible; `containerised` says
    which, and makes it the caller's choice.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    distribution: ClassVar[Distribution | None] = None  # what Maven fetches to run it as a process
    image: ClassVar[str]  # what it runs from in a container, unless the environment names another one
    image_home: ClassVar[str]  # the folder of the distribution in that image
    ready: ClassVar[str]  # the text in its log that says that it serves
    services: ClassVar[tuple[str, ...]]  # each gets a port: stomp, stomp+ssl, amqp, amqp+ssl, openwire, ...
    internal: ClassVar[tuple[str, ...]] = ()  # these get a port too, which only the broker itself uses
    dead_letter_queue: ClassVar[str]
    largest: ClassVar[int | None] = None  # bytes: what one message over AMQP may have, if there is a limit
    send_headers: ClassVar[dict[str, str]] = {}  # what a STOMP SEND to a queue needs here
    subscribe_headers: ClassVar[dict[str, str]] = {}  # what a STOMP SUBSCRIBE to a queue needs here
    stomp_host: ClassVar[str | None] = None  # the virtual host that a STOMP CONNECT must name here
    link_capabilities: ClassVar[tuple[str, ...]] = ()  # what an AMQP link to a queue must ask for here
    durable_links: ClassVar[bool] = False  # whether an AMQP link must be durable to get a durable queue
    browsable: ClassVar[bool] = True  # whether a JMS client can look at messages and leave them there
    jvm: ClassVar[tuple[str, ...]] = ("-Xmx512m",)  # options of a broker's JVM
    java_clients: ClassVar[tuple[str, ...]] = ()  # kinds of JavaClient that can talk to it; first = its own

    user = "tester"
    password = "secret"
    host = HOST

    def __init__(self, *, containerised: bool | None = None) -> None:
        """Choose ports and a data folder; nothing runs before `start()`."""
        names = (*self.services, *self.internal)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.folder = Path(tempfile.mkdtemp(prefix=f"redelivery-{self.name}-"))
        self.containerised = self.in_container() if containerised is None else containerised
        self._server: Server | None = None

    @property
    def release(self) -> tuple[int, ...]:
        """Major and minor version."""
        return numbers(self.version)[:2]

    @classmethod
    def unavailable(cls) -> str | None:
        """Why this broker cannot run on this machine, or None."""
        return (missing_java() or cls.lacks()) if cls.in_container() else cls.process_problem()

    @classmethod
    def process_problem(cls) -> str | None:
        """Why this broker cannot run as a local process, or None."""
        return missing(cls.distribution) if cls.distribution else missing_java()

    @classmethod
    def container_problem(cls) -> str | None:
        """Why this broker cannot run in a container, or None; pulls the image if it is not there."""
        return containers.problem(cls.image_name()) or missing_java() or cls.lacks()

    @classmethod
    def lacks(cls) -> str | None:
        """What it needs of this machine even in a container and does not find, or None."""
        return None

    @classmethod
    def in_container(cls) -> bool:
        """Whether a container is asked for, and possible."""
        return choice.containers_wanted(cls.name) and containers.problem(cls.image_name()) is None

    @classmethod
    def image_name(cls) -> str:
        """The image that a container of it runs from."""
        return choice.image(cls.name, cls.image)

    @classmethod
    def obtain(cls) -> None:
        """Fetch what is needed and not there yet; BrokerError when that fails."""
        if cls.distribution is not None and not cls.in_container():
            fetch(cls.distribution)

    @abstractmethod
    def files(self, place: Place) -> dict[str, bytes]:
        """Its settings: what is written into `place.folder` once, by relative path."""

    @abstractmethod
    def command(self, place: Place) -> list[str]:
        """The program that runs until the broker ends, and its arguments."""

    def environment(self, place: Place) -> dict[str, str]:
        """The variables that the program needs besides those it inherits."""
        return {}

    def destination(self, queue: str) -> str:
        """How a STOMP frame names this queue."""
        return queue

    def address(self, queue: str) -> str:
        """How an AMQP link names this queue."""
        return queue

    def jms_name(self, queue: str) -> str:
        """How a JMS client names this queue, which is there, or made when the client uses it."""
        return queue

    # What a queue is declared with where that is done.
    queue_arguments: ClassVar[Mapping[str, object]] = {}

    @property
    def declares(self) -> bool:
        """Whether an AMQP link finds only queues that were declared over management links."""
        return False

    @property
    def stomp_port(self) -> int:
        """The port that talks STOMP in clear."""
        return self.ports["stomp"]

    @property
    def stomps_port(self) -> int:
        """The port that talks STOMP over TLS."""
        return self.ports["stomp+ssl"]

    @property
    def qpid_url(self) -> str:
        """Where Qpid JMS connects."""
        return f"amqp://{HOST}:{self.ports['amqp']}"

    @property
    def ca_pem(self) -> Path:
        """The certificate to trust on the TLS ports."""
        return tls.certificate().ca_pem

    @property
    def running(self) -> bool:
        """Whether the process is there (a paused one is)."""
        return self._server is not None and self._server.running

    @property
    def pid(self) -> int:
        """The server's pid; of a local process also its process group."""
        return self.server.pid

    @property
    def server(self) -> Server:
        """What runs it; BrokerError before the first `start()`."""
        if self._server is None:
            raise BrokerError(f"{self.name} was never started")
        return self._server

    def uri(
        self,
        *,
        protocol: str | None = None,
        tls: bool = False,
        port: int | None = None,
        **options: object,
    ) -> str:
        """The connection URI with login, over "stomp" (where it speaks that) or "amqp".

        `options` are URI options, with `__` for the dots of an option's name.
        """
        service = protocol or self.services[0]
        service += "+ssl" if tls else ""
        scheme = {"amqp+ssl": "amqps"}.get(service, service)
        login = {"jms.userName": self.user, "jms.password": self.password}
        query = login | {name.replace("__", "."): str(value) for name, value in options.items()}
        return f"{scheme}://{self.host}:{port or self.ports[service]}?{urlencode(query)}"

    def start(self) -> Self:
        """Start (the first time or again, on the same ports and data) and wait until it serves."""
        if self._server is None:
            self._server = self._container() if self.containerised else self._process()
        where = f"in a container of {self.image_name()}" if self.containerised else self.version
        progress(f"starting {self.name} {where} on {self.ports}")
        self._server.start()
        eventually(self.answers, message=f"{self.name} answers on {self.ports}")
        return self

    def answers(self) -> bool:
        """Whether every port takes connections."""
        return all(_accepts(self.ports[service]) for service in self.services)

    def stop(self) -> None:
        """End in good order."""
        if self._server is not None:
            self._server.stop()

    def write_down(self) -> None:
        """Wait until what it has confirmed would outlive `kill()`; most write before they confirm."""

    def kill(self, *, at_once: bool = False) -> float:
        """SIGKILL, once what it has confirmed would outlive it; return when, on the monotonic clock.

        What a broker forgets of its own accord no client can save, so no test of a client depends on it. A test that
        has seen to that with `write_down()`, and kills in the middle of work, asks for it at once.
        """
        if not at_once:
            self.write_down()
        killed = time.monotonic()
        self.server.kill()
        return killed

    def restart(self) -> None:
        """Stop in good order, and start again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it: links stay open, nothing answers."""
        self.server.pause()

    def resume(self) -> None:
        """Let it go on."""
        self.server.resume()

    def close(self) -> None:
        """Stop, and remove its data."""
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _process(self) -> Server:
        home = fetch(self.distribution) if self.distribution else ""
        place = Place(str(home), str(self.folder), HOST, self.ports)
        for name, content in self.files(place).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        log = self.folder / f"{self.name}.log"
        return ServerProcess(self.command(place), log=log, ready=self.ready, env=self.environment(place))

    def _container(self) -> Server:
        place = Place(self.image_home, containers.FOLDER, "0.0.0.0", self.ports)
        return containers.ServerContainer(
            self.image_name(),
            self.command(place),
            ports=[self.ports[service] for service in self.services],
            files=self.files(place),
            env=self.environment(place),
            ready=self.ready,
        )


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
