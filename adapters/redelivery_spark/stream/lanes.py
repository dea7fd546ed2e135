"""All lanes of one log: which there are, how far they have come, and what a batch has of them."""

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
    """The lanes of one log, by number. Those of readers that a later start has no longer are still read."""

    def __init__(self, store: WalStore, readers: int) -> None:
        """Find the segments that are there."""
        self.store = store
        # Up to where segments of lane 0 have no rows, and may be gone.
        self._void = 0
        wanted = range(readers + 1)
        self._all = {number: Lane(store, number) for number in range(LANES)}
        for lane in self._all.values():
            lane.load()
        # Those that have a reader, or segments.
        self._lanes = {number: lane for number, lane in self._all.items() if number in wanted or lane.last}

    def __getitem__(self, number: int) -> Lane:
        """Return any lane that there can be."""
        return self._all[number]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def redeliveries(self) -> Lane:
        """Lane 0."""
        return self._lanes[REDELIVERIES]

    def go_on_from(self, vector: Vector) -> None:
        """Learn which numbers have been used."""
        for number, last in vector.items():
            self._lanes[number] = self._all[number]
            self._lanes[number].go_on_from(last)

    def look(self, number: int, known: int) -> list[Segment]:
        """Take in what another process has published in a lane since; return all behind what is known of it."""
        lane = self._all[number]
        lane.look()
        if lane.last:
            self._lanes[number] = lane
        return lane.after(known)

    def void_behind(self, settled: Vector, void: int) -> int:
        """Return up to where lane 0 has no rows behind what is settled, without the newest segment that is there.

        Each start begins with a segment without rows; a query that has nothing to do would leave one each time. Below
        the first one with rows they are not needed, and a batch of Spark's that names them is the same without.

        Args:
            settled: an offset.
            void: up to where they may be gone already.
        """
        lane = self.redeliveries
        done = max(settled.get(REDELIVERIES, 0), void)
        for number, segment in enumerate(lane.after(done, lane.last - 1), done + 1):
            # One that is missing may be listed late, and have rows.
            if segment.rows or segment.number != number:
                break
            void = number
        return void

    def waiting(self, start: Vector) -> Mapping[int, list[Segment]]:
        """Return the segments of each lane behind an offset."""
        return {number: lane.after(start.get(number, 0)) for number, lane in self._lanes.items()}

    def between(self, start: Vector, end: Vector) -> list[tuple[int, Segment]]:
        """Return the segments of a batch, lane by lane: its range of two offsets."""
        return [
            (number, segment)
            for number in sorted(end)
            if number in self._lanes
            for segment in self._lanes[number].after(start.get(number, 0), end[number])
        ]

    def batch(self, start: Vector, end: Vector) -> list[tuple[int, Segment]]:
        """Return the segments of a batch that is to be read. Raises ConfigurationError: some are gone."""
        found = self.between(start, end)
        for number, last in end.items():
            first = start.get(number, 0)
            if number == REDELIVERIES:
                first = max(first, self._void)
            there = len([lane for lane, segment in found if lane == number and segment.number > first])
            if there < last - first:
                raise ConfigurationError(
                    f"walDir: segments of lane {number} behind {first} are gone: the checkpoint is older than the log, "
                    "or another query's",
                    option="walDir",
                )
        return found

    def settle(self, vector: Vector, void: int = 0) -> None:
        """Learn that all up to an offset is done with, and in lane 0 what has no rows up to a number: `State.void`."""
        self._void = void
        for number, lane in self._lanes.items():
            done = vector.get(number, 0)
            lane.settle(max(done, void) if number == REDELIVERIES else done)

    @property
    def ahead(self) -> int:
        """Bytes of what is in the log and not settled."""
        return sum(lane.ahead for lane in self._lanes.values())
