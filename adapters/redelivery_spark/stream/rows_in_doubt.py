"""Rows whose acceptance the broker may not have read: it can redeliver their messages over a later connection.

A broker redelivers only messages whose acceptance it had not read when a connection ended, and it sends no further
ahead than its window. In doubt are therefore the newest rows of a connection: two windows of them, for safety. Their
segments stay on the disk: a start after a crash, or after two, knows them.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from redelivery.core.message_history import RETURN
from redelivery_spark.stream.engine_driver import restored
from redelivery_spark.stream.journal import rows_in
from redelivery_spark.wal.checked_file import FileMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery_spark.wal.lane import Lane, Segment

__all__ = ["RowsInDoubt", "SentAhead"]


MOST_IN_DOUBT = 256 << 20
"""Bytes in doubt of one connection. Messages are accepted in lists of 8 MB, and a broker that is so far behind with
reading acceptances has no more messages to redeliver.
"""


class SentAhead(NamedTuple):
    """Window of a broker: messages that it sends ahead, or bytes where it counts those."""

    messages: int
    size: int | None = None

    def holds(self, rows: int, size: int) -> bool:
        """True if so much may be unaccepted at once, with as much again for messages on the way."""
        if self.size is not None:
            return size < 2 * self.size
        return rows < 2 * self.messages and size < MOST_IN_DOUBT


LONGEST = 600.0
"""Seconds after its end for which a connection is in doubt at most. It bounds what connections leave behind that are
lost repeatedly, and never empty. Only time with a connection counts: a duplicate waits on the broker for one.

