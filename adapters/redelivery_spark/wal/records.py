"""Records of executors and sinks in the write-ahead log: verdicts on rows, and marks of failures.

A verdict has the decisions of one handler on the rows of one Arrow batch, published before the rows are passed on.
Other attempts of the task, and other actions over the same batch, read earlier verdicts and follow them. Its refusals
are published again, as a verdict of their own: a file that a disk has emptied looks like one that a power cut emptied,
and its refused rows would count as processed.
"""

from __future__ import annotations

import json
import time
import uuid
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery_spark.wal.checked_file import damaged, publish_checked, read_json
from redelivery_spark.wal.places import parts_of, runs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.wal_store import WalStore

__all__ = [
    "DIED", "FAILURES", "VERDICTS", "Earlier", "Records", "Refusal", "Verdict", "batch_of", "mildest", "verdict_name",
    "within",
]  # fmt: skip

VERDICTS = "verdicts"
FAILURES = "failures"
DIED = "died"
_MILDEST = (DIED, "fail", "defer", "poison", "discard")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a row was not processed.

    `count`: its `delivery_count`. `kind`: `fail`, `poison`, `discard`, `defer`; or `died`: processes have died over it,
    and it is redelivered as after `fail`, but alone. `delay`: seconds of a deferral. `dead_letter`: dead-letter
    destination that a classifier chose for the exception; None: the usual one.
    """

    count: int
    kind: str
    cause: str
    delay: float = 0.0
    dead_letter: str | None = None

    def said(self) -> list[object]:
        """Return the values of its record. Those of earlier versions have no destination."""
        more = [] if self.dead_letter is None else [self.dead_letter]
        return [self.count, self.kind, self.cause, self.delay, *more]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decisions on rows: all of `places` have passed, except the refused ones among them."""

    places: Collection[Place]
    refused: Mapping[Place, Refusal] = field(default_factory=dict[int, Refusal])


def mildest(refusals: Iterable[Refusal]) -> Refusal | None:
    """Return the refusal that counts: no row is dropped that another handler wants redelivered."""
    return min(refusals, key=lambda each: _MILDEST.index(each.kind), default=None)


def verdict_name(batch: int, mark: str, places: Collection[Place], partition: int = 0, turn: int = 0) -> str:
    """Return the name of the verdict on an Arrow batch: the same in each attempt of its task with the same rows.

    Args:
        batch: Spark's number of the batch.
        mark: Mark of the handler.
        places: Places of all rows, at least one. The name contains the first and the last.
        partition: Spark's number of the task's partition.
        turn: Number of earlier Arrow batches of the task with the same places.
    """
    ordered = sorted(places)
    digest = blake2b(array("q", [partition, turn, *ordered]).tobytes(), digest_size=8).hexdigest()
    return f"{_prefix(batch, mark)}{digest}-{ordered[0]:x}-{ordered[-1]:x}"


def _prefix(batch: int, mark: str) -> str:
    return f"{batch:012d}-{mark}-"


class _Read(NamedTuple):
    runs: list[tuple[Place, Place]]
    refused: dict[Place, Refusal]

    def good(self, at: Place) -> bool:
        found = bisect_right(self.runs, at, key=itemgetter(0))
        return at not in self.refused and found > 0 and at <= self.runs[found - 1][1]


class Earlier:
    """Verdicts of one handler on a batch, as far as they were read.

    A row that one verdict refuses and another one passes is refused: at worst it is processed twice, but never lost.
    """

    def __init__(self, store: WalStore, prefix: str) -> None:
        self._store = store
        self._prefix = f"{VERDICTS}/{prefix}"
        self._names: list[str] = []
        self._read: dict[str, _Read] = {}
        self.refused: dict[Place, Refusal] = {}

    def refresh(self) -> None:
        """List the existing verdicts."""
        self._names = [name for name in self._store.names(VERDICTS) if name.startswith(self._prefix)]

    def look(self, first: Place, last: Place) -> None:
        """Read the verdicts that can be on rows from `first` to `last`."""
        for name in self._names:
            if name not in self._read and _touches(name, first, last):
                self._add(name, _content(self._store, name))

    def note(self, name: str, verdict: Verdict) -> None:
        """Add a verdict that was published here."""
        self._add(_file(name), _Read(runs_of(verdict.places), dict(verdict.refused)))

    def by(self, name: str) -> bool:
        """True if the verdict of this name is among those read."""
        read = self._read.get(_file(name))
        return read is not None and bool(read.runs)

    def passed(self, at: Place, name: str) -> bool:
        """True if the verdict of this name, which was read, has passed a row."""
        return self._read[_file(name)].good(at)

    def passed_elsewhere(self, at: Place, name: str) -> bool:
        """True if a verdict of another name has passed a row."""
        return any(read.good(at) for file, read in self._read.items() if file != _file(name))

    def good(self, at: Place) -> bool:
        """True if a row was passed, and never refused."""
        return at not in self.refused and self._passed(at)

    def torn(self, at: Place) -> bool:
        """True if one verdict has refused a row, and another has passed it."""
        return at in self.refused and self._passed(at)

    def _passed(self, at: Place) -> bool:
        return any(read.good(at) for read in self._read.values())

    def _add(self, file: str, read: _Read) -> None:
        self._read[file] = read
        for at, refusal in read.refused.items():
            self.refused[at] = mildest([refusal, self.refused.get(at, refusal)]) or refusal


