"""The second level: whole connections, with their threads and locks, over the embedded broker in virtual time.

What the engine's simulator cannot see is here: settlements in hand, the lock order, histories that consumers share on
several threads, the driver's reconnect. Threads are taken one turn at a time: an action is done, and all come to rest.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulator.truth import Violation

import redelivery
from redelivery.testing import ManualClock, MemoryBroker
from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery import Consumer, Message

__all__ = ["DriverWorld", "namesakes", "wander_drivers"]

RETRIES = 1
URI = "?jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.initialRedeliveryDelay=1000"
# By id and body: namesakes, equals, and one of its own.
SENT = [("x", "created"), ("x", "cancelled"), ("x", "tick"), ("x", "tick"), ("y", "other")]
Action = tuple[Any, ...]


def namesakes(patch: pytest.MonkeyPatch, *, dated: bool = False) -> None:
    """Let the embedded broker know messages by what their producer says, as AMQP brokers do."""
    patch.setattr(MemoryDelivery, "key", property(lambda self: (self.queue.name, self.stored.message_id)))
    patch.setattr(MemoryDelivery, "strong", property(lambda _: False))
    patch.setattr(MemoryDelivery, "digested", True)
    patch.setattr(MemoryDelivery, "dated", property(lambda _: dated))


class DriverWorld:
    """A connection with two consumers that an application pulls from, and a broker that does what it likes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(clock=self.clock)
        self.connection = redelivery.connect(self.broker.uri + URI, clock=self.clock)
        self.connection.__enter__()
        self.consumers: list[Consumer] = [self.connection.consumer("q") for _ in range(2)]
        self.unsent = list(SENT)
        # What the application has, and of which consumer; closed ones are not waited for.
        self.hand: list[tuple[Message, Consumer | None]] = []
        self.successes: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[tuple[str, str]] = Counter()
        self.size = Counter(SENT)

    def close(self) -> None:
        """End all."""
        self.connection.close()
        self.broker.close()

    def choices(self) -> list[Action]:
        """Return what may happen next."""
        can: list[Action] = [("receive", 0), ("receive", 1), ("cut",), ("lose",), ("refuse",), ("wait",)]
        if self.unsent:
            can += [("send",)] * 3
        can += [("end", n, how) for n in range(len(self.hand)) for how in ("ok", "ok", "fail", "release")]
        return [*can, ("reopen", 0), ("reopen", 1)]

    def do(self, action: Action) -> None:
        """Do one action, and let all threads come to rest. Raises Violation."""
        getattr(self, f"_do_{action[0]}")(*action[1:])
        self.clock.advance(0)

    def _do_send(self) -> None:
        if self.unsent:
            key, body = self.unsent.pop(0)
            self.broker.send("q", body, headers={"redeliveryId": key})

    def _do_receive(self, number: int) -> None:
        consumer = self.consumers[number]
        message = consumer.receive(timeout=0)
        if message is None:
            return
        like = self._like(message)
        held = sum(self._like(each) == like for each, owner in self.hand if owner in self.consumers)
        if held >= self.size[like]:
            raise Violation(f"overlap: {like} is given out while a handler has it")
        self.hand.append((message, consumer))

    @staticmethod
    def _like(message: Message) -> tuple[str, str]:
        return str(message.headers["redeliveryId"]), message.text

    def _do_end(self, number: int, how: str) -> None:
        if number >= len(self.hand):
            return
        message, _ = self.hand.pop(number)
        like = self._like(message)
        if how == "ok":
            self.successes[like] += 1
            self.failures[like] = 0
            message.accept()
        elif how == "fail":
            self.failures[like] += 1
            if self.failures[like] > self.size[like] * (RETRIES + 1):
                raise Violation(f"limit: {like} has failed {self.failures[like]} times")
            message.fail("no")
        else:
            message.release()

    def _do_cut(self) -> None:
        self.broker.cut()

    def _do_lose(self) -> None:
        """Lose the next accept on the wire, and the link with it."""
        self.broker.drop_accepts(1)
        if self.hand:
            self._do_end(0, "ok")
        self.broker.cut()
        self.broker.drop_accepts(0)

    def _do_refuse(self) -> None:
        self.broker.refuse_settlements(1)

    def _do_wait(self) -> None:
        self.clock.advance(1)

    def _do_reopen(self, number: int) -> None:
        """Close a consumer, whose messages may still be at work, and open another one."""
        if not self.connection.connected:
            # Opening would wait for the connection, in a time that only this thread moves.
            return
        closed, self.consumers[number] = self.consumers[number], self.connection.consumer("q")
        closed.close()

    def finish(self) -> None:
        """Let all end well. Raises Violation if something is lost, or left."""
        self.broker.refuse_settlements(0)
        while self.unsent:
            self.do(("send",))
        for _ in range(100):
            while self.hand:
                self.do(("end", 0, "ok"))
            self.clock.advance(2)
            for number in (0, 1):
                self.do(("receive", number))
            if not self.hand and self.broker.depth("q") == 0:
                break
        else:
            raise Violation(f"stuck: {self.broker.messages('q')} are left")
        dead = Counter(letter.body.decode() for letter in self.broker.dead_letters())
        for like, many in self.size.items():
            # A dead letter of equal bytes may be any of them.
            if self.successes[like] + dead[like[1]] < many:
                raise Violation(
                    f"loss: {like}: {self.successes[like]} successes, {dead[like[1]]} dead, of {many}"
                )


def wander_drivers(
    seed: int, *, length: int = 40, tell: Callable[[Action], None] | None = None
) -> str | None:
    """Go through one random schedule; return what broke, or None."""
    rnd = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            namesakes(patch)
        world = DriverWorld()
        try:
            for _ in range(length):
                action = rnd.choice(world.choices())
                if tell is not None:
                    tell(action)
                world.do(action)
            world.finish()
        except Violation as broken:
            return str(broken)
        finally:
            world.close()
    return None
