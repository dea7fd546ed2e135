"""What the last batches have: of that the broker may send copies, if it has not read the acknowledgement."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from redelivery_spark.log.files import number_of, read_table
from redelivery_spark.log.parts import Parts
from redelivery_spark.log.segments import FOLDER, KEPT, segment_of
from redelivery_spark.log.state import buried_in
from redelivery_spark.log.store import store_at
from redelivery_spark.rows import digest_of, key_of, keys_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redelivery.core.delivery import Delivery
    from redelivery_spark.log.store import Store

__all__ = ["Recent"]


class Recent:
    """The messages of the batches up to one, whoever has taken them. Read when it is first asked.

    A dead letter is none of them: one that is put back may have the same identity, and is handled again.
    """

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._number = number
        self._known: set[Hashable] | None = None

    def has(self, delivery: Delivery) -> bool:
        """Whether the log has this message: destination, id, time stamp and body are the same."""
        if self._known is None:
            self._known = self._found()
        return (key_of(delivery), digest_of(delivery.body)) in self._known

    def _found(self) -> set[Hashable]:
        known: set[Hashable] = set()
        files = self._files()
        buried = buried_in(self._store)
        for number, names in files.items():
            rows = (row for name in names for row in _rows(self._store.url, name))
            known.update(row for at, row in enumerate(rows) if row is not None and (number, at) not in buried)
        return known

    def _files(self) -> dict[int, list[str]]:
        """Return the files of each batch, in the order of its rows."""
        least = self._number - KEPT
        numbers = (number_of(name) for name in self._store.names(FOLDER))
        files = {number: [segment_of(number)] for number in numbers if number >= least}
        for name in Parts(self._store).since(least):
            # What was published when its batch was gone already has been given back.
            files.get(number_of(name), []).append(name)
        return files


@lru_cache(maxsize=64)
def _rows(place: str, name: str) -> tuple[Hashable, ...]:
    """What the rows of a file are known by; None: the broker has let go of its message long since.

    A file is published once, and never changes.
    """
    table = read_table(store_at(place), name)
    known = zip(keys_of(table), map(digest_of, table.column("body").to_pylist()), strict=True)
    before, kept = table.column("_number").to_pylist(), table.column("_kept").to_pylist()
    return tuple(
        row if number is None or stays else None
        for row, number, stays in zip(known, before, kept, strict=True)
    )
