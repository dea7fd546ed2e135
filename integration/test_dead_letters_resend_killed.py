"""An export that is sent again by processes which are killed: nothing is lost, and what was confirmed goes out once.

REDELIVERY_RESENT is the number of its dead letters (2,000), REDELIVERY_RESEND_KILLS the number of kills (3).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.matrix import some
from tests.tiers import amount

import redelivery
from integration.dead_letter_fill import properties
from integration.eventually import eventually
from integration.peers import PAIRS
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from integration.brokers import Broker
    from integration.killed_resend import Point
    from redelivery import Consumer

COUNT = amount("REDELIVERY_RESENT", quick=2000, ci=2000, full=3000)
KILLED = amount("REDELIVERY_RESEND_KILLS", quick=3, ci=3, full=8)
# Where a process dies, and how many of its messages may then be unconfirmed.
MOMENTS: list[tuple[Point, int]] = [("confirmed", 1), ("written", 1), ("confirmed", 8), ("written", 8)]
MOMENTS = MOMENTS[: amount(quick=1, ci=4, full=4)]
TURN = 9
WHY = "processes that are killed: 5 s each"


class Resending:
    """An export, its progress, and a consumer of the queue to which its messages return."""

    def __init__(self, uri: str, queue: str, file: Path, consumer: Consumer) -> None:
        """Begin with nothing sent."""
        self._environment = {**os.environ, "REDELIVERY_URL": uri, "NO_COLOR": "1"}
        self._file = file
        self._consumer = consumer
        self._ids = dict(_known(file, queue))
        self.found: Counter[str] = Counter()

    @property
    def progress(self) -> set[str]:
        """Ids of those that the file of progress has."""
        written = self._file.with_name(f"{self._file.name}.sent")
        lines = written.read_text().splitlines() if written.exists() else []
        assert len(set(lines)) == len(lines), "each line once"
        return {self._ids[each] for each in lines}

    @property
    def twice(self) -> int:
        """Number of second copies."""
        return self.found.total() - len(self.found)

    @contextmanager
    def started(self, *program: str, in_flight: int) -> Generator[subprocess.Popen[bytes]]:
        """Start a run; kill it in the end."""
        words = ("dlq", "resend", "--in-flight", str(in_flight), "--output", "json", str(self._file))
        command = [sys.executable, "-m", *program, *words]
        with subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()

    def take(self, timeout: float = 0.05) -> bool:
        """Take a message; True if one has come."""
        message = self._consumer.receive(timeout=timeout)
        if message is not None:
            self.found[str(message.headers["redeliveryOriginalId"])] += 1
            message.accept()
        return message is not None

    def has(self, expected: set[str]) -> bool:
        """Take all messages that are there; True if all of these have come."""
        while self.take(0.5):
            pass
        return expected <= set(self.found)

    def killed(self, *program: str, in_flight: int, after: int | None = None) -> None:
        """Run until it is killed: by itself, or when so many messages have come. Look at what was sent."""
        before, had = self.progress, self.found.copy()
        enough = None if after is None else had.total() + after
        with self.started(*program, in_flight=in_flight) as process:
            while process.poll() is None and (enough is None or self.found.total() < enough):
                self.take()
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL, "it was at work when it was killed"
        written = self.progress
        eventually(lambda: self.has(written), 60, message="what was confirmed came")
        came = self.found - had
        assert max(came.values()) == 1, "a run sends each once"
        assert not before & set(came), "what was confirmed is not sent again"
        assert before < written
        assert len(set(came) - written) <= in_flight, "only what was not confirmed is not written down"

    def finish(self) -> None:
        """Run until all are sent."""
        before = self.progress
        with self.started("redelivery.cli", in_flight=1) as process:
            done = json.loads(process.communicate(timeout=300)[0])
        assert process.returncode == 0
        assert (done["before"], done["resent"]) == (len(before), len(self._ids) - len(before))
        expected = set(self._ids.values())
        eventually(lambda: self.has(expected), 60, message="all came")
        assert set(self.found) == expected
        assert self.progress == set(), "the file of progress is gone"


def _known(file: Path, queue: str) -> Iterator[tuple[str, str]]:
    for raw in file.read_bytes().splitlines():
        text = b"\0".join((f"queue://{queue}".encode(), raw))
        yield hashlib.blake2b(text, digest_size=16).hexdigest(), json.loads(raw)["original_id"]


@contextmanager
def resending(peer: tuple[Broker, str], queue: str, folder: Path, count: int) -> Generator[Resending]:
    """Export this number of dead letters of a queue, and consume it."""
    broker, protocol = peer
    uri, file = broker.uri(protocol=protocol), folder / "dead.jsonl"
    with MemoryBroker() as memory:
        for number in range(count):
            memory.send("DLQ", b"%d" % number, headers=properties(number, queue))
        with redelivery.dead_letters(memory.uri) as tools:
            assert tools.export(file) == count
    with (
        redelivery.connect(f"{uri}&redelivery.deadLetterDestination=unused") as connection,
        connection.consumer(queue) as consumer,
    ):
        yield Resending(uri, queue, file, consumer)


@pytest.mark.parametrize("peer", some(PAIRS, [("artemis", "amqp")], why=WHY), ids="-".join, indirect=True)
def test_a_run_is_killed_at_its_worst_moments(
    peer: tuple[Broker, str], unique_queue: str, tmp_path: Path
) -> None:
    """A kill between confirmation and progress leaves those twice that were in flight; one after it leaves none."""
    with resending(peer, unique_queue, tmp_path, 10 * TURN) as run:
        for point, in_flight in MOMENTS:
            run.killed("integration.killed_resend", point, str(TURN), in_flight=in_flight)
            if in_flight == 1:
                assert len(set(run.found) - run.progress) == (point == "confirmed")
        run.finish()
        assert 1 <= run.twice <= sum(in_flight for _, in_flight in MOMENTS)


@pytest.mark.ci(WHY)
@pytest.mark.parametrize("in_flight", [1, 50])
@pytest.mark.parametrize(
    "peer", [("artemis", "amqp"), ("activemq", "stomp"), ("rabbitmq", "amqp"), ("brokerj", "amqp")],
    ids="-".join, indirect=True,
)  # fmt: skip
def test_a_run_is_killed_at_any_moment(
    peer: tuple[Broker, str], unique_queue: str, tmp_path: Path, in_flight: int
) -> None:
    """Several kills at full speed lose nothing; the same command goes on, and doubles what was in flight at most."""
    dice = random.Random(in_flight)
    with resending(peer, unique_queue, tmp_path, COUNT) as run:
        for _ in range(KILLED):
            run.killed("redelivery.cli", in_flight=in_flight, after=dice.randint(1, COUNT // (2 * KILLED)))
        run.finish()
        print(
            f"\n{peer[0].name}-{peer[1]}: of {COUNT:,} in {KILLED} kills {run.twice} twice, {in_flight} in flight"
        )
        assert run.twice <= KILLED * in_flight
