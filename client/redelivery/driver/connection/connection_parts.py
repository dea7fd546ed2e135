"""Parts of a connection, made from its URI and its keyword arguments. No I/O."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redelivery.classifier import Classifier, checked_errors
from redelivery.clock import Clock, SystemClock
from redelivery.core.dead_lettering.dead_letter_map import DeadLetterMap
from redelivery.driver.arguments import (
    ConnectOptions,
    check_drops,
    checked_dead_letters,
    checked_ledger,
    checked_on_stopped,
    checked_policies,
    checked_send_timeout,
    known,
)
from redelivery.driver.connection.connection_driver import ConnectionDriver
from redelivery.driver.connection.connection_ledger import ConnectionLedger
from redelivery.driver.event_log import EventLog
from redelivery.driver.gate_arguments import connection_breaker
from redelivery.driver.observers import Observers, checked_observers
from redelivery.errors import ConfigurationError
from redelivery.registry import adapter_for
from redelivery.uri.parser import parse_to_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery.adapter import Adapter
    from redelivery.ledger import Ledger
    from redelivery.settings import Endpoint, Settings

__all__ = ["ConnectionParts", "connection_parts", "not_open"]


@dataclass(frozen=True, slots=True)
class ConnectionParts:
    """The parts of one connection."""

    settings: Settings
    adapter: Adapter
    errors: Classifier
    clock: Clock
    observers: Observers
    ledger: Ledger | None
    connection_ledger: ConnectionLedger | None
    """The ledger, if it counts the attempts of this connection; else None."""
    driver: ConnectionDriver
    on_stopped: Callable[[BaseException], object] | None
    numbers: Iterator[int]
    """Numbers of consumers; several threads may take one at the same time."""


def connection_parts(
    uri: str, options: ConnectOptions, *, counts: bool = True, groups: bool = True, quiet: bool = False
) -> ConnectionParts:
    """Return the parts of a connection.

    Args:
        uri: The broker's URI, with options.
        options: Keyword arguments of `connect`.
        counts: True: the ledger counts attempts. False: it is only read.
        groups: True: log lines may be grouped; the connection must then call `observers.look` regularly.
        quiet: True: nothing is logged.

    Raises:
        ConfigurationError: An option of the URI, or an argument, is unknown or cannot be used.
    """
    known(options, ConnectOptions)
    errors = checked_errors(options.get("errors")) or Classifier()
    places = options.get("dead_letters")
    parsed = parse_to_connect(uri, places if isinstance(places, DeadLetterMap) else None)
    settings = replace(
        parsed,
        policies=checked_policies(options.get("policies"), parsed),
        dead_letters=checked_dead_letters(options.get("dead_letters"), parsed),
        breaker=connection_breaker(options, parsed),
        send_timeout=checked_send_timeout(options.get("send_timeout"), parsed),
    )
    check_drops(settings)
    adapter = adapter_for(settings.scheme)
    clock: Clock = options.get("clock") or _clock_of(adapter, settings) or SystemClock()
    log = EventLog(clock if groups and not settings.log_each else None, quiet=quiet)
    observers = Observers(checked_observers(options.get("observers")), log)
    ledger = checked_ledger(options.get("ledger"), settings)
    connection_ledger = ConnectionLedger(ledger) if ledger is not None and counts else None
    driver = ConnectionDriver(settings, adapter, clock, connection_ledger, observers)
    on_stopped = checked_on_stopped(options.get("on_stopped"))
    return ConnectionParts(
        settings,
        adapter,
        errors,
        clock,
        observers,
        ledger,
        connection_ledger,
        driver,
        on_stopped,
        itertools.count(1),
    )


def _clock_of(adapter: Adapter, settings: Settings) -> Clock | None:
    """Return the clock of a broker inside this process, or None: broker and connection must use the same clock."""
    clock_at: Callable[[Endpoint], Clock | None] | None = getattr(adapter, "clock_at", None)
    found = None if clock_at is None else (clock_at(endpoint) for endpoint in settings.endpoints)
    return None if found is None else next((clock for clock in found if clock is not None), None)


def not_open(*, closed: bool, made_by: str, awaits: bool = False) -> ConfigurationError:
    """Return the error for a call that needs an open connection. `made_by`: the function that makes the connection."""
    inside = f"use it inside `{'async ' if awaits else ''}with {made_by}(...)`"
    if closed:
        return ConfigurationError(
            f"the connection is closed; {inside}, which makes a new one: each opens only once"
        )
    return ConfigurationError(f"the connection is not open yet; {inside}")
