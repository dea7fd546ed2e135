"""What the log knows beyond its segments: how far all is settled, and what is known of the rows that wait.

A state is a small file of facts, published whole under a new number, which only one can; the newest that is there
counts. A start publishes one at once: from then on, an older runner that comes back finds its next number taken, or a
later one. The rows themselves are written when they begin to wait, one file for all of one state; once more, if they
have come to be few in a large one.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redelivery.core.ledger_entry import Entry
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.wal.arrow_files import number_of, read_table, written
from redelivery_spark.wal.store import taken

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from redelivery_spark.wal.lane import Vector
    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["FOLDER", "FORMAT", "ROWS", "Fact", "GivenUpBatch", "State", "States", "check_start", "settled_in"]

FOLDER, ROWS = "state", "rows"
FORMAT = 2
# Bytes of a state up to behind the name of its start.
_HEAD = 200
# Times that a state is looked for, which another one may have replaced in between.
_LOOKS = 5
_SETTLED = re.compile(rb'"settled": (\{[^}]*\})')
MOST_WASTE = 256 << 10
"""Bytes of a file of rows, about, that may be of rows which wait no longer."""
TOTALS = ("accepted", "redelivered", "deferred", "poisoned", "discarded")


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of one row that waits. Times are seconds since the Unix epoch, delays are seconds.

    `due`: when it may go, None: at once; `delay`: for how long it was to wait then. `passed`: how many batches with
    rows had gone through when it failed as the only row of one.
    """

    place: Place
    entry: Entry = field(default_factory=Entry)
    due: float | None = None
    delay: float = 0.0
    deferrals: int = 0
    exhausted: bool = False
    passed: int | None = None


@dataclass(frozen=True, slots=True)
class GivenUpBatch:
    """A batch that was given up: `isolate=split`. Its rows are in `groups` segments of lane 0, and it has none itself.

    `end`: how far each lane goes in it. `passed`: how many batches with rows had gone through when it was.
    """

    end: Vector
    groups: int
    passed: int


@dataclass(slots=True)
class State:
    """All of it after the batches up to `settled`. `passed`: how many batches with rows have gone through.

    `void`: the segments of lane 0 behind `settled` up to this number had no rows, and may be gone: what is published
    there later is of no start that counts. 0: there are none.
    """

    log: str
    settled: Vector = field(default_factory=dict[int, int])
    passed: int = 0
    given_up: GivenUpBatch | None = None
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    facts: Sequence[Fact] = ()
    void: int = 0


class States:
    """The states of one log, of which the newest counts."""

    def __init__(self, store: WalStore) -> None:
        self._store = store
        self.start = uuid.uuid4().hex
        """What this start is called in its states."""
        self._number = 0
        # The files of waiting rows, and which of those that wait are in each.
        self._files: dict[str, set[Place]] = {}
        # Rows and bytes of each as it was written, of those that were read or written here.
        self._sizes: dict[str, tuple[int, int]] = {}
        # By writers that died before their state was there.
        self._left: set[str] = set()

    def load(self) -> State | None:
        """Return the newest state, or None in a log that is new.

        Raises:
            ConfigurationError: the log is one of the first design.
            RedeliveryError: it cannot be read.
        """
        self._left = set(self._store.names(ROWS))
        names = self._store.names(FOLDER)
        if not names and self._left:
            # Not listed yet, or removed: a new log would be the end of all that waits.
            raise RedeliveryError(f"the write-ahead log {self._store.url} has rows that wait, and no state")
        if not names:
            return None
        self._number = number_of(names[-1])
        try:
            found: dict[str, Any] = json.loads(self._store.read(names[-1]) or b"")
            if found.get("format") != FORMAT:
                raise _old(self._store)
            self._files = {name: set(places) for name, places in found["files"].items()}
            self._left.difference_update(self._files)
            return _read(found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, ConfigurationError):
                raise
            raise RedeliveryError(f"the write-ahead log's {names[-1]} cannot be read: {error!r}") from None

    def rows(self) -> list[pa.Table]:
        """Return the files of rows that wait. Raises RedeliveryError if one is gone."""
        tables = {name: read_table(self._store, name) for name in self._files}
        self._sizes = {name: (table.num_rows, table.nbytes) for name, table in tables.items()}
        return list(tables.values())

    def scattered(self, waiting: Collection[Place]) -> set[Place]:
        """Return rows that are to be written anew with the next state, of those that wait then.

        One row that waits for long would keep all that began to wait with it. They are the rest of one file, the one
        that has most to give: less than half of it is written, so all of this is no more work than writing it was.
        """
        found: set[Place] = set()
        most = MOST_WASTE
        for name, there in self._files.items():
            rows, size = self._sizes.get(name, (0, 0))
            left = there.intersection(waiting)
            waste = size - size * len(left) // max(rows, 1)
            if left and 2 * len(left) < rows and waste > most:
                found, most = left, waste
        return found

    def publish(self, state: State, rows: pa.Table | None, places: Collection[Place]) -> None:
        """Write a state durably, and remove the one before it. Raises LogTaken: another start has written this one.

        `rows`: those at `places`, which wait from now on, or are written anew; None: there are none.
        """
        # Of a row that is written anew the new file counts from this state on: the old one stays until it is there.
        files = {name: there.difference(places) for name, there in self._files.items()}
        # Under a name that no other writer of this state has.
        if rows is not None:
            name = f"{ROWS}/{self._number + 1:012d}-{uuid.uuid4().hex}.arrow"
            self._store.publish(name, written(rows))
            files[name] = set(places)
            self._sizes[name] = rows.num_rows, rows.nbytes
        waiting = {fact.place for fact in state.facts}
        files = {name: left for name, there in files.items() if (left := there & waiting)}
        if not self._store.publish(self._name(self._number + 1), _written(state, self.start, files)):
            raise taken(self._store)
        names = self._store.names(FOLDER)
        if names and names[-1] > self._name(self._number + 1):
            # The number was free again: this process stood still while another start wrote several states.
            raise taken(self._store)
        self._number += 1
        # Nothing but what this writer has seen: a newer one may be writing its own by now.
        old = self._left | (self._files.keys() - files.keys())
        self._files, self._left = files, set()
        self._sizes = {name: size for name, size in self._sizes.items() if name in files}
        self._store.remove(each for each in names if number_of(each) < self._number)
        self._store.remove(sorted(old))

    def check(self) -> None:
        """See that the log is still this start's. Raises LogTaken. On any thread: no number is looked at."""
        check_start(self._store, self.start)

    @staticmethod
    def _name(number: int) -> str:
        return f"{FOLDER}/{number:012d}.json"


