"""Many threads in real time: no message twice, none lost, no thread hangs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.eventually import eventually
from tests.tiers import amount

import redelivery
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery import Message

MANY = amount(quick=1000, ci=5000, full=5000)
FUZZED = 150
LIMIT = 3
POLICY = (
    f"?jms.redeliveryPolicy.maximumRedeliveries={LIMIT}&jms.redeliveryPolicy.initialRedeliveryDelay=2"
    "&jms.redeliveryPolicy.redeliveryDelay=3&redelivery.credit=40&redelivery.maxParked=30"
)


def test_eight_threads_share_a_consumer() -> None:
    """Eight threads pull thousands of messages; each message is returned exactly once."""
    with MemoryBroker() as broker, redelivery.connect(broker.uri) as connection:
        for number in range(MANY):
            broker.send("orders", b"%d" % number)
        consumer = connection.consumer("orders")
        pulled: list[bytes] = []

        def pull() -> None:
            # None is not the end: on a busy machine the next message can be late.
            while len(pulled) < MANY:
                if (message := consumer.receive(timeout=0.05)) is not None:
                    pulled.append(message.body)
                    message.accept()

        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(pull) for _ in range(8)]:
                future.result()
        assert len(pulled) == MANY
        assert len(set(pulled)) == MANY
        eventually(lambda: broker.depth("orders") == 0)
        assert connection.report() == redelivery.Report(accepted=MANY)


class Chaos:
    """Handler with random results, which also makes the broker fail now and then."""

    def __init__(self, broker: MemoryBroker, seed: int) -> None:
        self.broker = broker
        self.random = Random(seed)
        self.lock = threading.Lock()
        self.failures: Counter[bytes] = Counter()
        self.done: Counter[bytes] = Counter()
        self.running: set[bytes] = set()
        self.beside: list[bytes] = []

    def __call__(self, message: Message) -> None:
        body = message.body
        with self.lock:
            if body in self.running:
                self.beside.append(body)
            self.running.add(body)
            chance, fault = self.random.random(), self.random.random()
        try:
            self.misbehave(fault)
            self.decide(message, body, chance)
        finally:
            with self.lock:
                self.running.discard(body)

    def misbehave(self, fault: float) -> None:
        if fault < 0.02:
            self.broker.cut()
        elif fault < 0.04:
            self.broker.refuse_settlements(2)
        elif fault < 0.08:
            self.broker.drop_accepts(1)

    def decide(self, message: Message, body: bytes, chance: float) -> None:
        with self.lock:
            self.failures[body] += chance < 0.4
            self.done[body] += chance >= 0.5
            if 0.35 <= chance < 0.5:
                self.running.discard(
                    body
                )  # a message that it settles itself may be redelivered before it returns
        if chance < 0.3:
            raise ValueError("no")
        if chance < 0.35:
            raise redelivery.Poison("bad")
        if chance < 0.4:
            message.fail("itself")
        elif chance < 0.45:
            raise redelivery.Defer(0.001)
        elif chance < 0.5:
            message.release()


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_chaos(seed: int, asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With four workers and random faults each message ends once, within its limit, and all threads end."""
    # So that the test need not wait for a second.
    monkeypatch.setattr("redelivery.core.pending_confirms.FIRST", 0.002)
    with MemoryBroker() as broker:
        chaos = Chaos(broker, seed)
        for number in range(FUZZED):
            broker.send("orders", b"%d" % number)
        report = asyncio.run(loop(broker, chaos)) if asynchronous else threads(broker, chaos)
        dead = {letter.body for letter in broker.dead_letters()}
        done = {body for body, times in chaos.done.items() if times}
        everything = {b"%d" % number for number in range(FUZZED)}
        left = {held.body for held in broker.messages("orders")}
        assert done | dead | left == everything
        assert left <= done  # a lost acknowledgement stays unsettled without another connection loss
        assert chaos.beside == []
        assert max(chaos.failures.values()) <= LIMIT + 1
        assert report.running == 0


def chaotic(broker: MemoryBroker) -> str:
    """Return a URI whose connections are made again soon after a loss."""
    return f"failover:({broker.uri}){POLICY}&maxReconnectDelay=10"


def stop_at_the_end(broker: MemoryBroker, chaos: Chaos, stop: Callable[[], None]) -> None:
    """Stop when each message was handled or is a dead letter; idleness is not reliable on a busy machine."""
    never = threading.Event()
    for _ in range(5_000):
        with chaos.lock:
            done = {body for body, times in chaos.done.items() if times}
        if len(done | {letter.body for letter in broker.dead_letters()}) == FUZZED:
            break
        never.wait(0.005)
    stop()


def threads(broker: MemoryBroker, chaos: Chaos) -> redelivery.Report:
    with redelivery.connect(chaotic(broker)) as connection, ThreadPoolExecutor(1) as pool:
        connection.listen("orders", chaos, workers=4)
        pool.submit(stop_at_the_end, broker, chaos, connection.stop)
        return connection.run()


async def loop(broker: MemoryBroker, chaos: Chaos) -> redelivery.Report:
    async with redelivery.connect_async(chaotic(broker)) as connection:

        async def handle(message: Message) -> None:
            chaos(message)

        connection.listen("orders", handle, workers=4)
        ending = asyncio.create_task(asyncio.to_thread(stop_at_the_end, broker, chaos, connection.stop))
        report = await connection.run()
        await ending
        return report


def test_consumers_are_made_and_closed_while_the_connection_is_cut() -> None:
    """Subscribing, closing, sending and connection losses at the same time neither deadlock nor subscribe twice."""
    often = "?initialReconnectDelay=1&maxReconnectDelay=1"
    with MemoryBroker() as broker, redelivery.connect(f"failover:({broker.uri}){often}") as connection:
        end = threading.Event()

        def come_and_go(seed: int) -> int:
            random = Random(seed)
            got = 0
            for _ in range(15):
                with connection.consumer("orders") as consumer:
                    message = consumer.receive(timeout=random.choice([0, 0.001]))
                    if message is not None:
                        got += message.accept()
            return got

        def cut() -> None:
            while not end.wait(0.002):
                broker.cut()

        def send() -> int:
            sent = 0
            while not end.is_set():
                try:
                    connection.send("orders", "x", timeout=5)
                    sent += 1
                except redelivery.TransportError:
                    pass
            return sent

        with ThreadPoolExecutor(6) as pool:
            pool.submit(cut)
            sender = pool.submit(send)
            futures = [pool.submit(come_and_go, seed) for seed in range(3)]
            accepted = sum(future.result(60) for future in futures)
            end.set()
        assert connection.report().accepted == accepted
        assert sender.result() > 0
