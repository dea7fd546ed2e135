"""`readers=2`: two processes of the runner read one queue. Each row once; one that is killed loses nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

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

PEERS = [("artemis", "stomp"), ("rabbitmq", "amqp")]
MESSAGES = 5000
KINDS = {500: "bad", 100: "once"}  # every so manyth message
WINDOW = 500  # messages that a broker sends ahead over one connection
KILLS = 3


def bodies() -> list[str]:
    """Return what the messages are called."""
    kinds = (next((KINDS[n] for n in KINDS if at % n == n - 1), "good") for at in range(MESSAGES))
    return [f"{kind}-{at}-" for at, kind in enumerate(kinds)]


def reading(session: Session, peer: tuple[str, str], queue: str, folder: Path) -> SparkRun:
    """Send messages, and return a query of two readers, which are never more than a fifth of them ahead of Spark."""
    broker = session.broker(peer[0])
    messages: Iterator[tuple[bytes, str, dict[str, str]]] = (
        (body.ljust(SIZE, "x").encode(), f"m{at}", {"redeliveryId": f"m{at}"})
        for at, body in enumerate(bodies())
    )
    pour(broker, peer[1], queue, messages)
    return SparkRun(
        folder, broker, peer[1], queue, sink="ids",
        options={"readers": "2", "maxBytesAhead": "1m"},
        uri={**POLICY, "redelivery__deadLetterDestination": f"{queue}.dead", "redelivery__credit": WINDOW},
        more={"restarts": 0},
    )  # fmt: skip


def newest(run: SparkRun, lane: int) -> int:
    """Return the number of a lane's last segment; 0: none."""
    folder = run.wal / f"s{lane}"
    names = os.listdir(folder) if folder.is_dir() else []
    return max((int(name[:12]) for name in names if name.endswith(".arrow")), default=0)


def check(session: Session, run: SparkRun, peer: tuple[str, str]) -> Counter[str]:
    """See that nothing is lost, and return what is in the output more than once."""
    client = session.client(run.broker, peer[1])
    letters = Counter(
        (letter.body or b"").decode().rstrip("x") for letter in client.drain(f"{run.queue}.dead")
    )
    rows, sent = run.bodies(), Counter(bodies())
    bad = Counter(body for body in sent if body.startswith("bad"))
    lost = sent - bad - rows
    assert not lost, f"{len(lost)} lost, as {sorted(lost)[:5]}"
    assert set(letters) == set(bad), letters
    assert client.drain(run.queue) == []
    return (rows - (sent - bad)) + (letters - bad)


@pytest.mark.parametrize("peer", PEERS, ids="-".join)
def test_two_readers(session: Session, peer: tuple[str, str], unique_queue: str, tmp_path: Path) -> None:
    """Both bring rows; each is there once, also those that failed, and what fails always is a dead letter."""
    run = reading(session, peer, unique_queue, tmp_path)
    run.run()
    twice = check(session, run, peer)
    assert not twice, twice
    assert all(newest(run, lane) for lane in (1, 2))


@pytest.mark.parametrize("peer", PEERS, ids="-".join)
def test_readers_that_are_killed(
    session: Session, peer: tuple[str, str], unique_queue: str, tmp_path: Path
) -> None:
    """Nothing is lost, and the query goes on; what the other one got before it heard of the death is there twice.

    That is at most what the broker had sent to the dead one and not seen accepted: a window for each death.
    """
    run = reading(session, peer, unique_queue, tmp_path)
    process = run.begin(quiet=True)
    killed = 0
    try:
        for number in range(KILLS):
            eventually(
                lambda before=number: newest(run, 1) + newest(run, 2) > 2 * before, 240, interval=0.002
            )
            found = members(process.pid, "reader")
            # The one that is not at its beginning: a start takes a second.
            for pid in found[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            threading.Event().wait(0.5)
    finally:
        run.end(process)
    left = process.returncode
    assert left == 0, f"{left}\n{run.log.read_text()[-5000:]}"
    assert killed == KILLS
    twice = check(session, run, peer)
    starts = run.log.read_text().count("is started again")
    print(
        f"\n{'-'.join(peer)}: {killed} readers killed, {starts} started again, {twice.total()} rows twice",
        flush=True,
    )
    assert starts >= KILLS
    assert twice.total() <= KILLS * WINDOW
