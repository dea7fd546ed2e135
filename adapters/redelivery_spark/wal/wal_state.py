"""What the log knows beyond its batches: what is known of the rows that wait, groups of suspects, totals.

A state is a small file of facts, published whole under a new number, which only one can; the newest that is there
counts. A start publishes one at once: from then on, an older runner that comes back finds its next number taken. The
rows themselves are written once, when they begin to wait: one file for each batch that they came with first.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.core.ledger_entry import Entry
from redelivery.errors import RedeliveryError
from redelivery_spark.wal.arrow_files import number_of, read_table, written
from redelivery_spark.wal.store import taken

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import pyarrow as pa

    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["FOLDER", "ROWS", "Awaited", "Fact", "Place", "State", "States", "buried_in"]

FOLDER, ROWS = "state", "rows"
TOTALS = ("accepted", "redelivered", "deferred", "poisoned", "discarded", "deduplicated", "undecodable")

Place = tuple[int, int]
"""Where a row came into the log: the number of its first batch, and its row there. No two rows have the same."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of one row that waits. Times are seconds since the Unix epoch, delays are seconds.

    `due`: when it may go, None: at once; `delay`: for how long it was to wait then. `failed`: how many batches had gone
    through when it was last in one that did not, None: it never was. `kept`: the broker still has the message.
    """

    place: Place
    entry: Entry = field(default_factory=Entry)
    due: float | None = None
    delay: float = 0.0
    deferrals: int = 0
    exhausted: bool = False
    failed: int | None = None
    kept: bool = False


class Awaited(NamedTuple):
    """A message whose row is done with, and which the broker has yet to send again.

    `until`: the time of day until which it is expected; `key`: what its copies have in common; `digest`: of its body.
    """

    until: float
    key: Hashable
    digest: bytes


@dataclass(slots=True)
class State:
    """All of it after batch `settled`.

    `groups`: which of `facts` wait together as suspects; all others wait by themselves. `emptied`: the batch whose rows
    are in groups now, and which is replayed without them. `attempts`: how often the batch after `settled` has been
    replayed. `passed`: how many batches with rows have gone through, as far as that was of interest. `judged`: a batch
    that was settled, and Spark's own number of it. `buried`: rows of the last batches that became dead letters, and
    when. `awaited`: rows that are done with, and whose messages are still to be accepted.
    """

    log: str
    settled: int = 0
    attempts: int = 0
    emptied: int | None = None
    passed: int = 0
    judged: tuple[int, int] = (0, -1)
    groups: list[list[int]] = field(default_factory=list[list[int]])
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    buried: dict[Place, float] = field(default_factory=dict[Place, float])
    facts: list[Fact] = field(default_factory=list[Fact])
    awaited: dict[Place, Awaited] = field(default_factory=dict[Place, Awaited])


class States:
    """The states of one log, of which the newest counts."""

    def __init__(self, store: WalStore) -> None:
        self._store = store
        self._number = 0
        self._tables: dict[int, str] = {}  # by the batch that their rows came with
        self._left: set[str] = set()  # by writers that died before their state was there

    def load(self) -> State | None:
        """Return the newest state, or None in a log that is new. Raises RedeliveryError if it cannot be read."""
        self._left = set(self._store.names(ROWS))
        names = self._store.names(FOLDER)
        if not names:
            return None
        self._number = number_of(names[-1])
        try:
            told: dict[str, Any] = json.loads(self._store.read(names[-1]) or b"")
            del told["by"]
            self._tables = {int(number): name for number, name in told.pop("tables").items()}
            self._left.difference_update(self._tables.values())
            return _read(told)
        except (KeyError, TypeError, ValueError) as error:
            raise RedeliveryError(f"the write-ahead log's {names[-1]} cannot be read: {error!r}") from None

    def rows(self, number: int) -> pa.Table:
        """Return the rows that have waited since batch `number`. Raises RedeliveryError if they are gone."""
        if number not in self._tables:
            raise RedeliveryError(f"the write-ahead log has no rows of batch {number}")
        return read_table(self._store, self._tables[number])

    def publish(self, state: State, number: int, rows: pa.Table | None) -> None:
        """Write a state durably, and remove the one before it. Raises LogTaken: somebody else has written this number.

        `rows`: those of batch `number` that wait from now on; None: there are none, or they have been written before.
        """
        tables = dict(self._tables)
        if rows is not None:  # under a name that no other writer of this state has
            tables[number] = f"{ROWS}/{number:012d}-{uuid.uuid4().hex}.arrow"
            self._store.publish(tables[number], written(rows))
        used = {fact.place[0] for fact in state.facts}
        tables = {each: name for each, name in tables.items() if each in used}
        if not self._store.publish(self._name(self._number + 1), _written(state, tables)):
            raise taken(self._store)
        self._number += 1
        # Nothing but what this writer has seen: a newer one may be writing its own by now.
        old = self._left | (set(self._tables.values()) - set(tables.values()))
        self._tables, self._left = tables, set()
        self._store.remove(each for each in self._store.names(FOLDER) if number_of(each) < self._number)
        self._store.remove(sorted(old))

    def check(self) -> None:
        """See that nobody has written a newer state. Raises LogTaken."""
        if self._name(self._number) != max(self._store.names(FOLDER), default=""):
            raise taken(self._store)

    @staticmethod
    def _name(number: int) -> str:
        return f"{FOLDER}/{number:012d}.json"


def buried_in(store: WalStore) -> set[Place]:
    """Return the rows of the last batches that have become dead letters, as far as is written down; for any process."""
    content, names = None, store.names(FOLDER)
    while names and (content := store.read(names[-1])) is None:  # a newer one has taken its place
        names = store.names(FOLDER)
    return set() if content is None else {(number, row) for number, row, _ in json.loads(content)["buried"]}


def _written(state: State, tables: Mapping[int, str]) -> bytes:
    told: dict[str, Any] = {name: getattr(state, name) for name in State.__slots__}
    told["tables"] = tables
    told["by"] = uuid.uuid4().hex  # or the same state of two writers would be taken for one's own
    told["buried"] = [[*place, at] for place, at in state.buried.items()]
    told["awaited"] = [[*place, a.until, a.key, a.digest.hex()] for place, a in state.awaited.items()]
    told["facts"] = [_told(fact) for fact in state.facts]
    return json.dumps(told).encode()


def _told(fact: Fact) -> list[Any]:
    e = fact.entry
    entry = [e.count, e.cause, e.first, e.last, e.poisoned, e.suspect]
    return [
        fact.place, entry, fact.due, fact.delay, fact.deferrals, fact.exhausted, fact.failed, fact.kept,
    ]  # fmt: skip


def _read(told: Mapping[str, Any]) -> State:
    facts = [Fact((each[0][0], each[0][1]), Entry(*each[1]), *each[2:]) for each in told["facts"]]
    buried = {(number, row): at for number, row, at in told["buried"]}
    awaited = {
        (number, row): Awaited(until, tuple(key), bytes.fromhex(digest))
        for number, row, until, key, digest in told.get("awaited", ())
    }
    number, batch = told["judged"]
    fields: dict[str, Any] = {
        **told,
        "facts": facts,
        "buried": buried,
        "judged": (number, batch),
        "awaited": awaited,
    }
    return State(**fields)
