"""Base of the brokers of the tests: the same operations for each kind, as a process or in a container."""

from __future__ import annotations

import os
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
from redelivery.brokers.facts import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from integration.brokers.process import Server
    from integration.brokers.toolchain import Distribution


@dataclass(frozen=True, slots=True)
class Place:
    """Folders and address of a broker, as seen by the broker: on this machine, or inside a container."""

    home: str  # the folder of its distribution
    folder: str  # its settings, and its data
    bind: str  # the address that it listens on
    ports: Mapping[str, int]


class Broker(Running):
    """A real broker, which keeps its ports and its data over stop, kill and restart.

    It runs as a local process, or in a container if that is requested and possible. The caller can choose with
    `containerised`.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    distribution: ClassVar[Distribution | None] = None  # from Maven, for a local process
    image: ClassVar[str]  # of a container, unless the environment names another one
    image_home: ClassVar[str]  # the folder of the distribution in that image
    ready: ClassVar[str]  # a log line that means that it serves
    services: ClassVar[tuple[str, ...]]  # each gets a port: stomp, stomp+ssl, amqp, amqp+ssl, openwire, ...
    internal: ClassVar[tuple[str, ...]] = ()  # these also get a port, for the broker itself
    dead_letter_queue: ClassVar[str]
    largest: ClassVar[int | None] = None  # most bytes of a message over AMQP; None: no limit
    send_headers: ClassVar[dict[str, str]] = {}  # required in a STOMP SEND to a queue
    subscribe_headers: ClassVar[dict[str, str]] = {}  # required in a STOMP SUBSCRIBE to a queue
    stomp_host: ClassVar[str | None] = None  # virtual host, required in CONNECT
    link_capabilities: ClassVar[tuple[str, ...]] = ()  # required in an AMQP link to a queue
    durable_links: ClassVar[bool] = False  # True if only a durable AMQP link makes a durable queue
    browsable: ClassVar[bool] = True  # True if a JMS client can browse a queue
    jvm: ClassVar[tuple[str, ...]] = ("-Xmx512m",)  # options of a broker's JVM
    # Seconds after which it ends an AMQP connection without heart-beats; None: its own default.
    idle: ClassVar[int | None] = None
    java_clients: ClassVar[tuple[str, ...]] = ()  # kinds of JavaClient that can talk to it; first = its own

    user = "tester"
    password = "secret"
    host = HOST

    def __init__(self, *, containerised: bool | None = None) -> None:
        """Choose ports and a data folder; nothing runs before `start()`."""
        names = (*self.services, *self.internal)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        # In the folder of a run of the tests, which is removed with it.
        self.folder = Path(
            tempfile.mkdtemp(prefix=f"redelivery-{self.name}-", dir=os.environ.get("REDELIVERY_TEST_RUN"))
        )
        self.containerised = self.in_container() if containerised is None else containerised
        self._server: Server | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return what another process of the run needs to use it: all but the server, which stays with its parent."""
        return {**self.__dict__, "_server": None}

    @property
    def release(self) -> tuple[int, ...]:
        """Major and minor version."""
        return numbers(self.version)[:2]

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why this broker cannot run on this machine, or None."""
        return (missing_java() or cls.lacks()) if cls.in_container() else cls.process_problem()

    @classmethod
    def process_problem(cls) -> str | None:
        """Return why this broker cannot run as a local process, or None."""
        return missing(cls.distribution) if cls.distribution else missing_java()

    @classmethod
    def container_problem(cls) -> str | None:
        """Return why this broker cannot run in a container, or None. Pull the image if it is missing."""
        return containers.problem(cls.image_name()) or missing_java() or cls.lacks()

    @classmethod
    def lacks(cls) -> str | None:
        """Return the missing parts of this machine that it needs even in a container, or None."""
        return None

    @classmethod
    def in_container(cls) -> bool:
        """True if a container is requested and possible."""
        return choice.containers_wanted(cls.name) and containers.problem(cls.image_name()) is None

    @classmethod
    def image_name(cls) -> str:
        """Return the name of its container image."""
        return choice.image(cls.name, cls.image)

    @classmethod
    def obtain(cls) -> None:
        """Fetch the missing files. Raises BrokerError if that fails."""
        if cls.distribution is not None and not cls.in_container():
            fetch(cls.distribution)

    @abstractmethod
    def files(self, place: Place) -> dict[str, bytes]:
        """Return its settings: files that are written into `place.folder` once, by relative path."""

    @abstractmethod
    def command(self, place: Place) -> list[str]:
        """Return the program that runs until the broker ends, and its arguments."""

    def environment(self, place: Place) -> dict[str, str]:
        """Return the variables that the program needs, in addition to those that it inherits."""
        return {}

    def destination(self, queue: str) -> str:
        """Return the name of this queue in a STOMP frame."""
        return queue

    def address(self, queue: str) -> str:
        """Return the name of this queue in an AMQP link."""
        return queue

    def jms_name(self, queue: str) -> str:
        """Return the name of this queue for a JMS client. The queue exists, or is created at its first use."""
        return queue

    # Arguments of a queue that is declared.
    queue_arguments: ClassVar[Mapping[str, object]] = {}

    @property
    def declares(self) -> bool:
        """True if an AMQP link finds only queues that were declared over management links."""
        return False

    @property
    def stomp_port(self) -> int:
        """The port of STOMP without TLS."""
        return self.ports["stomp"]

    @property
    def stomps_port(self) -> int:
        """The port of STOMP over TLS."""
        return self.ports["stomp+ssl"]

    @property
    def qpid_url(self) -> str:
        """URL of Qpid JMS."""
        return f"amqp://{HOST}:{self.ports['amqp']}"

    @property
    def ca_pem(self) -> Path:
        """The certificate to trust on the TLS ports."""
        return tls.certificate().ca_pem

    @property
    def running(self) -> bool:
        """True if the process exists, also if it is paused."""
        return self._server is not None and self._server.running

    @property
    def pid(self) -> int:
        """The server's pid; of a local process also its process group."""
        return self.server.pid

    @property
    def server(self) -> Server:
        """The process or the container. Raises BrokerError before the first `start()`."""
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
        """Return the connection URI with log-in, over "stomp" (if the broker has it) or "amqp".

        `options` are URI options, with `__` for the dots in an option's name.
        """
        service = protocol or self.services[0]
        service += "+ssl" if tls else ""
        scheme = {"amqp+ssl": "amqps"}.get(service, service)
        login = {"jms.userName": self.user, "jms.password": self.password}
        query = login | {name.replace("__", "."): str(value) for name, value in options.items()}
        return f"{scheme}://{self.host}:{port or self.ports[service]}?{urlencode(query)}"

    def start(self) -> Self:
        """Start, or restart with the same ports and data, and wait until it serves."""
        if self._server is None:
            self._server = self._container() if self.containerised else self._process()
        where = f"in a container of {self.image_name()}" if self.containerised else self.version
        progress(f"starting {self.name} {where} on {self.ports}")
        deadline = time.monotonic() + longest_start()
        self._server.start(longest_start())
        try:
            left = max(1.0, deadline - time.monotonic())
            eventually(self.answers, left, message=f"{self.name} answers on {self.ports}")
        except AssertionError as error:
            raise BrokerError(f"{self.name} has started, but does not serve: {error}") from error
        return self

    def answers(self) -> bool:
        """True if every port accepts connections."""
        return all(_accepts(self.ports[service]) for service in self.services)

    def stop(self) -> None:
        """End with a clean shutdown."""
        if self._server is not None:
            self._server.stop()

    def write_down(self) -> None:
        """Wait until all confirmed messages would survive `kill()`. Most brokers write before they confirm."""

    def kill(self, *, at_once: bool = False) -> float:
        """SIGKILL, when all confirmed messages would survive it; return the time, of the monotonic clock.

        A client cannot save messages that a broker confirms and loses: no test of a client depends on them. With
        `at_once` there is no wait: for a test that has called `write_down()` itself, and kills in the middle of work.
        """
        if not at_once:
            self.write_down()
        killed = time.monotonic()
        self.server.kill()
        return killed

    def restart(self) -> None:
        """Stop with a clean shutdown, and start again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, but get no answer."""
        self.server.pause()

    def resume(self) -> None:
        """Continue after `pause()`."""
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


def longest_start() -> float:
    """Return the seconds within which a broker must serve: REDELIVERY_BROKER_START, or two minutes."""
    return float(os.environ.get("REDELIVERY_BROKER_START") or 120)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
