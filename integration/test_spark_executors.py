"""`consumers=executors` on real brokers: each task consumes for itself, the driver redelivers, and workers may die."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from integration.need import need_spark

need_spark()

from integration.eventually import eventually
from integration.peers import fill
from integration.spark_run import SIZE, SparkRun
from integration.spark_session import address, credentials

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from integration.conftest import Session

ALL = os.environ.get("REDELIVERY_SPARK") == "all"
PEERS = (
    [("artemis", "stomp"), ("artemis", "amqp"), ("rabbitmq", "stomp"), ("rabbitmq", "amqp")]
    if ALL
    else [("artemis", "amqp")]
)
MESSAGES = 20_000 if ALL else 3_000


def shared(folder: Path, broker: Broker, protocol: str, queue: str, dead: str, **more: Any) -> SparkRun:
    """Return a query with two tasks that consume, whose credentials are in a file."""
    policy = {
        "jms__redeliveryPolicy__maximumRedeliveries": 2,
        "jms__redeliveryPolicy__initialRedeliveryDelay": 500,
        "redelivery__deadLetterDestination": dead,
    }
    options = {
        "consumers": "executors",
        "partitions": "2",
        "credentialsFile": credentials(broker, folder),
        "decode": "text",
        "maxMessagesPerTrigger": "1000",
    }
    return SparkRun(
        folder,
        broker,
        protocol,
        queue,
        options=options,
        more={"url": address(broker, protocol, **policy), **more},
    )


@pytest.mark.parametrize("peer", PEERS, ids="-".join)
def test_tasks_that_consume(
    session: Session, peer: tuple[str, str], unique_queue: str, tmp_path: Path
) -> None:
    """Good and flaky messages are in the output once; all others are dead letters with their count and cause."""
    broker = session.broker(peer[0])
    kinds = dict.fromkeys(range(MESSAGES), "good")
    for place, kind in enumerate(["bad", "flaky", "raw"] * 5):
        kinds[(place + 1) * MESSAGES // 17] = kind
    texts = [f"{kind}-{number}-".encode().ljust(SIZE, b"x") for number, kind in kinds.items()]
    sent = [b"\xff" + text[1:] if text.startswith(b"raw") else text for text in texts]
    fill(broker, peer[1], unique_queue, sent)
    dead = f"{unique_queue}.dead"
    run = shared(tmp_path, broker, peer[1], unique_queue, dead)
    run.run()
    wanted = Counter(body.decode().rstrip("x") for body in sent if body.startswith((b"good", b"flaky")))
    assert run.bodies() == wanted
    client = session.client(broker, peer[1])
    letters = Counter(
        ((letter.body or b"")[:3], letter.properties["redeliveryCount"]) for letter in client.drain(dead)
    )
    assert letters == {(b"bad", "3"): 5, (b"\xffaw", "1"): 5}
    assert client.drain(unique_queue) == []


@pytest.mark.parametrize("peer", PEERS, ids="-".join)
def test_workers_are_killed(
    session: Session, peer: tuple[str, str], new_queue: Callable[[], str], tmp_path: Path
) -> None:
    """SIGKILL of Python workers in the middle of batches: nothing is lost, and nothing is in the output twice."""
    broker, queue = session.broker(peer[0]), new_queue()
    sent = [f"good-{number}-".encode().ljust(SIZE, b"x") for number in range(MESSAGES)]
    fill(broker, peer[1], queue, sent)
    run = shared(tmp_path, broker, peer[1], queue, f"{queue}.dead", master="local[2,4]")
    process = run.begin()
    killed = 0
    parts = run.wal / "parts"
    for count in (1, 3):
        eventually(lambda count=count: parts.exists() and len(list(parts.iterdir())) > count, 180)  # type: ignore[misc]
        killed += kill_workers(process)
    assert run.end(process) == 0, run.printed[-3000:]
    print(f"\n{broker.name} over {peer[1]}: {killed} workers killed")
    assert killed
    assert run.bodies() == Counter(body.decode().rstrip("x") for body in sent)
    assert session.client(broker, peer[1]).drain(queue) == []


def kill_workers(process: subprocess.Popen[str]) -> int:
    """Kill the Python workers of a query's executors, and no other process of it; return how many."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "-g", str(process.pid)], capture_output=True, text=True, check=True
    ).stdout
    found = [line.split(None, 1) for line in listed.splitlines() if "pyspark.daemon pyspark.worker" in line]
    for pid, _ in found:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(found)
