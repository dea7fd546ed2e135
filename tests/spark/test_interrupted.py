"""SIGTERM between any two lines of a call of Spark: the query ends there, and the next start goes on."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.conftest import FAST
from tests.spark.query import Query, Row, dead_bodies, fails_bad
from tests.tiers import amount

import redelivery_spark
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from types import FrameType

MOST = 4 * amount("REDELIVERY_DEATHS", quick=2, ci=20, full=300)
# Not the modules that write files: an interrupted one is still open, which the end of the process would mend.
PARTS = tuple(
    str(Path(redelivery_spark.__file__).parent / name)
    for name in ("stream/", "wal/lane.py", "wal/records.py", "wal/wal_state.py")
)
LINES = 40_000  # a few more than those of a whole run
# Runs of batches whose sink fails.
FAILING = (2, 3, 5, 7)


class Signal:
    """Raises SystemExit, as the handler of SIGTERM does, before a line of the source runs within `with`; once."""

    def __init__(self, line: int) -> None:
        """`line`: number of the line, counted as they run."""
        self._left = line

    def __enter__(self) -> None:
        if self._left:
            sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        return self._runs if frame.f_code.co_filename.startswith(PARTS) else None

    def _runs(self, frame: FrameType, event: str, argument: Any) -> Any:
        del frame, argument
        if event == "line" and self._left:
            self._left -= 1
            if not self._left:
                sys.settrace(None)
                raise SystemExit
        return self._runs


class Handler:
    """Fails as `fails_bad`; knows with which delivery counts it has seen each message."""

    def __init__(self) -> None:
        self.counts: dict[str, set[int]] = {}

    def __call__(self, row: Row) -> None:
        """Handle a row."""
        self.counts.setdefault(row["body"].decode(), set()).add(row["delivery_count"])
        fails_bad(row)


def run_until(query: Query, signal: Signal, handler: Handler) -> None:
    """Run batches until the signal, or until none comes. Some fail in the sink; some ends are between two batches."""
    runs = idle = 0
    while idle < 5:
        query.start()
        with signal:
            tasks = query.read() if query.plan() else None
        if tasks is None:
            idle += 1
            continue
        runs, idle = runs + 1, 0
        passed = [row for rows in tasks for row in query._processed(rows, handler)]
        if runs in FAILING:
            query.records.fail("the sink is down")
            query.end()
            continue
        query.output[query.batch] = passed
        query.commit()
        if runs % 5 == 3:
            query.end()


@pytest.mark.timeout(60 + MOST)
@settings(max_examples=MOST, deadline=None, suppress_health_check=list(HealthCheck))
@given(line=st.integers(1, LINES), split=st.booleans())
def test_a_signal_at_any_line_loses_nothing(line: int, *, split: bool) -> None:
    """Each good message is in the output once, each bad one is a dead letter, twice at most, after three deliveries."""
    options = {"isolate": "split", "isolateAfter": 1} if split else {}
    names = [f"{kind}-{number}" for number in range(4) for kind in ("bad", "flaky", "good")]
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryBroker(clock=ManualClock(auto_advance=True)) as broker,
        Query(broker, Path(folder) / "wal", uri=FAST, **options) as query,
    ):
        for name in names:
            broker.send("orders", name)
        handler = Handler()
        try:
            run_until(query, Signal(line), handler)
        except SystemExit:
            query.end()
        query.drain(handler, evidence=True)
        dead = Counter(body.decode() for body in dead_bodies(broker))
        assert Counter(query.bodies()) == Counter(name for name in names if not name.startswith("bad"))
        assert set(dead) == {name for name in names if name.startswith("bad")}
        assert max(dead.values()) <= 2
        assert handler.counts == {name: {1} if name.startswith("good") else {1, 2, 3} for name in names}
        assert {letter.headers["redeliveryCount"] for letter in broker.dead_letters()} == {"3"}
