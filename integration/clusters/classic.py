"""Two brokers of ActiveMQ Classic with one KahaDB: the one that has its lock serves."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from integration.brokers.activemq import ActiveMQ
from integration.clusters.cluster import Cluster, PairNode, serves
from integration.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

__all__ = ["ClassicPair"]


class ClassicNode(PairNode, ActiveMQ):
    """One of the two. It tries to get the lock every 2 s; the broker's default is 10 s."""

    ready = "STARTING"
    lock_every_ms = 2000

    def __init__(self, store: Path) -> None:
        super().__init__(containerised=False)
        self.data = str(store)


class ClassicPair(Cluster):
    """A pair with a shared store."""

    name = "classic-pair"
    broker = ActiveMQ
    nodes: Sequence[ClassicNode]

    def __init__(self) -> None:
        self._store = Path(tempfile.mkdtemp(prefix="redelivery-classic-store-"))
        self.nodes = (ClassicNode(self._store), ClassicNode(self._store))

    def start(self) -> Self:
        """Start those that do not run; the first one serves, if none served before."""
        for node in self.nodes:
            if node.running:
                node.resume()
            else:
                node.stand_by()
                eventually(lambda: any(serves(each) for each in self.nodes if each.running), 90.0)
        return self

    def close(self) -> None:
        """End both, and remove the store."""
        super().close()
        shutil.rmtree(self._store, ignore_errors=True)

    def serving(self, queue: str) -> ClassicNode:
        """Return the one that has the lock."""
        return next(node for node in self.nodes if node.running and serves(node))
