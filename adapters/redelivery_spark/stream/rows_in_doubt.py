"""Rows whose acceptance the broker may not have read: it may send their messages again over a later connection.

A broker repeats only what it had not seen accepted when a connection ended, and it sends no further ahead than its
window. So what is in doubt are the newest rows of a connection, two windows of them for safety. Their segments stay on
the disk, so that a start after a crash, or after two, knows them.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from redelivery.core.message_history import RETURN
from redelivery.errors import RedeliveryError
from redelivery_spark.stream.logged_delivery import restored
from redelivery_spark.stream.stored_rows import rows_in

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery_spark.wal.lane import Lane, Segment

__all__ = ["RowsInDoubt", "SentAhead"]


MOST_IN_DOUBT = 256 << 20
"""Bytes of one connection. Messages are accepted in lists of 8 MB, and a broker that is so far behind with reading its
acceptances has none that would come."""


class SentAhead(NamedTuple):
    """How far a broker sends ahead: so many messages, or, where it counts those, so many bytes."""

    messages: int
    size: int | None = None

    def holds(self, rows: int, size: int) -> bool:
        """Whether so much may be unaccepted at once, with as much again for what is on its way."""
        if self.size is not None:
            return size < 2 * self.size
        return rows < 2 * self.messages and size < MOST_IN_DOUBT


LONGEST = 600.0
"""Seconds after its end for which a connection is in doubt at most: one that is lost again and again, and never empty,
leaves no more behind than that. Only time counts in which there is a connection: a copy waits at the broker for one.

