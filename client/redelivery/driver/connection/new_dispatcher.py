"""Making of a dispatcher from the arguments of a consumer, after checking them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.classifier import checked_errors
from redelivery.driver.arguments import ConsumerOptions, checked_consumer, known
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.driver.consumer.ledger_dispatcher import LedgerDispatcher
from redelivery.driver.consumer.listener_hooks import start_hooks
from redelivery.driver.consumer.plan import planned
from redelivery.driver.gate_arguments import checked_rate, session_breaker
from redelivery.driver.observers import checked_observers
from redelivery.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from redelivery.driver.connection.connection_parts import ConnectionParts
    from redelivery.driver.session.session_state import SessionState

__all__ = ["new_dispatcher"]


def new_dispatcher(
    parts: ConnectionParts,
    destination: str,
    options: ConsumerOptions,
    session_state: SessionState | None = None,
    workers: int = 0,
) -> Dispatcher:
    """Return the dispatcher of a new consumer of a connection.

    Args:
        parts: Parts of the connection.
        destination: Name of the destination.
        options: Keyword arguments of the consumer.
        session_state: State of the consumer's session; None: it has none.
        workers: Number of workers of its listener; 0: the application pulls from it.

    Raises:
        ConfigurationError: An argument is unknown or cannot be used.
        TransportError: The connection has never been up.
    """
    known(options, ConsumerOptions)
    settings, connection_ledger = parts.settings, parts.connection_ledger
    parsed = checked_consumer(settings, destination, options)
    capabilities = parts.driver.capabilities
    if capabilities is None:
        raise TransportError(f"not connected yet: {destination} cannot be consumed")
    number = next(parts.numbers)
    errors = checked_errors(options.get("errors")) or parts.errors
    transacted = session_state is not None and session_state.mode == "transacted"
    if transacted and options.get("errors") is not None:
        raise ConfigurationError(
            "errors=: in a transacted session commit() and rollback() decide, not the type of an exception",
            option="errors",
        )
    rate = checked_rate(options.get("rate"), "rate") or settings.rate
    subscribe, engine = planned(
        number, parsed, {**options, "errors": errors, "rate": rate}, settings, capabilities,
        transacted=transacted, counted=connection_ledger is not None,
        breaker=session_breaker(options, session_state, settings.breaker),
        workers=workers if session_state is None else None, alone=False,
    )  # fmt: skip
    own = checked_observers(options.get("observers"))
    common = subscribe, engine, parts.driver, parts.clock, settings.policies, parts.observers.also(own)
    dispatcher = (
        Dispatcher(*common) if connection_ledger is None else LedgerDispatcher(*common, connection_ledger)
    )
    start_hooks(own, dispatcher)
    dispatcher.session_state = session_state
    dispatcher.errors = errors
    return dispatcher
