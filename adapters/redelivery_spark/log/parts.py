"""What the tasks of a batch have taken from the broker: one Arrow file for each, published once, by one attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery_spark.log import segments
from redelivery_spark.log.segments import KEPT, empty, read_table, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery_spark.log.store import Store

__all__ = ["FOLDER", "Parts"]

FOLDER = "parts"


class Parts:
    """The parts of all batches of one log, by the batch's number and the part's."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def name(self, number: int, part: int) -> str:
        """Return the file of one part."""
        return f"{FOLDER}/{number:012d}-{part:04d}.arrow"

    def of(self, number: int) -> list[str]:
        """Return the files of a batch that are there."""
        return [name for name in self.store.names(FOLDER) if _number(name) == number]

    def recent(self, number: int) -> Iterator[str]:
        """Go through the files of the last batches up to this one, the driver's too: what copies may be of."""
        for folder in (FOLDER, segments.FOLDER):
            for name in self.store.names(folder):
                if number - KEPT <= _number(name) <= number:
                    yield name

    def publish(self, name: str, rows: pa.Table) -> bool:
        """Publish a part, durably; False: another attempt was first, and what that one took counts."""
        return self.store.publish(name, written(rows))

    def close(self, number: int, parts: int) -> None:
        """Publish nothing for each part that is missing: an attempt that comes late finds its place taken.

        It gives back what it took. Otherwise it would accept messages that nobody will ever read.
        """
        there = set(self.of(number))
        for part in range(parts):
            name = self.name(number, part)
            if name not in there:
                self.publish(name, empty())

    def read(self, number: int) -> pa.Table:
        """Return the rows of all parts of a batch, in the order of the parts."""
        return pa.concat_tables([empty(), *(read_table(self.store, name) for name in self.of(number))])

    def drop_settled(self, number: int) -> None:
        """Remove the parts of settled batches, but for the last few."""
        self.store.remove(name for name in self.store.names(FOLDER) if _number(name) <= number - KEPT)


def _number(name: str) -> int:
    return int(name.rpartition("/")[2][:12])
