"""What the log knows beyond its batches: rows that wait, their counts, groups of suspects, totals.

Published whole under a new number, which only one can; the newest that is there counts, and those before are removed.
A start publishes one at once: from then on, an older runner that comes back finds its next number taken.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from redelivery.core.ledger import Entry
from redelivery.errors import RedeliveryError
from redelivery_spark.log.segments import empty, read_table, written
from redelivery_spark.log.store import taken

if TYPE_CHECKING:
    import pyarrow as pa

    from redelivery_spark.log.store import Store

__all__ = ["FOLDER", "Fact", "State", "States"]

FOLDER = "state"
TOTALS = ("accepted", "redelivered", "deferred", "poisoned", "discarded", "deduplicated", "undecodable")


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of one row that has failed before. Times are seconds since the Unix epoch.

    `due`: when it may go; None: at once.
    """

    entry: Entry
    due: float | None = None
    deferrals: int = 0
    exhausted: bool = False


@dataclass(slots=True)
class State:
    """All of it after batch `settled`.

    `facts`: of each of `rows`, None: nothing is known. `groups`: which rows wait together as suspects; all others wait
    by themselves. `emptied`: the batch whose rows are in groups now, and which is replayed without them. `attempts`:
    how often the batch after `settled` has been replayed. `barren`, `last`: as in `isolation`.
    """

    log: str
    settled: int = 0
    attempts: int = 0
    emptied: int | None = None
    barren: int = 0
    last: list[int] = field(default_factory=list[int])
    groups: list[list[int]] = field(default_factory=list[list[int]])
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    facts: list[Fact | None] = field(default_factory=list["Fact | None"])
    rows: pa.Table = field(default_factory=empty)


class States:
    """The states of one log, of which the newest counts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0

    def load(self) -> State | None:
        """Return the newest state, or None in a log that is new. Raises RedeliveryError if it cannot be read."""
        names = self._published()
        if not names:
            return None
        self._number = int(names[-1].rpartition("/")[2][:12])
        content = self._store.read(names[-1])
        try:
            told: dict[str, Any] = json.loads(content or b"")
            del told["by"]
            table: str | None = told.pop("table")
            told["facts"] = [_fact(each) for each in told["facts"]]
            state = State(**told)
        except (KeyError, TypeError, ValueError) as error:
            raise RedeliveryError(f"the write-ahead log's {names[-1]} cannot be read: {error!r}") from None
        if table is not None:
            state.rows = read_table(self._store, table)
        return state

    def publish(self, state: State) -> None:
        """Write a state durably, and remove those before it. Raises LogTaken: somebody else has written this number."""
        number = self._number + 1
        table = f"{FOLDER}/{number:012d}-{uuid.uuid4().hex}.arrow" if state.facts else None
        if table is not None:  # under a name that no other writer of this number has
            self._store.publish(table, written(state.rows))
        told = {name: getattr(state, name) for name in State.__slots__ if name not in ("rows", "facts")}
        told["table"] = table
        told["facts"] = [None if fact is None else asdict(fact) for fact in state.facts]
        told["by"] = uuid.uuid4().hex  # or the same state of two writers would be taken for one's own
        if not self._store.publish(self._json_name(number), json.dumps(told).encode()):
            raise taken(self._store)
        self._number = number
        old = (name for name in self._store.names(FOLDER) if int(name.rpartition("/")[2][:12]) < number)
        self._store.remove(old)

    def check(self) -> None:
        """See that nobody has written a newer state. Raises LogTaken."""
        if self._json_name(self._number) != max(self._published(), default=""):
            raise taken(self._store)

    def _published(self) -> list[str]:
        return [name for name in self._store.names(FOLDER) if name.endswith(".json")]

    @staticmethod
    def _json_name(number: int) -> str:
        return f"{FOLDER}/{number:012d}.json"


def _fact(told: dict[str, Any] | None) -> Fact | None:
    if told is None:
        return None
    entry = Entry(**told.pop("entry"))
    return Fact(entry, **told)
