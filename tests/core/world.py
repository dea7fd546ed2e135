"""An engine between a broker and an application; every command is checked against the invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.core.model import WALL_OFFSET, Arrival

from redelivery.core.commands import Accept, Credit, Dispatch, Forward, Hold, PoisonAck, Release, Stop
from redelivery.core.delivery import Cause
from redelivery.core.events import (
    Confirmed,
    Deferred,
    Discarded,
    Failed,
    Poisoned,
    Released,
    Succeeded,
    Tick,
    Wanted,
)
from redelivery.core.message_history import RETURN

if TYPE_CHECKING:
    from tests.core.model import Broker, Letter

    from redelivery.core.commands import Command
    from redelivery.core.dispatch_order import Ordering
    from redelivery.core.engine import Engine
    from redelivery.core.events import Event
    from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

CAUSE = Cause("it failed")
DEFERRALS = 2


class World:
    """Actions of the application and the broker on the engine, step by step."""

    def set_up(
        self,
        engine: Engine,
        broker: Broker,
        policy: RedeliveryPolicy,
        ordering: Ordering,
        credit: int,
        max_parked: int,
    ) -> None:
        self.engine, self.broker, self.policy = engine, broker, policy
        self.ordering, self.credit, self.max_parked = ordering, credit, max_parked
        self.now = self.began = 0.0
        self.behind_since = 0.0  # when the oldest unread command may have been written
        self.letters: list[Letter] = []
        self.running: list[Arrival] = []
        self.arrived: dict[Arrival, None] = {}  # on this connection
        self.finished: set[Arrival] = set()  # accepted or released
        self.granted = 0
        self.drained = self.released = False

    # The steps.

    def read(self, commands: int) -> None:
        for _ in range(min(commands, len(self.broker.wire))):
            self.broker.read()

    def write(self, command: Command) -> None:
        if not self.broker.wire:
            self.behind_since = self.now
        self.broker.wire.append(command)

    def deliver(self, most: int) -> None:
        arrived = self.broker.deliver(most)
        if arrived is not None:
            for delivery in arrived.deliveries:
                assert isinstance(delivery, Arrival)
                self.arrived[delivery] = None
                self.forget_late(delivery.letter)
            self.feed(arrived)

    def forget_late(self, letter: Letter) -> None:
        """Count a message as redriven if its dead letter is confirmed and its connection has stood for long."""
        if letter.safe and (letter.outlived or self.now - self.began > RETURN):
            letter.start_afresh()

    def outlive(self) -> None:
        """End a connection: dead letters that a long one did not redeliver count as redriven, too."""
        if self.now - self.began > RETURN:
            brought = {id(arrival.letter) for arrival in self.arrived}
            for letter in self.letters:
                letter.outlived |= letter.safe and id(letter) not in brought

    def want(self) -> None:
        before = self.engine.load.ready()
        full = self.engine.load.parked >= self.max_parked
        held = any(arrival.state == "held" for arrival in self.arrived)
        room = len(self.running) < self.credit and not full
        commands = self.feed(Wanted())
        if full and commands and isinstance(commands[0], Dispatch):
            fresh = commands[0].delivery.record is None
            # A released message makes room for a fresh one.
            made = held and self.engine.load.parked < self.max_parked
            assert made or not fresh, "a fresh message is taken past max_parked"
        if self.ordering == "non_blocking" and room and before:
            assert commands, "a ready message waits for a parked one"

    def settle(self, place: int, result: str) -> None:
        if result == "keep":
            return
        delivery = self.running.pop(place)
        letter = delivery.letter
        match result:
            case "succeed":
                letter.processed = True
                self.feed(Succeeded(delivery))
            case "discard":
                letter.processed = True
                self.feed(Discarded(delivery, CAUSE))
            case "fail":
                self.charge(delivery)
                self.feed(Failed(delivery, CAUSE))
            case "poison":
                self.charge(delivery)
                self.feed(Poisoned(delivery, CAUSE))
            case "defer":
                self.defer(delivery)
            case _:
                letter.failures = 0  # another consumer may get it
                letter.not_before = 0.0
                self.released = True
                self.feed(Released(delivery))

    def defer(self, delivery: Arrival) -> None:
        if delivery.record is not None and delivery.record.deferrals >= DEFERRALS:
            self.charge(delivery)
        else:
            delivery.letter.not_before = self.now + 7.0
        self.feed(Deferred(delivery, 7.0, CAUSE))

    # The checks.

    def charge(self, delivery: Arrival) -> None:
        letter = delivery.letter
        letter.failures += 1
        maximum = self.policy.maximum_redeliveries
        assert maximum < 0 or letter.failures <= maximum + 1, "an attempt beyond the limit"
        count = (delivery.record.count if delivery.record else 0) + 1
        delay = self.policy.redelivery_delay_ms(count) / 1000
        spread = self.policy.collision_avoidance_factor if self.policy.use_collision_avoidance else 0.0
        # Jitter is drawn for each step of the chain; each step is cut to whole milliseconds and multiplied again.
        least = delay * (1 - spread) ** max(0, count - 1) - 0.001 * 2**count
        letter.not_before = self.now + max(0.0, least)

    def tick(self) -> None:
        alarm = self.engine.next_alarm()
        if alarm is not None and alarm <= self.now:
            self.feed(Tick())

    def feed(self, event: Event) -> list[Command]:
        if isinstance(event, Confirmed) and event.error is None:
            assert isinstance(event.delivery, Arrival)
            event.delivery.letter.safe = event.delivery.letter.dead > 0
        commands = list(self.engine.feed(event, self.now))
        for command in commands:
            self.check(command)
        return commands

    def check(self, command: Command) -> None:
        match command:
            case Dispatch():
                self.check_dispatch(command.delivery)
            case Hold():
                assert command.delivery in self.arrived
                assert command.due >= self.now
            case Stop():
                raise AssertionError(f"no reason to stop: {command.error}")
            case Credit():
                self.granted += command.messages
                parked = min(self.engine.load.parked, self.max_parked)
                if self.broker.capabilities.flow:
                    settled = sum(arrival.state == "settled" for arrival in self.arrived)
                    assert self.granted - settled <= self.credit + parked
                else:
                    assert self.granted == parked, "room that is not for parked messages"
                self.write(command)
            case Accept() | Release():
                for delivery in command.deliveries:
                    self.check_settlement(delivery)
                    assert isinstance(delivery, Arrival)
                    safe = delivery.letter.processed or delivery.letter.dead
                    assert isinstance(command, Release) or safe, "accepted, but not processed"
                self.write(command)
            case PoisonAck() | Forward():
                assert isinstance(command.delivery, Arrival)
                self.check_settlement(command.delivery)
                letter = command.delivery.letter
                back = isinstance(command, Forward) and command.delayed
                expired = command.cause.text == "expired"
                assert back or letter.failures or expired, "poisoned, but never failed"
                self.write(command)

    def check_settlement(self, delivery: object) -> None:
        assert isinstance(delivery, Arrival)
        assert self.broker.up
        assert delivery.epoch == self.broker.epoch, "a command for a delivery of an old epoch"
        assert delivery not in self.finished, "settled twice"
        self.finished.add(delivery)
        if delivery.state == "settling":
            self.finished.discard(delivery)  # is retried until confirmed

    def check_dispatch(self, delivery: object) -> None:
        assert isinstance(delivery, Arrival)
        assert not self.drained
        assert delivery in self.arrived, "dispatched from a connection that is gone"
        letter = delivery.letter
        assert all(other.letter is not letter for other in self.running), "runs beside its old handler"
        assert not letter.processed, "processed twice"
        assert not letter.dead, "dispatched again after it was dead-lettered"
        assert self.now >= letter.not_before, "too early"
        assert letter.expires_at is None or letter.expires_at > self.now + WALL_OFFSET, "expired"
        held = [a for a in self.arrived if a.state == "parked" and a is not delivery]
        if self.ordering == "blocking":
            assert all(other.seq > delivery.seq for other in held), "overtaken"
        if self.ordering == "per_group" and letter.group is not None:
            mates = [a for a in self.arrived if a.group == letter.group and a is not delivery]
            assert not [m for m in mates if m.state in ("running", "waiting")], "beside its group's head"
            if self.broker.in_order and not self.released:
                assert not [m for m in mates if m.state == "parked"], "its group's head is parked"
                earlier = [m for m in mates if m.state == "ready" and m.seq < delivery.seq]
                assert not earlier, "its group is overtaken"
        self.running.append(delivery)
        assert len(self.running) <= self.credit