Also: seconds after which a broker that has a connection has read all that it was sent over it. If the last rows of an
earlier start's connection are older by the wall clock, the messages whose acceptance was lost are back in their queue.
"""


class _Place(NamedTuple):
    connection: str
    lane: Lane
    number: int
    row: int


class RowsInDoubt:
    """Rows in doubt for one reader: of ended connections, its own, its siblings' and earlier starts'.

    One thread, the reader's, for all but `ended`. Each row is found once in a connection.
    """

    def __init__(self, own: Lane, others: Iterable[Lane], clock: Clock, siblings: str = "") -> None:
        """`own`: the reader's lane; `others`: lanes to which other readers have appended, or append now.

        `siblings`: prefix of the connection names of this start's readers, before their lanes; empty: there are no
        others.
        """
        self._own = own
        self._lanes = [own, *others]
        self._clock = clock
        self._siblings = siblings
        self.learned = 0
        """Number that grows when rows come into doubt: a message can be a duplicate now that was none before."""
        self._connection = ""
        self._window = SentAhead(0)
        self._known: dict[Hashable, list[_Place]] = {}
        # Rows whose duplicates arrived over this connection: over the next one they can be redelivered once more.
        self._found: list[tuple[Hashable, _Place]] = []
        # The segment that was read last: duplicates arrive in its order.
        self._open: tuple[Lane, int, pa.Table] | None = None
        # Number of the last segment of its own lane that was checked.
        self._seen = 0
        # Connections in doubt, with the time of each one's end.
        self._ends: dict[str, float] = {}
        # Those of them that ended long before this start, with the number of rows that later connections have brought
        # since.
        self._old: dict[str, int] = {}
        # Time at which this connection began.
        self._began = 0.0
        # Number of messages of this connection that had arrived when nothing of that one was on the way any more.
        # Negative: so many had arrived since over earlier ones.
        self._came: dict[str, int] = {}
        # Segments whose rows are in doubt, by lane and number, with their connections.
        self._read: dict[tuple[int, int], str] = {}
        # Segments of its own lane that are kept, with their connections.
        self._kept: dict[int, str] = {}
        # Connections of which nothing will be redelivered any more.
        self._over: set[str] = set()
        # Ended connections of siblings that live, and those that are still to be read.
        self._ended: set[str] = set()
        self._told: deque[tuple[int, str]] = deque()

    def begin(self, connection: str, window: SentAhead) -> None:
        """Begin a connection: all others of its own lane have ended."""
        before, self._connection, self._window = self._connection, connection, window
        now = self._began = self._clock.monotonic()
        for key, place in self._found:
            self._known.setdefault(key, []).append(place)
        self._found = []
        self._seen = self._own.last
        for lane in self._lanes:
            for segment in self._newest(lane, self._newly_in_doubt):
                if segment.connection not in self._ends and self._is_old(segment, before):
                    self._old[segment.connection] = self._later(segment)
                    self._ends[segment.connection] = now - RETURN
                self._learn(lane, segment)
        self._came = {
            each: -self._old.get(each, 0) for each, end in self._ends.items() if now - end >= RETURN
        }
        self.published()

    def _is_old(self, newest: Segment, before: str) -> bool:
        """True if a connection ended long ago, by its newest segment. Of this start's own the end is known exactly.

        A clock that was ahead of this one proves nothing.
        """
        own = newest.connection == before
        siblings = bool(self._siblings) and newest.connection.startswith(self._siblings)
        return not own and not siblings and self._clock.time() - newest.at > LONGEST

    def _later(self, newest: Segment) -> int:
        """Return the rows that have arrived here since the unaccepted messages of that connection were back in their
        queue.
        """
        return sum(each.rows for each in self._own.newest_first() if each.at - newest.at > LONGEST)

    def ended(self, lane: int, connection: str) -> None:
        """Note the end of a connection: a sibling's, or that of an older start that has appended since. Any thread."""
        self._told.append((lane, connection))

    def _newly_in_doubt(self, connection: str) -> bool:
        if connection == self._connection or connection in self._over or connection in self._ends:
            return False
        lives = bool(self._siblings) and connection.startswith(self._siblings)
        own = connection.startswith(f"{self._siblings}{self._own.number}.")
        return not lives or own or connection in self._ended

    def _newest(self, lane: Lane, wanted: Callable[[str], bool]) -> list[Segment]:
        """Return the newest segments of those connections in a lane, as many of each as are in doubt."""
        found: list[Segment] = []
        had: dict[str, tuple[int, int]] = {}
        for segment in lane.newest_first():
            rows, size = had.get(segment.connection, (0, 0))
            if wanted(segment.connection) and self._window.holds(rows, size):
                found.append(segment)
                had[segment.connection] = rows + segment.rows, size + segment.size
        return found

    def _learn(self, lane: Lane, segment: Segment) -> None:
        """Put the rows of a segment in doubt, once: its connection has ended."""
        connection, at = segment.connection, (lane.number, segment.number)
        if at in self._read:
            return
        self._read[at] = connection
        self.learned += 1
        self._ends.setdefault(connection, self._clock.monotonic())
        if lane is self._own:
            self._kept[segment.number] = connection
        try:
            table = lane.read(segment.number)
        except FileMissing:
            # The segment is another reader's, and was settled meanwhile.
            return
        for row, stored in enumerate(rows_in(table, lane.number, 0, segment.number, range(segment.rows))):
            key = restored(stored).key
            # Messages without an id are different rows each time.
            if key is not None:
                self._known.setdefault(key, []).append(_Place(connection, lane, segment.number, row))

    def published(self) -> None:
        """Keep the segments that may be in doubt when this connection ends.

        Rows that an older start has appended meanwhile are in doubt now: their connection ends with that start.
        """
        for segment in self._own.after(self._seen):
            self._seen = segment.number
            if segment.connection != self._connection:
                self._learn(self._own, segment)
        rows = size = 0
        least = self._own.last + 1
        for segment in self._own.newest_first():
            if segment.connection != self._connection or not self._window.holds(rows, size):
                break
            least, rows, size = segment.number, rows + segment.rows, size + segment.size
        self._own.keep(least, self._kept)

    def copies(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the messages that the log has already. Equal are key and digest: all that their producer sent."""
        # They can arrive right after the report that a sibling's connection has ended.
        self._look_at_ended()
        if not self._known:
            return []
        return [each for each in deliveries if self._is_copy(each)]

    def _is_copy(self, delivery: Delivery) -> bool:
        key = delivery.key
        places = None if key is None else self._known.get(key)
        # A broker that has died marks no message that it redelivers. But if a producer made the id, and sends no time,
        # two messages can be alike in every byte.
        if not places or not (delivery.strong or delivery.dated or delivery.redelivered):
            return False
        digest = delivery.digest()
        for place in places:
            if self._digest_of(place) == digest:
                places.remove(place)
                self._found.append((key, place))
                return True
        return False

    def _digest_of(self, place: _Place) -> bytes | None:
        _, lane, number, row = place
        if self._open is None or self._open[:2] != (lane, number):
            try:
                self._open = lane, number, lane.read(number)
            except FileMissing:
                return None
        return restored(rows_in(self._open[2], lane.number, 0, number, [row])[0]).digest()

    def look(self, arrived: int, *, idle: bool) -> None:
        """Read the ended connections of siblings, and drop connections whose duplicates have all arrived.

        They have all arrived when more time has passed since the end than any broker needs to notice it, and since then
        the destination was empty, or this connection has brought more than can have been before the duplicates.

        Args:
            arrived: Number of messages of this connection.
            idle: True if it brings none.
        """
        self._look_at_ended()
        if not self._connection:
            return
        now, over = self._clock.monotonic(), set[str]()
        for connection, end in self._ends.items():
            if now - end < RETURN:
                continue
            came = arrived - self._came.setdefault(connection, arrived)
            # A new connection that has brought nothing yet does not prove that there is nothing.
            shown = arrived or now - self._began >= RETURN or connection not in self._old
            if (idle and shown) or came > 2 * self._window.messages or now - end > LONGEST:
                over.add(connection)
        if over:
            self._forget(over)

    def _look_at_ended(self) -> None:
        while self._told:
            self._look_at(*self._told.popleft())

    def _look_at(self, number: int, connection: str) -> None:
        self._ended.add(connection)
        for lane in self._lanes:
            if lane.number == number and lane is not self._own:
                lane.load()
                for segment in self._newest(lane, connection.__eq__):
                    self._learn(lane, segment)

    def _forget(self, over: set[str]) -> None:
        """Take connections out of doubt, and drop the rows that were kept for them."""
        self._over |= over
        for connection in over:
            self._old.pop(connection, None)
            del self._ends[connection]
            self._came.pop(connection, None)
        left = (
            (key, [at for at in there if at.connection not in over]) for key, there in self._known.items()
        )
        self._known = {key: there for key, there in left if there}
        self._found = [(key, at) for key, at in self._found if at.connection not in over]
        self._kept = {number: name for number, name in self._kept.items() if name not in over}
        self._read = {at: name for at, name in self._read.items() if name not in over}
        self._open = None
        for lane in self._lanes:
            if lane is not self._own and not self._siblings and not self._ends:
                # No process appends to it any more.
                lane.keep(inf)
                lane.settle(lane.settled)
        self.published()
        # A query with AvailableNow settles nothing after its end: each run would leave a segment.
        self._own.settle(self._own.settled)
