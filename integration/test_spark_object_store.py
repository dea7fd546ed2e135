"""The Spark source with its log in an object store: S3's own interface, served by moto."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from integration.need import need_spark

need_spark("s3fs", "moto")

import fsspec
from moto.server import ThreadedMotoServer

from integration.eventually import eventually
from integration.peers import fill
from integration.spark_run import LONGEST, SparkRun
from redelivery_spark.wal.store import prepared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.conftest import Session
    from redelivery_spark.wal.wal_store import WalStore

pytestmark = pytest.mark.full("Spark: an object store")

POLICY: dict[str, Any] = {
    "jms__redeliveryPolicy__maximumRedeliveries": 2,
    "jms__redeliveryPolicy__initialRedeliveryDelay": 500,
    "jms__redeliveryPolicy__redeliveryDelay": 500,
}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Yield a bucket, with the environment by which every process finds it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it logs each request
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir("redelivery")
        yield "s3://redelivery"
    server.stop()


def test_a_name_is_taken_once(bucket: str) -> None:
    """A name can be created once by a conditional put: in sequence, by 20 at once, and at a batch's largest size."""
    store: WalStore = prepared(f"{bucket}/names", "a")
    assert store.publish("a/1", b"one")
    assert not store.publish("a/1", b"two")
    large = b"x" * 110_000_000  # s3fs would write this in parts
    assert store.publish("a/2", large)
    assert not store.publish("a/2", large + b"x")
    assert store.read("a/1") == b"one"
    for number in range(5):
        with ThreadPoolExecutor(20) as pool:
            won = list(
                pool.map(lambda n, name=f"a/at-once-{number}": store.publish(name, b"%d" % n), range(20))
            )
        assert won.count(True) == 1
        assert store.read(f"a/at-once-{number}") == b"%d" % won.index(True)
    store.remove(store.names("a"))
    assert store.names("a") == []


def test_a_query_whose_log_is_in_s3(session: Session, bucket: str, unique_queue: str, tmp_path: Path) -> None:
    """Over a kill of the driver all good messages are in the output once, and the bad one is a dead letter."""
    broker = session.broker("artemis")
    sent = [f"{'bad' if number == 70 else 'good'}-{number}-".encode() for number in range(800)]
    fill(broker, "stomp", unique_queue, sent)
    dead = f"{unique_queue}.dead"
    wal = f"{bucket}/{unique_queue}"
    run = SparkRun(
        tmp_path, broker, "stomp", unique_queue,
        options={"maxRowsPerTrigger": "100"},
        uri={**POLICY, "redelivery__deadLetterDestination": dead},
        more={"wal": wal, "format": "redelivery-crashing"},
    )  # fmt: skip
    process = run.begin()
    try:
        eventually(lambda: run.committed() >= 2, LONGEST, interval=0.5)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        run.end(process)
    run.run()
    assert run.bodies() == Counter(body.decode() for body in sent if body.startswith(b"good"))
    letters = session.client(broker, "stomp").drain(dead, expected=1)
    assert [(letter.body, letter.properties["redeliveryCount"]) for letter in letters] == [(b"bad-70-", "3")]
    assert session.client(broker, "stomp").drain(unique_queue) == []
    assert "hidden" not in run.printed
