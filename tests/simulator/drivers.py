"""The second level: whole connections, with their threads and locks, over the embedded broker in virtual time.

It covers what the engine's simulator cannot see: settlements being written, the lock order, histories that consumers
share on several threads, the driver's reconnect, sessions, listeners with workers, a ledger on a disk. Threads take
turns: an action is done, and all threads come to rest.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulator.listening import GatedListener
from tests.simulator.sessions import SessionPart
from tests.simulator.truth import Violation

import redelivery
from redelivery.testing import ManualClock, MemoryBroker
from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    import pytest

    from redelivery import Consumer, Message

__all__ = ["Action", "DriverCase", "DriverWorld", "driver_case", "namesakes"]

RETRIES = 1
POLICY = "?jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.initialRedeliveryDelay=1000"
# By id and body: namesakes, equals, and one with an id of its own.
SENT = [("x", "created"), ("x", "cancelled"), ("x", "tick"), ("x", "tick"), ("y", "other")]
# At the end: number of rounds, and seconds between them.
ROUNDS, STEP = 100, 2
Action = tuple[Any, ...]
Like = tuple[str, str]


@dataclass(frozen=True)
class DriverCase:
    """Configuration of a world of whole connections. `session`: its mode, or none."""

    weak: bool = False
    session: str = ""
    listener: bool = False
    ledger: bool = False
    scheduled: bool = False


def driver_case(seed: int) -> DriverCase:
    """Draw a configuration."""
    rnd = random.Random(f"case {seed}")
    session = rnd.choice(["", "", "client", "transacted", "transacted"])
    return DriverCase(
        weak=rnd.random() < 0.5,
        session=session,
        listener=rnd.random() < 0.3,
        ledger=rnd.random() < 0.15,
        scheduled=session != "transacted" and rnd.random() < 0.3,
    )


def namesakes(patch: pytest.MonkeyPatch, *, dated: bool = False) -> None:
    """Make the embedded broker recognise messages by their producer's ids, as AMQP brokers do."""
    patch.setattr(MemoryDelivery, "key", property(lambda self: (self.queue.name, self.kept.message_id)))
    patch.setattr(MemoryDelivery, "strong", property(lambda _: False))
    patch.setattr(MemoryDelivery, "digested", True)
    patch.setattr(MemoryDelivery, "dated", property(lambda _: dated))


