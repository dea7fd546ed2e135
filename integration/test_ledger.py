"""The ledger on real brokers: messages that kill their process, and processes that are killed with other messages."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.matrix import some
from tests.tiers import amount

import redelivery
from integration.eventually import eventually
from integration.peers import PAIRS
from integration.stranded import give_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from integration.conftest import Client

pytestmark = [
    pytest.mark.ci("consumers that are killed again and again: two minutes a pair"),
    pytest.mark.own_broker("may restart it: Artemis strands messages"),
]

# One of each protocol; all each night.
CHOSEN = some(PAIRS, [("artemis", "stomp"), ("brokerj", "amqp")], ci=(), why="two minutes a pair")
KILLS = amount("REDELIVERY_LEDGER_KILLS", quick=6, ci=6, full=12)
MAXIMUM = 2
MESSAGES = 150  # one of each 50 kills
RANDOM_MAXIMUM = 4
PATIENCE = 180.0  # seconds for a consumer's process


class Program(NamedTuple):
    """Consumers in processes of their own, with one ledger."""

    uri: str
    queue: str
    directory: Path
    maximum: int

    def log(self, number: int) -> Path:
        """Return the log file of a process."""
        return self.directory / f"{number}.log"

    def start(self, number: int, workers: int, seconds: float = 0.0) -> subprocess.Popen[str]:
        """Start a process."""
        argv = [sys.executable, "-m", "integration.crashing_client", str(self.log(number)), str(workers)]
        argv += [str(self.maximum), self.uri, self.queue, str(seconds)]
        out = (self.directory / f"{number}.out").open("w")
        with out:
            return subprocess.Popen(argv, stdout=out, stderr=out, text=True)

    def lines(self, word: str) -> Counter[str]:
        """Return how often each message is in the logs with this word."""
        found: Counter[str] = Counter()
        for path in self.directory.glob("*.log"):
            parts = (line.split() for line in path.read_text().splitlines())
            found.update(part[1] for part in parts if part[0] == word)
        return found

    def counts(self) -> dict[str, list[int]]:
        """Return the redelivery counts at the attempts of each message."""
        found: dict[str, list[int]] = {}
        for path in self.directory.glob("*.log"):
            for parts in (line.split() for line in path.read_text().splitlines()):
                if parts[0] == "start":
                    found.setdefault(parts[1], []).append(int(parts[2]))
        return found

    def end(self, number: int) -> str:
        """Return the end of a process's output."""
        return (self.directory / f"{number}.out").read_text()[-3000:]


def send(uri: str, queue: str, bodies: list[str]) -> None:
    """Send messages."""
    with redelivery.connect(uri) as connection:
        for body in bodies:
            connection.send(queue, body)


def until_dead(
    program: Program, broker: Broker, client: Client, killers: list[str], workers: int
) -> tuple[int, int, dict[str, Any]]:
    """Start consumers until all killers are dead letters; return how many died, what was stranded, and the letters."""
    deaths, stranded, dead = 0, 0, dict[str, Any]()
    for number in range(len(killers) * (MAXIMUM + 2) + 5):
        code = program.start(number, workers).wait(PATIENCE)
        if code == 0:  # Artemis may keep a killed link's message for ten seconds: then the next one gets it
            letters = client.drain(f"{program.queue}.dead")
            dead.update((text_of(message.body), message.properties) for message in letters)
            # A killed process may have stranded good messages, too.
            given_back = give_back(broker, program.queue)
            stranded += given_back
            if set(dead) >= set(killers) and not given_back:
                return deaths, stranded, dead
            continue
        assert code == -signal.SIGKILL, program.end(number)
        deaths += 1
    pytest.fail(f"killed {deaths} times; dead letters: {sorted(dead)}")


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("peer", CHOSEN, ids="-".join, indirect=True)
def test_a_message_that_kills_its_process_ends_in_the_dead_letter_queue(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
    tmp_path: Path,
    workers: int,
) -> None:
    """A message that kills its process is attempted up to its limit, and no other message is charged."""
    broker, protocol = peer
    client = client_for(broker, protocol)
    dead_letters = f"{unique_queue}.dead"
    plain = broker.uri(protocol=protocol)
    uri = broker.uri(
        protocol=protocol,
        redelivery__deadLetter="forward",
        redelivery__deadLetterDestination=dead_letters,
        redelivery__ledger=f"sqlite:///{tmp_path}/ledger.db",
        redelivery__connectTimeout=60_000,
    )
    bodies = [f"{'killer' if i % 50 == 25 else 'good'}-{i}" for i in range(MESSAGES)]
    killers = [body for body in bodies if body.startswith("killer")]
    send(plain, unique_queue, bodies)
    program = Program(uri, unique_queue, tmp_path, MAXIMUM)
    deaths, stranded, dead = until_dead(program, broker, client, killers, workers)
    started, done = program.lines("start"), program.lines("done")
    print(
        f"\n{broker.name} over {protocol}, {workers} workers: {deaths} deaths, {stranded} stranded, "
        f"starts {[started[k] for k in killers]}"
    )
    assert set(dead) == set(killers), "the killers are dead letters, and nobody else is"
    assert {properties["redeliveryCause"] for properties in dead.values()} == {"crash"}
    most = MAXIMUM + 1 + (workers > 1)
    assert all(MAXIMUM + 1 <= started[killer] <= most for killer in killers), started
    good = set(bodies) - set(killers)
    assert set(done) == good, "all others are handled"
    charged = {body: begun for body, begun in program.counts().items() if body in good and any(begun)}
    assert not charged, "nobody else is charged"
    assert client.drain(unique_queue) == [], "the source queue ends empty"


