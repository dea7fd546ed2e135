"""What the last batches have: of that the broker may send copies, if it has not read the acknowledgement."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from redelivery_spark.log.files import read_table
from redelivery_spark.log.parts import Parts
from redelivery_spark.log.segments import FOLDER, KEPT
from redelivery_spark.log.store import store_at
from redelivery_spark.rows import key_of, keys_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redelivery.core.delivery import Delivery
    from redelivery_spark.log.store import Store

__all__ = ["Recent"]


class Recent:
    """The messages of the batches up to one, whoever has taken them. Read when it is first asked."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._number = number
        self._known: set[Hashable] | None = None

    def has(self, delivery: Delivery) -> bool:
        """Whether the log has this message: destination, id, time stamp and body are the same."""
        if self._known is None:
            self._known = set()
            for name in self._files():
                self._known |= _rows(self._store.url, name)
        return (key_of(delivery), _digest(delivery.body)) in self._known

    def _files(self) -> list[str]:
        oldest = f"{self._number - KEPT:012d}" if self._number > KEPT else ""
        own = [name for name in self._store.names(FOLDER) if name.rpartition("/")[2] >= oldest]
        # What was published when its batch was gone already has been given back.
        there = {name.rpartition("/")[2][:12] for name in own}
        parts = Parts(self._store).since(self._number - KEPT)
        return own + [name for name in parts if name.rpartition("/")[2][:12] in there]


@lru_cache(maxsize=64)
def _rows(place: str, name: str) -> frozenset[Hashable]:
    """What the rows of a file are known by. A file is published once, and never changes."""
    table = read_table(store_at(place), name)
    return frozenset(zip(keys_of(table), map(_digest, table.column("body").to_pylist()), strict=True))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
