"""All lanes of one log: their numbers, their positions, and their part of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError
from redelivery_spark.wal.lane import LANES, REDELIVERIES, Lane

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redelivery_spark.wal.lane import Segment, Vector
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["Lanes"]


class Lanes:
    """Lanes of one log, by number. Lanes whose reader a later start no longer has are still read."""

    def __init__(self, store: WalStore, readers: int) -> None:
        """Find the existing segments."""
        self.store = store
        # Number up to which segments of lane 0 have no rows, and may be gone.
        self._void = 0
        wanted = range(readers + 1)
        self._all = {number: Lane(store, number) for number in range(LANES)}
        for lane in self._all.values():
            lane.load()
        # Lanes that have a reader, or segments.
        self._lanes = {number: lane for number, lane in self._all.items() if number in wanted or lane.last}

    def __getitem__(self, number: int) -> Lane:
        """Return any possible lane."""
        return self._all[number]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def redeliveries(self) -> Lane:
        """Lane 0."""
        return self._lanes[REDELIVERIES]

    def go_on_from(self, vector: Vector) -> None:
        """Note the numbers that have been used."""
        for number, last in vector.items():
            self._lanes[number] = self._all[number]
            self._lanes[number].go_on_from(last)

    def look(self, number: int, known: int) -> list[Segment]:
        """Read segments that another process has published in a lane; return all after number `known`."""
        lane = self._all[number]
        lane.look()
        if lane.last:
            self._lanes[number] = lane
        return lane.after(known)

    def void_behind(self, settled: Vector, void: int) -> int:
        """Return the number up to which lane 0 has no rows after its settled part, without its newest segment.

        Each start begins with a segment without rows. A query that has nothing to do would leave one each time. Below
        the first segment with rows they are not needed, and a batch of Spark's that names them is the same without
        them.

        Args:
            settled: An offset.
            void: Number up to which they may be gone already.
        """
        lane = self.redeliveries
        done = max(settled.get(REDELIVERIES, 0), void)
        for number, segment in enumerate(lane.after(done, lane.last - 1), done + 1):
            # A missing one may appear late in the listing, and have rows.
            if segment.rows or segment.number != number:
                break
            void = number
        return void

    def waiting(self, start: Vector) -> Mapping[int, list[Segment]]:
        """Return the segments of each lane after an offset."""
        return {number: lane.after(start.get(number, 0)) for number, lane in self._lanes.items()}

    def between(self, start: Vector, end: Vector) -> list[tuple[int, Segment]]:
        """Return the segments between two offsets, lane by lane: those of a batch."""
        return [
            (number, segment)
            for number in sorted(end)
            if number in self._lanes
            for segment in self._lanes[number].after(start.get(number, 0), end[number])
        ]

    def batch(self, start: Vector, end: Vector) -> list[tuple[int, Segment]]:
        """Return the segments of a batch that is to be read. Raises ConfigurationError if some are gone."""
        found = self.between(start, end)
        for number, last in end.items():
            first = start.get(number, 0)
            if number == REDELIVERIES:
                first = max(first, self._void)
            there = len([lane for lane, segment in found if lane == number and segment.number > first])
            if there < last - first:
                raise ConfigurationError(
                    f"walDir: segments of lane {number} after {first} are missing; the checkpoint is older than the "
                    "log, or another query's",
                    option="walDir",
                )
        return found

    def settle(self, vector: Vector, void: int = 0) -> None:
        """Settle all rows up to an offset, and the segments of lane 0 without rows up to a number: `State.void`."""
        self._void = void
        for number, lane in self._lanes.items():
            done = vector.get(number, 0)
            lane.settle(max(done, void) if number == REDELIVERIES else done)

    @property
    def ahead(self) -> int:
        """Bytes of rows in the log that are not settled."""
        return sum(lane.ahead for lane in self._lanes.values())
