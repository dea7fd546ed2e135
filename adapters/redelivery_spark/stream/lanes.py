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
            there = len([lane for lane, _ in found if lane == number])
            if there < last - first:
                raise ConfigurationError(
                    f"walDir: segments of lane {number} behind {first} are gone: the checkpoint is older than the log, "
                    "or another query's",
                    option="walDir",
                )
        return found

    def settle(self, vector: Vector) -> None:
        """Learn that all up to an offset is done with."""
        for number, lane in self._lanes.items():
            lane.settle(vector.get(number, 0))

    @property
    def ahead(self) -> int:
        """Bytes of what is in the log and not settled."""
        return sum(lane.ahead for lane in self._lanes.values())
