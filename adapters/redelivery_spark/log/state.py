"""What the log knows beyond its batches: what is known of the rows that wait, groups of suspects, totals.

A state is a small file of facts, published whole under a new number; the newest that is there counts. The rows
themselves are written once, when they begin to wait: one file for each batch that they came with first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redelivery.core.ledger import Entry
from redelivery.errors import RedeliveryError
from redelivery_spark.log.segments import read_table, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from redelivery_spark.log.store import Folder

__all__ = ["FOLDER", "ROWS", "Fact", "Place", "State", "States"]

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


@dataclass(slots=True)
class State:
    """All of it after batch `settled`.

    `groups`: which of `facts` wait together as suspects; all others wait by themselves. `emptied`: the batch whose rows
    are in groups now, and which is replayed without them. `attempts`: how often the batch after `settled` has been
    replayed. `passed`: how many batches with rows have gone through, as far as that was of interest. `judged`: a batch
    that was settled, and Spark's own number of it. `buried`: rows of the last batches that became dead letters, and
    when.
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


class States:
    """The states of one log, of which the newest counts."""

    def __init__(self, store: Folder) -> None:
        self._store = store
        self._number = 0

    def load(self) -> State | None:
        """Return the newest state, or None in a log that is new. Raises RedeliveryError if it cannot be read."""
        names = self._store.names(FOLDER)
        if not names:
            return None
        self._number = _number(names[-1])
        try:
            return _read(json.loads(self._store.read(names[-1]) or b""))
        except (KeyError, TypeError, ValueError) as error:
            raise RedeliveryError(f"the write-ahead log's {names[-1]} cannot be read: {error!r}") from None

    def rows(self, number: int) -> pa.Table:
        """Return the rows that have waited since batch `number`. Raises RedeliveryError if they are gone."""
        return read_table(self._store, _rows_name(number))

    def publish(self, state: State, number: int, rows: pa.Table | None) -> None:
        """Write a state durably, and remove the one before it. Raises RedeliveryError.

        `rows`: those of batch `number` that wait from now on; None: there are none, or they have been written before.
        """
        if rows is not None:
            name = _rows_name(number)
            self._store.remove([name])  # of one that died before it wrote the rest
            self._store.publish(name, written(rows))
        name = f"{FOLDER}/{self._number + 1:012d}.json"
        if not self._store.publish(name, _written(state)):
            raise RedeliveryError("the write-ahead log is being written by somebody else")
        self._number += 1
        self._store.remove(each for each in self._store.names(FOLDER) if _number(each) < self._number)
        used = {fact.place[0] for fact in state.facts}
        self._store.remove(each for each in self._store.names(ROWS) if _number(each) not in used)


def _rows_name(number: int) -> str:
    return f"{ROWS}/{number:012d}.arrow"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2][:12])


def _written(state: State) -> bytes:
    told: dict[str, Any] = {name: getattr(state, name) for name in State.__slots__}
    told["buried"] = [[*place, at] for place, at in state.buried.items()]
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
    number, batch = told["judged"]
    return State(**{**told, "facts": facts, "buried": buried, "judged": (number, batch)})
