"""The connection of a source: one consumer whose messages are taken, and accepted, in lists; and the way to send."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
    from redelivery_spark.options.stream_options import SourceOptions

__all__ = ["SourceConnection"]

PREFETCHED = 20_000
"""Messages that a broker may send ahead, unless `redelivery.credit` says otherwise: four segments, so that the broker
sends the next ones while one is written."""
# Where it follows their size: of the first ones, at least, and bytes.
FIRST, LEAST, AHEAD = 1_000, 100, 64 << 20
# A window in bytes has so many of them for each message (adapters/redelivery_stomp/byte_windows.py).
UNIT = 1024
# In the log a copy could not be made of it later.
NOT_WHOLE = Cause.of("its body did not arrive whole, and the log could hold no copy of it")
ODD = 1000


class SourceConnection:
    """A connection, and one consumer of it. What was taken and not accepted, the broker takes back at the end."""

    def __init__(self, options: SourceOptions) -> None:
        self._port = ConnectionPort(options.connection_uri())
        self._source = options
        self._consumer: ConsumerPort | None = None
        self.bulk: BulkIntake
        # The connection of the last acceptance, and how many messages it may have sent ahead.
        self._epoch = -1
        self._granted = 0

    def connect(self) -> None:
        """Connect. Raises RedeliveryError."""
        self._port.__enter__()

    def begin(self) -> None:
        """Subscribe. Raises RedeliveryError."""
        source = self._source
        credit = self._first_credit
        # Nothing waits unacknowledged: the log holds it.
        settings = replace(self.settings, policies=RedeliveryPolicyMap(), credit=credit)
        route = None
        # A copy has the cause with it, but for what cannot be copied.
        if settings.dead_letter == "auto":
            route = replace(
                dead_letters_of(settings, single(source.destination), source.subscription), scheduled=True
            )
        options: ConsumerOptions = {"selector": source.selector, "subscription": source.subscription}
        plan = self._port.plan(
            source.destination, options, settings=settings, route=route, sets_aside=True
        ).with_window(credit)
        self.bulk = BulkIntake(self.clock, empty_is_whole=settings.empty_body == "forward")
        self._consumer = self._port.subscribe(plan, ConsumerHooks(keeps_history=False, bulk=self.bulk))

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close within `timeout` seconds; the broker takes back what is not accepted."""
        self._port.close(timeout)

    @property
    def settings(self) -> Settings:
        """What the URI says."""
        return self._port.settings

    @property
    def credit(self) -> int:
        """How many messages the broker may send ahead."""
        return self.settings.credit or PREFETCHED

    @property
    def _first_credit(self) -> int:
        """The same before it is known how large messages are, where it can be changed."""
        return min(self.credit, FIRST) if self.capabilities.flow else self.credit

    @property
    def window(self) -> SentAhead:
        """The same, and in bytes where the broker counts those."""
        in_bytes = self.capabilities.window_in_bytes
        return SentAhead(self.credit, self.credit * UNIT if in_bytes else None)

    @property
    def held(self) -> int | None:
        """How many messages of a queue may be unaccepted before the broker sends nothing more; None: no limit known."""
        return self.capabilities.max_unacknowledged

    @property
    def connected(self) -> bool:
        """Whether the connection stands at the moment."""
        return self._port.connected

    @property
    def clock(self) -> Clock:
        """What it waits by."""
        return self._port.clock

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do, as of the last connection."""
        return self._port.capabilities

    def wire(self) -> Mapping[str, str]:
        """Return what makes deliveries of the bytes that come over this connection."""
        assert self._consumer is not None, "begun"
        return self._consumer.wire()

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Accept messages that were taken, all over one connection.

        Where credit counts messages, it follows their size: what the broker sends ahead is in memory.
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
        """Have the broker dead-letter what no row can be made of; return how many. Raises what stopped the consumer."""
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
        """How many messages stay at the broker, because no dead letter could be made of them."""
        return 0 if self._consumer is None else self._consumer.engine.counts.set_aside

    # For the rows of the log.

    def log_capabilities(self) -> Capabilities:
        """What can be done about rows of the log: held without a limit, dead-lettered by a confirmed copy."""
        able = replace(
            self.capabilities, flow=False, release=True, counts=False, forward="confirmed", max_hold=None
        )
        # What is in the log is not the broker's any more, so it can hold nothing of it back.
        return replace(able, reschedule="none") if able.reschedule == "native" else able

    def engine_for_log(self) -> Engine:
        """Return the engine for rows of the log. How many run at once is the batch's affair."""
        credit = self._source.most_rows
        settings = replace(self.settings, credit=credit, max_parked=credit + self.most_parked)
        options: ConsumerOptions = {"subscription": self._source.subscription}
        able = self.log_capabilities()
        if settings.dead_letter == "ack":
            # The broker has let go of them.
            able = replace(able, poison_persistent=False, poison_on_request=False)
        destination = self._source.destination
        return self._port.plan(
            destination, options, settings=settings, capabilities=able, counted=True
        ).engine

    @property
    def most_parked(self) -> int:
        """How many rows may wait in the log before nothing fresh goes into a batch."""
        return self.settings.max_parked or 1000

    def forward(self, log: str, command: Forward, done: Callable[[RedeliveryError | None], None]) -> None:
        """Send the copy of a row; `done` is called, on any thread, when the broker has answered.

        A process that dies before it has written down that the copy is there sends it again: Artemis drops the second
        one by what no other row of any log is called.
        """
        own, copy = self.capabilities.duplicate_property, command.copy
        if own is not None:
            mark = f"redelivery:{log}:{command.delivery.key}"
            copy = replace(copy, headers={**copy.headers, own: mark})
        future = self._port.send(copy)

        def answered(_: object) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, RedeliveryError):
                error = TransportError(str(error))
            done(error)

        future.add_done_callback(answered)