class DriverWorld:
    """A connection with consumers from which an application pulls, and an adversarial broker."""

    def __init__(self, case: DriverCase, folder: str = "") -> None:
        self.case = case
        self.clock = ManualClock()
        self.broker = MemoryBroker(clock=self.clock)
        uri = self.broker.uri + POLICY
        if case.ledger:
            uri += f"&redelivery.ledger=sqlite:///{folder}/ledger.db"
        if case.scheduled:
            uri += "&redelivery.scheduler=broker"
        self.connection = redelivery.connect(uri, clock=self.clock)
        self.connection.__enter__()
        self.listener = GatedListener(self.connection, self.clock) if case.listener else None
        if self.listener is not None:
            self.connection.start()
        self.consumers: list[Consumer] = [self.connection.consumer("q") for _ in range(2)]
        self.session = SessionPart(self) if case.session else None
        self.unsent = list(SENT)
        # Messages that the application has, with their consumer; handlers of closed ones are not waited for.
        self.hand: list[tuple[Message, Consumer | None]] = []
        self.successes: Counter[Like] = Counter()
        self.failures: Counter[Like] = Counter()
        self.ever: Counter[Like] = Counter()
        self.size = Counter(SENT)
        self.seen: Counter[str] = Counter()

    def close(self) -> None:
        """End everything."""
        self.broker.resume_confirmations()
        if self.session is not None:
            self.session.close()
        if self.listener is not None:
            self.listener.let_go()
        self.connection.close()
        self.broker.close()

    def choices(self) -> list[Action]:
        """Return the possible next actions."""
        can: list[Action] = [("receive", 0), ("receive", 1), ("cut",), ("lose",), ("refuse",), ("wait",)]
        if self.unsent:
            can.append(("send",))
        hows = ("ok", "ok", "fail", "release")
        can += [("end", n, how) for n in range(len(self.hand)) for how in hows]
        can += [("reopen", 0), ("reopen", 1)]
        if self.listener is not None:
            told = ("ok", "ok", "fail", "poison", "defer")
            can += [("handle", n, how) for n in range(len(self.listener.calls)) for how in told]
        return can if self.session is None else can + self.session.choices()

    def do(self, action: Action) -> None:
        """Do one action, and wait until all threads rest. Raises Violation."""
        self.seen[action[0]] += 1
        getattr(self, f"_do_{action[0]}")(*action[1:])
        self.clock.advance(0)
        if self.session is not None:
            self.session.look()
        self._overlap()

    def like(self, message: Message) -> Like:
        """Return what distinguishes a message from all but its equals."""
        return str(message.headers["redeliveryId"]), message.text

    def succeeded(self, message: Message) -> None:
        """Record that a handler succeeded."""
        like = self.like(message)
        self.successes[like] += 1
        self.failures[like] = 0

    def failed(self, message: Message, *, heard: bool = True) -> None:
        """Record that a handler failed. Raises Violation."""
        like = self.like(message)
        self.failures[like] += heard
        self.ever[like] += 1
        # A delayed copy that was sent twice counts as two messages.
        most = self.size[like] * (RETRIES + 1) + self.case.scheduled * self.seen["cut"]
        if self.failures[like] > most:
            raise Violation(f"limit: {like} has failed {self.failures[like]} times")

    def _overlap(self) -> None:
        """Check that no more handlers have a message than there are such messages. Raises Violation."""
        if self.case.ledger and self.case.listener and self.seen["reopen"]:
            return
        have = Counter(self.like(each) for each, owner in self.hand if owner in self.consumers)
        if self.listener is not None:
            have += Counter(self.like(call.message) for call in self.listener.calls)
        if self.session is not None:
            have += Counter(self.like(each) for each in self.session.have())
        for like, many in have.items():
            if many > self.size[like]:
                raise Violation(f"overlap: {like} is given out while a handler has it")

    # The actions.

    def _do_send(self) -> None:
        if self.unsent:
            key, body = self.unsent.pop(0)
            self.broker.send("q", body, headers={"redeliveryId": key})

    def _do_receive(self, number: int) -> None:
        consumer = self.consumers[number]
        message = consumer.receive(timeout=0)
        if message is not None:
            self.hand.append((message, consumer))

    def _do_end(self, number: int, how: str) -> None:
        if number >= len(self.hand):
            return
        message, owner = self.hand.pop(number)
        if how == "ok":
            self.succeeded(message)
            message.accept()
        elif how == "fail":
            # A closing consumer is not waited for: a later result may be uncharged.
            self.failed(message, heard=owner in self.consumers)
            message.fail("no")
        else:
            message.release()

    def _do_handle(self, number: int, how: str) -> None:
        """End a listener's handler."""
        if self.listener is None or number >= len(self.listener.calls):
            return
        call = self.listener.calls[number]
        if how == "ok":
            self.succeeded(call.message)
        elif how == "fail":
            self.failed(call.message)
        elif how == "poison":
            self.ever[self.like(call.message)] += 1
        self.listener.end(call, how)

    def _do_cut(self) -> None:
        self.broker.cut()

    def _do_lose(self) -> None:
        """Lose the next accept on the wire, and the connection with it."""
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
        """Close a consumer, whose messages may still be handled, and open another one."""
        if not self.connection.connected:
            # Opening would wait for the connection, in virtual time that only this thread moves.
            return
        closed, self.consumers[number] = self.consumers[number], self.connection.consumer("q")
        closed.close()

    def _do_session(self, what: str) -> None:
        if self.session is not None:
            self.session.do(what)

    # The end.

    def finish(self) -> None:
        """End without further failures. Raises Violation if something is lost, or left."""
        self.broker.refuse_settlements(0)
        self.broker.refuse_sends(0)
        self.broker.resume_confirmations()
        while self.unsent:
            self.do(("send",))
        for _ in range(ROUNDS):
            while self.hand:
                self.do(("end", 0, "ok"))
            while self.listener is not None and self.listener.calls:
                self.do(("handle", 0, "ok"))
            if self.session is not None:
                self.do(("session", "finish"))
            self.clock.advance(STEP)
            for number in (0, 1):
                self.do(("receive", number))
            if self._idle():
                break
        else:
            raise Violation(f"stuck: {self.broker.messages('q')} are left")
        self._settled()

    def _idle(self) -> bool:
        session = self.session is not None and self.session.busy
        handler = self.listener is not None and self.listener.calls
        held = self.broker.depth("q") or self.broker._server._delayed
        return not (self.hand or session or handler or held)

    def _settled(self) -> None:
        """Check that each message was handled, or is dead for a reason. Raises Violation."""
        if self.session is not None:
            self.session.settled()
        dead = Counter(letter.body.decode() for letter in self.broker.dead_letters())
        self.seen["dead letter"] += sum(dead.values())
        report = self.connection.report()
        self.seen["accepted unseen"] += report.deduplicated
        self.seen["stale"] += report.stale
        for like, many in self.size.items():
            # A dead letter with equal bytes may be any of them.
            if self.successes[like] + dead[like[1]] < many:
                raise Violation(
                    f"loss: {like}: {self.successes[like]} successes, {dead[like[1]]} dead, of {many}"
                )
            # In a transaction the broker's count of prefetched messages is enough (`preDispatchCheck`).
            if dead[like[1]] and not self.ever[like] and self.case.session != "transacted":
                raise Violation(f"false dead letter: {like}, with which nothing has failed")
