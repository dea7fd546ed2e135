"""Consumer-side redelivery for STOMP and AMQP 1.0 brokers: policies, back-off, dead letters.

Names are loaded at first use (PEP 562): importing the package costs milliseconds, and no third-party package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redelivery.core.policy import file_reader as _file_reader

if TYPE_CHECKING:
    from os import PathLike

    from redelivery.async_connection import AsyncConnection, connect_async
    from redelivery.async_consumer import AsyncConsumer
    from redelivery.async_session import AsyncSession
    from redelivery.classifier import Classifier
    from redelivery.connection import Connection, connect
    from redelivery.consumer import Consumer
    from redelivery.core.breaker import Breaker
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, DeadLetterStrategy
    from redelivery.core.destination import Destination
    from redelivery.core.dispatch_gate import Rate
    from redelivery.core.policy.artemis_policy import ArtemisRedeliveryPolicy
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
    from redelivery.core.report import Report
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery.dlq.dead_letter_queue import DeadLetterQueue, dead_letters
    from redelivery.errors import (
        AdapterError,
        AlreadySettled,
        BreakerOpen,
        BrokerUnavailable,
        ConfigurationError,
        HandlerTimeout,
        LedgerError,
        RedeliveryError,
        TransactionRolledBack,
        TransportError,
    )
    from redelivery.handler_exceptions import Defer, Discard, Poison
    from redelivery.ledger import Ledger
    from redelivery.ledger.sqlite_ledger import SqliteLedger
    from redelivery.message import Message
    from redelivery.session import Session
    from redelivery.settings import Settings
    from redelivery.uri.parser import parse_uri

__version__ = "0.1.0"

_HOMES = {
    "AdapterError": "errors",
    "AlreadySettled": "errors",
    "ArtemisRedeliveryPolicy": "core.policy.artemis_policy",
    "AsyncConnection": "async_connection",
    "AsyncConsumer": "async_consumer",
    "AsyncSession": "async_session",
    "Breaker": "core.breaker",
    "BreakerOpen": "errors",
    "BrokerUnavailable": "errors",
    "Classifier": "classifier",
    "ConfigurationError": "errors",
    "DeadLetter": "dlq.dead_letter",
    "DeadLetterMap": "core.dead_lettering.dead_letter_strategy",
    "DeadLetterQueue": "dlq.dead_letter_queue",
    "DeadLetterStrategy": "core.dead_lettering.dead_letter_strategy",
    "Connection": "connection",
    "Consumer": "consumer",
    "Defer": "handler_exceptions",
    "Destination": "core.destination",
    "Discard": "handler_exceptions",
    "HandlerTimeout": "errors",
    "Ledger": "ledger",
    "LedgerError": "errors",
    "Message": "message",
    "Poison": "handler_exceptions",
    "Rate": "core.dispatch_gate",
    "RedeliveryError": "errors",
    "RedeliveryPolicy": "core.policy.redelivery_policy",
    "RedeliveryPolicyMap": "core.policy.policy_map",
    "Report": "core.report",
    "Session": "session",
    "Settings": "settings",
    "SqliteLedger": "ledger.sqlite_ledger",
    "TransactionRolledBack": "errors",
    "TransportError": "errors",
    "connect": "connection",
    "connect_async": "async_connection",
    "dead_letters": "dlq.dead_letter_queue",
    "parse_uri": "uri.parser",
}

__all__ = [
    "AdapterError",
    "AlreadySettled",
    "ArtemisRedeliveryPolicy",
    "AsyncConnection",
    "AsyncConsumer",
    "AsyncSession",
    "Breaker",
    "BreakerOpen",
    "BrokerUnavailable",
    "Classifier",
    "ConfigurationError",
    "Connection",
    "Consumer",
    "DeadLetter",
    "DeadLetterMap",
    "DeadLetterQueue",
    "DeadLetterStrategy",
    "Defer",
    "Destination",
    "Discard",
    "HandlerTimeout",
    "Ledger",
    "LedgerError",
    "Message",
    "Poison",
    "Rate",
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


def _policies_of(path: str | PathLike[str], kind: Any) -> RedeliveryPolicyMap:
    """Read a policy file for the core, which cannot import the importers. They are loaded at first use."""
    from redelivery.importers import policies_of  # noqa: PLC0415

    return policies_of(path, kind)


_file_reader.policies_of = _policies_of


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'redelivery' has no attribute {name!r}")
    value = getattr(import_module(f"redelivery.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
