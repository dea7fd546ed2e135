"""What the environment asks for: which brokers must run, and which of them in containers."""

from __future__ import annotations

import os

from integration.brokers.toolchain import BrokerError

UNPACKED = ("rabbitmq4",)
NAMES = ("activemq", "artemis", "brokerj", "rabbitmq", "rabbitmq4")


def required(name: str) -> bool:
    """Whether REDELIVERY_REQUIRE_BROKERS (`1`, or names with commas) forbids to skip tests of a broker, or of Spark.

    `1` leaves out those that only come out of another suite of Debian: its packages may not be in reach.
    """
    asked = os.environ.get("REDELIVERY_REQUIRE_BROKERS", "")
    if name in UNPACKED and name not in asked:
        return False
    return _asks("REDELIVERY_REQUIRE_BROKERS", name, {*NAMES, "spark"})


def containers_wanted(name: str) -> bool:
    """Whether REDELIVERY_CONTAINERS (`1`, or names with commas) asks to run this broker in a container."""
    return _asks("REDELIVERY_CONTAINERS", name, {*NAMES})


def image(name: str, default: str) -> str:
    """The image to run this broker from: REDELIVERY_IMAGE_ARTEMIS and so on, or `default`."""
    return os.environ.get(f"REDELIVERY_IMAGE_{name.upper()}", "").strip() or default


def _asks(variable: str, name: str, known: set[str]) -> bool:
    value = os.environ.get(variable, "").strip().lower()
    if value in {"", "0", "false", "no"}:
        return False
    if value in {"1", "true", "yes", "all"}:
        return True
    names = {part.strip() for part in value.split(",")} - {""}
    unknown = names - known
    if unknown:
        raise BrokerError(f"{variable} names {sorted(unknown)}; known: {sorted(known)}")
    return name in names
