"""Consumer-side redelivery for STOMP (and AMQP 1.0) brokers: policies, back-off, dead letters.

Names are loaded at first use (PEP 562): importing the package costs milliseconds, and no third-party package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redelivery.aio import AsyncConnection, connect_async
    from redelivery.async_consumer import AsyncConsumer
    from redelivery.async_session import AsyncSession
    from redelivery.classifier import Classifier
    from redelivery.connection import Connection, connect
    from redelivery.consumer import Consumer
    from redelivery.core.artemis_policy import ArtemisRedeliveryPolicy
    from redelivery.core.destination import Destination
    from redelivery.core.policy import RedeliveryPolicy
    from redelivery.core.policy_map import RedeliveryPolicyMap
    from redelivery.core.report import Report
    from redelivery.errors import (
        AdapterError,
        AlreadySettled,
        ConfigurationError,
        HandlerTimeout,
        LedgerError,
        RedeliveryError,
        TransactionRolledBack,
        TransportError,
    )
    from redelivery.ledger import Ledger
    from redelivery.ledger.sqlite import SqliteLedger
    from redelivery.letters.letter import DeadLetter
    from redelivery.letters.queue import DeadLetterQueue, dead_letters
    from redelivery.message import Message
    from redelivery.session import Session
    from redelivery.settings import Settings
    from redelivery.steer import Defer, Discard, Poison
    from redelivery.uri import parse_uri

__version__ = "0.1.0"

_HOMES = {
    "AdapterError": "errors",
    "AlreadySettled": "errors",
    "ArtemisRedeliveryPolicy": "core.artemis_policy",
    "AsyncConnection": "aio",
    "AsyncConsumer": "async_consumer",
    "AsyncSession": "async_session",
    "Classifier": "classifier",
    "ConfigurationError": "errors",
    "DeadLetter": "letters.letter",
    "DeadLetterQueue": "letters.queue",
    "Connection": "connection",
    "Consumer": "consumer",
    "Defer": "steer",
    "Destination": "core.destination",
    "Discard": "steer",
    "HandlerTimeout": "errors",
    "Ledger": "ledger",
    "LedgerError": "errors",
    "Message": "message",
    "Poison": "steer",
    "RedeliveryError": "errors",
    "RedeliveryPolicy": "core.policy",
    "RedeliveryPolicyMap": "core.policy_map",
    "Report": "core.report",
    "Session": "session",
    "Settings": "settings",
    "SqliteLedger": "ledger.sqlite",
    "TransactionRolledBack": "errors",
    "TransportError": "errors",
    "connect": "connection",
    "connect_async": "aio",
    "dead_letters": "letters.queue",
    "parse_uri": "uri",
}

__all__ = [
    "AdapterError",
    "AlreadySettled",
    "ArtemisRedeliveryPolicy",
    "AsyncConnection",
    "AsyncConsumer",
    "AsyncSession",
    "Classifier",
    "ConfigurationError",
    "Connection",
    "Consumer",
    "DeadLetter",
    "DeadLetterQueue",
    "Defer",
    "Destination",
    "Discard",
    "HandlerTimeout",
    "Ledger",
    "LedgerError",
    "Message",
    "Poison",
    "RedeliveryError",
    "RedeliveryPolicy",
    "RedeliveryPolicyMap",
    "Report",
    "Session",
    "Settings",
    "SqliteLedger",
    "TransactionRolledBack",
    "TransportError",
    "connect",
    "connect_async",
    "dead_letters",
    "parse_uri",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'redelivery' has no attribute {name!r}")
    value = getattr(import_module(f"redelivery.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
