"""What the environment asks for: which brokers must run, and which of them in containers."""

from __future__ import annotations

import os

from integration.brokers.toolchain import BrokerError

NAMES = ("activemq", "artemis", "brokerj", "rabbitmq", "rabbitmq4")


def required(name: str) -> bool:
    """True if REDELIVERY_REQUIRE_BROKERS (`1`, or names) forbids to skip tests of a broker, Spark or Chromium."""
    return _asks("REDELIVERY_REQUIRE_BROKERS", name, {*NAMES, "spark", "chromium"})


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
