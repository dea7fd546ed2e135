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


class _Place(NamedTuple):
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
        self._connection = ""
        self._window = SentAhead(0)
        self._since = 0.0
        # Messages of this connection that came when it had stood for long enough.
        self._came: int | None = None
        self._known: dict[Hashable, list[_Place]] = {}
        # The segment that was read last: copies come in its order.
        self._open: tuple[Lane, int, pa.Table] | None = None
        # The last segment of its own lane that was looked at.
        self._seen = 0
        # The segments of its own lane that stay for it.
        self._kept: set[int] = set()
        # Connections of which nothing comes any more.
        self._over: set[str] = set()
        # Of siblings that live: which of their connections have ended, and those that are to be looked at.
        self._ended: set[str] = set()
        self._told: deque[tuple[int, str]] = deque()

    def begin(self, connection: str, window: SentAhead) -> None:
        """Learn that a connection begins: all others of its own lane have ended."""
        self._connection, self._window = connection, window
        self._since, self._came = self._clock.monotonic(), None
        self._known = {}
        self._seen = self._own.last
        for lane in self._lanes:
            found = self._newest(lane, self._in_doubt)
            for segment in found:
                self._learn(lane, segment)
            if lane is self._own:
                self._kept = {segment.number for segment in found}
        self.published()

    def ended(self, lane: int, connection: str) -> None:
        """Learn that a sibling's connection has ended. On any thread."""
        self._told.append((lane, connection))

    def _in_doubt(self, connection: str) -> bool:
        if connection == self._connection or connection in self._over:
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
        try:
            table = lane.read(segment.number)
        except RedeliveryError:
            # Another reader's, and settled meanwhile.
            return
        for at, stored in enumerate(rows_in(table, lane.number, 0, segment.number, range(segment.rows))):
            key = restored(stored).key
            # What has no id is a row each time.
            if key is not None:
                self._known.setdefault(key, []).append(_Place(lane, segment.number, at))

    def published(self) -> None:
        """Have the segments stay that may be in doubt when this connection ends.

        What an older start has appended meanwhile, whose connection ends with it, is in doubt now.
        """
        for segment in self._own.after(self._seen):
            self._seen = segment.number
            if segment.connection != self._connection:
                self._learn(self._own, segment)
                self._kept.add(segment.number)
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
                return True
        return False

    def _digest_of(self, place: _Place) -> bytes | None:
        lane, number, row = place
        if self._open is None or self._open[:2] != (lane, number):
            try:
                self._open = lane, number, lane.read(number)
            except RedeliveryError:
                return None
        return restored(rows_in(self._open[2], lane.number, 0, number, [row])[0]).digest()

    def look(self, arrived: int, *, idle: bool) -> None:
        """See what siblings have left behind, and whether all has come again that comes.

        It has, when the connection has stood for longer than any broker takes to notice the end of another one, and
        the destination has been empty since, or more has come than can have been before the copies.

        Args:
            arrived: messages of this connection.
            idle: it brings none.
        """
        self._look_at_ended()
        begun = bool(self._connection) and self._clock.monotonic() - self._since >= RETURN
        if not begun or not (self._known or self._kept):
            return
        if self._came is None:
            self._came = arrived
        if idle or arrived - self._came > 2 * self._window.messages:
            self._forget()

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
                self._since, self._came = self._clock.monotonic(), None

    def _forget(self) -> None:
        for lane in self._lanes:
            self._over |= {each.connection for each in lane.newest_first() if self._in_doubt(each.connection)}
            if lane is not self._own and not self._siblings:
                # Nobody appends to it any more.
                lane.keep(inf)
        self._known, self._kept, self._open = {}, set(), None
        self.published()
