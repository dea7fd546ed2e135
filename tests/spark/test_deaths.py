"""Whatever fails and whenever it dies: each good message is in the output once, each bad one is a dead letter."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.spark.conftest import FAST, no_marks
from tests.spark.query import InlineReader, Killed, KillsQuery, Query, readers_of, with_options

from redelivery.errors import ConfigurationError
from redelivery.testing import ManualClock, MemoryBroker
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.stream.startup import opened
from redelivery_spark.wal.records import Refusal, Verdict, verdict_name
from redelivery_spark.wal.store import LogTaken

if find_spec("fsspec") is not None:
    from tests.spark.sound import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Row

    from redelivery_spark.stream.coordinator import Coordinator

MOST = int(os.environ.get("REDELIVERY_DEATHS", "10"))
URI = f"{FAST}&redelivery.maximumDeferrals=2"
KINDS = st.sampled_from(["good"] * 6 + ["bad", "flaky", "killer"])
# A start of the query that does not wait for the end of the one before: at the next but so many write of that one.
OTHERS = st.tuples(st.just("other"), st.integers(0, 6), st.booleans())
WRITES = st.tuples(st.sampled_from(["publish", "remove", "accept", "send"]), st.integers(1, 8), st.booleans())
EVENTS = st.one_of(
    st.just("go"),
    st.just("go"),
    st.just("restart"),
    st.just("cut"),
    st.just("refuse"),
    st.just("late"),
    st.just("again"),
    st.just("partitions"),
    st.just("old"),
    WRITES,
    OTHERS,
)


class _Deaths:
    """A query to which things happen between and within its batches."""

    def __init__(self, broker: MemoryBroker, query: Query, *, evidence: bool) -> None:
        self._broker = broker
        self._query = query
        self._evidence = evidence
        # Starts that were given up, and have not ended.
        self._old: list[Coordinator] = []
        self._new: Coordinator | None = None

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
        if event == "cut":
            broker.cut()
        elif event == "refuse":
            broker.refuse_sends(2)
            broker.refuse_settlements(2)
        elif event == "late":
            self._late()
        elif event == "restart":
            query.die()
        elif event == "old":
            self._old_ones()
        elif event == "partitions":
            query.die()
            with_options(query, partitions=1 if query.options.partitions > 1 else 3)
        elif isinstance(event, tuple):
            self._arm(*event)
        self._run(again=event == "again")

    def _run(self, *, again: bool) -> None:
        query = self._query
        try:
            if again:
                self._again()
            query.step(self.handle, evidence=self._evidence)
        except (Killed, KillsQuery):
            query.die()
            self._old += [] if self._new is None else [self._new]
        except LogTaken:
            assert self._new is not None, "by itself"
            self._old.append(query.start())
            query.source = self._new
        else:
            # Spark's own log lets only one of two go on: here it is the older one, so far.
            if self._new is not None:
                self._old += [each for each in (query.source, self._new) if each is not None]
                query.source = None
        self._new = None

    def end(self) -> None:
        """Run without any more accidents, until nothing waits; then as AvailableNow, which ends."""
        query = self._query
        query.die()  # what is armed still dies with it
        self._old_ones()
        for source in self._old:
            source.close()
        query.drain(self.handle, evidence=self._evidence)
        query.start().available_now()
        assert query.step(self.handle) is None

    def _again(self) -> None:
        """Have a batch tried twice: its rows are the same, whatever has come meanwhile."""
        query = self._query
        if query.plan():
            before = query.read()
            query.die()
            after = query.read()
            told = [row["_place"] for rows in before for row in rows]
            given_up = query.start()._journal.state.given_up
            assert given_up is not None or told == [row["_place"] for rows in after for row in rows]

    def _arm(self, what: str, count: int, after: bool) -> None:
        """Die at the next but so many write of a kind, before or after it."""
        source = self._query.start()
        if what == "other":
            if not source._journal._store.url.startswith("/"):
                self._arm_other(source, count)
            return
        connection = readers_of(source).source
        owners = {"accept": connection, "send": connection._port}
        owner: object = owners.get(what, source._journal._store)
        wrapped: Callable[..., object] = getattr(owner, what)
        left = [count]

        def dying(*arguments: object, **named: object) -> object:
            left[0] -= 1
            if left[0] and not left[0] < 0:
                return wrapped(*arguments, **named)
            if after:
                wrapped(*arguments, **named)
            raise Killed

        setattr(owner, what, dying)

    def _arm_other(self, source: Coordinator, count: int) -> None:
        """Start the query once more, in another process, at so many writes of this one: only the newest may write."""
        store, left = source._journal._store, [count]
        publish = store.publish

        def published(*arguments: Any, **named: Any) -> bool:
            left[0] -= 1
            if left[0] < 0 and self._new is None and self._query.source is source:
                self._new = opened(self._query.options, InlineReader)
            return publish(*arguments, **named)

        store.publish = published  # type: ignore[method-assign]

    def _old_ones(self) -> None:
        """Have starts that were given up go on, for as long as they do not know it."""
        for source in list(self._old):
            try:
                for _ in range(3):
                    readers_of(source).reader.step(0.5)
                    source.latest(self._query.committed, 30)
            except (LogTaken, ConfigurationError):
                source.close()
                self._old.remove(source)

    def _late(self) -> None:
        """Have a task of a batch that is settled end late, with another opinion."""
        query = self._query
        for number, rows in query.output.items():
            if number < query.batch - 1 and rows:
                refused = {row["_place"]: Refusal(row["delivery_count"], "fail", "late") for row in rows}
                name = verdict_name(number, "late", list(refused))
                query.records.judge(name, Verdict(list(refused), refused), durable=True)


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
    size=st.sampled_from([1, 3, 30]),
    most=st.sampled_from([1, 4, 30]),
    evidence=st.booleans(),
    marks=st.booleans(),
    ahead=st.sampled_from(["1k", "256m"]),
    place=st.sampled_from(["folder", "store"]),
)
@example(
    kinds=OFTEN,
    ids=[""] * 20,
    events=[],
    size=4,
    most=4,
    evidence=True,
    marks=True,
    ahead="1k",
    place="folder",
)
@example(
    kinds=OFTEN,
    ids=[""] * 20,
    events=["cut", "restart"] * 5,
    size=2,
    most=4,
    evidence=True,
    marks=False,
    ahead="1k",
    place="folder",
)
@example(
    kinds=OFTEN, ids=[""] * 20, events=[("other", 0, False), "old", ("other", 2, False), "old"] * 3, size=2, most=4,
    evidence=True, marks=False, ahead="256m", place="store",
)  # fmt: skip
def test_nothing_is_lost_and_nothing_comes_twice(
    kinds: list[str],
    ids: list[str],
    events: list[str | tuple[str, int, bool]],
    size: int,
    most: int,
    *,
    evidence: bool,
    marks: bool,
    ahead: str,
    place: str,
) -> None:
    """Over any sequence of failures, killers, deaths, cuts, refusals, late verdicts, and starts that overlap."""
    if place == "store" and find_spec("fsspec") is None:
        return
    if not evidence:
        # Nobody has seen that a batch fails: it is tried without end.
        kinds = [kind if kind != "killer" else "bad" for kind in kinds]
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryBroker(clock=ManualClock(auto_advance=True)) as broker,
        patch.object(MemoryDelivery, "identity", property(_identity)),
        patch.object(MemoryDelivery, "timestamp", property(lambda _: None)),
        patch("redelivery_spark.stream.lane_reader.MOST_ROWS", size),
        nullcontext() if marks else no_marks(),
    ):
        names = [f"{kind}-{number}" for number, kind in enumerate(kinds)]
        for name, identity in zip(names, ids, strict=False):
            broker.send("orders", name, headers={"id": identity} if identity else {})
        how = {"isolate": "split", "isolateAfter": 2} if evidence else {}
        where = str(Path(folder) / "wal")
        if place == "store":
            register()
            where = "sound://bucket/log"
        with Query(broker, where, uri=URI, maxRowsPerTrigger=most, maxBytesAhead=ahead, **how) as query:
            deaths = _Deaths(broker, query, evidence=evidence)
            for event in events:
                deaths.step(event)
            broker.refuse_sends(0)
            broker.refuse_settlements(0)
            deaths.end()
            fine = [name for name in names if name.startswith(("good", "flaky"))]
            assert Counter(query.bodies()) == Counter(fine)
        dead = {letter.body.decode() for letter in broker.dead_letters()}
        assert dead == set(names) - set(fine)
        assert broker.depth("orders") == 0
