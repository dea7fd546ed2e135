"""The broker is killed (SIGKILL) and restarted during the work, again and again."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.tiers import amount

import redelivery
from integration.eventually import eventually, never
from integration.peers import PAIRS

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Client

pytestmark = pytest.mark.own_broker("kills it")

ROUNDS = amount("REDELIVERY_KILL_ROUNDS", quick=1, ci=2, full=6)
MESSAGES = 60  # per round: of each ten one always fails, and one fails once
MAXIMUM = 2
POLICY = redelivery.RedeliveryPolicy(
    maximum_redeliveries=MAXIMUM, initial_redelivery_delay=0.05, redelivery_delay=0.1
)


class Work:
    """Messages that the handler got, and those that it must still get."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._lock = threading.Lock()

    def handle(self, message: redelivery.Message) -> None:
        """Fail always, once, or never, as the body says."""
        body = message.text
        with self._lock:
            self.attempts[body] += 1
            attempt = self.attempts[body]
            if body.startswith("bad") or (body.startswith("once") and attempt == 1):
                raise ValueError(body)
            self.done[body] += 1


def bodies(number: int) -> list[str]:
    """Return the messages of one round."""
    kinds = ["bad", "once", *["good"] * 8]
    return [f"{kinds[i % 10]}-{number}-{i}" for i in range(MESSAGES)]


@pytest.mark.parametrize("peer", PAIRS, ids="-".join, indirect=True)
def test_nothing_is_lost_when_the_broker_is_killed(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
) -> None:
    """Each message is handled or dead-lettered within its limit, though the broker is killed in every round."""
    broker, protocol = peer
    # Java also reads over AMQP what was sent over AMQP: only then it gets it whole.
    java = client_for(broker, protocol)
    dead_letters = broker.dead_letter_queue
    work, dice = Work(), random.Random(5)
    sent: list[str] = []
    java.drain(dead_letters)  # what other tests have left there
    if broker.name == "rabbitmq":
        java.drain(unique_queue)  # declares it
    broker.write_down()
    # Without a limit the reconnect delays double while the broker starts, and a round takes half a minute.
    address, _, login = broker.uri(protocol=protocol).partition("?")
    uri = f"failover:({address})?{login}&maxReconnectDelay=500"
    with redelivery.connect(uri, policies=redelivery.RedeliveryPolicyMap(default=POLICY)) as connection:
        connection.listen(unique_queue, work.handle, workers=4)
        running = threading.Thread(target=connection.run)
        running.start()
        for number in range(ROUNDS):
            sent.extend(killed_in_the_middle(broker, connection, unique_queue, bodies(number), dice))
            eventually(lambda: unfinished(work, sent) == [], 120, message=f"round {number}: all handled")
        connection.stop()
        running.join(60)
        report = connection.report()
    assert not running.is_alive()
    wanted = {body for body in sent if body.startswith("bad")}
    dead = Counter(text(m.body) for m in java.drain(dead_letters, expected=len(wanted)))
    duplicates = sum(n - 1 for n in work.done.values()) + sum(n - 1 for n in dead.values())
    print(
        f"\n{broker.name} over {protocol}: {ROUNDS} kills, {len(sent)} messages, {duplicates} duplicates, {report}"
    )
    assert wanted <= set(dead), "a poison message is in the dead-letter queue"
    assert not set(dead) - wanted, "nothing else is"
    above = {body: work.attempts[body] for body in wanted if work.attempts[body] > MAXIMUM + 1}
    assert not above, "no attempt above the limit"
    assert java.drain(unique_queue) == [], "the source queue ends empty"


def killed_in_the_middle(
    broker: Broker, connection: redelivery.Connection, queue: str, sent: list[str], dice: random.Random
) -> list[str]:
    """Send messages, and kill and restart the broker before one of them; return them."""
    before = dice.randrange(MESSAGES)
    for position, body in enumerate(sent):
        if position == before:
            never(lambda: False, within=dice.random() * 0.2)  # into the redeliveries, or the poisoning
            broker.kill(at_once=True)
            broker.start()
        connection.send(queue, body)
    return sent


def text(body: bytes | None) -> str:
    """Return the body as text."""
    assert body is not None
    return body.decode()


def unfinished(work: Work, sent: list[str]) -> list[str]:
    """Return the messages that have neither been handled nor used up their deliveries."""
    return [
        body
        for body in sent
        if not (work.done[body] if not body.startswith("bad") else work.attempts[body] > MAXIMUM)
    ]
