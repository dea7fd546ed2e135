"""Draining of a queue in an executor. Messages are durable before they are accepted; rows appear when all are taken."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.message_history import RETURN
from redelivery.dlq.dead_letter import read_letter
from redelivery.dlq.dlq_connection import DeadLetterConnection
from redelivery.driver.port import restorer
from redelivery.errors import AdapterError, ConfigurationError, TransportError
from redelivery_spark.batch.read_columns import ROWS as SHOWN
from redelivery_spark.wal.checked_file import publish_checked, read_json
from redelivery_spark.wal.segment_files import (
    STORED,
    SegmentFacts,
    facts_of,
    read_table,
    stored_table,
    written,
)
from redelivery_spark.wal.store import prepared

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dlq_connection import DeadLetterConsumer
    from redelivery.settings import Settings
    from redelivery_spark.batch.read_columns import ShownColumns
    from redelivery_spark.options.source_options import ReadOptions

__all__ = ["DrainedQueue", "drained"]


# ---- Drain duplicates ------------------------------------------------------------------------------------
# Duplicates in a drain: the broker redelivers messages whose acceptances were lost with a connection or an attempt.

# Segments that are kept open: duplicates arrive roughly in the order in which the messages were taken.
OPEN = 4
# Rows that are restored at once.
COMPARED_ROWS = 1000
# Bits of a row's number in its segment.
_SHIFT = 20


class DrainDuplicates:
    """Rows that a drain had when a connection began. Over this connection the broker can redeliver each once.

    It can do so after all other messages: Classic puts the messages of a dead connection behind those that it has paged
    in. A row can be of any age: messages that the broker redelivered to one attempt can go back with it, and arrive at
    a third one.

    A row is identified by its key, and by the digest of all that the producer sent. The rows are read when the first
    message arrives that can be a duplicate, and those of each segment once. A drain can have a million rows. Of each
    only two integers are kept, about 110 bytes, no id and no body: a hit is restored and compared.
    """

    def __init__(self, log: DrainedQueue, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._epoch = 0
        self._since = 0.0
        # Segments whose messages can be redelivered over this connection.
        self._segments = 0
        self._known = 0  # segments that are in `_rows`
        # Rows, by the hash of key and digest.
        self._rows: dict[int, int | list[int]] = {}
        # Rows of which a duplicate arrived over this connection.
        self._found: set[int] = set()
        # Open segments by number, the most recently used last.
        self._open: dict[int, DrainedSegment] = {}

    @property
    def expected(self) -> bool:
        """True if a message can arrive that is in the drain."""
        return self._segments > 0

    def begin(self, epoch: int, segments: int) -> None:
        """Expect messages of the first `segments` segments over the connection of this epoch."""
        self._epoch = epoch
        self._since = self._clock.monotonic()
        self._segments = segments
        self._found.clear()

    def go_on(self, epoch: int, segments: int) -> None:
        """Call `begin` if the connection is another one."""
        if epoch != self._epoch:
            self.begin(epoch, segments)

    def has(self, delivery: Delivery, published: int, *, marks: bool) -> bool:
        """True if this message is in the first `published` segments. `marks`: as in `Capabilities`.

        A broker that marks no redelivery sends duplicates soon after the connection began, or never.
        """
        if not self._segments or delivery.key is None:
            return False
        if not delivery.redelivered and (marks or self._clock.monotonic() - self._since >= RETURN):
            return False
        self._learn(min(self._segments, published))
        proof = _proof(delivery)
        rows = self._rows.get(hash(proof), ())
        for row in (rows,) if isinstance(rows, int) else rows:
            if row in self._found:
                continue
            (there,) = self._segment(row >> _SHIFT).deliveries(row & ((1 << _SHIFT) - 1), 1)
            if _proof(there) == proof:
                self._found.add(row)
                return True
        return False

    def _learn(self, segments: int) -> None:
        """Read the segments that are new here."""
        for number in range(self._known, segments):
            segment = self._log.read(number)
            for first in range(0, len(segment), COMPARED_ROWS):
                for at, there in enumerate(segment.deliveries(first, COMPARED_ROWS), first):
                    self._add(number << _SHIFT | at, hash(_proof(there)))
            self._known = number + 1

    def _add(self, row: int, hashed: int) -> None:
        rows = self._rows.setdefault(hashed, row)
        if isinstance(rows, list):
            rows.append(row)
        elif rows != row:
            self._rows[hashed] = [rows, row]

    def _segment(self, number: int) -> DrainedSegment:
        segment = self._open.pop(number, None)
        if segment is None:
            segment = self._log.read(number)
            if len(self._open) >= OPEN:
                del self._open[next(iter(self._open))]
        self._open[number] = segment
        return segment


def _proof(delivery: Delivery) -> tuple[Hashable, bytes]:
    return delivery.key, delivery.digest()


# ---- Drained segment -------------------------------------------------------------------------------------
# Segment of a drain: the bytes of messages as they arrived, and the deliveries that are restored from them.

END = STORED.empty_table()
"""Last segment of a drain: no rows."""


def segment_of(deliveries: Sequence[Delivery], wire: Mapping[str, str], arrived: float, run: str) -> pa.Table:
    """Return messages of one connection as the rows of a segment.

    Args:
        deliveries: The messages. They still have their bodies.
        wire: Data that restores deliveries of their connection.
        arrived: Time of their arrival, in seconds since the Unix epoch.
        run: Name of the drain.
    """
    stored = [delivery.stored() for delivery in deliveries]
    facts = SegmentFacts(arrived, run, (wire,))
    return stored_table([head for head, _ in stored], [body for _, body in stored], facts)


class DrainedSegment:
    """Rows of a segment. A row is restored to a delivery when it is asked for."""

    def __init__(self, table: pa.Table) -> None:
        """Raises RedeliveryError: the table is not a segment."""
        self._table = table
        if table.num_rows:
            facts = facts_of(table.schema)
            self._arrived = facts.at
            self._restore = restorer(facts.wires[0])

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def deliveries(self, first: int = 0, count: int | None = None) -> list[Delivery]:
        """Return the deliveries of some rows, or of all from `first` on."""
        some = self._table.slice(first, count)
        if not some.num_rows:
            return []
        rows = zip(some.column("head").to_pylist(), some.column("body").to_pylist(), strict=True)
        return [self._restore(head, body, self._arrived) for head, body in rows]


# ---- Drained queue ---------------------------------------------------------------------------------------
# Folder of one drain: numbered segments of each queue. The last one is empty and marks the end of the drain.
#
# Attempts of one task agree by the names of segments: each can be published once. An attempt that finds a name in
# use reads that file.

_BOUND = "drain.json"
# Version of the segments' content. Version 1 had a column for each part of a message, and had no version number.
_FORMAT = 2


class DrainedQueue:
    """Segments that one drain has taken from one queue."""

    def __init__(self, options: ReadOptions, queue: str, settings: Settings) -> None:
        """Make the folder, or find it. Raises ConfigurationError: it belongs to another drain, or cannot be used."""
        assert options.wal_dir is not None, "checked where options are read"
        self.path = f"{options.wal_dir}/drains/{options.run}"
        readable = re.sub(r"[^\w.-]+", "_", queue.partition("://")[2])[:60]
        self._folder = f"{readable}-{hashlib.sha256(queue.encode()).hexdigest()[:12]}"
        self._store = prepared(self.path, self._folder)
        self._bind(options, settings)

    def _bind(self, options: ReadOptions, settings: Settings) -> None:
        """Refuse to show messages of one broker as those of another."""
        own = {
            "format": _FORMAT,
            "brokers": sorted(str(endpoint) for endpoint in settings.endpoints),
            "selector": options.selector,
        }
        if publish_checked(self._store, _BOUND, json.dumps(own).encode()):
            return
        there: dict[str, Any] = read_json(self._store, _BOUND) or {}
        if there == own:
            return
        name = f"run={options.run}: walDir={options.wal_dir} has a drain of this name"
        if there.get("format") != _FORMAT:
            raise ConfigurationError(
                f"{name}, begun by another version of this package; read it with that version, or use another run",
                option="run",
            )
        was = ", ".join(there.get("brokers", ())) or "another broker"
        selected = f" with the selector {there['selector']}" if there.get("selector") else ""
        raise ConfigurationError(f"{name} from {was}{selected}; use another run", option="run")

    def segments(self) -> int:
        """Return the number of segments."""
        return len(self._store.names(self._folder))

    def read(self, number: int) -> DrainedSegment:
        """Return a segment; the last one has no rows. Raises FileMissing, and LogDamaged."""
        return DrainedSegment(read_table(self._store, self._name(number)))

    def publish(self, number: int, rows: pa.Table) -> bool:
        """Publish a segment, durably; return False if another attempt has published it: that one counts."""
        return publish_checked(self._store, self._name(number), *written(rows))

    def end(self, number: int) -> bool:
        """Mark the end of the drain after `number` segments; return False if another attempt has published one more."""
        return self.publish(number, END)

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:06d}.arrow"


# ---- End of drain ----------------------------------------------------------------------------------------
# End of a drain whose producers never let the queue become empty: it has all messages of the drain's beginning.

# Seconds by which the clocks of producers, broker and this machine may differ.
MARGIN = 60.0
# Seconds of waiting for a message from which on the queue counts as empty before it.
GAP = 0.5
# Seconds in which the drain had to wait for each message: no older message is behind them.
LONGEST_TRICKLE = 60.0


class EndOfDrain:
    """Decides from send times and waits whether a drain has all messages that were there when it began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.time()
        # Time of the last message that arrived without a wait.
        self._steady = clock.monotonic()

    def shown_by(self, sent: Sequence[datetime | None], waited: float) -> bool:
        """True if all these messages were sent after the drain began, or messages have trickled in for a minute.

        `waited`: seconds of waiting for the first of them.
        """
        now = self._clock.monotonic()
        if waited < GAP:
            self._steady = now
        return now - self._steady > LONGEST_TRICKLE or all(map(self._late, sent))

    def _late(self, sent: datetime | None) -> bool:
        # A send time in the future proves nothing: that clock is ahead.
        return sent is not None and self._began + MARGIN < sent.timestamp() <= self._clock.time()


# ---- Drain -----------------------------------------------------------------------------------------------

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
            self._returned.begin(taker.port.engine.state.epoch, self._next)
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
            self._returned.go_on(taker.port.engine.state.epoch, self._next)
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
    return wire if taker.port.engine.state.epoch == epoch else None
