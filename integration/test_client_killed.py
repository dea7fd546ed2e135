"""A consumer process is killed (SIGKILL) between a dead letter and the settlement of its original, again and again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.tiers import amount

import redelivery
from integration.eventually import eventually
from integration.killed_client import POINTS, POLICY
from integration.peers import PAIRS
from integration.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from integration.java_client import JavaClient
    from integration.killed_client import Point

ROUNDS = amount("REDELIVERY_KILL_ROUNDS", quick=1, ci=2, full=6)
MESSAGES = 20  # per round, every other one poison
# On the others the copy and the acceptance of the original are one transaction, or the broker drops a second copy.
MAY_DUPLICATE = {("rabbitmq", "stomp"), ("rabbitmq", "amqp"), ("activemq", "stomp")}


class Round(NamedTuple):
    """One kill, and the messages that were found after it."""

    point: Point
    handled: Counter[str]
    dead: Counter[str]

    @property
    def duplicates(self) -> int:
        """Number of dead letters beyond one for each message."""
        return sum(self.dead.values()) - len(self.dead)


class Kills:
    """Rounds of: send, a consumer process that is killed at a point, a second consumer that handles the rest."""

    def __init__(self, uri: str, java: JavaClient, queue: str, dead_letters: str) -> None:
        """Set the URI and the policy of both consumers."""
        self._uri = uri
        self._java = java
        self._queue = queue
        self._dead_letters = dead_letters
        self._dice = random.Random(7)

    def round(self, number: int, log: Path) -> Round:
        """Kill once; return when every message has been handled or is a dead letter."""
        point = POINTS[number % len(POINTS)]
        bodies = [f"{'bad' if i % 2 else 'good'}-{number}-{i}" for i in range(MESSAGES)]
        with self._connect() as connection:
            for body in bodies:
                connection.send(self._queue, body)
        self._killed(log, point, self._dice.randint(1, MESSAGES // 2))
        # Another thread of the process may have handled one more message before the kill.
        handled = [line for line in log.read_text().splitlines() if line != f"killed {point}"]
        found = Round(point, Counter(handled), Counter())

        def complete() -> bool:
            self.finish(0.4, found)
            return set(bodies) <= {*found.dead, *found.handled}

        eventually(complete, 120, message=f"each message of round {number} is handled or dead-lettered")
        return found

    def finish(self, idle: float, found: Round) -> None:
        """Consume until no message arrives for `idle` seconds; add the handled messages and the dead letters."""
        work = Work()
        with self._connect() as connection:
            connection.listen(self._queue, work, workers=4)
            connection.run(until_idle=idle)
        found.handled.update(work.done)
        dead = self._java.drain(self._dead_letters, timeout=0.1)
        found.dead.update(message.body.decode() for message in dead if message.body is not None)

    def _connect(self) -> redelivery.Connection:
        return redelivery.connect(self._uri, policies=redelivery.RedeliveryPolicyMap(default=POLICY))

    def _killed(self, log: Path, point: Point, turn: int) -> None:
        argv = [sys.executable, "-m", "integration.killed_client", str(log), point, str(turn), self._uri]
        done = subprocess.run([*argv, self._queue], check=False, capture_output=True, text=True, timeout=180)
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
        assert f"killed {point}" in log.read_text().splitlines()


@pytest.mark.parametrize("peer", PAIRS, ids="-".join, indirect=True)
def test_nothing_is_lost_when_the_client_is_killed_over_a_dead_letter(
    peer: tuple[Broker, str],
    java_client: Callable[[Broker, str | None], JavaClient],
    unique_queue: str,
    tmp_path: Path,
) -> None:
    """Each message is handled or is a dead letter; twice only if the broker has no transactions and drops no copy."""
    broker, protocol = peer
    java = java_client(broker, "qpid" if protocol == "amqp" else None)
    dead_letters = f"{unique_queue}.dead"
    uri = broker.uri(
        protocol=protocol,
        redelivery__deadLetter="forward",
        redelivery__deadLetterDestination=dead_letters,
        redelivery__connectTimeout=60_000,  # for a busy machine
    )
    kills = Kills(uri, java, unique_queue, dead_letters)
    began = time.monotonic()
    rounds = [kills.round(number, tmp_path / f"{number}.log") for number in range(ROUNDS)]
    # Originals of dead letters, which the broker may redeliver late.
    kills.finish(1.0, rounds[-1])
    by_point = Counter[str]()
    for one in rounds:
        by_point[one.point] += one.duplicates
    print(
        f"\n{broker.name} over {protocol}: {ROUNDS} kills, {ROUNDS * MESSAGES} messages, duplicate dead letters "
        f"{dict(by_point)}, handled twice {sum(sum(one.handled.values()) - len(one.handled) for one in rounds)}, "
        f"{time.monotonic() - began:.0f} s"
    )
    assert java.drain(unique_queue) == [], "the source queue ends empty"
    for one in rounds:
        assert all(body.startswith("bad") for body in one.dead), "only poison is dead-lettered"
        if (broker.name, protocol) not in MAY_DUPLICATE:
            assert one.duplicates == 0, one
        elif one.point == "between":
            assert one.duplicates >= 1, (
                "its copy was safe, and its original comes again: the kill was in between"
            )
