"""Place of a row: one number that identifies it in the write-ahead log, and in the column `_place`.

63 bits: the lane (5), a tag of the log (12), the number of the segment (33), the row in the segment (13). Places of one
log sort by lane, segment and row.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LANES", "NUMBERS", "ROWS", "Place", "parts_of", "place", "runs_of", "tag_of", "tag_within"]

Place = int

_ROW, _NUMBER, _TAG, _LANE = 13, 33, 12, 5
# Exclusive upper bounds.
ROWS = 1 << _ROW
NUMBERS = 1 << _NUMBER
LANES = 1 << _LANE
_TAGS = 1 << _TAG


def tag_of(wal_dir: str) -> int:
    """Return the tag of the log at `walDir`: 12 bits of a digest of its URL. Raises ConfigurationError."""
    url = store_at(wal_dir.rstrip("/") or wal_dir).url
    return int.from_bytes(blake2b(url.encode(), digest_size=2).digest(), "big") % _TAGS


def place(lane: int, tag: int, number: int, row: int = 0) -> Place:
    """Return the place of a row. Raises ValueError if a part is out of its bounds."""
    if not (0 <= lane < LANES and 0 <= tag < _TAGS and 0 <= number < NUMBERS and 0 <= row < ROWS):
        raise ValueError(f"no place: lane {lane}, tag {tag}, segment {number}, row {row}")
    return ((lane << _TAG | tag) << _NUMBER | number) << _ROW | row


def parts_of(at: Place) -> tuple[int, int, int, int]:
    """Return lane, tag, number of the segment, and row."""
    return at >> (_TAG + _NUMBER + _ROW), tag_within(at), (at >> _ROW) % NUMBERS, at % ROWS


def tag_within(at: Place) -> int:
    """Return the tag of the log to which a place belongs."""
    return (at >> (_NUMBER + _ROW)) % _TAGS


def runs_of(places: Iterable[Place]) -> list[tuple[Place, Place]]:
    """Return places as runs without gaps: first and last of each, in order. A repeated place counts once."""
    runs: list[tuple[Place, Place]] = []
    for at in sorted(places):
        if runs and at <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], at
        else:
            runs.append((at, at))
    return runs
