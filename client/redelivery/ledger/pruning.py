"""Removal of old rows from a ledger's database, a piece at a time: other processes wait for its lock.

Rows are as old as their last write: entries by their revision, causes by their number. Which rows are removed is read
before the lock is taken; a row that was written meanwhile stays.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

__all__ = ["FORGOTTEN", "Stale", "remove", "stale"]

# Seconds for which other processes can read that a message was forgotten.
FORGOTTEN = 3600.0
# Most rows of a kind that are looked at for one piece, rows that are removed at once, and seconds after which a piece
# ends.
PIECE, CHUNK, BRIEF = 500, 50, 0.01

_FORGOTTEN = """
SELECT key, revision FROM entries WHERE count = 0 AND poisoned = 0 AND suspect = 0 AND written < ?
ORDER BY revision LIMIT ?
"""
_OLDEST = "SELECT key, revision, written FROM entries ORDER BY revision, key LIMIT ?"
_BEYOND = "SELECT revision, key FROM entries ORDER BY revision DESC, key DESC LIMIT 1 OFFSET ?"
_LETTERS = "SELECT number, coalesce(written, at) FROM dead_letters ORDER BY number LIMIT ?"
# Revision and key.
Newest = tuple[int, bytes] | None
_DELETE = "DELETE FROM entries WHERE key = ? AND revision = ?"


class Stale(NamedTuple):
    """Rows to remove: messages that are forgotten, entries that are old or beyond the limit, and causes.

    `newest`: revision and key of the newest entry beyond the limit. Finding it reads as many entries as may be kept: it
    is looked for once in a pruning. Rows that another process has removed are then not replaced by newer ones.
    """

    forgotten: Sequence[tuple[bytes, int]]
    old: Sequence[tuple[bytes, int]]
    beyond: Sequence[tuple[bytes, int]]
    letters: Sequence[tuple[int]]
    newest: Newest

    @property
    def some(self) -> bool:
        """True if there is a row to remove."""
        return bool(self.forgotten or self.old or self.beyond or self.letters)


class Removed(NamedTuple):
    """Numbers of rows that were removed, and the last revision of a forgotten message among them."""

    old: int
    beyond: int
    revision: int


def stale(sql: sqlite3.Connection, clock: float, keep: float, limit: int, newest: Newest) -> Stale:
    """Return the next rows to remove: those older than `keep` seconds by the ledger's clock, or beyond `limit`.

    `newest`: that of the piece before; None: look for it.
    """

    def rows(query: str, *values: float) -> list[tuple[Any, ...]]:
        return sql.execute(query, values).fetchall()

    forgotten = rows(_FORGOTTEN, clock - FORGOTTEN, PIECE)
    oldest = rows(_OLDEST, PIECE)
    old = [(key, revision) for key, revision, written in oldest if written <= clock - keep]
    # None while any is removed for its age: a forgotten message does not push out a count.
    newest = None if forgotten or old else newest or next(iter(rows(_BEYOND, limit)), None)
    beyond = [(key, revision) for key, revision, _ in oldest if newest and (revision, key) <= newest]
    number = rows("SELECT max(number) FROM dead_letters")[0][0] or 0
    letters = [(n,) for n, written in rows(_LETTERS, PIECE) if written <= clock - keep or n <= number - limit]
    return Stale(forgotten, old, beyond, letters, newest)


def remove(sql: sqlite3.Connection, rows: Stale) -> Removed:
    """Remove the rows, as many as a piece may take. Call it inside of a transaction."""
    end = time.perf_counter() + BRIEF

    def delete(query: str, values: Sequence[tuple[Any, ...]]) -> int:
        done = 0
        for at in range(0, len(values), CHUNK):
            if time.perf_counter() >= end:
                break
            sql.executemany(query, values[at : at + CHUNK])
            done += len(values[at : at + CHUNK])
        return done

    forgotten = delete(_DELETE, rows.forgotten)
    old, beyond = delete(_DELETE, rows.old), delete(_DELETE, rows.beyond)
    delete("DELETE FROM dead_letters WHERE number = ?", rows.letters)
    return Removed(old, beyond, max((revision for _, revision in rows.forgotten[:forgotten]), default=0))
