"""The death of a broker under a query: the source reconnects by itself, and continues."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from integration.need import need_spark

need_spark()

from integration.eventually import eventually
from integration.peers import fill
from integration.spark_run import SIZE, SparkRun

if TYPE_CHECKING:
    from pathlib import Path

    from integration.conftest import Session

pytestmark = [
    pytest.mark.full("Spark: a broker that is killed: a minute"),
    pytest.mark.own_broker("kills it"),
]

PEERS = [("artemis", "stomp"), ("artemis", "amqp"), ("rabbitmq", "stomp"), ("rabbitmq", "amqp")]
BATCH = 200


@pytest.mark.parametrize("peer", PEERS, ids="-".join)
def test_a_broker_that_is_killed(
    session: Session, peer: tuple[str, str], unique_queue: str, tmp_path: Path
) -> None:
    """After a broker was killed in the middle of batches and restarted, no message is lost, and the query never ended.

    A broker that dies forgets acknowledgements, and does not mark these redeliveries: at most the messages in flight at
    that time are duplicated.
    """
    broker, protocol = session.broker(peer[0]), peer[1]
    before = [f"good-{number}-".encode().ljust(SIZE, b"x") for number in range(2000)]
    after = [f"good-{number}-".encode().ljust(SIZE, b"x") for number in range(2000, 2500)]
    fill(broker, protocol, unique_queue, before)
    run = SparkRun(
        tmp_path,
        broker,
        protocol,
        unique_queue,
        options={"maxRowsPerTrigger": str(BATCH)},
        more={"trigger": "0 seconds", "restarts": 0},
    )
    process = run.begin()
    try:
        eventually(lambda: run.out.exists() and run.bodies().total() >= 2 * BATCH, 240, interval=0.5)
        broker.kill(at_once=True)
        broker.start()
        fill(broker, protocol, unique_queue, after)
        wanted = {body.decode().rstrip("x") for body in (*before, *after)}
        eventually(
            lambda: set(run.bodies()) == wanted, 240, interval=1.0, message="all of it is in the output"
        )
        assert process.poll() is None, "the query goes on"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    twice = run.bodies().total() - len(wanted)
    print(f"\n{broker.name} over {protocol}: {twice} twice")
    assert twice <= 2 * BATCH
