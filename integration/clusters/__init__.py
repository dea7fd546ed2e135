"""Brokers of several nodes on this machine, and runs on them whose books must be right at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration.clusters.artemis import ArtemisApart, ArtemisCluster, ArtemisPair
from integration.clusters.classic import ClassicPair
from integration.clusters.rabbitmq import RabbitCluster

if TYPE_CHECKING:
    from integration.clusters.cluster import Cluster

__all__ = ["SETUPS"]

SETUPS: dict[str, type[Cluster]] = {
    kind.name: kind for kind in (RabbitCluster, ArtemisPair, ArtemisCluster, ArtemisApart, ClassicPair)
}
