"""Redeliveries of the broker: connections are cut under a query, and its source dies twice, right after it accepted."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.matrix import some

from integration.need import need_spark

need_spark()

from integration.eventually import eventually
from integration.peers import fill
from integration.spark_campaign import Stream
from integration.spark_run import SparkRun
from integration.spark_sinks import replays
from integration.stranded import eventually_given_back
from integration.test_spark_killed import PAIRS, POLICY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.conftest import Session
    from integration.proxy import LinkProxy

pytestmark = [
    pytest.mark.full("Spark: cuts and deaths: a minute each"),
    pytest.mark.own_broker("may restart it: Artemis strands messages"),
]

# A reader that has little of the processor accepts nothing between two cuts, and Artemis dead-letters a message at its
# tenth delivery: docs/measured/artemis-stomp.md, "Lost connections and max-delivery-attempts". A connection may end for
# another reason, too.
CUTS = 6
AT_FIRST = 4000  # messages until the query has written something
STARTS = 6


@pytest.mark.parametrize("peer", some(PAIRS, PAIRS[:1] + PAIRS[3:], ci=()), ids="-".join)
def test_links_are_cut(
    session: Session,
    peer: tuple[str, str],
    unique_queue: str,
    tmp_path: Path,
    make_proxy: Callable[..., LinkProxy],
) -> None:
    """Messages that arrive while connections are cut are in the output once each, and the query never ended."""
    broker, dead = session.broker(peer[0]), f"{unique_queue}.dead"
    proxy = make_proxy(broker.ports[peer[1]])
    run = SparkRun(
        tmp_path, broker, peer[1], unique_queue,
        uri={**POLICY, "port": proxy.port, "redelivery__deadLetterDestination": dead},
        more={"trigger": "0 seconds", "restarts": 0, "noted": True},
    )  # fmt: skip
    stream, draw = Stream(broker, peer[1], unique_queue, 1000.0), random.Random(7)
    stream.allow(AT_FIRST)
    stream.start()
    process = run.begin(quiet=True)
    try:
        eventually(lambda: run.out.exists() and run.bodies(), 240, interval=0.5)
        stream.allow(1_000_000)
        for _ in range(CUTS):
            threading.Event().wait(draw.uniform(0.5, 3.0))
            proxy.cut()
        stream.close()
        wanted = Counter(body for body in stream.sent if not body.startswith("bad"))
        eventually_given_back(
            lambda _: set(run.bodies()) >= set(wanted),
            broker, unique_queue, interval=1.0, message="all is in the output", timeout=120.0,
        )  # fmt: skip
        assert process.poll() is None, "the query goes on"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    print(f"\n{'-'.join(peer)}: {proxy.cuts} links cut, {len(stream.sent)} sent, {run.bodies().total()} rows")
    assert proxy.cuts >= CUTS // 2
    assert run.bodies() == wanted
    assert replays(tmp_path) == (0, 0)


@pytest.mark.parametrize("whom", some(["runner 2", "all 2", "runner 3"], ["runner 2"], ci=()))
@pytest.mark.parametrize("point", some(["after the log", "after the ack"], ["after the ack"], ci=()))
@pytest.mark.parametrize("peer", some(PAIRS, PAIRS[:1], ci=()), ids="-".join)
def test_it_dies_again_before_a_copy_has_come(
    session: Session,
    peer: tuple[str, str],
    new_queue: Callable[[], str],
    tmp_path: Path,
    point: str,
    whom: str,
) -> None:
    """Messages in the log whose acceptance the broker has not read are processed once over two deaths within two
    seconds.
    """
    broker, queue = session.broker(peer[0]), new_queue()
    sent = [f"good-{number}-".encode().ljust(1000, b"x") for number in range(600)]
    fill(broker, peer[1], queue, sent)
    options = {"maxRowsPerTrigger": "100", "maxBytesAhead": "120k"}
    run = SparkRun(tmp_path, broker, peer[1], queue, uri=POLICY, options=options, more={"noted": True})
    run.arm(point, whom)
    flag = run.wal.with_suffix(".crash")
    for _ in range(STARTS):
        if flag.exists():
            run.end(run.begin())
    assert not flag.exists(), f"it has not died as often as it should: {run.printed[-3000:]}"
    run.run()
    assert run.bodies() == Counter(body.decode().rstrip("x") for body in sent)
    assert replays(tmp_path)[1] == 0
    assert session.client(broker, peer[1]).drain(queue) == []
