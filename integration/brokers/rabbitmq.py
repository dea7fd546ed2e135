"""RabbitMQ, as a node of its own."""

from __future__ import annotations

import copy
import json
import os
import shlex
import shutil
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from integration.brokers import tls
from integration.brokers.base import Broker, Place
from integration.brokers.debian_root import INSIDE, DebianRoot, installed
from integration.brokers.toolchain import missing_java
from integration.brokers.versions import newest
from integration.brokers.versions import version as version_of
from integration.raw_amqp import RawAmqp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

# The programs in /usr/sbin change the user, which then has no right to the files of a test's node.
_DEBIAN = "/usr/lib/rabbitmq/bin"

# An epmd in the node's process group: the one that a node starts would outlive it as a daemon.
_START = """set -e
cd {folder}
epmd -port "$ERL_EPMD_PORT" &
until epmd -port "$ERL_EPMD_PORT" -names >epmd.names 2>&1; do sleep 0.1; done
exec rabbitmq-server
"""

_CONFIG = """listeners.tcp.1 = {bind}:{amqp}
listeners.ssl.1 = {bind}:{amqps}
stomp.listeners.tcp.1 = {bind}:{stomp}
stomp.listeners.ssl.1 = {bind}:{stomps}
ssl_options.cacertfile = {folder}/{certificate}
ssl_options.certfile = {folder}/{certificate}
ssl_options.keyfile = {folder}/{key}
ssl_options.verify = verify_none
load_definitions = {folder}/definitions.json
consumer_timeout = {consumer_timeout}
max_message_size = {largest}
heartbeat = {heartbeat}
log.console = true
log.console.level = info
log.file = false
# A machine with little free disk would block every producer.
disk_free_limit.absolute = 50MB
"""


