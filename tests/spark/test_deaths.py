"""Whatever fails and whenever it dies: each good message is in the output once, each bad one is a dead letter."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.spark.conftest import FAST, no_marks
from tests.spark.query import Killed, KillsQuery, Query

from redelivery.testing import ManualClock, MemoryBroker
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.wal.records import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Row

MOST = int(os.environ.get("REDELIVERY_DEATHS", "5"))
URI = f"{FAST}&redelivery.maximumDeferrals=2"
KINDS = st.sampled_from(["good"] * 6 + ["bad", "flaky", "killer"])
WRITES = st.tuples(st.sampled_from(["publish", "remove", "settle", "send"]), st.integers(1, 6), st.booleans())
EVENTS = st.one_of(
    st.just("go"),
    st.just("go"),
    st.just("restart"),
    st.just("switch"),
    st.just("cut"),
    st.just("refuse"),
    st.just("late"),
    st.just("task"),
    WRITES,
)


class _Deaths:
    """A query to which things happen between and within its batches."""

    def __init__(self, broker: MemoryBroker, query: Query, *, evidence: bool) -> None:
        self._broker = broker
        self._query = query
        self._evidence = evidence

    def handle(self, row: Row) -> None:
        """Do what the body says."""
        body = row["body"].decode()
        assert row["delivery_count"] <= 3, "beyond its redeliveries"
        kind = body.partition("-")[0]
        if kind == "killer":
            raise KillsQuery(kind)
        if kind == "bad" or (kind == "flaky" and row["delivery_count"] < 3):
            raise ValueError(kind)

    def step(self, event: str | tuple[str, int, bool]) -> None:
        """Have something happen, and run a batch."""
        query, broker = self._query, self._broker
        if isinstance(event, tuple):
            self._arm(*event)
        elif event == "cut":
            broker.cut()
        elif event == "refuse":
            broker.refuse_sends(2)
            broker.refuse_settlements(2)
        elif event == "late":
            self._late()
        elif event == "task":
            query.task_dies = "after" if query.committed % 2 else "before"
        elif event in ("restart", "switch"):
            query.die()
        if event == "switch":
            query.switch_ack()
        try:
            query.step(self.handle, evidence=self._evidence)
        except KillsQuery:
            pass
        except Killed:
            query.die()

    def end(self) -> None:
        """Run without any more accidents, until nothing waits; then as AvailableNow, which ends."""
        query = self._query
        query.die()  # what is armed still dies with it
        query.drain(self.handle, evidence=self._evidence)
        query.start().available_now()
        assert query.step(self.handle) is None

    def _arm(self, what: str, count: int, after: bool) -> None:
        """Die at the next but so many write of a kind, before or after it."""
        source = self._query.start()
        store = source._journal.segments.store
        owner: object = store if what in ("publish", "remove") else source._intake
        name = "forward" if what == "send" else what
        wrapped: Callable[..., object] = getattr(owner, name)
        left = [count]

        def dying(*arguments: object, **named: object) -> object:
            left[0] -= 1
            if left[0] and not left[0] < 0:
                return wrapped(*arguments, **named)
            if after:
                wrapped(*arguments, **named)
            raise Killed

        setattr(owner, name, dying)

    def _late(self) -> None:
        """Have a task of a batch that is settled end late, with another opinion."""
        query = self._query
        for number, rows in query.output.items():
            if number < query.committed and rows:
                refused = {row["message_id"]: Refusal(row["delivery_count"], "fail", "late") for row in rows}
                query.records.judge(f"{number - 1:012d}-9", refused)


def _identity(delivery: MemoryDelivery) -> str:
    found = delivery.headers.get("id")
    return str(found if found is not None else delivery.kept.broker_id)


# The query is started again so often that the last message comes again long after its row was done with.
OFTEN = ["bad", "good", "killer", "good", "flaky", "good", "killer", "good", "flaky", "killer", "good"]


@settings(max_examples=MOST, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kinds=st.lists(KINDS, min_size=1, max_size=20),
    ids=st.lists(st.sampled_from(["", "", "X", "Y"]), min_size=20, max_size=20),
    events=st.lists(EVENTS, max_size=14),
    ack=st.sampled_from(["wal", "commit", "shares"]),
    most=st.sampled_from([1, 4, 30]),
    evidence=st.booleans(),
    marks=st.booleans(),
)
@example(kinds=OFTEN, ids=[""] * 20, events=[], ack="commit", most=4, evidence=False, marks=False)
@example(kinds=OFTEN, ids=[""] * 20, events=[], ack="commit", most=4, evidence=True, marks=True)
# The process dies when the message has failed twice, and then succeeded.
@example(kinds=["flaky"], ids=[""] * 20, events=["go"] * 7, ack="commit", most=1, evidence=False, marks=False)
@example(
    kinds=["good", "good", "killer", "bad"],
    ids=[""] * 20,
    events=[],
    ack="shares",
    most=4,
    evidence=False,
    marks=False,
)
def test_nothing_is_lost_and_nothing_comes_twice(
    kinds: list[str],
    ids: list[str],
    events: list[str | tuple[str, int, bool]],
    ack: str,
    most: int,
    *,
    evidence: bool,
    marks: bool,
) -> None:
    """Over any sequence of failures, killers, deaths, cuts, refusals, late verdicts, and ids that are used again."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryBroker(clock=ManualClock(auto_advance=True)) as broker,
        patch.object(MemoryDelivery, "identity", property(_identity)),
        patch.object(MemoryDelivery, "timestamp", property(lambda _: None)),
        nullcontext() if marks else no_marks(),
    ):
        names = [f"{kind}-{number}" for number, kind in enumerate(kinds)]
        for name, identity in zip(names, ids, strict=False):
            broker.send("orders", name, headers={"id": identity} if identity else {})
        how = {"consumers": "executors"} if ack == "shares" else {"ack": ack}
        with Query(broker, Path(folder) / "wal", uri=URI, maxMessagesPerTrigger=most, **how) as query:
            deaths = _Deaths(broker, query, evidence=evidence)
            for event in events:
                deaths.step(event)
            broker.refuse_sends(0)
            broker.refuse_settlements(0)
            deaths.end()
            fine = [name for name in names if name.startswith(("good", "flaky"))]
            # Tasks do not know each other's ids: where one of two rows with the same id fails, both come again.
            told_apart = ack != "shares"
            done = Counter(query.bodies())
            assert done.keys() == set(fine)
            own = {name for name, identity in zip(names, ids, strict=False) if told_apart or not identity}
            assert {name for name in own if done[name] > 1} == set()
        dead = {letter.body.decode() for letter in broker.dead_letters()}
        assert dead == set(names) - set(fine)
        assert broker.depth("orders") == 0