Also: seconds after which a broker that has a connection has read all that it was sent over it. Where the last rows of
an earlier start's connection are older by the wall clock, what the broker has not seen accepted is back in its queue.
"""


class _Place(NamedTuple):
    connection: str
    lane: Lane
    number: int
    row: int


class RowsInDoubt:
    """What is in doubt for one reader: rows of connections that ended, its own, its siblings' and earlier starts'.

    One thread, the reader's, but for `ended`. Each row is found once in a connection.
    """

    def __init__(self, own: Lane, others: Iterable[Lane], clock: Clock, siblings: str = "") -> None:
        """`own`: where the reader appends; `others`: what other readers have appended to, or append to now.

        `siblings`: how the connections of readers of this very start are called, up to their lanes; empty: there are
        no others.
        """
        self._own = own
        self._lanes = [own, *others]
        self._clock = clock
        self._siblings = siblings
        self.learned = 0
        """A number that grows when rows come into doubt: what was no copy before may be one now."""
        self._connection = ""
        self._window = SentAhead(0)
        self._known: dict[Hashable, list[_Place]] = {}
        # What has come again over this connection: over the next one it may once more.
        self._found: list[tuple[Hashable, _Place]] = []
        # The segment that was read last: copies come in its order.
        self._open: tuple[Lane, int, pa.Table] | None = None
        # The last segment of its own lane that was looked at.
        self._seen = 0
        # The connections in doubt, and when each has ended.
        self._ends: dict[str, float] = {}
        # Those of them that ended long before this start, with the rows that have come over later connections since.
        self._old: dict[str, int] = {}
        # When this connection began.
        self._began = 0.0
        # Messages of this connection that had come when nothing of that one was on its way any more; less than none:
        # so many had come since over earlier ones.
        self._came: dict[str, int] = {}
        # The segments whose rows are in doubt, by lane and number, and their connections.
        self._read: dict[tuple[int, int], str] = {}
        # The segments of its own lane that stay, and their connections.
        self._kept: dict[int, str] = {}
        # Connections of which nothing comes any more.
        self._over: set[str] = set()
        # Of siblings that live: which of their connections have ended, and those that are to be looked at.
        self._ended: set[str] = set()
        self._told: deque[tuple[int, str]] = deque()

    def begin(self, connection: str, window: SentAhead) -> None:
        """Learn that a connection begins: all others of its own lane have ended."""
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
        """Whether a connection ended long ago, by its newest segment; of this start's own the end is known better.

        A clock that was ahead of this one shows nothing.
        """
        own = newest.connection == before
        siblings = bool(self._siblings) and newest.connection.startswith(self._siblings)
        return not own and not siblings and self._clock.time() - newest.at > LONGEST

    def _later(self, newest: Segment) -> int:
        """Return how many rows have come here since what the broker had not seen accepted was back in its queue."""
        return sum(each.rows for each in self._own.newest_first() if each.at - newest.at > LONGEST)

    def ended(self, lane: int, connection: str) -> None:
        """Learn that a connection has ended, a sibling's or an older start's that has appended since. Any thread."""
        self._told.append((lane, connection))

    def _newly_in_doubt(self, connection: str) -> bool:
        if connection == self._connection or connection in self._over or connection in self._ends:
            return False
        lives = bool(self._siblings) and connection.startswith(self._siblings)
        own = connection.startswith(f"{self._siblings}{self._own.number}.")
        return not lives or own or connection in self._ended

    def _newest(self, lane: Lane, wanted: Callable[[str], bool]) -> list[Segment]:
        """Return the newest segments of those connections in a lane, as many as are in doubt of each."""
        found: list[Segment] = []
        had: dict[str, tuple[int, int]] = {}
        for segment in lane.newest_first():
            rows, size = had.get(segment.connection, (0, 0))
            if wanted(segment.connection) and self._window.holds(rows, size):
                found.append(segment)
                had[segment.connection] = rows + segment.rows, size + segment.size
        return found

    def _learn(self, lane: Lane, segment: Segment) -> None:
        """Take the rows of a segment into the doubt, once: its connection has ended."""
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
        except RedeliveryError:
            # Another reader's, and settled meanwhile.
            return
        for row, stored in enumerate(rows_in(table, lane.number, 0, segment.number, range(segment.rows))):
            key = restored(stored).key
            # What has no id is a row each time.
            if key is not None:
                self._known.setdefault(key, []).append(_Place(connection, lane, segment.number, row))

    def published(self) -> None:
        """Have the segments stay that may be in doubt when this connection ends.

        What an older start has appended meanwhile, whose connection ends with it, is in doubt now.
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
        """Return those that the log has already. The same are key and digest: all that their producer sent."""
        # They may have come just after the news that a sibling's connection has ended.
        self._look_at_ended()
        if not self._known:
            return []
        return [each for each in deliveries if self._is_copy(each)]

    def _is_copy(self, delivery: Delivery) -> bool:
        key = delivery.key
        places = None if key is None else self._known.get(key)
        # A broker that has died marks nothing that it sends again. But where a producer made the id, and says no time,
        # two messages may be alike in every byte.
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
            except RedeliveryError:
                return None
        return restored(rows_in(self._open[2], lane.number, 0, number, [row])[0]).digest()

    def look(self, arrived: int, *, idle: bool) -> None:
        """See what siblings have left behind, and of which connections all has come again that comes.

        It has, when longer has passed since its end than any broker takes to notice that, and since then the
        destination has been empty, or more has come over this connection than can have been before the copies.

        Args:
            arrived: messages of this connection.
            idle: it brings none.
        """
        self._look_at_ended()
        if not self._connection:
            return
        now, over = self._clock.monotonic(), set[str]()
        for connection, end in self._ends.items():
            if now - end < RETURN:
                continue
            came = arrived - self._came.setdefault(connection, arrived)
            # A connection that is new, and has brought nothing yet, does not show that nothing is there.
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
        """Have connections be in doubt no longer, and let go of what was kept for them."""
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
                # Nobody appends to it any more.
                lane.keep(inf)
                lane.settle(lane.settled)
        self.published()
        # A query that processes what is there, and ends, settles nothing after that: each run would leave a segment.
        self._own.settle(self._own.settled)
