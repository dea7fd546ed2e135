"""Two brokers of Artemis: a pair with a shared store, or a cluster that moves messages to where consumers are."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from integration.brokers.artemis import Artemis
from integration.clusters.cluster import Cluster, PairNode, serves
from integration.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from integration.brokers.base import Broker, Place

__all__ = ["ArtemisApart", "ArtemisCluster", "ArtemisPair"]

# What `artemis create` writes for each pattern; the first match of the edits before has put others in front of it.
_ALL = '<address-setting match="#">'


class Clustered(Artemis):
    """A broker that knows another one."""

    def __init__(self, name: str) -> None:
        super().__init__(containerised=False)
        self.label = name
        self.other: Clustered | None = None

    def creation(self, place: Place) -> list[str]:
        """Return the options of a member of a cluster, whose other member has a fixed address."""
        assert self.other is not None
        return [
            "--clustered", "--cluster-user", "nodes", "--cluster-password", self.password, "--name", self.label,
            "--static-cluster", f"tcp://{place.bind}:{self.other.ports['core']}",
        ]  # fmt: skip


class Member(Clustered):
    """One of two brokers that both serve; what it holds moves to the other one if only that one has a consumer."""

    hops = 1

    def edits(self, place: Place) -> list[str]:
        """Return the changes of broker.xml."""
        moves = f"s|{_ALL}|&<redistribution-delay>0</redistribution-delay>|"
        return [
            *super().edits(place),
            f"s|<max-hops>[0-9]*<|<max-hops>{self.hops}<|",
            *([moves] if self.hops else []),
        ]


class Apart(Member):
    """The same without forwarding, as `artemis create --static-cluster` writes it."""

    hops = 0


class Half(PairNode, Clustered):
    """One of two brokers with the same store."""

    # Of the primary and of the backup, before it waits for the store.
    ready = "AMQ221000"
    store = ""

    def creation(self, place: Place) -> list[str]:
        """Return the options of a primary, or a backup, with a shared store."""
        backup = ["--backup"] if self.label == "b" else []
        return [
            *super().creation(place),
            "--shared-store",
            "--data",
            self.store,
            "--failover-on-shutdown",
            *backup,
        ]


class ArtemisCluster(Cluster):
    """Two brokers, with redistribution."""

    name = "artemis-cluster"
    broker = Artemis
    separate = True
    member: type[Member] = Member
    nodes: Sequence[Member]

    def __init__(self) -> None:
        self.nodes = (self.member("a"), self.member("b"))
        _acquaint(self.nodes)

    def serving(self, queue: str) -> Broker:
        """Return the first broker that serves."""
        return next(node for node in self.nodes if node.running and serves(node))


class ArtemisApart(ArtemisCluster):
    """Two brokers that know each other, and keep their messages."""

    name = "artemis-apart"
    member = Apart


class ArtemisPair(Cluster):
    """A primary `a` and its backup `b`, which gives the store back when the primary returns."""

    name = "artemis-pair"
    broker = Artemis
    nodes: Sequence[Half]

    def __init__(self) -> None:
        self._store = Path(tempfile.mkdtemp(prefix="redelivery-artemis-store-"))
        self.nodes = (Half("a"), Half("b"))
        _acquaint(self.nodes)
        for node in self.nodes:
            node.store = str(self._store)

    def start(self) -> Self:
        """Start the primary, and then the backup if it does not run."""
        primary, backup = self.nodes
        for node in self.nodes:
            if node.running:
                node.resume()
        if not primary.running:
            primary.stand_by()
            primary.active()
        if not backup.running:
            backup.stand_by()
        eventually(lambda: not serves(backup), message="the backup waits")
        return self

    def close(self) -> None:
        """End both, and remove the store."""
        super().close()
        shutil.rmtree(self._store, ignore_errors=True)

    def serving(self, queue: str) -> Half:
        """Return the active one."""
        return next(node for node in self.nodes if node.running and serves(node))


def _acquaint(nodes: Sequence[Clustered]) -> None:
    first, second = nodes
    first.other, second.other = second, first
