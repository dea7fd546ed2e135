"""Port of the drivers: a connection for packages built on the library, such as the dead-letter tools and Spark.

Those packages import no other module of `redelivery.driver`. A port waits on the calling thread. It runs no handlers
and has no listeners, sessions or signals: an application's connection has those.

The way of a message: `plan` makes the subscription and the engine, `subscribe` starts the consumer, `take` or
`take_many` returns its deliveries, `settle` or `settle_many` feeds their results. The engine decides as usual.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from redelivery.adapter import Restore, Restoring
from redelivery.core.commands import Subscribe
from redelivery.core.head_columns import ColumnReading
from redelivery.core.policy.wildcards import refuse_wildcard
from redelivery.driver.arguments import (
    ConnectOptions,
    ConsumerOptions,
    ListenOptions,
    check_handler,
    known,
    single,
)
from redelivery.driver.connection.browser import Browser
from redelivery.driver.connection.connection_base import connection_parts, not_open
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT, is_loopback
from redelivery.driver.connection.queue_look import capabilities_of
from redelivery.driver.connection.sends import (
    SendOptions,
    checked_headers,
    connection_limit,
    outgoing,
    send_limit,
)
from redelivery.driver.consumer.bulk_intake import BulkIntake
from redelivery.driver.consumer.consumer_events import result_log
from redelivery.driver.consumer.hooks import APPLICATION, ConsumerHooks
from redelivery.driver.consumer.plan import dead_letters_of, planned
from redelivery.driver.consumer.port_dispatcher import PortDispatcher
from redelivery.driver.waiting import await_confirmed, await_connected, await_subscription
from redelivery.errors import ConfigurationError, RedeliveryError, TransportError
from redelivery.log import brief
from redelivery.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    from redelivery.adapter import Adapter
    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap
    from redelivery.core.dead_lettering.redrive import DeadLetterRoute
    from redelivery.core.delivery import Delivery, Outcome
    from redelivery.core.engine import Engine
    from redelivery.core.events import Event
    from redelivery.core.head_columns import ReadColumns
    from redelivery.core.outgoing import Outgoing
    from redelivery.ledger import Ledger
    from redelivery.settings import Settings

__all__ = [
    "CLOSE_TIMEOUT",
    "BulkIntake",
    "ConnectionPort",
    "ConsumerHooks",
    "ConsumerOptions",
    "ConsumerPort",
    "ListenOptions",
    "PendingSend",
    "Restore",
    "SendOptions",
    "check_handler",
    "checked_headers",
    "column_reader",
    "dead_letters_of",
    "is_loopback",
    "known",
    "outgoing",
    "planned",
    "restorer",
    "result_log",
    "single",
]


# ---- Consumer port ---------------------------------------------------------------------------------------
# Interface of a port's consumer for its owner.


class ConsumerPort(Protocol):
    """A consumer that a port has started; `PortDispatcher` implements it."""

    error: RedeliveryError | None
    """Error that stopped the consumer, or None."""

    @property
    def engine(self) -> Engine:
        """Engine of the consumer; read it only."""
        ...

    def take(self, after: Event | None = None, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery; None after `timeout` seconds, or at the end. Raises the consumer's error."""
        ...

    def take_many(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Return all ready deliveries within limits, after waiting up to `timeout` seconds for the first one."""
        ...

    def settle(self, delivery: Delivery, event: Event) -> Outcome:
        """Feed the result of a dispatch, and return its outcome. Raises AlreadySettled."""
        ...

    def settle_many(self, events: Sequence[Event], *, together: bool = False) -> None:
        """Feed results and write their settlements at once; `together`: send dead-letter copies in one transaction."""

    def wait_unconfirmed(self, below: int) -> None:
        """Wait until fewer than `below` poison acknowledgements are unconfirmed. Raises the consumer's error."""

    def accept_bulk(self, deliveries: Sequence[Delivery], *, more: int = 0) -> None:
        """Accept deliveries that the consumer's `BulkIntake` has returned, and grant the credit that they used up.

        All in one write. Deliveries of a lost connection, and those that were accepted before, are left out. `more`:
        messages of additional credit, if any credit is granted; below 0: less credit.
        """

    def wire(self) -> Mapping[str, str]:
        """Return how the deliveries of the current connection are read, for `restorer`.

        Call it after `BulkIntake.take`. If `BulkIntake.epoch` is then still that of the deliveries, the result is for
        them. It does not change when the connection is lost.

        Returns:
            Names and values for JSON, with the key "scheme"; without secrets.

        Raises:
            ConfigurationError: The adapter cannot restore deliveries.
            TransportError: Not connected yet.
        """
        ...


# ---- Restoring -------------------------------------------------------------------------------------------
# Restoring of deliveries from stored bytes, by the adapter that received them, without a connection.

SCHEME = "scheme"
"""Key of a wire whose value names the adapter."""


def wire_of(adapter: Adapter, scheme: str, destination: str) -> dict[str, str]:
    """Return how the deliveries of a subscription on the open connection are read.

    Raises:
        ConfigurationError: The adapter cannot restore deliveries.
        TransportError: There is no connection.
    """
    found = _restoring(adapter, scheme).wire(destination)
    if found is None:
        raise TransportError(f"not connected: how {destination} is read is not known yet")
    return {SCHEME: scheme, **found}


def restorer(wire: Mapping[str, str]) -> Restore:
    """Return a function that makes deliveries from the result of `Delivery.stored`. No I/O, no connection.

    The function takes the head, the body (None: it is in the head) and the time of the arrival in seconds since the
    Unix epoch. A restored delivery has all properties of the original, but `epoch` 0 and `consumer` 0: it cannot be
    settled at a broker.

    Args:
        wire: The result of `ConsumerPort.wire`.

    Raises:
        ConfigurationError: The scheme's package is missing, or the wire is not of its adapter.
    """
    scheme = _scheme(wire)
    return _restoring(adapter_for(scheme), scheme).restorer(wire)


def column_reader(wire: Mapping[str, str]) -> ReadColumns | None:
    """Return a function that reads the heads of many deliveries at once; None: the adapter has none. No I/O.

    Args:
        wire: The result of `ConsumerPort.wire`.

    Raises:
        ConfigurationError: The scheme's package is missing, or the wire is not of its adapter.
    """
    adapter = adapter_for(_scheme(wire))
    return adapter.column_reader(wire) if isinstance(adapter, ColumnReading) else None


def _scheme(wire: Mapping[str, str]) -> str:
    scheme = wire.get(SCHEME)
    if scheme is None:
        raise ConfigurationError(f"a wire without {SCHEME!r}: it was not made by ConsumerPort.wire()")
    return scheme


def _restoring(adapter: Adapter, scheme: str) -> Restoring:
    if not isinstance(adapter, Restoring):
        raise ConfigurationError(
            f"the adapter for {scheme}:// cannot restore deliveries: it has no wire() and restorer()"
        )
    return adapter


# ---- Port ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """A consumer before it starts: the subscription for the broker, and the engine that will decide."""

    subscribe: Subscribe
    engine: Engine
    settings: Settings
    counted: bool = False
    """True if the engine expects a ledger, which a port does not use. The caller feeds such an engine itself; the plan
    cannot be subscribed."""

    def with_window(self, window: int) -> ConsumerPlan:
        """Return the plan with a window of so many messages, including parked ones."""
        return replace(self, subscribe=replace(self.subscribe, window=window, room=0))

    def for_dead_letters(self, *, spared: bool = False) -> ConsumerPlan:
        """Return the plan for an existing queue; each message is accepted together with the send of its copy.

        `spared`: True: refused if the broker drops a message of this queue after a number of releases.
        """
        return replace(self, subscribe=replace(self.subscribe, existing=True, in_step=True, spared=spared))


class ConnectionPort:
    """One connection over all its reconnects. Use it as a context manager."""

    def __init__(
        self,
        uri: str,
        *,
        ledger: Ledger | None = None,
        clock: Clock | None = None,
        dead_letters: DeadLetterMap | None = None,
        made_by: str = "redelivery.connect",
        quiet: bool = False,
    ) -> None:
        """Make a connection; no I/O happens before `with`.

        Args:
            uri: The broker's URI, as for `redelivery.connect`.
            ledger: Replaces `redelivery.ledger` in the URI. It is only read: no delivery here is an attempt.
            clock: Clock of the connection; None: the machine's.
            dead_letters: Dead-letter strategies; None: those of the URI.
            made_by: Function that the user has called for it, for the error outside of `with`.
            quiet: True: nothing is logged, as of a connection that only asks and may be refused.

        Raises:
            ConfigurationError: An option of the URI is unknown or cannot be used.
        """
        options: ConnectOptions = {"ledger": ledger, "clock": clock, "dead_letters": dead_letters}
        self._parts = connection_parts(uri, options, counts=False, groups=False, quiet=quiet)
        self._driver = self._parts.driver
        self._made_by = made_by
        self._entered = False
        self._closed = False

    def __enter__(self) -> Self:
        """Connect: each address is tried once.

        Raises:
            ConfigurationError: The connection was entered before.
            TransportError: No address answered.
            AdapterError: A broker refused the log-in.
            LedgerError: The ledger cannot count.
        """
        if self._entered:
            raise ConfigurationError("a connection is entered once; make a new one")
        try:
            self._driver.open()
        except RedeliveryError as error:
            raise brief(error) from None
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close within `timeout` seconds; the broker takes unsettled messages back."""
        if self._entered and not self._closed:
            self._closed = True
            self._driver.close(timeout)

    @property
    def settings(self) -> Settings:
        """Settings of the URI."""
        return self._parts.settings

    @property
    def clock(self) -> Clock:
        """Clock of the connection."""
        return self._parts.clock

    @property
    def ledger(self) -> Ledger | None:
        """Ledger of the connection, or None."""
        return self._parts.ledger

    @property
    def connected(self) -> bool:
        """True if the connection is up at the moment."""
        return self._driver.up

    @property
    def address(self) -> str:
        """Address of the last connection, without credentials; empty before the first one."""
        return self._driver.signs.address

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the broker of the last connection.

        Raises:
            ConfigurationError: The connection is not open.
        """
        if not self._entered or self._closed or self._driver.capabilities is None:
            raise not_open(closed=self._closed, made_by=self._made_by)
        return self._driver.capabilities

    # Consumers.

    def plan(
        self,
        destination: str,
        options: ConsumerOptions,
        *,
        settings: Settings | None = None,
        capabilities: Capabilities | None = None,
        route: DeadLetterRoute | None = None,
        counted: bool = False,
        sets_aside: bool = False,
    ) -> ConsumerPlan:
        """Return the plan of a consumer.

        Args:
            destination: Name of the destination, as for `redelivery.connect(...).consumer`.
            options: Keyword arguments, as for `redelivery.connect(...).consumer`.
            settings: Settings instead of the connection's.
            capabilities: Capabilities instead of the broker's.
            route: Route of poison messages instead of that of the settings.
            counted: True: the engine asks a ledger; for an engine that the caller feeds itself.
            sets_aside: True: a message that cannot be dead-lettered is set aside, up to `redelivery.maximumSetAside`,
                and stays on the broker. False: the first such message ends the consumer.

        Raises:
            ConfigurationError: The broker cannot do what is asked for.
        """
        used = settings or self.settings
        able = capabilities or self.capabilities
        subscribe, engine = planned(
            next(self._parts.numbers),
            single(destination),
            options if sets_aside else {**options, "maximum_set_aside": 0},
            used,
            able,
            redrive=route,
            counted=counted,
        )
        return ConsumerPlan(subscribe, engine, used, counted)

    def capabilities_for(self, plan: ConsumerPlan) -> Capabilities:
        """Return the capabilities for the queue of a plan: with the broker's own dead-letter place, if that decides.

        Raises:
            AdapterError: The broker refuses the subscription, or its dead-letter place.
            TransportError: The connection was lost, or the broker did not answer in time.
        """
        found = capabilities_of(self._driver, plan.subscribe) if plan.subscribe.own_place else None
        return found or self.capabilities

    def subscribe(self, plan: ConsumerPlan, hooks: ConsumerHooks = APPLICATION) -> ConsumerPort:
        """Start a consumer, and wait until the broker has confirmed the subscription.

        Raises:
            AdapterError: The broker refused the subscription.
            TransportError: The broker did not confirm it within 30 s.
        """
        return self._subscribe(plan, hooks)

    @contextmanager
    def consume(self, plan: ConsumerPlan, hooks: ConsumerHooks = APPLICATION) -> Generator[ConsumerPort]:
        """Start a consumer as `subscribe` does; at the end of the block the broker takes unsettled messages back."""
        dispatcher = self._subscribe(plan, hooks)
        try:
            yield dispatcher
        finally:
            self._driver.unsubscribe(dispatcher)

    def _subscribe(self, plan: ConsumerPlan, hooks: ConsumerHooks) -> PortDispatcher:
        if plan.counted:
            raise ValueError(
                "a plan with counted=True cannot be subscribed: nothing would look up its attempts"
            )
        if not hooks.keeps_history:
            plan.engine.keep_no_history()
        parts = self._parts
        dispatcher = PortDispatcher(
            plan.subscribe,
            plan.engine,
            self._driver,
            parts.clock,
            plan.settings.policies,
            parts.observers,
            hooks,
            wire_of=partial(wire_of, parts.adapter, self.settings.scheme),
        )
        self._driver.open_consumers.add(dispatcher, self._driver.capabilities)
        await_subscription(self._driver, dispatcher, parts.clock)
        return dispatcher

    def flush(self) -> None:
        """Write the collected settlements."""
        self._driver.flush()

    def browse(self, queue: str, *, window: int) -> Iterator[Delivery]:
        """Iterate over the messages of a queue; they stay there. `window`: messages that the broker may send ahead.

        Raises:
            ConfigurationError: The name has a wildcard that this broker cannot honour.
            AdapterError: The broker refused to show the queue.
            TransportError: The connection was lost, or the broker sent nothing for 60 s.
        """
        refuse_wildcard(single(queue), self.capabilities)
        number = next(self._parts.numbers)
        subscribe = Subscribe(number, queue, window=window, browse=True, existing=True)
        browser = Browser(subscribe, self._driver.write, self.clock)
        self._driver.browsers[number] = browser
        try:
            yield from browser
        finally:
            del self._driver.browsers[number]

    # Sending.

    def send(self, message: Outgoing) -> Future[None]:
        """Send; the future ends when the broker has confirmed or refused the message, or the connection is lost."""
        return self._driver.send(message)

    def send_connected(self, message: Outgoing) -> PendingSend:
        """Send when the connection is up. Raises TransportError if it is not in time."""
        began, limit = self.clock.monotonic(), send_limit(self.settings)
        patience = connection_limit(self.settings, limit)
        await_connected(self._driver, message.destination, patience, self.clock)
        return PendingSend(self.send(message), message, began + limit, limit, self.clock)


@dataclass(frozen=True, slots=True)
class PendingSend:
    """A message that was sent, and that the broker has not confirmed yet."""

    future: Future[None]
    message: Outgoing
    deadline: float
    limit: float
    """Seconds that were allowed for all of it."""
    clock: Clock

    def wait(self) -> None:
        """Wait until the broker has confirmed the message.

        Raises:
            AdapterError: The broker refused the message.
            TransportError: The connection was lost, or the broker did not confirm in time.
        """
        await_confirmed(self.future, self.message.destination, self.deadline, self.limit, self.clock)

    @property
    def error(self) -> BaseException | None:
        """Error of the send, if the broker has answered already; else None."""
        done = self.future.done() and not self.future.cancelled()
        return self.future.exception() if done else None
