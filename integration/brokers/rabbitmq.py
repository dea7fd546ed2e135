"""RabbitMQ, as a node of its own."""

from __future__ import annotations

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

# Those in /usr/sbin change the user, and then own nothing of a node of ours.
_DEBIAN = "/usr/lib/rabbitmq/bin"

_NODE = "redelivery@localhost"

# An epmd of its own in the node's process group: the one that a node starts would outlive it as a daemon.
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
log.console = true
log.console.level = info
log.file = false
# A machine with little free disk would block every producer.
disk_free_limit.absolute = 50MB
"""


class RabbitMQ(Broker):
    """RabbitMQ with the plug-ins for STOMP and AMQP 1.0, login required.

    Nobody may touch `denied.*`; only queues below `dlx.` have a dead-letter exchange, which leads to the queue
    DLQ; `stranger` may log in and touch nothing; there is a second virtual host, which holds a DLQ too.
    """

    name = "rabbitmq"
    suite: ClassVar[str] = version_of("rabbitmq")
    """The suite of Debian that it is taken from; empty: what is installed on this machine."""
    version = DebianRoot(suite).version or suite if suite else installed()
    image = "rabbitmq:3.10"
    image_home = ""
    ready = "Server startup complete"
    services = ("stomp", "stomp+ssl", "amqp", "amqp+ssl")
    internal = ("epmd", "distribution")
    dead_letter_queue = "DLQ"
    stomp_host = "/"
    durable_links = True
    browsable = False
    largest = 32 << 20
    java_clients = ("qpid",)

    stranger = "stranger"  # has the same password, and no right but to enter "/"
    virtual_hosts = ("/", "second")

    def __init__(
        self,
        *,
        containerised: bool | None = None,
        consumer_timeout_ms: int = 1_800_000,
        tick_ms: int = 60_000,
    ) -> None:
        """A consumer loses its deliveries `consumer_timeout_ms` after they came, looked at every `tick_ms`."""
        super().__init__(containerised=containerised)
        self.consumer_timeout_ms = consumer_timeout_ms
        self.tick_ms = tick_ms
        self._declared: set[str] = set()

    @property
    def declares(self) -> bool:
        """RabbitMQ 4 does: queues are declared over its management links."""
        return not self.version.startswith("3.")

    @classmethod
    def process_problem(cls) -> str | None:
        """Whether its programs are installed, or can be had."""
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
        """With the prefix of a queue that is declared when it is not there."""
        return f"/queue/{queue}"

    def address(self, queue: str) -> str:
        """Of a queue that is there on RabbitMQ 4; before, a durable link makes it, and a durable queue."""
        return f"/queues/{quote(queue, safe='')}" if self.declares else f"/queue/{queue}"

    def jms_name(self, queue: str) -> str:
        """A queue that exists: Qpid JMS cannot ask for a durable one, and what goes to a missing one is gone."""
        if queue not in self._declared:
            with RawAmqp(self) as raw:
                raw.declare(queue)
            self._declared.add(queue)
        return self.address(queue) if self.declares else f"/amq/queue/{queue}"

    @property
    def qpid_url(self) -> str:
        """With short waits for answers that never come, and without drain, which ends the session here."""
        local = "jms.receiveLocalOnly=true&jms.receiveNoWaitLocalOnly=true"
        waits = "jms.closeTimeout=300&jms.requestTimeout=5000&jms.sendTimeout=5000"
        return f"{super().qpid_url}?{local}&{waits}"

    def files(self, place: Place) -> dict[str, bytes]:
        """The node's configuration."""
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
        """The script that starts the port mapper and the node."""
        return [*self._inside(place.folder), "sh", f"{place.folder}/start.sh"]

    def _inside(self, folder: str) -> list[str]:
        """What runs a command among the programs of another suite; nothing for those of this machine."""
        if not self.suite or self.containerised:
            return []
        return ["sh", f"{folder}/inside.sh", str(DebianRoot(self.suite).folder), folder]

    def environment(self, place: Place) -> dict[str, str]:
        """Everything of this node apart from any other one on the machine."""
        folder = place.folder
        variables = {
            "PATH": _search_path(self.suite) if not self.containerised else "",
            "LANG": "C.UTF-8",
            "HOME": folder,  # where the cookie is
            "ERL_EPMD_PORT": str(place.ports["epmd"]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": _NODE,
            "RABBITMQ_DIST_PORT": str(place.ports["distribution"]),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_PID_FILE": f"{folder}/rabbitmq.pid",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "detached": "true",  # so the script becomes the node, which then gets the signals itself
        }
        return {name: value for name, value in variables.items() if value}

    def write_down(self) -> None:
        """Have Mnesia write its log: a queue is declared up to two seconds before it is on the disk.

        A SIGKILL within them forgets the queue, with the persistent messages in it that were confirmed.
        """
        self.control("eval", "mnesia:sync_log().")

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on the node, and return what it printed."""
        return self.server.execute(
            [*self._inside(str(self.folder)), "rabbitmqctl", "--node", _NODE, *arguments]
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
                    "vhost": "/",
                    "name": "dead-letters",
                    "pattern": r"^dlx\.",
                    "apply-to": "queues",
                    "priority": 0,
                    "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "DLQ"},
                }
            ],
        }


class RabbitMQ4(RabbitMQ):
    """The newest RabbitMQ that Debian has, whatever version the other tests run; with quorum queues."""

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
        # Outside, only what enters the folder is looked for: unshare.
        return f"{DebianRoot(suite).programs}:/usr/bin:/bin:/usr/sbin:/sbin"
    return f"{_DEBIAN}:{os.environ.get('PATH', os.defpath)}"
