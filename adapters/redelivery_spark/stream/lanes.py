"""All lanes of one log: their numbers, their positions, and their part of a batch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.errors import ConfigurationError
from redelivery_spark.wal.lane import LANES, REDELIVERIES, Lane

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redelivery.clock import Clock
    from redelivery_spark.wal.lane import Segment, Vector
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["Composed", "Lanes", "LeftLanes", "composed", "log_of", "offset_of", "vector_of"]


# ---- Lanes -----------------------------------------------------------------------------------------------


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


# ---- Left lanes ------------------------------------------------------------------------------------------
# Lanes without a reader after a takeover: an older start that had more readers can still append to them.
#
# It does so until its readers see that the log belongs to another start. Only the runner checks these lanes.

# Seconds between two checks, and seconds of all checks: an older reader checks each second whose the log is.
EACH = 1.0
LONGEST = 10.0


class LeftLanes:
    """Lanes of readers that this start does not have, checked in its first seconds."""

    def __init__(self, lanes: Lanes, readers: int, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        # Number of the last segment of each that was reported.
        self._known = {number: lanes[number].last for number in range(readers + 1, LANES)}
        now = clock.monotonic()
        self._next, self._until = now + EACH, now + LONGEST
        self._over = False

    def look(self) -> set[tuple[int, str]]:
        """Read what was appended; return its lanes and connections: those connections end with the older start."""
        now = self._clock.monotonic()
        if self._over or now < self._next:
            return set()
        self._next = now + EACH
        # The last check is made after the end of this time, however long a batch takes.
        self._over = now >= self._until
        # Unused lanes are checked once: they are most, and each check is a request to the store.
        found = set[tuple[int, str]]()
        for number, known in self._known.items():
            if self._over or self._lanes[number].last:
                found |= {(number, each.connection) for each in self._lanes.look(number, known)}
                self._known[number] = self._lanes[number].last
        return found


# ---- Offsets ---------------------------------------------------------------------------------------------
# Offsets: the position of each lane. A batch is the range between two of them: its content never changes.

LOG = "log"
# Key of the first design's offsets: the number of a batch.
OLD = "n"


def offset_of(vector: Vector, log: str) -> dict[str, Any]:
    """Return the offset that Spark stores: JSON, as `{"log": "…", "0": 3, "1": 42}`."""
    return {LOG: log} | {str(lane): number for lane, number in sorted(vector.items()) if number}


def vector_of(offset: Mapping[str, Any]) -> Vector:
    """Return the position of each lane.

    Raises:
        ConfigurationError: The offset was written by a source of another kind.
    """
    if OLD in offset:
        raise ConfigurationError(
            "checkpointLocation: written by the first design of this source; drain its walDir with the version of "
            "redelivery that wrote it (trigger AvailableNow, until it ends), then begin with a new walDir and a new "
            "checkpoint",
            option="checkpointLocation",
        )
    lanes = {name: number for name, number in offset.items() if name != LOG}
    if not all(re.fullmatch(r"\d{1,2}", name) and type(number) is int for name, number in lanes.items()):
        raise ConfigurationError(
            "checkpointLocation: not written by this source; give the query its own checkpoint",
            option="checkpointLocation",
        )
    return {int(name): number for name, number in lanes.items()}


def log_of(offset: Mapping[str, Any]) -> str | None:
    """Return the log to which an offset belongs; None: it is the offset before the first batch."""
    found = offset.get(LOG)
    return None if found is None else str(found)


# ---- Batch composer --------------------------------------------------------------------------------------
# Choice of the segments of each lane for the next batch. Pure.


class Composed(NamedTuple):
    """Batch: the position of each lane at its end, and its size. `complete`: nothing more fits, or may be added.

    `alone`: its segment must be the only one of its batch.
    """

    end: Vector
    rows: int
    size: int
    complete: bool = False
    alone: bool = False


def composed(
    start: Vector,
    waiting: Mapping[int, Sequence[Segment]],
    most: int,
    most_bytes: int,
    *,
    alone_first: bool,
) -> Composed:
    """Return the next batch: whole segments, up to the limits; the first segment is taken at any size.

    Lanes take turns by their rows in the batch: none waits for another. A segment that must be alone is the only one of
    its batch: at once if `alone_first`, else when no other lane has a segment.

    Args:
        start: Position of each lane at the start of the batch.
        waiting: Segments of each lane after that position, in order.
        most: Rows at most.
        most_bytes: Bytes of segments at most.
        alone_first: True if a segment that must be alone is next.
    """
    left = {lane: list(segments) for lane, segments in waiting.items() if segments}
    suspect = next((segment for segment in left.get(REDELIVERIES, ()) if segment.rows), None)
    if suspect is not None and suspect.alone and (alone_first or len(left) == 1):
        end = {**start, REDELIVERIES: suspect.number}
        return Composed(end, suspect.rows, suspect.size, complete=True, alone=True)
    end, had = dict(start), dict.fromkeys(left, 0)
    rows = size = 0
    complete = False
    while left:
        lane = min(left, key=lambda each: (had[each], each))
        segment = left[lane][0]
        fits = not rows or (rows + segment.rows <= most and size + segment.size <= most_bytes)
        if segment.alone or not fits:
            complete = complete or not fits
            del left[lane]
            continue
        end[lane] = segment.number
        had[lane] += segment.rows
        rows, size = rows + segment.rows, size + segment.size
        del left[lane][0]
        if not left[lane]:
            del left[lane]
    return Composed(end, rows, size, complete or rows >= most or size >= most_bytes)
