"""Many workers with failing handlers, connection losses, lost acknowledgements and refused dead letters at once."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

import redelivery

if TYPE_CHECKING:
    from redelivery.testing import ManualClock, MemoryBroker

MESSAGES = 300


class Handler:
    """Handler that fails, poisons, defers and cuts its own connection at random, and records its calls."""

    def __init__(self, broker: MemoryBroker, random: Random) -> None:
        self.broker = broker
        self.random = random
        self.lock = threading.Lock()
        self.done: Counter[bytes] = Counter()
        self.failed: Counter[bytes] = Counter()
        self.running: set[bytes] = set()
        self.beside: list[bytes] = []

    def __call__(self, message: redelivery.Message) -> None:
        with self.lock:
            if message.body in self.running:
                self.beside.append(message.body)
            self.running.add(message.body)
            chance, cut = self.random.random(), self.random.random() < 0.02
        try:
            if cut:
                self.broker.cut()
            if chance < 0.03:
                raise redelivery.Defer(3)
            self.fail(message, chance)
            with self.lock:
                self.done[message.body] += 1
        finally:
            with self.lock:
                self.running.discard(message.body)

    def fail(self, message: redelivery.Message, chance: float) -> None:
        if chance < 0.25:
            with self.lock:
                self.failed[message.body] += 1
            raise redelivery.Poison if chance < 0.05 else ValueError


@pytest.mark.parametrize(
    ("ordering", "workers", "scheduler"),
    [
        ("non_blocking", 5, "client"),
        ("non_blocking", 5, "broker"),
        ("per_group", 5, "client"),
        ("blocking", 1, "client"),
    ],
)
def test_every_message_comes_to_one_end(
    redelivery_broker: MemoryBroker,
    redelivery_clock: ManualClock,
    ordering: str,
    workers: int,
    scheduler: str,
) -> None:
    """Each message is accepted once or dead-lettered once, never handled concurrently, and never too often."""
    random = Random(ordering)
    handler = Handler(redelivery_broker, Random(workers))
    policy = redelivery.RedeliveryPolicy(maximum_redeliveries=3, initial_redelivery_delay=60.0)
    uri = f"{redelivery_broker.uri}?redelivery.credit=20&redelivery.ordering={ordering}"
    uri += f"&redelivery.scheduler={scheduler}"
    policies = redelivery.RedeliveryPolicyMap(default=policy)
    with redelivery.connect(uri, policies=policies, clock=redelivery_clock) as connection:
        connection.listen("orders", handler, workers=workers)
        connection.start()
        for number in range(MESSAGES):
            redelivery_broker.send("orders", str(number), group=f"g{number % 7}")
            if random.random() < 0.05:
                redelivery_broker.drop_accepts(2)
                redelivery_broker.refuse_settlements(2)
            if random.random() < 0.2:
                redelivery_clock.advance(random.choice([0.5, 30.0, 61.0]))
        redelivery_clock.run_until_idle()
        redelivery_broker.drop_accepts(0)
        redelivery_broker.cut()
        redelivery_clock.run_until_idle()
        report = connection.drain()
    dead = Counter(letter.body for letter in redelivery_broker.dead_letters())
    assert handler.done + dead == Counter(str(number).encode() for number in range(MESSAGES))
    assert redelivery_broker.depth("orders") == 0
    assert handler.beside == []
    assert max(handler.failed.values()) <= 4
    assert report.stale > 0
    assert report.poisoned <= len(dead)  # the confirmation may be lost with a connection
