"""Emptying a queue, in an executor: what was taken is durable before it is accepted, and shown when all of it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.dlq.dead_letter import read_letter
from redelivery.dlq.dlq_connection import DeadLetterConnection
from redelivery.errors import AdapterError, TransportError
from redelivery_spark.batch.drain_duplicates import DrainDuplicates
from redelivery_spark.batch.drained_queue import DrainedQueue
from redelivery_spark.batch.drained_segment import segment_of
from redelivery_spark.batch.end_of_drain import EndOfDrain
from redelivery_spark.batch.read_columns import ROWS as SHOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dlq_consumer import DeadLetterConsumer
    from redelivery_spark.batch.read_columns import ShownColumns
    from redelivery_spark.options.batch_options import ReadOptions

__all__ = ["drained"]

logger = logging.getLogger("redelivery.spark")

# In a segment, and unsettled at once.
ROWS = 2000
# Of bodies in it, but for one message.
BYTES = 32 << 20
# Seconds to wait for one more: a broker may hand out no more until these are accepted (Classic: 200).
COMPANY = 0.05
# Messages that may be held here because they are not whole, or beyond the limit.
LEFT = 1000


def drained(options: ReadOptions, queue: str, columns: ShownColumns) -> Iterator[pa.RecordBatch]:
    """Empty a queue, or find that this has been done, and go through the rows: the same at each call.

    Raises:
        ConfigurationError: the folder is of another drain.
        AdapterError: the broker refuses the queue, or a message does not arrive whole.
        TransportError: the connection was lost for good.
    """
    drain = _Drain(options, queue)
    drain.carry_out()
    for number in range(drain.ended):
        segment = drain.log.read(number)
        name = f"{options.run}/{queue}/{number}"
        for first in range(0, len(segment), SHOWN):
            yield columns.of(segment.deliveries(first, SHOWN), queue, name, first)


class _Drain:
    """One attempt at one queue."""

    def __init__(self, options: ReadOptions, queue: str) -> None:
        self._options = options
        self._queue = queue
        self._reading = DeadLetterConnection(options.connection_uri())
        self.log = DrainedQueue(options, queue, self._reading.settings)
        self.ended = 0
        """Segments with rows, once the drain has ended."""
        self._next = 0  # the segment to be published
        self._rows = 0
        self._returned = DrainDuplicates(self.log, self._reading.clock)
        self._afterwards = EndOfDrain(self._reading.clock)
        self._enough = False  # what comes now was sent later
        self._left = 0

    def carry_out(self) -> None:
        """Go on where the folder ends, until it says that the drain has ended."""
        if self._caught_up():
            return
        with self._reading:
            while not self._round():
                pass
        if self._left:
            logger.warning("%d messages of %s do not arrive whole and were left", self._left, self._queue)

    def _caught_up(self) -> bool:
        """Read the segments that are new here; return whether the last of them ends the drain."""
        for number in range(self._next, self.log.segments()):
            rows = len(self.log.read(number))
            if not rows:
                self.ended = number
                return True
            self._next = number + 1
            self._rows += rows
        return False

    def _round(self) -> bool:
        """Take and publish until the queue is empty, or another attempt was first; return whether the drain is over.

        A round also ends when the connection is lost before its messages are published.
        """
        with self._reading.taker(
            self._queue, Redrive(""), self._options.selector, credit=ROWS, held=LEFT, recalls=False
        ) as taker:
            self._returned.begin(taker.port.engine.epoch, self._next)
            self._left = 0
            while taken := self._some(taker):
                wire = _wire_of(taker, taken[0].epoch)
                if wire is None or not self._publish(taken, wire):
                    # The broker takes back what is unsettled when the taker ends.
                    return self._caught_up()
                for delivery in taken:
                    taker.drop(delivery)
            if self._enough or not self._missing:
                self._have_accepted(taker)
            if self.log.end(self._next):
                self.ended = self._next
                return True
        return self._caught_up()

    def _some(self, taker: DeadLetterConsumer) -> list[Delivery]:
        """Take what is to be in the next segment; nothing: the queue is empty, or enough has been taken."""
        most = 0 if self._enough else min(ROWS, self._missing)
        taken: list[Delivery] = []
        size, asked, began, waited = 0, False, self._now(), 0.0
        while len(taken) < most and size < BYTES:
            delivery = taker.take(COMPANY if taken else self._options.idle)
            waited = waited if taken else self._now() - began
            if delivery is None:
                if taken or asked:
                    break
                # Silence may be a broker that is slow: it has to answer for the queue, and then be silent again.
                self._reading.ask(self._queue)
                asked = True
                continue
            if taken and taken[0].epoch != delivery.epoch:
                self._lose(taker, taken)
                size = 0
            if self._again(delivery):
                # The broker is to have read this, too.
                asked = False
                taker.drop(delivery)
            elif read_letter(delivery, self._queue, empty_is_whole=self._vouched).whole:
                asked = False
                taken.append(delivery)
                size += len(delivery.body)
            else:
                self._leave(taker, delivery)
        if taken:
            self._enough = self._afterwards.shown_by([each.timestamp for each in taken], waited)
        elif most:
            self._see_behind(taker)
        return taken

    def _lose(self, taker: DeadLetterConsumer, taken: list[Delivery]) -> None:
        """Forget what is not in the log when its connection is lost: the broker redelivers it."""
        for delivery in taken:
            taker.drop(delivery)
        taken.clear()

    def _see_behind(self, taker: DeadLetterConsumer) -> None:
        """Refuse to take the silence for the queue's end where no more may be held. Raises AdapterError."""
        if taker.port.engine.load.full:
            raise AdapterError(
                f"{self._queue}: {taker.held:,} of its messages do not arrive whole over this protocol, and what is "
                "behind them cannot be seen: drain over AMQP"
            )

    def _have_accepted(self, taker: DeadLetterConsumer) -> None:
        """Accept duplicates of what the drain has, and hold all other messages until the end.

        A killed attempt's last messages are in the drain, and on the queue. The broker sends them before it is silent.
        """
        asked = False
        while True:
            # Acceptances may be lost here, too.
            self._returned.go_on(taker.port.engine.epoch, self._next)
            expected = self._returned.expected and taker.full is None
            delivery = taker.take(self._options.idle) if expected else None
            if delivery is None:
                if asked:
                    break
                self._reading.ask(self._queue)  # so it has read the acceptances
                asked = True
                continue
            asked = False
            if self._again(delivery):
                taker.drop(delivery)
            else:
                taker.keep(delivery)
        if self._returned.expected and taker.full is not None:
            logger.warning(
                "%s: %s; messages that the drain has may still be on the queue behind them",
                self._queue,
                taker.full,
            )

    def _again(self, delivery: Delivery) -> bool:
        """Whether a message is in the drain."""
        self._returned.go_on(delivery.epoch, self._next)
        return self._returned.has(delivery, self._next, marks=self._reading.capabilities.marks)

    def _now(self) -> float:
        return self._reading.clock.monotonic()

    @property
    def _missing(self) -> int:
        """How many messages may still be taken."""
        assert self._options.most is not None, "a drain has a limit"
        return self._options.most - self._rows

    @property
    def _vouched(self) -> bool:
        return self._reading.settings.empty_body == "forward"

    def _publish(self, taken: list[Delivery], wire: Mapping[str, str]) -> bool:
        rows = segment_of(taken, wire, self._reading.clock.time(), self._options.run)
        if not self.log.publish(self._next, rows):
            return False
        self._next += 1
        self._rows += len(taken)
        return True

    def _leave(self, taker: DeadLetterConsumer, delivery: Delivery) -> None:
        """Keep a message at the broker that no segment could hold all of."""
        if not self._options.accepts_less:
            raise AdapterError(
                f"message {delivery.identity or '(no id)'} of {self._queue} does not arrive whole over this protocol: "
                "drain over AMQP, or leave such messages by incomplete=accept"
            )
        self._left += 1
        taker.keep(delivery)


def _wire_of(taker: DeadLetterConsumer, epoch: int) -> Mapping[str, str] | None:
    """Return what restores the deliveries of an epoch; None: its connection is lost."""
    try:
        wire = taker.port.wire()
    except TransportError:
        return None
    # Asked last: the wire may be of a later connection than the messages.
    return wire if taker.port.engine.epoch == epoch else None
