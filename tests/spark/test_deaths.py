"""Whatever fails and whenever it dies: each good message is in the output once, each bad one is a dead letter."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from tests.spark.accidents import Accidents
from tests.spark.conftest import FAST, no_marks
from tests.spark.query import Query
from tests.tiers import amount, chosen

from redelivery.testing import ManualClock, MemoryBroker
from redelivery_memory.messages import MemoryDelivery

if find_spec("fsspec") is not None:
    from tests.spark.sound import register

MOST = amount("REDELIVERY_DEATHS", quick=2, ci=20, full=300)
# The written examples have hundreds of deaths: 2 s.
PHASES = [Phase.generate, Phase.shrink] if chosen() == "quick" else list(Phase)
URI = f"{FAST}&redelivery.maximumDeferrals=2"
KINDS = st.sampled_from(["good"] * 6 + ["bad", "flaky", "killer"])
# A start of the query that does not wait for the end of the one before: at one of that one's next writes.
OTHERS = st.tuples(st.just("other"), st.integers(0, 6), st.booleans())
WRITES = st.tuples(
    st.sampled_from(["publish", "publish", "remove", "accept", "send", "break"]),
    st.integers(1, 8),
    st.booleans(),
)
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
    st.just("lost"),
    WRITES,
    WRITES,
    WRITES,
    OTHERS,
)


def _identity(delivery: MemoryDelivery) -> str:
    found = delivery.headers.get("id")
    return str(found if found is not None else delivery.kept.broker_id)


# The query is started again so often that the last message is redelivered long after its row was settled.
OFTEN = ["bad", "good", "killer", "good", "flaky", "good", "killer", "good", "flaky", "killer", "good"]


# A death at each of the first writes of each kind.
EACH = [
    (what, count, after)
    for what in ("publish", "accept", "remove", "send", "break")
    for count in (1, 2, 3)
    for after in (False, True)
]


@pytest.mark.timeout(60 + 2 * MOST)
@settings(max_examples=MOST, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
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
    kinds=[*["good"] * 12, *OFTEN], ids=[""] * 30, events=EACH, size=2, most=4, evidence=True, marks=True, ahead="256m",
    place="folder",
)  # fmt: skip
@example(
    kinds=[*["good"] * 19, "bad"], ids=[""] * 20, events=["lost", ("break", 1, False), "go", "cut", "restart"] * 3,
    size=3, most=1, evidence=False, marks=False, ahead="256m", place="folder",
)  # fmt: skip
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
    """Over any sequence of failures, killers, deaths, cuts, refusals, late verdicts, and overlapping starts."""
    if place == "store" and find_spec("fsspec") is None:
        return
    if not evidence:
        # No failure is marked: the batch is tried without end.
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
        how = {"isolate": "split", "isolateAfter": 2} if evidence else {}
        where = str(Path(folder) / "wal")
        if place == "store":
            register()
            where = "sound://bucket/log"
        with Query(broker, where, uri=URI, maxRowsPerTrigger=most, maxBytesAhead=ahead, **how) as query:
            deaths = Accidents(broker, query, zip(names, ids, strict=False), evidence=evidence)
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
