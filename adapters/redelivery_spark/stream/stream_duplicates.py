"""What the broker may send again: messages whose rows are in the log, of connections that are gone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery_spark.stream.rows import digest_of, key_of, keys_of, places_of
from redelivery_spark.wal.segments import KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    import pyarrow as pa

    from redelivery.core.delivery import Delivery
    from redelivery_spark.stream.expected_messages import ExpectedMessages
    from redelivery_spark.stream.rows import LoggedDelivery
    from redelivery_spark.stream.source_connection import SourceConnection
    from redelivery_spark.wal.segments import Segments
    from redelivery_spark.wal.wal_state import Place, State

__all__ = ["BURIED", "StreamDuplicates"]

BURIED = 60.0
"""Seconds before the end of a connection within which the acknowledgement of a dead-lettered message may have been lost
with it. Not longer: a dead letter that a person puts back has the same identity on some brokers."""


@dataclass(slots=True)
class _Row:
    """A row whose message may come again: of a batch (`table`, `at`), or one that waits (`digest` of its body)."""

    place: Place
    table: pa.Table | None = None
    at: int = 0
    digest: bytes = b""
    kept: bool = False  # its message was not acknowledged when the connection began
    awaited: bool = False  # nor since, and the row is done with

    def has(self, body: bytes) -> bool:
        """Whether it has this body: ids need not differ, and then bodies tell."""
        if self.table is not None:
            return bool(self.table.column("body")[self.at].as_py() == body)
        return self.digest == digest_of(body)


class StreamDuplicates:
    """Knows the messages of one connection that an earlier one had brought. Looked up only for those that may be.

    Nothing that came over this very connection comes again over it. Of earlier ones it may be what was acknowledged,
    and the broker had not read that: it is in one of the last batches. And it may be what is not acknowledged yet: rows
    that wait, and rows that are done with and expected. Each is found once in a connection.
    """

    def __init__(
        self, intake: SourceConnection, segments: Segments, state: State, expected: ExpectedMessages
    ) -> None:
        self._intake = intake
        self._segments = segments
        self._state = state
        self._expected = expected
        self._epoch: int | None = None
        self._since = 0.0  # time of day of that connection's first message
        self.batches: tuple[int, ...] = ()
        """The batches before it of which messages may come again."""
        self._rows: dict[Hashable, list[_Row]] = {}

    def look(self, wall: float, waiting: Callable[[], Iterable[LoggedDelivery]]) -> None:
        """Look whether the connection is another one, before messages are taken.

        `waiting` returns rows whose messages are not acknowledged, and not here either. They are read now: a copy may
        come when its row is done with, and its batch is removed.
        """
        if self._intake.epoch != self._epoch:
            self._epoch, self._since = self._intake.epoch, wall
            numbers = self._segments.numbers()
            self.batches = tuple(each for each in numbers if each > numbers[-1] - KEPT)
            self._rows = self._looked_up(waiting())
        elif self.batches and self._intake.settled_down:
            self.batches = ()  # all that was acknowledged has been seen, or will not be
            self._rows = self._looked_up(waiting())

    @property
    def none(self) -> bool:
        """Whether this connection can bring none, so that none needs to be looked for."""
        return not self._rows

    def find(self, delivery: Delivery) -> Place | None:
        """Return the place of the row that a message is of, or None: it is new to the log."""
        if not self._intake.may_be_known(delivery) or delivery.epoch != self._epoch:
            return None
        found = self._rows.get(key_of(delivery), [])
        for row in found:
            if self._may_come(row, delivery) and row.has(delivery.body):
                found.remove(row)
                return row.place
        return None

    def _may_come(self, row: _Row, delivery: Delivery) -> bool:
        if row.awaited:
            return True
        if row.table is not None and not row.kept and not self._intake.early(delivery):
            return False  # it has been acknowledged, and that has been read long since
        at = self._state.buried.get(row.place)
        if at is None or at >= self._since:  # later, it was still expected
            return True
        return self._intake.commits and at > self._since - BURIED

    def _looked_up(self, waiting: Iterable[LoggedDelivery]) -> dict[Hashable, list[_Row]]:
        rows: defaultdict[Hashable, list[_Row]] = defaultdict(list)
        seen: set[Place] = set()
        for row in waiting:
            seen.add(row.place)
            rows[key_of(row)].append(_Row(row.place, digest=digest_of(row.body)))
        for place, key, digest in self._expected:
            if place not in seen:
                seen.add(place)
                rows[key].append(_Row(place, digest=digest, awaited=True))
        for number in filter(self._segments.exists, self.batches):
            table = self._segments.read(number)
            before = {at: place for place, at in places_of(table).items()}
            stays = table.column("_kept").to_pylist() if before else ()
            kept = self._intake.commits and number > self._state.settled
            for at, key in enumerate(keys_of(table)):
                place = before.get(at, (number, at))
                if place not in seen and (at not in before or stays[at]):
                    seen.add(place)
                    rows[key].append(_Row(place, table, at, kept=kept))
        return rows
