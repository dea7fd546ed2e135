"""Draining of a queue in an executor. Messages are durable before they are accepted; rows appear when all are taken."""

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

# Messages in a segment, and unsettled at once.
ROWS = 2000
# Bytes of bodies in a segment; a single larger message is a segment of its own.
BYTES = 32 << 20
# Seconds to wait for one more message: a broker can stop sending until these are accepted (Classic: at 200).
COMPANY = 0.05
# Messages that are kept here unacknowledged at most: they did not arrive whole, or exceed the limit.
LEFT = 1000


def drained(options: ReadOptions, queue: str, columns: ShownColumns) -> Iterator[pa.RecordBatch]:
    """Drain a queue, unless that has been done, and return the rows as Arrow batches: the same rows at each call.

    Raises:
        ConfigurationError: The folder belongs to another drain.
        AdapterError: The broker refuses the queue, or a message does not arrive whole.
        TransportError: The connection was lost for good.
    """
    drain = _Drain(options, queue)
    drain.carry_out()
    for number in range(drain.ended):
        segment = drain.log.read(number)
        name = f"{options.run}/{queue}/{number}"
        for first in range(0, len(segment), SHOWN):
            yield columns.of(segment.deliveries(first, SHOWN), queue, name, first)


class _Drain:
    """One attempt to drain one queue."""

    def __init__(self, options: ReadOptions, queue: str) -> None:
        self._options = options
        self._queue = queue
        self._reading = DeadLetterConnection(options.connection_uri())
        self.log = DrainedQueue(options, queue, self._reading.settings)
        self.ended = 0
        """Number of segments with rows, once the drain has ended."""
        self._next = 0  # segment to publish next
        self._rows = 0
        self._returned = DrainDuplicates(self.log, self._reading.clock)
        self._afterwards = EndOfDrain(self._reading.clock)
        # True when the next messages were sent after the drain began.
        self._enough = False
        self._left = 0

    def carry_out(self) -> None:
        """Continue after the last segment in the folder, until the drain has ended."""
        if self._caught_up():
            return
        with self._reading:
            while not self._round():
                pass
        if self._left:
            logger.warning(
                "%s: %d messages did not arrive whole; they stay on the broker", self._queue, self._left
            )

    def _caught_up(self) -> bool:
        """Read the segments that are new here; return True if the last one ends the drain."""
        for number in range(self._next, self.log.segments()):
            rows = len(self.log.read(number))
            if not rows:
                self.ended = number
                return True
            self._next = number + 1
            self._rows += rows
        return False

    def _round(self) -> bool:
        """Take and publish until the queue is empty, or another attempt was first; return True if the drain is over.

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
                    # The broker takes unsettled messages back when the taker ends.
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
        """Take the messages of the next segment; an empty list: the queue is empty, or enough messages are taken."""
        most = 0 if self._enough else min(ROWS, self._missing)
        taken: list[Delivery] = []
        size, asked, began, waited = 0, False, self._now(), 0.0
        while len(taken) < most and size < BYTES:
            delivery = taker.take(COMPANY if taken else self._options.idle)
            waited = waited if taken else self._now() - began
            if delivery is None:
                if taken or asked:
                    break
                # The broker may only be slow. It must answer a question about the queue, and then be silent once more.
                self._reading.ask(self._queue)
                asked = True
                continue
            if taken and taken[0].epoch != delivery.epoch:
                self._lose(taker, taken)
                size = 0
            if self._again(delivery):
                # The broker must have read this acceptance, too.
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
        """Drop the messages of a lost connection that are not in a segment: the broker redelivers them."""
        for delivery in taken:
            taker.drop(delivery)
        taken.clear()

    def _see_behind(self, taker: DeadLetterConsumer) -> None:
        """Raise AdapterError if no more messages can be kept here: the silence then does not mean an empty queue."""
        if taker.port.engine.load.full:
            raise AdapterError(
                f"{self._queue}: {taker.held:,} messages do not arrive whole over this protocol, and messages behind "
                "them cannot be received; drain over AMQP"
            )

    def _have_accepted(self, taker: DeadLetterConsumer) -> None:
        """Accept duplicates of messages that the drain has, and keep all others unacknowledged until the end.

        The last messages of a killed attempt are in the drain and also on the queue. The broker sends them before it is
        silent.
        """
        asked = False
        while True:
            # Acceptances can be lost here, too.
            self._returned.go_on(taker.port.engine.epoch, self._next)
            expected = self._returned.expected and taker.full is None
            delivery = taker.take(self._options.idle) if expected else None
            if delivery is None:
                if asked:
                    break
                # The broker answers after it has read the acceptances.
                self._reading.ask(self._queue)
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
        """True if a message is in the drain."""
        self._returned.go_on(delivery.epoch, self._next)
        return self._returned.has(delivery, self._next, marks=self._reading.capabilities.marks)

    def _now(self) -> float:
        return self._reading.clock.monotonic()

    @property
    def _missing(self) -> int:
        """Number of messages that can still be taken."""
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
        """Leave on the broker a message that did not arrive whole, or raise AdapterError."""
        if not self._options.accepts_less:
            raise AdapterError(
                f"{self._queue}: message {delivery.identity or '(no id)'} does not arrive whole over this protocol; "
                "drain over AMQP, or set incomplete=accept to leave such messages on the broker"
            )
        self._left += 1
        taker.keep(delivery)


def _wire_of(taker: DeadLetterConsumer, epoch: int) -> Mapping[str, str] | None:
    """Return the data that restores the deliveries of an epoch; None: its connection is lost."""
    try:
        wire = taker.port.wire()
    except TransportError:
        return None
    # Compared last: the data can be of a later connection than the messages.
    return wire if taker.port.engine.epoch == epoch else None
