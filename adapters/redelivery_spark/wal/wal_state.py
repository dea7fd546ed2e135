"""State of the write-ahead log beyond its segments: the settled position, and the facts of rows that wait.

A state is a small file of facts, published whole under a new number, which only one process can do; the newest one
counts. A start publishes a state at once: from then on, an older runner that continues finds its next number, or a
later one, in use. The rows themselves are written when they begin to wait, one file for all rows of one state. They are
written once more when only a few of a large file still wait.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redelivery.core.ledger_entry import Entry
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.wal.checked_file import damaged, publish_checked, read_checked, read_json
from redelivery_spark.wal.segment_files import number_of, read_table, written
from redelivery_spark.wal.store import taken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from redelivery.core.ledger_entry import Buried
    from redelivery.errors import LedgerError
    from redelivery_spark.wal.lane import Vector
    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.wal_store import WalStore

__all__ = [
    "FOLDER",
    "FORMAT",
    "ROWS",
    "Fact",
    "GivenUpBatch",
    "State",
    "States",
    "WalLedger",
    "check_start",
    "settled_in",
]


# ---- Wal state -------------------------------------------------------------------------------------------

FOLDER, ROWS = "state", "rows"
FORMAT = 2
# Bytes of a state up to the end of its start's name.
_HEAD = 200
# Attempts to read the newest state: a newer one can replace it in between.
_LOOKS = 5
_SETTLED = re.compile(rb'"settled": (\{[^}]*\})')
MOST_WASTE = 256 << 10
"""Bytes, about, of a file of rows that may belong to rows which no longer wait."""
TOTALS = ("accepted", "redelivered", "deferred", "poisoned", "discarded")


@dataclass(frozen=True, slots=True)
class Fact:
    """Facts of one row that waits. Times are in seconds since the Unix epoch, delays in seconds.

    `due`: due time, None: at once; `delay`: its delay at that time. `passed`: number of batches with rows that had
    succeeded when it failed as the only row of one.
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
    """Failed batch that is split: `isolate=split`. Its rows are in `groups` segments of lane 0; it has none itself.

    `end`: position of each lane at its end. `passed`: number of batches with rows that had succeeded before.
    """

    end: Vector
    groups: int
    passed: int


@dataclass(slots=True)
class State:
    """State after the batches up to `settled`. `passed`: number of batches with rows that have succeeded.

    `void`: the segments of lane 0 after `settled` up to this number had no rows, and can be gone: a segment that is
    published there later is of no start that counts. 0: there are none.
    """

    log: str
    settled: Vector = field(default_factory=dict[int, int])
    passed: int = 0
    given_up: GivenUpBatch | None = None
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    facts: Sequence[Fact] = ()
    void: int = 0


class States:
    """States of one log, of which the newest counts."""

    def __init__(self, store: WalStore) -> None:
        self._store = store
        self.start = uuid.uuid4().hex
        """Name of this start in its states."""
        self._number = 0
        # Files of waiting rows, with the places of those that still wait.
        self._files: dict[str, set[Place]] = {}
        # Rows and bytes of each file when it was written, for files that were read or written here.
        self._sizes: dict[str, tuple[int, int]] = {}
        # Files of writers that died before they published their state.
        self._left: set[str] = set()

    def load(self) -> State | None:
        """Return the newest state, or None in a new log.

        Raises:
            ConfigurationError: The log is one of the first design.
            LogDamaged: It cannot be read.
            RedeliveryError: It has rows that wait, and no state.
        """
        self._left = set(self._store.names(ROWS))
        names = self._store.names(FOLDER)
        if not names and self._left:
            # The state is not listed yet, or was removed. A new log would lose all rows that wait.
            raise RedeliveryError(
                f"walDir={self._store.url}: it has rows that wait, and no state; was it changed by another program?"
            )
        if not names:
            return None
        self._number = number_of(names[-1])
        try:
            found: dict[str, Any] = read_json(self._store, names[-1])
            if found.get("format") != FORMAT:
                raise _old(self._store)
            self._files = {name: set(places) for name, places in found["files"].items()}
            self._left.difference_update(self._files)
            return _read(found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, ConfigurationError):
                raise
            raise damaged(self._store, names[-1], f"no state: {error!r}") from None

    def rows(self) -> list[pa.Table]:
        """Return the files of waiting rows. Raises FileMissing, and LogDamaged."""
        tables = {name: read_table(self._store, name) for name in self._files}
        self._sizes = {name: (table.num_rows, table.nbytes) for name, table in tables.items()}
        return list(tables.values())

    def scattered(self, waiting: Collection[Place]) -> set[Place]:
        """Return the rows that the next state is to write anew, of those that wait then.

        One row that waits for long would keep all rows that began to wait with it. The result is the rest of one file,
        the one with the most waste. Less than half of the file is written: in total, that is no more work than writing
        it was.
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
        """Write a state durably, and remove the one before it. Raises LogTaken: another start has written this number.

        `rows`: those at `places`, which wait from now on, or are written anew; None: there are none.
        """
        # For a row that is written anew the new file counts from this state on. The old file stays until the state
        # exists.
        files = {name: there.difference(places) for name, there in self._files.items()}
        # The name is unique: no other writer of this state has it.
        if rows is not None:
            name = f"{ROWS}/{self._number + 1:012d}-{uuid.uuid4().hex}.arrow"
            publish_checked(self._store, name, *written(rows))
            files[name] = set(places)
            self._sizes[name] = rows.num_rows, rows.nbytes
        waiting = {fact.place for fact in state.facts}
        files = {name: left for name, there in files.items() if (left := there & waiting)}
        content = _written(state, self.start, files)
        if not publish_checked(self._store, self._name(self._number + 1), content):
            raise taken(self._store)
        names = self._store.names(FOLDER)
        if names and names[-1] > self._name(self._number + 1):
            # The number was free again: this process stood still while another start wrote several states.
            raise taken(self._store)
        self._number += 1
        # Only files that this writer has seen: a newer one may be writing its own by now.
        old = self._left | (self._files.keys() - files.keys())
        self._files, self._left = files, set()
        self._sizes = {name: size for name, size in self._sizes.items() if name in files}
        self._store.remove(each for each in names if number_of(each) < self._number)
        self._store.remove(sorted(old))

    def check(self) -> None:
        """Raise LogTaken if the log is no longer this start's. Any thread: no number is used."""
        check_start(self._store, self.start)

    @staticmethod
    def _name(number: int) -> str:
        return f"{FOLDER}/{number:012d}.json"


