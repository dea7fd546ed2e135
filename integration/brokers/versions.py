"""Versions of the brokers in the tests.

REDELIVERY_VERSIONS is `oldest`, `newest` or empty: the present ones, which the suite runs by default. For one broker
REDELIVERY_VERSION_ARTEMIS and so on names another version; for RabbitMQ, the Debian suite of its packages.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from integration.brokers.toolchain import BrokerError

__all__ = [
    "CHOICES",
    "chosen",
    "names",
    "newest",
    "present",
    "rabbitmq_release",
    "tested_versions",
    "version",
]

CHOICES = ("oldest", "newest", "all")


@dataclass(frozen=True, slots=True)
class _Versions:
    oldest: str
    present: str
    newest: str


# RabbitMQ's versions are suites of Debian; empty for the one that is installed on this machine. In testing, unlike in
# sid, every package can be installed at any time.
_KNOWN = {
    "activemq": _Versions("5.18.6", "6.1.7", "6.3.1"),
    "artemis": _Versions("2.31.2", "2.40.0", "2.56.0"),
    "brokerj": _Versions("9.1.0", "9.2.0", "10.1.0"),
    "rabbitmq": _Versions("bookworm", "", "testing"),
}

_RELEASES = {"": (3, 10), "bookworm": (3, 10), "trixie": (4, 0)}
_NEWEST_RELEASE = (4, 3)


def chosen() -> str:
    """Return the value of REDELIVERY_VERSIONS: one of the choices, or an empty text."""
    text = os.environ.get("REDELIVERY_VERSIONS", "").strip().lower()
    if text not in ("", "present", *CHOICES):
        raise BrokerError(f"REDELIVERY_VERSIONS is {text!r}; known: {', '.join(CHOICES)}")
    return "" if text == "present" else text


def present(name: str) -> str:
    """Return the version of this broker that runs by default."""
    return _KNOWN[name].present


def newest(name: str) -> str:
    """Return the newest version of this broker."""
    return _KNOWN[name].newest


def rabbitmq_release() -> tuple[int, int]:
    """Return major and minor version of the RabbitMQ that runs: 3.10, 4.0, or 4.3 for newer ones."""
    return _RELEASES.get(version("rabbitmq"), _NEWEST_RELEASE)


def names() -> tuple[str, ...]:
    """Return the names of the brokers."""
    return tuple(_KNOWN)


def tested_versions() -> dict[str, tuple[str, ...]]:
    """Return the versions of each broker, except RabbitMQ, whose versions depend on the Debian suite."""
    return {
        name: (each.oldest, each.present, each.newest) for name, each in _KNOWN.items() if name != "rabbitmq"
    }


def version(name: str) -> str:
    """Return the version of this broker to run."""
    one = os.environ.get(f"REDELIVERY_VERSION_{name.upper()}", "").strip()
    known = _KNOWN[name]
    return one or {"oldest": known.oldest, "newest": known.newest}.get(chosen(), known.present)
