"""Choices of the environment: brokers that must run, and brokers that run in containers."""

from __future__ import annotations

import os

from integration.brokers.toolchain import BrokerError

NAMES = ("activemq", "artemis", "brokerj", "rabbitmq", "rabbitmq4")
# Not brokers, but may be required like them: Spark, the browser, and the packages of tests (tests/needs.py).
OTHERS = ("spark", "chromium", "packages")


def required(name: str) -> bool:
    """True if REDELIVERY_REQUIRE_BROKERS (`1`, or names with commas) forbids to skip tests of this broker or other."""
    return _asks("REDELIVERY_REQUIRE_BROKERS", name, {*NAMES, *OTHERS})


def containers_wanted(name: str) -> bool:
    """True if REDELIVERY_CONTAINERS (`1`, or names with commas) requests a container for this broker."""
    return _asks("REDELIVERY_CONTAINERS", name, {*NAMES})


def image(name: str, default: str) -> str:
    """Return the image of this broker: REDELIVERY_IMAGE_ARTEMIS and so on, or `default`."""
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
