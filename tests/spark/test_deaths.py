"""Whatever fails and whenever it dies: each good message is in the output once, each bad one is a dead letter."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.conftest import FAST
from tests.spark.query import Killed, KillsQuery, Query

from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Row

MOST = int(os.environ.get("REDELIVERY_DEATHS", "5"))
KINDS = st.sampled_from(["good"] * 6 + ["bad", "flaky", "killer"])
POINTS = (
    "",
    "",
    "",
    "before publish",
    "after publish",
    "after settle",
    "before state",
    "after state",
    "between",
)


class _Deaths:
    """Has one call of the source's parts end the process."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def arm(self, point: str) -> None:
        """Die at this point of the next batch."""
        source = self._query.start()
        journal = source._journal
        place, what = point.split()
        owner, name = {
            "publish": (journal.segments, "publish"),
            "settle": (source._intake, "settle"),
            "state": (journal._states, "publish"),
        }[what]
        wrapped: Callable[..., object] = getattr(owner, name)

        def dying(*arguments: object, **named: object) -> object:
            if place == "after":
                wrapped(*arguments, **named)
            raise Killed

        setattr(owner, name, dying)


def _handler(row: Row) -> None:
    kind = row["body"].decode().partition("-")[0]
    if kind == "killer":
        raise KillsQuery(kind)
    if kind == "bad" or (kind == "flaky" and row["delivery_count"] < 3):
        raise ValueError(kind)


@settings(max_examples=MOST, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kinds=st.lists(KINDS, min_size=1, max_size=25),
    points=st.lists(st.sampled_from(POINTS), max_size=12),
    ack=st.sampled_from(["wal", "commit"]),
    most=st.sampled_from([1, 4, 30]),
    evidence=st.booleans(),
)
def test_nothing_is_lost_and_nothing_comes_twice(
    kinds: list[str], points: list[str], ack: str, most: int, *, evidence: bool
) -> None:
    """Over any sequence of failures, killers and deaths."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryBroker(clock=ManualClock(auto_advance=True)) as broker,
    ):
        names = [f"{kind}-{number}" for number, kind in enumerate(kinds)]
        for name in names:
            broker.send("orders", name)
        with Query(broker, Path(folder) / "wal", uri=FAST, ack=ack, maxMessagesPerTrigger=most) as query:
            deaths = _Deaths(query)
            for point in points:
                try:
                    if " " in point:
                        deaths.arm(point)
                    query.step(_handler, evidence=evidence)
                except KillsQuery:
                    pass
                except Killed:
                    query.die()
                if point == "between":
                    query.die()
            query.die()  # what is armed still dies with it
            query.drain(_handler, evidence=evidence)
            fine = [name for name in names if name.startswith(("good", "flaky"))]
            assert Counter(query.bodies()) == Counter(fine)
        dead = {letter.body.decode() for letter in broker.dead_letters()}
        assert dead == set(names) - set(fine)
        assert broker.depth("orders") == 0
