"""A query without messages for a long time: its connection stays up, and a redelivery is on time."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.matrix import some
from tests.tiers import amount

from integration.need import need_spark

need_spark()

from integration.eventually import SLACK, eventually
from integration.peers import fill
from integration.spark_run import SparkRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.conftest import Session
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.full("Spark: waits of 20 s")

IDLE = amount("REDELIVERY_SPARK_IDLE", quick=10, ci=20, full=60)  # seconds
# Seconds: a trigger of 1 s, the source's wait, and the batch; more while other processes of the run are busy.
LATE = 6 * SLACK if "PYTEST_XDIST_WORKER" in os.environ else 5.0
PEERS = [("artemis", "stomp"), ("artemis", "amqp")]


@pytest.mark.parametrize("peer", some(PEERS, PEERS[1:], ci=()), ids="-".join)
def test_a_message_waits_while_nothing_else_happens(
    session: Session,
    peer: tuple[str, str],
    unique_queue: str,
    tmp_path: Path,
    make_proxy: Callable[..., LinkProxy],
) -> None:
    """Heart-beats of 2 s keep one connection up between two batches, and the redelivery is on time."""
    broker = session.broker(peer[0])
    proxy = make_proxy(broker.ports[peer[1]])
    run = SparkRun(
        tmp_path,
        broker,
        peer[1],
        unique_queue,
        uri={
            "port": proxy.port,
            "jms__redeliveryPolicy__initialRedeliveryDelay": int(IDLE * 1000),
            "redelivery__heartbeat": 5000,
        },
        more={"trigger": "1 second"},
    )
    process = run.begin()
    try:
        fill(broker, peer[1], unique_queue, [b"good-0-"])  # Spark's first batch takes long
        eventually(lambda: run.out.exists() and run.bodies() == {"good-0-": 1}, 120, interval=1.0)
        links = proxy.links_ever
        fill(broker, peer[1], unique_queue, [b"once-1-"])
        eventually(lambda: len(run.attempts().get("once-1-", [])) == 2, IDLE + 120, interval=1.0)
        (first, _), (second, _) = run.attempts()["once-1-"]
        eventually(
            lambda: run.out.exists() and run.bodies() == {"good-0-": 1, "once-1-": 1}, 60, interval=1.0
        )
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    print(
        f"\n{broker.name} over {peer[1]}: idle for {IDLE:g} s, redelivered {second - first - IDLE:.2f} s late"
    )
    assert 0 <= second - first - IDLE <= LATE
    assert proxy.links_ever == links, "it has never connected again"
