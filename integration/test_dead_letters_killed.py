"""Many dead letters of seven causes: counted in seconds; one cause redriven by a process that is killed meanwhile.

REDELIVERY_DEAD_LETTERS is their number (2,100), REDELIVERY_REDRIVE_KILLS the number of kills at full speed (4).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.tiers import amount

import redelivery
from integration.again import QUEUES
from integration.dead_letter_fill import CAUSES, fill, with_cause
from integration.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from integration.brokers import Broker

pytestmark = pytest.mark.ci("redrives that are killed: 10 s each")

COUNT = amount("REDELIVERY_DEAD_LETTERS", quick=2100, ci=2100, full=7000)
RATE = 500
# Rate of the redrive that is killed: it works for another second at least when half of its dead letters are redriven.
SLOW = 125
CHOSEN = "TypeError"
# RabbitMQ 3.10 closes a connection by itself under load, seldom: what was in flight is there twice, as after a kill.
LOST = b"connection lost"
# Each takes about two seconds.
KILLED = amount("REDELIVERY_REDRIVE_KILLS", quick=2, ci=4, full=4)
KILLED_OF = 7 * 100 * (KILLED + 1)
KILLS = [("artemis", "amqp"), ("activemq", "stomp"), ("artemis", "stomp"), ("rabbitmq", "amqp")]
TAKES = [("artemis", "stomp"), ("rabbitmq", "amqp")]
# Over STOMP Artemis drops the second copy.
ATOMIC = [("artemis", "amqp")]


@pytest.fixture
def dead(request: pytest.FixtureRequest, unique_queue: str) -> str:
    """Name of a dead-letter queue; what a killed process held of it is looked for among what Artemis strands."""
    name = f"wide.{unique_queue}.dead"
    request.node.stash[QUEUES].append(name)
    return name


@contextmanager
def started(uri: str, queue: str, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """Run the command line in a process of its own, which is killed at the end."""
    command = [sys.executable, "-m", "redelivery.cli", "dlq", *arguments]
    environment = {**os.environ, "REDELIVERY_URL": uri, "NO_COLOR": "1"}
    told = subprocess.PIPE
    with subprocess.Popen([*command, queue], env=environment, stdout=told, stderr=told) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass(slots=True)
class Rest:
    """The exit code of a redrive that is not killed, and the connections that it lost."""

    status: int = 0
    lost: int = 0
    """Connections that it lost."""


def gone_on(uri: str, dead: str, tries: int, done: Callable[[], bool]) -> Rest:
    """Redrive the same again; a few times, if not all messages arrive within ten seconds."""
    rest = Rest()
    again = ("--cause", CHOSEN, "--rate", str(RATE), "--output", "json", "--idle", "3")
    for _ in range(tries):
        with started(uri, dead, "redrive", *again) as process:
            out, told = process.communicate(timeout=300)
        rest.status = process.returncode
        rest.lost += told.count(LOST)
        print(f"resumed: {json.loads(out)['redriven']}; {told.decode()}")
        try:
            # The last redriven messages may still be on the way to their consumer; another run would match none.
            eventually(done, 10.0, message="all that was redriven has come")
            break
        except AssertionError:
            continue
    return rest


@pytest.mark.parametrize("peer", KILLS, ids="-".join, indirect=True)
def test_a_redrive_is_killed_and_goes_on(peer: tuple[Broker, str], unique_queue: str, dead: str) -> None:
    """A killed redrive loses no message, and makes one duplicate at most, with the same first id; the others stay."""
    broker, protocol = peer
    browses = (broker.name, protocol) not in TAKES
    uri = broker.uri(protocol=protocol)
    fill(broker, protocol, dead, unique_queue, COUNT)
    expected = with_cause(CHOSEN, COUNT)
    with redelivery.dead_letters(uri, dead, take=not browses, idle=3.0) as tools:
        began = time.monotonic()
        groups = Counter({group.cause: group.count for group in tools.summary()})
        print(f"\n{broker.name}-{protocol}: summary of {COUNT} in {time.monotonic() - began:.2f} s")
    assert set(groups) == set(CAUSES)
    assert groups.total() == COUNT
    with redelivery.connect(uri + "&redelivery.deadLetterDestination=unused") as connection:
        consumer = connection.consumer(unique_queue)
        found: Counter[str] = Counter()

        def arrived(enough: int) -> bool:
            while (message := consumer.receive(timeout=0)) is not None:
                found[str(message.headers["redeliveryOriginalId"])] += 1
                message.accept()
            return found.total() >= enough

        with started(uri, dead, "redrive", "--cause", CHOSEN, "--rate", str(SLOW)) as first:
            began = time.monotonic()
            half = len(expected) // 2
            eventually(lambda: arrived(half) or first.poll() is not None, 240, 0.01, "half of them are back")
            first.send_signal(signal.SIGKILL)
            first.communicate()
        assert first.returncode == -signal.SIGKILL, "it was at work when it was killed"
        print(
            f"killed after {found.total()} of {len(expected)}, {time.monotonic() - began:.2f} s after its start"
        )
        # Artemis may show none of a cut STOMP connection's messages for a while, without notice: docs/redrive.md.
        tries = 5 if (broker.name, protocol) == ("artemis", "stomp") else 1
        rest = gone_on(uri, dead, tries, lambda: arrived(len(expected)))
        eventually(lambda: arrived(len(expected)), 60, message="all are back")
        arrived(COUNT)
        print(f"{found.total() - len(expected)} twice")
    # Classic does not report that its page size was raised: the tools warn that more may be left.
    assert rest.status == (3 if broker.name == "activemq" and COUNT > 400 else 0)
    assert set(found) == expected
    most = 0 if (broker.name, protocol) in ATOMIC else 1
    twice = found.total() - len(expected)
    assert twice <= most * (1 + rest.lost), "one for one kill, none where it is one transaction"
    with redelivery.dead_letters(uri, dead, take=not browses, idle=3.0) as tools:
        left = Counter({group.cause: group.count for group in tools.summary()})
    assert left == Counter({cause: count for cause, count in groups.items() if cause != CHOSEN})


@pytest.mark.parametrize("peer", [("rabbitmq", "amqp")], ids="-".join, indirect=True)
def test_each_kill_of_a_redrive_leaves_one_twice_at_most(peer: tuple[Broker, str], unique_queue: str) -> None:
    """Each kill of a redrive at full speed leaves one duplicate at most."""
    broker, protocol = peer
    uri, dead = broker.uri(protocol=protocol), f"{unique_queue}.dead"
    fill(broker, protocol, dead, unique_queue, KILLED_OF)
    expected, dice = with_cause(CHOSEN, KILLED_OF), random.Random(KILLED)
    twice: Counter[int] = Counter()
    with redelivery.connect(uri + "&redelivery.deadLetterDestination=unused") as connection:
        consumer = connection.consumer(unique_queue)
        found: Counter[str] = Counter()
        lost = 0

        def take(timeout: float) -> bool:
            message = consumer.receive(timeout=timeout)
            if message is not None:
                found[str(message.headers["redeliveryOriginalId"])] += 1
                message.accept()
            return message is not None

        for _ in range(KILLED):
            # A duplicate shows after the next run has sent its second copy.
            enough, before = found.total() + dice.randint(1, 25), found.total() - len(found)
            with started(uri, dead, "redrive", "--cause", CHOSEN) as process:
                while found.total() < enough and process.poll() is None:
                    take(0.05)
                process.kill()
                _, told = process.communicate()
            assert process.returncode == -signal.SIGKILL, "it was at work when it was killed"
            while take(0.7):
                pass
            lost += (more := told.count(LOST))
            twice[found.total() - len(found) - before - more] += 1
        rest = gone_on(uri, dead, 1, lambda: True)
        assert rest.status == 0
        eventually(lambda: not take(1.0) and set(found) == expected, 60, message="all are back")
    print(f"so many twice, in so many runs: {dict(twice)}")
    assert max(twice) <= 1
    assert found.total() - len(found) <= KILLED + lost + rest.lost
