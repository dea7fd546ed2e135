"""A broker of several nodes: all on this machine, each a local process of its own, started and ended by its pid."""

from __future__ import annotations

from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlencode

from integration.brokers.base import Broker
from integration.brokers.toolchain import BrokerError
from integration.eventually import eventually
from integration.peers import taken
from integration.running import Running

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Self

__all__ = ["Cluster", "PairNode", "serves"]


class Cluster(Running):
    """Nodes of one broker, that keep their ports and data over kills and restarts."""

    name: ClassVar[str]
    broker: ClassVar[type[Broker]]
    """Kind of its nodes."""
    separate: ClassVar[bool] = False
    """True if a node has messages that cannot be taken from the other ones."""

    nodes: Sequence[Broker]

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why it cannot run on this machine, or None."""
        return cls.broker.process_problem()

    @classmethod
    def obtain(cls) -> None:
        """Fetch the missing files. Raises BrokerError if that fails."""
        if (reason := cls.unavailable()) is not None:
            raise BrokerError(reason)
        cls.broker.obtain()

    def start(self) -> Self:
        """Start all nodes that do not run, and wait until the cluster serves; continue those that are frozen."""
        for node in self.nodes:
            _resumed(node)
        self.start_nodes([node for node in self.nodes if not node.running])
        return self

    def start_nodes(self, nodes: Iterable[Broker]) -> None:
        """Start nodes at once, as some of them wait for each other, and wait until all serve."""
        at_once = list(nodes)
        if not at_once:
            return
        with ThreadPoolExecutor(len(at_once)) as pool:
            for started in [pool.submit(node.start) for node in at_once]:
                started.result()

    def close(self) -> None:
        """End all nodes, and remove their data."""
        for node in self.nodes:
            _resumed(node)
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for closed in [pool.submit(_ended, node) for node in self.nodes]:
                closed.result()

    def uri(
        self,
        protocol: str,
        *,
        first: int = 0,
        ports: Sequence[int] = (),
        **options: object,
    ) -> str:
        """Return the URI with the addresses of all nodes in their order, that of node `first` before the others.

        `ports`: those of proxies, one for each node. `options` are URI options, with `__` for the dots in a name.
        """
        login = {"jms.userName": self.broker.user, "jms.password": self.broker.password}
        query = {"randomize": "false", **login}
        query |= {name.replace("__", "."): str(value) for name, value in options.items()}
        own = ports or [node.ports[protocol] for node in self.nodes]
        places = [f"{protocol}://{self.broker.host}:{port}" for port in own]
        return f"failover:({','.join([*places[first:], *places[:first]])})?{urlencode(query)}"

    def options(self, protocol: str, queues: str) -> Mapping[str, str]:
        """Return the options of the URI that make queues of this kind; a kind without a name is the broker's own."""
        assert not queues, f"{self.name} has one kind of queues"
        return {}

    def prepare(self, queue: str) -> None:
        """Make a queue at the first node, before a consumer or a dead letter makes it elsewhere."""

    def take(self, protocol: str, queue: str, expected: int = 0) -> list[bytes]:
        """Take all messages of a queue, also those that are due soon; where each node has its own, from all."""
        nodes = [node for node in self.nodes if node.running and serves(node)]
        if not self.separate:
            return taken(nodes[0], protocol, queue, expected)
        return [body for node in nodes for body in taken(node, protocol, queue)]

    @abstractmethod
    def serving(self, queue: str) -> Broker:
        """Return the node that has a queue: its leader, or the active node of a pair."""


class PairNode(Broker):
    """One of two nodes that share a store: it listens only while it has the lock."""

    _patient = False

    def stand_by(self) -> Self:
        """Start, and do not wait until it serves: the other node has the lock, or may get it."""
        self._patient = True
        try:
            return self.start()
        finally:
            self._patient = False

    def answers(self) -> bool:
        """True if it serves, or need not serve yet."""
        return self._patient or serves(self)

    def active(self, timeout: float = 90.0) -> None:
        """Wait until it serves."""
        eventually(lambda: serves(self), timeout, message=f"{self.folder.name} serves")


def serves(node: Broker) -> bool:
    """Return True if each port of a node accepts connections."""
    return Broker.answers(node)


def _resumed(node: Broker) -> None:
    if node.running:
        node.resume()


def _ended(node: Broker) -> None:
    # The data is removed at once: a clean end takes seconds for each node.
    with suppress(BrokerError):
        if node.running:
            node.kill(at_once=True)
    node.close()
