"""Facts of the brokers, one file each: what both protocols' profiles, `doctor` and the documentation know of one."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from redelivery.brokers.artemis import ARTEMIS
from redelivery.brokers.broker_j import BROKER_J
from redelivery.brokers.classic import CLASSIC
from redelivery.brokers.rabbitmq import RABBITMQ

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.brokers.facts import Broker

__all__ = ["BROKERS", "untested"]

BROKERS: Mapping[str, Broker] = MappingProxyType(
    {each.always.broker: each for each in (CLASSIC, ARTEMIS, BROKER_J, RABBITMQ)}
)
"""All brokers by the name in `Capabilities.broker`."""


def untested(broker: str, version: str) -> str | None:
    """Return `Broker.untested` of a broker by its name; None for one that is not known, such as the memory broker."""
    found = BROKERS.get(broker)
    return None if found is None else found.untested(version)