class Records:
    """Verdicts and failures of one log."""

    def __init__(self, store: WalStore) -> None:
        self.store = store

    def judge(self, name: str, verdict: Verdict, *, durable: bool) -> bool:
        """Publish a verdict; return False if another attempt was first: its verdict counts.

        `durable`: it must survive a crash of the machine. A verdict that refuses nothing need not: without it the rows
        are handled again.
        """
        said = {
            "places": runs_of(verdict.places),
            "refused": {str(at): refusal.said() for at, refusal in verdict.refused.items()},
        }
        content = json.dumps(said).encode()
        first = publish_checked(self.store, _file(name), content, durable=durable)
        if not first and not _content(self.store, _file(name)).runs:
            # Published without fsync, before a power cut: only its name is left.
            self.store.remove([_file(name)])
            first = publish_checked(self.store, _file(name), content, durable=durable)
        if first and verdict.refused:
            again = json.dumps(said | {"places": runs_of(verdict.refused)}).encode()
            publish_checked(self.store, _file(_again(name)), again)
        return first

    def of_batch(self, batch: int, mark: str) -> Earlier:
        """Return the decisions of earlier attempts on the rows of a batch, with one handler.

        `Earlier.look` reads the verdicts on given rows.
        """
        earlier = Earlier(self.store, _prefix(batch, mark))
        earlier.refresh()
        return earlier

    def settled_by(
        self, before: Mapping[int, int], upto: Mapping[int, int]
    ) -> tuple[list[str], dict[Place, Refusal]]:
        """Return the verdicts whose rows are all settled once the segments up to `upto` are, and their refusals.

        All rows of a verdict are of one batch, which is settled when they are all in segments up to `upto`. Refusals of
        rows in segments up to `before` come late, from abandoned tasks, and are ignored.

        Args:
            before: By lane, the number of the last settled segment.
            upto: The same, after this call has been carried out.

        Returns:
            Names for `forget`; and each refused row after `before`, by its place, with the mildest of its refusals.
        """
        names: list[str] = []
        refused: dict[Place, Refusal] = {}
        for name in self.store.names(VERDICTS):
            read = _content(self.store, name)
            if not all(within(at, upto) for run in read.runs for at in run):
                continue
            names.append(name)
            for at, refusal in read.refused.items():
                if not within(at, before):
                    refused[at] = mildest([refusal, refused.get(at, refusal)]) or refusal
        return names, refused

    def forget(self, names: Iterable[str]) -> None:
        """Remove verdicts that have been carried out."""
        self.store.remove(names)

    def fail(self, error: str) -> None:
        """Mark the failure of a batch."""
        name = f"{FAILURES}/{time.time_ns():020d}-{uuid.uuid4().hex}.json"
        publish_checked(self.store, name, json.dumps({"error": error}).encode())

    def marks(self) -> list[str]:
        """Return the names of the marks of failures, oldest first."""
        return self.store.names(FAILURES)

    def failures(self) -> list[str]:
        """Return the texts of the failures, oldest first."""
        found = (read_json(self.store, name) for name in self.marks())
        return [str(said["error"]) for said in found if said is not None]

    def forget_failures(self) -> None:
        """Remove the marks: their batch has succeeded or was split."""
        self.store.remove(self.marks())


def _again(name: str) -> str:
    """Return the name of the verdict that has only the refusals of another one."""
    begin, digest, first, last = name.rsplit("-", 3)
    return f"{begin}-{digest}r-{first}-{last}"


def batch_of(name: str) -> int:
    """Return Spark's number of a verdict's batch."""
    return int(name.rpartition("/")[2].partition("-")[0])


def _file(name: str) -> str:
    return f"{VERDICTS}/{name}.json"


def _touches(name: str, first: Place, last: Place) -> bool:
    """True if a verdict can be on rows from `first` to `last`, by its name."""
    _, low, high = name.removesuffix(".json").rsplit("-", 2)
    return int(low, 16) <= last and first <= int(high, 16)


def _content(store: WalStore, name: str) -> _Read:
    """Return the content of a verdict: empty if it is gone, or if a power cut has left it empty. Raises LogDamaged."""
    said: dict[str, Any] | None = read_json(store, name, may_be_empty=True)
    if said is None:
        return _Read([], {})
    try:
        runs = [(int(first), int(last)) for first, last in said["places"]]
        return _Read(runs, {int(at): Refusal(*of) for at, of in said["refused"].items()})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(store, name, f"no verdict: {error!r}") from None


def within(at: Place, upto: Mapping[int, int]) -> bool:
    """True if a place is in a segment up to `upto`, the number of the last one by lane."""
    lane, _, number, _ = parts_of(at)
    return number <= upto.get(lane, 0)
