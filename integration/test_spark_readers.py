"""`readers=2`: two processes of the runner read one queue. Each row is there once; a killed reader loses nothing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.matrix import cover, named, some

from integration.need import need_spark

need_spark()

from integration.eventually import eventually
from integration.peers import pour
from integration.spark_campaign import members
from integration.spark_run import SIZE, SparkRun
from integration.test_spark_killed import POLICY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.conftest import Session

pytestmark = [
    pytest.mark.full("Spark: several readers, and deaths"),
    pytest.mark.own_broker("may restart it: Artemis strands messages"),
]

PEERS = [("artemis", "stomp"), ("rabbitmq", "amqp")]
MESSAGES = 5000
KINDS = {500: "bad", 100: "once"}  # every n-th message
WINDOW = 500  # messages that a broker sends ahead over one connection
KILLS = {"1m": 3, "64m": 1}  # by the bytes that readers may be ahead of Spark
STARTS = 240.0  # seconds until a started query has read something, on a busy machine


def bodies() -> list[str]:
    """Return the bodies of the messages."""
    kinds = (next((KINDS[n] for n in KINDS if at % n == n - 1), "good") for at in range(MESSAGES))
    return [f"{kind}-{at}-" for at, kind in enumerate(kinds)]


def reading(session: Session, peer: tuple[str, str], queue: str, folder: Path, ahead: str) -> SparkRun:
    """Send messages, and return a query of two readers, which are at most `ahead` bytes ahead of Spark."""
    broker = session.broker(peer[0])
    messages: Iterator[tuple[bytes, str, dict[str, str]]] = (
        (body.ljust(SIZE, "x").encode(), f"m{at}", {"redeliveryId": f"m{at}"})
        for at, body in enumerate(bodies())
    )
    pour(broker, peer[1], queue, messages)
    return SparkRun(
        folder, broker, peer[1], queue, sink="ids",
        options={"readers": "2", "maxBytesAhead": ahead},
        uri={**POLICY, "redelivery__deadLetterDestination": f"{queue}.dead", "redelivery__credit": WINDOW},
        more={"restarts": 0},
    )  # fmt: skip


def newest(run: SparkRun, lane: int) -> int:
    """Return the number of a lane's last segment; 0: none."""
    folder = run.wal / f"s{lane}"
    names = os.listdir(folder) if folder.is_dir() else []
    return max((int(name[:12]) for name in names if name.endswith(".arrow")), default=0)


def has_come_to(run: SparkRun, segments: int) -> bool:
    """True if so many segments were published in total."""
    return newest(run, 1) + newest(run, 2) >= segments


def kill_one(first: int, run: SparkRun, segments: int, killed: set[int]) -> bool:
    """Kill a reader once so many segments were published; return True if there was one that is not in `killed`."""
    if not has_come_to(run, segments):
        return False
    # One that was killed just now may still be listed.
    for pid in [each for each in members(first, "reader") if each not in killed][:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            return True
    return False


def check(session: Session, run: SparkRun, peer: tuple[str, str]) -> Counter[str]:
    """Check that no message is lost, and return the duplicated rows of the output."""
    client = session.client(run.broker, peer[1])
    rows, sent = run.bodies(), Counter(bodies())
    bad = Counter(body for body in sent if body.startswith("bad"))
    letters = Counter(
        (letter.body or b"").decode().rstrip("x")
        for letter in client.drain(f"{run.queue}.dead", expected=bad.total())
    )
    lost = sent - bad - rows
    assert not lost, f"{len(lost)} lost, as {sorted(lost)[:5]}"
    assert set(letters) == set(bad), letters
    assert client.drain(run.queue) == []
    return (rows - (sent - bad)) + (letters - bad)


@pytest.mark.parametrize("peer", some(PEERS, PEERS[1:], ci=()), ids="-".join)
def test_two_readers(session: Session, peer: tuple[str, str], unique_queue: str, tmp_path: Path) -> None:
    """Both readers bring rows; each is there once, also those that failed, and a message that always fails is a dead
    letter.
    """
    run = reading(session, peer, unique_queue, tmp_path, "1m")
    run.run()
    twice = check(session, run, peer)
    assert not twice, twice
    assert all(newest(run, lane) for lane in (1, 2))


@pytest.mark.parametrize(("peer", "ahead"), cover(PEERS, [*KILLS]), ids=named)
def test_readers_that_are_killed(
    session: Session, peer: tuple[str, str], unique_queue: str, tmp_path: Path, ahead: str
) -> None:
    """No message is lost, and the query continues; rows that the other reader got before it knew of the death are
    duplicated.

    These are at most the messages that the broker had sent to the dead reader without its acceptance: a window for each
    death. With room for all messages a reader dies while both read as fast as they can; else they mostly wait for
    Spark.
    """
    run = reading(session, peer, unique_queue, tmp_path, ahead)
    process = run.begin(quiet=True)
    gone: set[int] = set()
    try:
        for number in range(KILLS[ahead]):
            kill = partial(kill_one, process.pid, run, 2 * number + 1, gone)
            eventually(kill, STARTS, interval=0.002)
    finally:
        run.end(process)
    assert process.returncode == 0, f"{process.returncode}\n{run.log.read_text()[-5000:]}"
    twice = check(session, run, peer)
    killed, starts = len(gone), run.log.read_text().count("is started again")
    told = f"{killed} readers killed, {starts} started again, {twice.total()} rows twice"
    print(f"\n{'-'.join(peer)}, {ahead} ahead: {told}", flush=True)
    assert killed == KILLS[ahead] <= starts
    assert twice.total() <= killed * WINDOW
