"""Ids of rows that are the same in each attempt to write them: equal ids mean equal content."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BLOCK", "Identities"]

# Rows after which equal ones are numbered from 0 again: it bounds the memory.
BLOCK = 100_000


class Identities:
    """Gives the rows of one partition of one write their ids.

    An id depends on the content of a row, not on its position. An attempt that goes through the rows in another order
    gives each the same id, and a broker with duplicate detection drops no message that it does not have. Equal rows are
    numbered.
    """

    def __init__(self, write: str, partition: int) -> None:
        self._base = f"{write}/{partition}"
        self._rows = 0
        self._equal: Counter[bytes] = Counter()

    def of(self, row: Sequence[Any]) -> str:
        """Return the id of the next row."""
        block, place = divmod(self._rows, BLOCK)
        self._rows += 1
        if not place:
            self._equal.clear()
        content = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        number = self._equal[content]
        self._equal[content] += 1
        name = f"{self._base}/{block}/{content.hex()}/{number}".encode()
        return hashlib.blake2b(name, digest_size=16).hexdigest()
