"""What executors and sinks put into the log: verdicts on rows, and marks of batches that failed.

A verdict is for one partition of one batch as it was processed: the rows that its handler refused. The first that is
published is final.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery_spark.wal.arrow_files import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["FAILURES", "VERDICTS", "Records", "Refusal", "mildest"]

VERDICTS = "verdicts"
FAILURES = "failures"
_MILDEST = ("fail", "defer", "poison", "discard")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a row was not processed: `kind` is fail, poison, discard or defer; `count`: its `delivery_count`."""

    count: int
    kind: str
    cause: str
    delay: float = 0.0


def mildest(refusals: Iterable[Refusal]) -> Refusal | None:
    """Return the one that counts: of two tasks' messages with one id neither is dropped because the other is."""
    return min(refusals, key=lambda each: _MILDEST.index(each.kind), default=None)


class Records:
    """Verdicts and failures of one log."""

    def __init__(self, store: WalStore) -> None:
        self._store = store

    def judge(self, name: str, refused: Mapping[str, Refusal]) -> Mapping[str, Refusal]:
        """Publish the verdict on a partition, by message id; return the one that counts: the first."""
        file = f"{VERDICTS}/{name}.json"
        told = {each: [r.count, r.kind, r.cause, r.delay] for each, r in refused.items()}
        if self._store.publish(file, json.dumps(told).encode()):
            return refused
        return self._verdict(file)

    def verdict(self, name: str) -> Mapping[str, Refusal] | None:
        """Return the verdict on a partition, or None if there is none yet."""
        file = f"{VERDICTS}/{name}.json"
        return None if self._store.read(file) is None else self._verdict(file)

    def verdicts(self, least: int) -> tuple[int, list[str], dict[str, list[Refusal]]]:
        """Return the number that Spark has for the newest batch with verdicts, the files of all, and what its own say.

        Those before it, or before number `least`, come late, from tasks that were given up: nothing is made of them.
        Tasks that consume for themselves may have rows of one id, which only their counts tell apart.
        """
        names = self._store.names(VERDICTS)
        batch = max((number_of(name) for name in names), default=-1)
        refused: dict[str, list[Refusal]] = {}
        for name in names if batch >= least else ():
            for each, refusal in self._verdict(name).items() if number_of(name) == batch else ():
                refused.setdefault(each, []).append(refusal)
        return max(batch, least), names, refused

    def fail(self, batch: int, error: str) -> None:
        """Mark that the sink could not write a batch of Spark's."""
        self._store.publish(f"{FAILURES}/{batch:012d}.json", json.dumps({"error": error}).encode())

    def failure(self) -> str | None:
        """Return what the last sink said that failed, or None."""
        names = self._store.names(FAILURES)
        content = self._store.read(names[-1]) if names else None
        if content is None:
            return None
        told: dict[str, Any] = json.loads(content)
        return str(told["error"])

    def forget_failures(self) -> None:
        """Remove the marks: what they were for has been dealt with."""
        self._store.remove(self._store.names(FAILURES))

    def forget(self, names: Iterable[str]) -> None:
        """Remove verdicts that have been carried out."""
        self._store.remove(names)

    def _verdict(self, name: str) -> dict[str, Refusal]:
        told: dict[str, list[Any]] = json.loads(self._store.read(name) or b"{}")
        return {each: Refusal(*of) for each, of in told.items()}
