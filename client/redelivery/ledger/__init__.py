"""Durable counts of attempts: the interface, and its implementation with SQLite.

`redelivery.ledger=sqlite:///path` in the URI, or `connect(..., ledger=SqliteLedger(path))`.
"""

from __future__ import annotations

from redelivery.errors import ConfigurationError
from redelivery.ledger.interface import Behind, Ledger

__all__ = ["Behind", "Ledger", "check_url", "ledger_at"]

_PREFIX = "sqlite:///"


def check_url(url: str, option: str) -> None:
    """Refuse a text that is not the URL of a ledger. Raises ConfigurationError."""
    if not url.startswith(_PREFIX) or not url[len(_PREFIX) :].strip("/ "):
        raise ConfigurationError(
            f"{option}={url}: a ledger is sqlite:///relative/path or sqlite:////absolute/path",
            option=option,
        )


def ledger_at(url: str, option: str) -> Ledger:
    """Return the ledger of a URL; the same object for the same file. No I/O. Raises ConfigurationError."""
    check_url(url, option)
    try:
        from redelivery.ledger.sqlite_ledger import SqliteLedger  # noqa: PLC0415 - SQLite is loaded only where it is used
    except ImportError as error:  # fcntl, or SQLite itself
        raise ConfigurationError(f"{option}: no ledger on this system: {error}", option=option) from None
    return SqliteLedger.at(url[len(_PREFIX) :])
