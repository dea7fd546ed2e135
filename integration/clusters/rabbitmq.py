"""Three nodes of RabbitMQ 4 that form a cluster, with a port mapper and a cookie of their own."""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from integration.brokers.debian_root import INSIDE
from integration.brokers.ports import free_ports
from integration.brokers.process import ServerProcess
from integration.brokers.rabbitmq import RabbitMQ4
from integration.brokers.toolchain import BrokerError
from integration.clusters.cluster import Cluster
from integration.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from integration.brokers.base import Place
    from integration.brokers.process import Server

__all__ = ["RabbitCluster", "RabbitNode"]

SIZE = 3
_COOKIE = "redelivery-integration-cluster"
_MAPPER = "the port mapper answers"
# Not in a node's process group: the other nodes need it when that one is killed.
_MAP = f"""cd "$HOME"
epmd -port "$ERL_EPMD_PORT" &
until epmd -port "$ERL_EPMD_PORT" -names >epmd.names 2>&1; do sleep 0.1; done
echo {_MAPPER}
wait
"""
_CONFIG = """listeners.tcp.1 = {bind}:{amqp}
stomp.listeners.tcp.1 = {bind}:{stomp}
management.tcp.ip = {bind}
management.tcp.port = {management}
cluster_formation.peer_discovery_backend = classic_config
{members}
default_user = {user}
default_pass = {password}
log.console = true
log.console.level = info
log.file = false
# A machine with little free disk would block every producer.
disk_free_limit.absolute = 50MB
"""
# Three nodes on a machine of two processors: few threads, which do not spin.
_ERLANG = "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none"
_QUORUM = {"x-queue-type": "quorum"}


