"""Verdict on the rows of an Arrow batch, from the decisions of earlier attempts and of this one.

Rules, most important first:

1. A refused row is in no output. Refused by any verdict of its batch and handler, it is left out and redelivered.
2. The first attempt that handles an Arrow batch decides. A later one may not refuse a row that the first one passed:
the output of the first may be written. The failure ends the query, which runs the same batch again.
3. Rows of one place (a union of a frame with itself, `explode`) are one message: all pass, or none is in the output. If
one has passed in another Arrow batch before one is refused, the refusal is published and the query fails. The next run
of the batch leaves all of them out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redelivery.core.cause import Cause
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.executors.crumbs import DEATHS
from redelivery_spark.wal.places import tag_within
from redelivery_spark.wal.records import DIED, Refusal, Verdict, verdict_name, within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.classifier import Classifier
    from redelivery_spark.executors.crumbs import TaskIdentity
    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.records import Records

__all__ = ["BatchVerdict", "TaskVerdicts", "Undecided"]


class Undecided:
    """Verdict outside of a streaming query: a row cannot be redelivered there, and its error ends the job."""

    def out(self, at: Place) -> bool:
        """True if a row is not in the output."""
        del at
        return False

    def refuse(self, at: Place, count: int, error: Exception) -> None:
        """Raise the error. `run` does not start a query again after it: the row would never use up a redelivery."""
        del at, count
        raise ConfigurationError(
            f"process: a row failed ({Cause.of(error).text}) in a job that belongs to no batch of the query, and "
            "cannot be redelivered; threads that foreachBatch starts must be a pyspark.InheritableThread",
        ) from error

    def publish(self) -> None:
        """Do nothing."""


class TaskVerdicts:
    """Verdicts of one handler that a task follows and publishes."""

    def __init__(
        self,
        records: Records,
        task: TaskIdentity,
        mark: str,
        classifier: Classifier,
        tag: int,
        deaths: Mapping[Place, int],
        settled: Mapping[int, int],
    ) -> None:
        """`settled`: the number of the last segment, by lane, of all earlier batches."""
        self.records = records
        self.task = task
        self.mark = mark
        self.classifier = classifier
        self.earlier = records.of_batch(task.batch, mark)
        self._tag = tag
        self._settled = settled
        self._turns: Counter[frozenset[Place]] = Counter()
        self._killers = {at for at, times in deaths.items() if times >= DEATHS}

    def over(self, places: Sequence[Place | None], counts: Sequence[int]) -> BatchVerdict:
        """Return the verdict on an Arrow batch that has rows, with the decisions that exist before they are handled.

        Raises:
            ConfigurationError: A row is of another log, of none, or of an earlier batch.
            RedeliveryError: This attempt of the task cannot succeed; another run of the batch can.
        """
        known = [self._checked(at) for at in places]
        self.earlier.look(min(known), max(known))
        if self.task.retried and any(self.earlier.torn(at) for at in known):
            raise RedeliveryError(
                "a message was passed on by one task and refused by another; the batch runs again without it"
            )
        verdict = BatchVerdict(self, known, self._name(known))
        for at, count in zip(known, counts, strict=True):
            if at in self._killers and at not in self.earlier.refused and not self.earlier.good(at):
                verdict.died(at, count)
        return verdict

    def _name(self, places: Sequence[Place]) -> str:
        same = frozenset(places)
        turn = self._turns[same]
        self._turns[same] += 1
        return verdict_name(self.task.batch, self.mark, places, self.task.partition, turn)

    def _checked(self, at: Place | None) -> Place:
        if at is None or tag_within(at) != self._tag:
            raise ConfigurationError(
                "process: a row is not of the log that the DataFrame names (its column _place was computed anew, or "
                "DataFrames of two sources were united); call process on each source first",
                option="wal_dir",
            )
        if within(at, self._settled):
            # A decision about it would be too late: its batch has ended.
            raise ConfigurationError(
                "process: a row is of an earlier batch, which a join or another operator with a state has held back; "
                "call process before that operator",
                option="df",
            )
        return at


class BatchVerdict:
    """Verdict on the rows of one Arrow batch."""

    def __init__(self, task: TaskVerdicts, places: Sequence[Place], name: str) -> None:
        self._task = task
        self._earlier = task.earlier
        self._places = set(places)
        self._name = name
        self._refused: dict[Place, Refusal] = {}
        self._errors: dict[Place, Exception] = {}
        # True if another attempt has had the same rows: this one may not refuse a row that the other has passed.
        self._follows = self._earlier.by(self._name)

    def out(self, at: Place) -> bool:
        """True if a row is not in the output."""
        return at in self._refused or at in self._earlier.refused

    def died(self, at: Place, count: int) -> None:
        """Refuse a row because of the processes that died over it."""
        cause = f"the process died {DEATHS} times while it handled this message"
        self._refused[at] = Refusal(count, DIED, cause)

    def refuse(self, at: Place, count: int, error: Exception) -> None:
        """Refuse a row with its error, to be redelivered. Raises the error if the row has passed before."""
        if self._follows and self._earlier.passed(at, self._name):
            raise error
        kind, cause, delay = self._task.classifier.verdict(error)
        self._refused[at] = Refusal(count, kind, cause.text, delay, cause.place)
        self._errors[at] = error

    def publish(self) -> None:
        """Publish the decisions, before a row is passed on. Afterwards `out` is final.

        Raises:
            Exception: Error of a row that is refused here, and may have been passed on elsewhere.
        """
        decided = {at for at in self._places if at not in self._earlier.refused}
        if self._follows and self._refused:
            # The published verdict lacks these rows: without another one they would be lost.
            raise RedeliveryError(
                "this attempt refuses rows that an earlier one has passed in the same verdict; was walDir changed?"
            )
        if not decided or self._follows:
            return
        verdict, records = Verdict(decided, self._refused), self._task.records
        first = records.judge(self._name, verdict, durable=bool(self._refused))
        if first:
            self._earlier.note(self._name, verdict)
        self._earlier.refresh()
        self._earlier.look(min(self._places), max(self._places))
        for at, refusal in self._refused.items():
            passed = self._earlier.passed_elsewhere(at, self._name)
            if passed or (not first and self._earlier.passed(at, self._name)):
                raise self._errors.get(at) or RedeliveryError(refusal.cause)