def check_start(store: WalStore, start: str) -> None:
    """Raise LogTaken if a log is no longer that of a start; for a process that writes no state."""
    content = _newest(store)
    # It is before all parts that grow with the rows that wait: those are not read here.
    if content is not None and f'"start": "{start}"'.encode() not in content[:_HEAD]:
        raise taken(store)


def settled_in(store: WalStore) -> Vector:
    """Return the settled position of a log by its newest state, for a process that decides about rows of a batch.

    Raises RedeliveryError if it cannot be read.
    """
    content = _newest(store)
    found = None if content is None else _SETTLED.search(content)
    return {} if found is None else _vector(json.loads(found[1]))


def _newest(store: WalStore) -> bytes | None:
    """Return the content of the newest state; None: there is none. Raises RedeliveryError if it cannot be read."""
    for _ in range(_LOOKS):
        names = store.names(FOLDER)
        if not names:
            return None
        content = read_checked(store, names[-1])
        # None: a newer state has just replaced it.
        if content is not None:
            return bytes(content)
    raise RedeliveryError(f"walDir={store.url}: the newest state cannot be read")


def _old(store: WalStore) -> ConfigurationError:
    return ConfigurationError(
        f"walDir={store.url}: a log of the first design of this source; drain it with the version of redelivery "
        "that wrote it (trigger AvailableNow, until it ends), then begin with a new walDir and a new checkpoint",
        option="walDir",
    )


def _written(state: State, start: str, files: Mapping[str, Collection[Place]]) -> bytes:
    given_up = state.given_up
    content = {
        "format": FORMAT,
        # Unique: otherwise a writer could take the same state of another one for its own.
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


# ---- Wal ledger ------------------------------------------------------------------------------------------
# Counts of messages that wait in the log: the library's ledger, stored in the log's state.


class WalLedger:
    """A `redelivery.ledger.Ledger` whose entries are written with the log's state when a batch is settled.

    An attempt needs no mark: the running batch is the one that the log has published and not settled.
    """

    def __init__(self, entries: dict[bytes, Entry] | None = None) -> None:
        self.entries: dict[bytes, Entry] = {} if entries is None else entries

    @property
    def error(self) -> LedgerError | None:
        """None: counting cannot fail. If the state cannot be written, the query ends."""
        return None

    def open(self, failed: Callable[[], None]) -> None:
        """Do nothing."""

    def close(self, failed: Callable[[], None]) -> None:
        """Do nothing."""

    def look_up(self, key: bytes, *, fresh: bool = False) -> Entry | None:
        """Return the entry of a message."""
        del fresh
        return self.entries.get(key)

    def refresh(self, key: bytes) -> None:
        """Do nothing: no other process writes."""

    def begin(self, key: bytes, count: int) -> int:
        """Mark nothing, see the class."""
        del key
        return count

    def end(self, mark: int | None, key: bytes, entry: Entry | None, *, failed: bool, keep: bool) -> None:
        """Write `entry`; or remove the message's entry (None), or keep it unchanged (`keep`)."""
        del mark, failed
        if keep:
            return
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry

    def hang(self, mark: int) -> None:
        """Do nothing: no handler runs here."""

    def bury(self, key: bytes, buried: Buried | None) -> None:
        """Remove the entry of a message whose dead letter is confirmed."""
        del buried
        self.entries.pop(key, None)

    def buried(self, destination: str | None = None) -> Iterable[Buried]:
        """Return nothing: causes are in the dead letters."""
        del destination
        return ()