def check_start(store: WalStore, start: str) -> None:
    """See that a log is still that of a start; for a process that writes no state. Raises LogTaken."""
    content = _newest(store)
    # It stands before all that grows with the rows that wait: those are not read here.
    if content is not None and f'"start": "{start}"'.encode() not in content[:_HEAD]:
        raise taken(store)


def settled_in(store: WalStore) -> Vector:
    """Return up to which segments a log is settled, as its newest state says; for who decides about rows of a batch.

    Raises RedeliveryError: it cannot be read.
    """
    content = _newest(store)
    found = None if content is None else _SETTLED.search(content)
    return {} if found is None else _vector(json.loads(found[1]))


def _newest(store: WalStore) -> bytes | None:
    """Return the content of the newest state; None: there is none. Raises RedeliveryError: it cannot be read."""
    for _ in range(_LOOKS):
        names = store.names(FOLDER)
        if not names:
            return None
        content = store.read(names[-1])
        # None: a newer state has taken its place just now.
        if content is not None:
            return content
    raise RedeliveryError(f"the newest state of the write-ahead log {store.url} cannot be read")


def _old(store: WalStore) -> ConfigurationError:
    return ConfigurationError(
        f"walDir={store.url} holds a log of the first design of this source: drain it with the version of redelivery "
        "that wrote it (trigger AvailableNow, until it ends), then begin with a new walDir and a new checkpoint",
        option="walDir",
    )


def _written(state: State, start: str, files: Mapping[str, Collection[Place]]) -> bytes:
    given_up = state.given_up
    content = {
        "format": FORMAT,
        # Or the same state of two writers would be taken for one's own.
        "by": uuid.uuid4().hex,
        "start": start,
        "log": state.log,
        "settled": _plain(state.settled),
        "void": state.void,
        "passed": state.passed,
        "given_up": None if given_up is None else [_plain(given_up.end), given_up.groups, given_up.passed],
        "totals": state.totals,
        "facts": [_plain_fact(fact) for fact in state.facts],
        "files": {name: sorted(places) for name, places in files.items()},
    }
    return json.dumps(content).encode()


def _plain(vector: Vector) -> dict[str, int]:
    return {str(lane): number for lane, number in vector.items()}


def _vector(found: Mapping[str, int]) -> Vector:
    return {int(lane): number for lane, number in found.items()}


def _plain_fact(fact: Fact) -> list[Any]:
    e = fact.entry
    entry = [e.count, e.cause, e.first, e.last, e.poisoned, e.suspect]
    return [fact.place, entry, fact.due, fact.delay, fact.deferrals, fact.exhausted, fact.passed]


def _read(found: Mapping[str, Any]) -> State:
    given_up = found["given_up"]
    return State(
        log=found["log"],
        settled=_vector(found["settled"]),
        passed=found["passed"],
        given_up=None if given_up is None else GivenUpBatch(_vector(given_up[0]), *given_up[1:]),
        totals=dict.fromkeys(TOTALS, 0) | found["totals"],
        facts=[Fact(place, Entry(*entry), *more) for place, entry, *more in found["facts"]],
        # Logs of earlier versions have all of their segments.
        void=found.get("void", 0),
    )
