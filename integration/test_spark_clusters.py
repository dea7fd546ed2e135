"""The Spark source with executors as processes of their own, one of which dies."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import some

from integration.need import need_spark

need_spark()


from integration.eventually import eventually
from integration.peers import fill
from integration.spark_cluster import Cluster, executors_of
from integration.spark_run import LONGEST, SparkRun

if TYPE_CHECKING:
    from pathlib import Path

    from integration.conftest import Session

pytestmark = pytest.mark.full("Spark: clusters: a minute")

POLICY: dict[str, Any] = {
    "jms__redeliveryPolicy__maximumRedeliveries": 2,
    "jms__redeliveryPolicy__initialRedeliveryDelay": 500,
    "jms__redeliveryPolicy__redeliveryDelay": 500,
}


@pytest.mark.parametrize("kind", some(["local-cluster", "standalone"], ["standalone"], ci=()))
def test_an_executor_is_killed(session: Session, unique_queue: str, tmp_path: Path, kind: str) -> None:
    """All good messages are in the output once, the bad one is a dead letter with its count, and the queue is empty."""
    broker = session.broker("artemis")
    sent = [f"{'bad' if number == 70 else 'good'}-{number}-".encode() for number in range(1000)]
    fill(broker, "stomp", unique_queue, sent)
    dead = f"{unique_queue}.dead"
    with contextlib.ExitStack() as stack:
        folder = tmp_path / "cluster"
        folder.mkdir()
        cluster = stack.enter_context(Cluster(folder)) if kind == "standalone" else None
        run = SparkRun(
            tmp_path, broker, "stomp", unique_queue,
            options={"maxRowsPerTrigger": "100", "partitions": "2"},
            uri={**POLICY, "redelivery__deadLetterDestination": dead},
            more={
                "format": "redelivery-crashing",
                "master": "local-cluster[2,1,1024]" if cluster is None else cluster.url,
                "spark": {"spark.executor.memory": "1g", "spark.driver.bindAddress": "127.0.0.1"},
            },
        )  # fmt: skip
        process = run.begin()
        try:
            eventually(lambda: run.committed() >= 2, LONGEST, interval=0.2)
            owners = [process.pid] if cluster is None else [each.pid for each in cluster.processes]
            os.kill(executors_of(*owners)[0], signal.SIGKILL)
            status = run.end(process)
            assert status == 0, f"{status}\n{run.printed[-5000:]}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert run.bodies() == Counter(body.decode() for body in sent if body.startswith(b"good"))
    letters = session.client(broker, "stomp").drain(dead, expected=1)
    assert [(letter.body, letter.properties["redeliveryCount"]) for letter in letters] == [(b"bad-70-", "3")]
    assert session.client(broker, "stomp").drain(unique_queue) == []
