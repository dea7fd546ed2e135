"""What the tasks of a batch have taken from the broker: one Arrow file for each, published once, by one attempt."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from redelivery_spark.wal.arrow_files import empty, number_of, read_table, written

if TYPE_CHECKING:
    import pyarrow as pa

    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["FOLDER", "TaskParts"]

FOLDER = "parts"
ACCEPTED = ".accepted"
COPY = ".copy-"
ARROW = ".arrow"
UNDECODABLE = b"undecodable"


class TaskParts:
    """The parts of all batches of one log, by the batch's number and the part's."""

    def __init__(self, store: WalStore) -> None:
        self.store = store

    def name(self, number: int, part: int) -> str:
        """Return the file of one part."""
        return f"{FOLDER}/{number:012d}-{part:04d}.arrow"

    def of(self, number: int) -> list[str]:
        """Return the files of a batch that are there, in order."""
        names = self.store.names(FOLDER)
        return [name for name in names if number_of(name) == number and name.endswith(ARROW)]

    def accepted(self, name: str) -> None:
        """Mark that the broker has read that the messages of a part are accepted: they do not come again."""
        self.store.publish(name + ACCEPTED, b"", durable=False)

    def unaccepted(self, least: int) -> set[str]:
        """Return the files, of batches from this one on, whose messages may come again."""
        names = set(self.store.names(FOLDER))
        return {
            name
            for name in names
            if name.endswith(ARROW) and number_of(name) >= least and name + ACCEPTED not in names
        }

    def claim(self, name: str, row: int) -> bool:
        """Mark that a copy of a row of this file, a part or a segment, is about to be accepted.

        False: another one has been, and this message is none.
        """
        # Of a content of its own: an object store whose answer was lost is asked whose object is there.
        mark = uuid.uuid4().bytes
        return self.store.publish(f"{FOLDER}/{name.rpartition('/')[2]}{COPY}{row}", mark, durable=False)

    def publish(self, name: str, rows: pa.Table, undecodable: int = 0) -> bool:
        """Publish a part, durably; False: another attempt was first, and what that one took counts.

        `undecodable`: how many messages were dead-lettered instead.
        """
        told = rows.replace_schema_metadata({UNDECODABLE: str(undecodable)}) if undecodable else rows
        return self.store.publish(name, written(told))

    def close(self, number: int, parts: int) -> int:
        """Publish nothing for each part that is missing; return how many messages of the batch were undecodable.

        An attempt that comes late finds its place taken, and gives back what it took. Otherwise it would accept
        messages that nobody will ever read.
        """
        there = set(self.of(number))
        for part in range(parts):
            name = self.name(number, part)
            if name not in there:
                self.publish(name, empty())
        return sum(int((table.schema.metadata or {}).get(UNDECODABLE, b"0")) for table in self.read(number))

    def read(self, number: int) -> list[pa.Table]:
        """Return the rows of the parts of a batch that are there, in the order of the parts."""
        return [read_table(self.store, name) for name in self.of(number)]

    def drop_before(self, number: int) -> None:
        """Remove the parts of all batches before this one."""
        self.store.remove(name for name in self.store.names(FOLDER) if number_of(name) < number)
