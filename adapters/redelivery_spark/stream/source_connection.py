"""Connection of a source: one consumer whose messages are taken and accepted in lists, and sending of dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.dead_letter_headers import COPY_ID, never_copied
from redelivery.core.delivery import Cause
from redelivery.core.events import Poisoned
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.driver.port import (
    CLOSE_TIMEOUT,
    BulkIntake,
    ConnectionPort,
    ConsumerHooks,
    ConsumerOptions,
    dead_letters_of,
    single,
)
from redelivery.errors import RedeliveryError, TransportError
from redelivery_spark.stream.rows_in_doubt import SentAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward
    from redelivery.core.delivery import Delivery
    from redelivery.core.engine import Engine
    from redelivery.driver.port import ConsumerPort
    from redelivery.settings import Settings
    from redelivery_spark.options.source_options import SourceOptions

__all__ = ["SourceConnection"]

PREFETCHED = 20_000
"""Messages that a broker may send ahead, unless `redelivery.credit` is given: four segments, and the broker sends the
next ones while one is written.
"""
# If credit follows the size of messages: the first credit and the least one in messages, and the bytes ahead.
FIRST, LEAST, AHEAD = 1_000, 100, 64 << 20
# Bytes for each message in a window that counts bytes (adapters/redelivery_stomp/byte_windows.py).
UNIT = 1024
# Cause of death of such a message: the log could not make a dead letter of it later.
NOT_WHOLE = Cause.of("its body did not arrive whole, and the log could hold no copy of it")
ODD = 1000


class SourceConnection:
    """Connection with one consumer. At its end the broker takes back messages that were taken and not accepted."""

    def __init__(self, options: SourceOptions) -> None:
        self._port = ConnectionPort(options.connection_uri())
        self._source = options
        self._consumer: ConsumerPort | None = None
        # Capabilities for the queue, with the broker's own dead-letter place; None: not asked yet.
        self._able: Capabilities | None = None
        self.bulk: BulkIntake
        # Epoch of the last acceptance, and messages that its connection may have sent ahead.
        self._epoch = -1
        self._granted = 0

    def connect(self) -> None:
        """Connect. Raises RedeliveryError."""
        self._port.__enter__()

    def begin(self) -> None:
        """Subscribe. Raises RedeliveryError."""
        source = self._source
        credit = self._first_credit
        # No message waits unacknowledged: the log holds those that wait.
        settings = replace(self.settings, policies=RedeliveryPolicyMap(), credit=credit)
        options: ConsumerOptions = {"selector": source.selector, "subscription": source.subscription}
        # A dead letter of a row carries its cause; other settings apply only to messages that cannot be copied.
        route = replace(dead_letters_of(settings, single(source.destination), options), scheduled=True)
        plan = self._port.plan(
            source.destination, options, settings=settings, route=route, sets_aside=True
        ).with_window(credit)
        self.bulk = BulkIntake(self.clock, empty_is_whole=settings.empty_body == "forward")
        self._consumer = self._port.subscribe(plan, ConsumerHooks(keeps_history=False, bulk=self.bulk))

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close within `timeout` seconds; the broker takes back messages that are not accepted."""
        self._port.close(timeout)

    @property
    def settings(self) -> Settings:
        """Settings of the URI."""
        return self._port.settings

    @property
    def credit(self) -> int:
        """Number of messages that the broker may send ahead."""
        return self.settings.credit or PREFETCHED

    @property
    def _first_credit(self) -> int:
        """Credit until the size of messages is known, where it can be changed."""
        return min(self.credit, FIRST) if self.capabilities.flow else self.credit

    @property
    def window(self) -> SentAhead:
        """Credit as a window, and in bytes where the broker counts those."""
        in_bytes = self.capabilities.window_in_bytes
        return SentAhead(self.credit, self.credit * UNIT if in_bytes else None)

    @property
    def held(self) -> int | None:
        """Unaccepted messages of a queue at which the broker stops sending; None: no limit is known."""
        return self.capabilities.max_unacknowledged

    @property
    def connected(self) -> bool:
        """True if the connection is up."""
        return self._port.connected

    @property
    def clock(self) -> Clock:
        """Clock of the connection."""
        return self._port.clock

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the broker, as of the last connection."""
        return self._port.capabilities

    def wire(self) -> Mapping[str, str]:
        """Return the data by which bytes of this connection are restored to deliveries."""
        assert self._consumer is not None, "begun"
        return self._consumer.wire()

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Accept messages that were taken, all over one connection.

        Where credit counts messages, it follows their size: messages that the broker sends ahead are in memory.
        """
        assert self._consumer is not None, "begun"
        if deliveries[0].epoch != self._epoch:
            self._epoch, self._granted = deliveries[0].epoch, self._first_credit
        size = sum([len(each.body) for each in deliveries]) / len(deliveries)
        wanted = min(self.credit, max(LEAST, int(AHEAD / (size + UNIT))))
        more = max(wanted - self._granted, -len(deliveries) + 1)
        self._consumer.accept_bulk(deliveries, more=more)
        self._granted += more

    def refuse_odd(self) -> int:
        """Dead-letter messages that cannot become rows; return their number. Raises the error that stopped the
        consumer.
        """
        consumer = self._consumer
        assert consumer is not None, "begun"
        if consumer.error is not None:
            raise consumer.error
        if not consumer.engine.load.ready():
            return 0
        odd = consumer.take_many(ODD, UNIT * UNIT, 0.0)
        for delivery in odd:
            consumer.settle(delivery, Poisoned(delivery, NOT_WHOLE))
        return len(odd)

    @property
    def set_aside(self) -> int:
        """Number of messages that stay on the broker, because they cannot be dead-lettered."""
        return 0 if self._consumer is None else self._consumer.engine.state.counts.set_aside

    # Rows of the log.

    def log_capabilities(self) -> Capabilities:
        """Return the capabilities for rows of the log: held without a limit, dead-lettered by a confirmed copy.

        The broker's own dead-letter place is asked for once, at the start of a query.
        """
        if self._able is None:
            options: ConsumerOptions = {"subscription": self._source.subscription}
            self._able = self._port.capabilities_for(self._port.plan(self._source.destination, options))
        able = replace(self._able, flow=False, release=True, counts=False, forward="confirmed", max_hold=None)
        # The broker does not have these messages any more: it cannot delay them.
        return replace(able, reschedule="none") if able.reschedule == "native" else able

    def engine_for_log(self) -> Engine:
        """Return the engine for rows of the log. The number of running rows is limited by the batch."""
        credit = self._source.most_rows
        settings = replace(self.settings, credit=credit, max_parked=credit + self.most_parked)
        options: ConsumerOptions = {"subscription": self._source.subscription}
        able = self.log_capabilities()
        if any(each.dead_letter == "ack" for each in settings.dead_letters):
            # The broker has dropped these messages.
            able = replace(able, poison_persistent=False, poison_on_request=False)
        destination = self._source.destination
        return self._port.plan(
            destination, options, settings=settings, capabilities=able, counted=True
        ).engine

    @property
    def most_parked(self) -> int:
        """Number of rows that may wait in the log before batches get no new messages."""
        return self.settings.max_parked or 1000

    def forward(self, log: str, command: Forward, done: Callable[[RedeliveryError | None], None]) -> None:
        """Send the dead letter of a row; `done` is called, on any thread, when the broker has answered.

        A process that dies before it has recorded the confirmation sends the dead letter again. Artemis drops the
        second one by its duplicate id, which is unique among all rows of all logs.
        """
        own, copy = self.capabilities.duplicate_property, command.copy
        headers = {name: value for name, value in copy.headers.items() if not never_copied(name)}
        headers |= command.marks
        if own is not None:
            headers[own] = f"{COPY_ID}{log}:{command.delivery.key}"
        future = self._port.send(replace(copy, headers=headers))

        def answered(_: object) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, RedeliveryError):
                error = TransportError(str(error))
            done(error)

        future.add_done_callback(answered)