@pytest.mark.full("kills at random instants: minutes")
@pytest.mark.parametrize("peer", CHOSEN, ids="-".join, indirect=True)
def test_kills_at_random_instants_poison_nobody(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
    tmp_path: Path,
) -> None:
    """Random kills of two processes with one ledger lose no message, exceed no limit, and poison no good message."""
    broker, protocol = peer
    client = client_for(broker, protocol)
    dead_letters = f"{unique_queue}.dead"
    uri = broker.uri(
        protocol=protocol,
        redelivery__deadLetter="forward",
        redelivery__deadLetterDestination=dead_letters,
        redelivery__ledger=f"sqlite:///{tmp_path}/ledger.db",
        redelivery__credit=20,
        redelivery__connectTimeout=60_000,
    )
    plain = broker.uri(protocol=protocol)
    program = Program(uri, unique_queue, tmp_path, RANDOM_MAXIMUM)
    began = time.monotonic()
    bodies = killed_at_random(program, plain, random.Random(11), lambda: give_back(broker, unique_queue))
    bad = {body for body in bodies if body.startswith("bad")}
    letters = client.drain(dead_letters)
    dead = Counter(text_of(message.body) for message in letters)
    counts = {message.properties["redeliveryCount"] for message in letters}
    started, done = program.lines("start"), program.lines("done")
    most = max(started[body] for body in bad)
    print(
        f"\n{broker.name} over {protocol}: {KILLS} kills, {len(bodies)} messages, handled twice "
        f"{sum(done.values()) - len(done)}, dead letters {sum(dead.values())} of {len(dead)} messages, "
        f"most starts of a bad one {most}, {time.monotonic() - began:.0f} s"
    )
    assert set(done) == set(bodies) - bad, "all innocent ones are handled"
    assert set(dead) == bad, "the bad ones are dead letters, and nobody else is"
    # An attempt that a kill ended together with others is not charged: the same count is then attempted twice.
    above = {body: begun for body, begun in program.counts().items() if max(begun) > RANDOM_MAXIMUM}
    assert not above, "no limit is passed"
    assert counts == {str(RANDOM_MAXIMUM + 1)}, "each was charged to its limit"


def killed_at_random(
    program: Program, plain: str, dice: random.Random, ask_back: Callable[[], object]
) -> list[str]:
    """Kill one of two processes after the other while messages arrive; let the last ones end. Return the sent bodies.

    Each kill cuts a connection, and Artemis may strand messages: before the end it is asked for them.
    """
    bodies: list[str] = []
    numbers = itertools.count()
    running = [next(numbers), next(numbers)]
    processes = [program.start(running[0], 4, 0.02), program.start(running[1], 1, 0.02)]
    for kill in range(KILLS):
        sent = [f"{'bad' if i % 20 == 7 else 'good'}-{kill}-{i}" for i in range(60)]
        before = sum(program.lines("start").values())
        send(plain, program.queue, sent)
        bodies += sent
        victim = kill % 2
        eventually(lambda before=before: sum(program.lines("start").values()) > before, 60)  # type: ignore[misc]
        time.sleep(dice.random() * 0.4)
        processes[victim].kill()
        assert processes[victim].wait() == -signal.SIGKILL, program.end(running[victim])
        running[victim] = next(numbers)
        processes[victim] = program.start(running[victim], 1 if victim else 4, 0.02)
    for process in processes:
        process.terminate()
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM)  # it may not have started to consume
    ask_back()
    number = next(numbers)
    assert program.start(number, 4).wait(PATIENCE) == 0, program.end(number)  # what the last kill has left
    return bodies


def text_of(body: bytes | None) -> str:
    """Return the body as text."""
    assert body is not None
    return body.decode()