class RabbitNode(RabbitMQ4):
    """One node of the cluster: AMQP 1.0, STOMP, and the management over HTTP; without TLS."""

    services: ClassVar[tuple[str, ...]] = ("stomp", "amqp", "management")
    internal: ClassVar[tuple[str, ...]] = ("distribution",)
    # A queue is declared by the library, with or without these: a reader must not ask for a kind.
    queue_arguments: ClassVar[Mapping[str, object]] = {}
    send_headers: ClassVar[dict[str, str]] = {}
    subscribe_headers: ClassVar[dict[str, str]] = {}

    def __init__(self, number: int, mapper: int) -> None:
        """`mapper`: port of the cluster's port mapper."""
        super().__init__(containerised=False)
        self.node = f"n{number}@localhost"
        self._mapper = mapper

    def files(self, place: Place) -> dict[str, bytes]:
        """Return the node's configuration."""
        members = [
            f"cluster_formation.classic_config.nodes.{number} = n{number}@localhost"
            for number in range(1, SIZE + 1)
        ]
        config = _CONFIG.format(
            bind=place.bind,
            **{name: place.ports[name] for name in self.services},
            members="\n".join(members),
            user=self.user,
            password=self.password,
        )
        start = f"set -e\ncd {shlex.quote(place.folder)}\nexec rabbitmq-server\n"
        return {
            "inside.sh": INSIDE.encode(),
            "start.sh": start.encode(),
            "rabbitmq.conf": config.encode(),
            "advanced.config": b"[].\n",
            "enabled_plugins": b"[rabbitmq_stomp,rabbitmq_management].\n",
            ".erlang.cookie": _COOKIE.encode(),
        }

    def environment(self, place: Place) -> dict[str, str]:
        """Return variables that separate this cluster from any other node on the machine."""
        return {
            **super().environment(place),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
        }

    def mapper(self, place: Place) -> int:
        """Return the port of the cluster's port mapper."""
        return self._mapper

    def write_down(self) -> None:
        """Do nothing: this version has no Mnesia, and has written what it has confirmed."""

    def api(self, path: str, method: str = "GET", body: object = None, timeout: float = 10.0) -> Any:
        """Ask the management of this node. Raises BrokerError if it refuses, or does not answer."""
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        request = urllib.request.Request(
            f"http://{self.host}:{self.ports['management']}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                text = answer.read()
        except OSError as error:
            raise BrokerError(f"{self.node}: {method} {path}: {error}") from error
        return json.loads(text) if text else None

    def _process(self) -> Server:
        made = super()._process()
        # Erlang refuses a cookie that others may read.
        (self.folder / ".erlang.cookie").chmod(0o400)
        return made


class RabbitCluster(Cluster):
    """Three nodes, the log-in of the other tests, and the user `stranger`, who may only enter the virtual host."""

    name = "rabbitmq"
    broker = RabbitNode
    nodes: Sequence[RabbitNode]

    def __init__(self) -> None:
        (self._port,) = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="redelivery-epmd-"))
        self.nodes = tuple(RabbitNode(number, self._port) for number in range(1, SIZE + 1))
        self._mapper: ServerProcess | None = None

    def start(self) -> Self:
        """Start the port mapper and all nodes that do not run."""
        if self._mapper is None:
            self._mapper = self._map()
        if not self._mapper.running:
            self._mapper.start(30.0)
        super().start()
        node = self.nodes[0]
        eventually(lambda: len(self.members()) == SIZE, message="all nodes are members")
        node.api(f"users/{node.stranger}", "PUT", {"password": node.password, "tags": ""})
        node.api(f"permissions/%2F/{node.stranger}", "PUT", dict.fromkeys(("configure", "write", "read"), ""))
        return self

    def close(self) -> None:
        """End all nodes and the port mapper."""
        super().close()
        if self._mapper is not None:
            self._mapper.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def options(self, protocol: str, queues: str) -> Mapping[str, str]:
        """Return the options of a kind of queues.

        `classic`: the defaults. `quorum`: for the queue and the dead letters. `mixed`: for the queue only. `limited`:
        with the broker's limit of deliveries. `brief`: what a dead node held comes back after 3 s.
        """
        if queues == "classic":
            return {}
        more = {"brief": {"x-consumer-disconnected-timeout": "3000"}}.get(queues, {})
        # Over STOMP this argument cannot be given.
        unlimited = {"x-delivery-limit": "-1"} if protocol == "amqp" and queues != "limited" else {}
        found = {"redelivery__queueArguments": _listed(_QUORUM | unlimited | more)}
        return found if queues == "mixed" else found | {"redelivery__deadLetterArguments": _listed(_QUORUM)}

    def prepare(self, queue: str) -> None:
        """Declare a classic queue at the first node."""
        self.nodes[0].api(f"queues/%2F/{quote(queue, safe='')}", "PUT", {"durable": True, "arguments": {}})

    def members(self) -> list[str]:
        """Return the names of the nodes that run, as a node that answers knows them."""
        with suppress(BrokerError):
            return [node["name"] for node in self.any_api("nodes") if node.get("running")]
        return []

    def any_api(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Ask the management of the first node that answers."""
        errors: list[str] = []
        for node in self.nodes:
            if node.running:
                try:
                    return node.api(path, method, body)
                except BrokerError as error:
                    errors.append(str(error))
        raise BrokerError("; ".join(errors) or "no node runs")

    def serving(self, queue: str) -> RabbitNode:
        """Return the node that has a classic queue, or the leader of a quorum queue."""
        found = self.any_api(f"queues/%2F/{quote(queue, safe='')}")
        name = found.get("leader") or found["node"]
        return next(node for node in self.nodes if node.node == name)

    def lead(self, queue: str, node: RabbitNode) -> None:
        """Make a node the leader of a quorum queue."""
        name = f'rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)'
        move = f"{{ok, Q}} = rabbit_amqqueue:lookup({name}), rabbit_quorum_queue:transfer_leadership(Q, '{node.node}')."
        node.control("eval", move)

    def part(self, alone: RabbitNode, *, healed: bool = False) -> None:
        """Separate a node from the others, which then refuse each other's cookie; `healed`: let it come back."""
        for other in self.nodes:
            if other is alone:
                continue
            for one, two in ((alone, other), (other, alone)):
                cookie = _COOKIE if healed else f"wrong-{one.node.partition('@')[0]}"
                cut = "" if healed else f", erlang:disconnect_node('{two.node}')"
                one.control("eval", f"erlang:set_cookie('{two.node}', '{cookie}'){cut}.")

    def _map(self) -> ServerProcess:
        first = self.nodes[0]
        folder = str(self._folder)
        (self._folder / "inside.sh").write_text(INSIDE, encoding="utf-8")
        (self._folder / "map.sh").write_text(_MAP, encoding="utf-8")
        return ServerProcess(
            [*first.inside(folder), "sh", f"{folder}/map.sh"],
            log=self._folder / "epmd.log",
            ready=_MAPPER,
            env={
                "PATH": first.search_path(),
                "HOME": folder,
                "ERL_EPMD_PORT": str(self._port),
                "ERL_EPMD_ADDRESS": first.host,
            },
        )


def _listed(arguments: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{value}" for name, value in arguments.items())