class RabbitMQ(Broker):
    """RabbitMQ with the plug-ins for STOMP and AMQP 1.0, log-in required.

    No user may use `denied.*`. Only queues below `dlx.` have a dead-letter exchange, which leads to the queue DLQ. The
    user `stranger` may log in, but has no other right. There is a second virtual host, which also has a DLQ.
    """

    name = "rabbitmq"
    suite: ClassVar[str] = version_of("rabbitmq")
    """Debian suite of its packages; empty for the RabbitMQ that is installed on this machine."""
    version = DebianRoot(suite).version or suite if suite else installed()
    image = "rabbitmq:3.10"
    image_home = ""
    ready = "Server startup complete"
    services: ClassVar[tuple[str, ...]] = ("stomp", "stomp+ssl", "amqp", "amqp+ssl")
    internal: ClassVar[tuple[str, ...]] = ("epmd", "distribution")
    dead_letter_queue = "DLQ"
    stomp_host = "/"
    durable_links = True
    browsable = False
    largest = 32 << 20
    java_clients = ("qpid",)

    node = "redelivery@localhost"
    stranger = "stranger"  # has the same password, and only the right to enter "/"
    virtual_hosts = ("/", "second")
    virtual_host = ""  # that AMQP clients of the tests enter; empty: the default one

    def __init__(
        self,
        *,
        containerised: bool | None = None,
        consumer_timeout_ms: int = 1_800_000,
        tick_ms: int = 60_000,
    ) -> None:
        """Set the time after which a consumer loses its deliveries, and the interval `tick_ms` of that check."""
        super().__init__(containerised=containerised)
        self.consumer_timeout_ms = consumer_timeout_ms
        self.tick_ms = tick_ms
        self._declared: set[str] = set()

    @property
    def declares(self) -> bool:
        """True for RabbitMQ 4: queues are declared over its management links."""
        return not self.version.startswith("3.")

    @classmethod
    def process_problem(cls) -> str | None:
        """Return why its programs are neither installed nor can be fetched, or None."""
        if cls.suite:
            return DebianRoot.problem() or missing_java()
        path = _search_path(cls.suite)
        absent = [
            tool for tool in ("rabbitmq-server", "epmd", "erl") if shutil.which(tool, path=path) is None
        ]
        if absent:
            return f"no {', '.join(absent)} on the PATH (Debian's package rabbitmq-server has all of them)"
        return missing_java()

    @classmethod
    def obtain(cls) -> None:
        """Unpack the packages of another suite."""
        if cls.suite:
            root = DebianRoot(cls.suite)
            root.obtain()
            cls.version = root.version

    def destination(self, queue: str) -> str:
        """Return the address with the prefix of a queue that is declared if it is missing."""
        return f"/queue/{queue}"

    def address(self, queue: str) -> str:
        """Return the address of a queue, which must exist on RabbitMQ 4; before, a durable link declares it durable."""
        return f"/queues/{quote(queue, safe='')}" if self.declares else f"/queue/{queue}"

    def jms_name(self, queue: str) -> str:
        """Return the name of an existing queue: Qpid JMS cannot create a durable one; a missing one loses messages."""
        if queue not in self._declared:
            with RawAmqp(self) as raw:
                raw.declare(queue)
            self._declared.add(queue)
        return self.address(queue) if self.declares else f"/amq/queue/{queue}"

    @property
    def qpid_url(self) -> str:
        """Return a URL with short time-outs for missing answers, and without drain, which ends the session."""
        local = "jms.receiveLocalOnly=true&jms.receiveNoWaitLocalOnly=true"
        waits = "jms.closeTimeout=300&jms.requestTimeout=5000&jms.sendTimeout=5000"
        host = f"&amqp.vhost=vhost:{self.virtual_host}" if self.virtual_host else ""
        return f"{super().qpid_url}?{local}&{waits}{host}"

    def files(self, place: Place) -> dict[str, bytes]:
        """Return the node's configuration."""
        plugins = ("rabbitmq_stomp",) if self.declares else ("rabbitmq_stomp", "rabbitmq_amqp1_0")
        config = _CONFIG.format(
            bind=place.bind,
            folder=place.folder,
            certificate=tls.CERTIFICATE,
            key=tls.PRIVATE_KEY,
            amqp=place.ports["amqp"],
            amqps=place.ports["amqp+ssl"],
            stomp=place.ports["stomp"],
            stomps=place.ports["stomp+ssl"],
            consumer_timeout=self.consumer_timeout_ms,
            largest=self.largest,
            heartbeat=60 if self.idle is None else self.idle,  # the broker's own default
        )
        return {
            "inside.sh": INSIDE.encode(),
            "start.sh": _START.format(folder=shlex.quote(place.folder)).encode(),
            "rabbitmq.conf": config.encode(),
            "advanced.config": f"[{{rabbit, [{{channel_tick_interval, {self.tick_ms}}}]}}].\n".encode(),
            "enabled_plugins": f"[{','.join(plugins)}].\n".encode(),
            "definitions.json": json.dumps(self._definitions(), indent=1).encode(),
            tls.CERTIFICATE: tls.certificate().ca_pem.read_bytes(),
            tls.PRIVATE_KEY: tls.private_key().read_bytes(),
        }

    def command(self, place: Place) -> list[str]:
        """Return the command of the script that starts the port mapper and the node."""
        return [*self.inside(place.folder), "sh", f"{place.folder}/start.sh"]

    def search_path(self) -> str:
        """Return the search path of its programs."""
        return _search_path(self.suite)

    def inside(self, folder: str) -> list[str]:
        """Return the command that enters the folder of another suite; empty for the programs of this machine."""
        if not self.suite or self.containerised:
            return []
        return ["sh", f"{folder}/inside.sh", str(DebianRoot(self.suite).folder), folder]

    def environment(self, place: Place) -> dict[str, str]:
        """Return variables that separate this node from any other one on the machine."""
        folder = place.folder
        variables = {
            "PATH": self.search_path() if not self.containerised else "",
            "LANG": "C.UTF-8",
            "HOME": folder,  # for the cookie
            "ERL_EPMD_PORT": str(self.mapper(place)),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(place.ports["distribution"]),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_PID_FILE": f"{folder}/rabbitmq.pid",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "detached": "true",  # the script becomes the node, and gets the signals
        }
        return {name: value for name, value in variables.items() if value}

    def mapper(self, place: Place) -> int:
        """Return the port of its port mapper."""
        return place.ports["epmd"]

    def within(self, virtual_host: str) -> Self:
        """Return the same broker, whose AMQP clients enter this virtual host: it has queues of its own."""
        found = copy.copy(self)
        found.virtual_host, found._declared = virtual_host, set()
        return found

    def write_down(self) -> None:
        """Make Mnesia write its log: a queue is on the disk only up to two seconds after its declaration.

        A SIGKILL in this time loses the queue, with its confirmed persistent messages.
        """
        self.control("eval", "mnesia:sync_log().")

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on the node, and return its output."""
        return self.server.execute(
            [*self.inside(str(self.folder)), "rabbitmqctl", "--node", self.node, *arguments]
        )

    def _definitions(self) -> dict[str, Any]:
        allowed = r"^(?!denied\.).*"
        rights = dict.fromkeys(("configure", "write", "read"), allowed)
        names: tuple[tuple[str, list[str]], ...] = ((self.user, ["administrator"]), (self.stranger, []))
        return {
            "users": [{"name": name, "password": self.password, "tags": tags} for name, tags in names],
            "vhosts": [{"name": name} for name in self.virtual_hosts],
            "permissions": [
                *({"user": self.user, "vhost": name, **rights} for name in self.virtual_hosts),
                {"user": self.stranger, "vhost": "/", **dict.fromkeys(rights, "")},
            ],
            "queues": [
                {
                    "name": "DLQ",
                    "vhost": name,
                    "durable": True,
                    "auto_delete": False,
                    "arguments": {**self.queue_arguments},
                }
                for name in self.virtual_hosts
            ],
            "policies": [
                {
                    "vhost": name,
                    "name": "dead-letters",
                    "pattern": r"^dlx\.",
                    "apply-to": "queues",
                    "priority": 0,
                    "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "DLQ"},
                }
                for name in self.virtual_hosts
            ],
        }


class RabbitMQ4(RabbitMQ):
    """The newest RabbitMQ of Debian, independent of the version in the other tests; with quorum queues."""

    name = "rabbitmq4"
    suite = newest("rabbitmq")
    queue_arguments: ClassVar[Mapping[str, object]] = {"x-queue-type": "quorum"}
    send_headers: ClassVar[dict[str, str]] = {"x-queue-type": "quorum"}
    subscribe_headers: ClassVar[dict[str, str]] = {
        "x-queue-type": "quorum",
        "durable": "true",
        "auto-delete": "false",
    }
    version = DebianRoot(suite).version or suite
    image = "rabbitmq:4.3"


def _search_path(suite: str) -> str:
    if suite:
        # Outside of the folder only `unshare` is needed, which enters it.
        return f"{DebianRoot(suite).programs}:/usr/bin:/bin:/usr/sbin:/sbin"
    return f"{_DEBIAN}:{os.environ.get('PATH', os.defpath)}"
