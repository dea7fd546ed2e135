"""Invariants of the engine, whatever the broker, the connection and the application do, in any order."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.model import WALL_OFFSET, Broker, Letter
from tests.core.world import DEFERRALS, World

from redelivery.core.broker_redelivery import BrokerRedelivery
from redelivery.core.capabilities import Capabilities
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.engine import Engine
from redelivery.core.events import Connected, ConnectionLost, Drained
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from redelivery.core.dispatch_order import Ordering

PATIENCE = 30.0  # seconds for which a broker may leave a command unread, in any number of steps
LONGEST = 1e6  # seconds of one delay: after hundreds of them the year must have four digits, as headers need

policies = st.builds(
    RedeliveryPolicy,
    maximum_redeliveries=st.sampled_from([0, 1, 3, -1]),
    initial_redelivery_delay=st.sampled_from([0.0, 1.0, 60.0]),
    redelivery_delay=st.sampled_from([0.0, 2.0]),
    maximum_redelivery_delay=st.just(LONGEST),
    use_exponential_back_off=st.booleans(),
    back_off_multiplier=st.sampled_from([1.0, 2.0, 3.5]),
    use_collision_avoidance=st.booleans(),
)
capabilities = st.builds(
    Capabilities,
    broker=st.just("model"),
    poison_persistent=st.booleans(),
    poison_non_persistent=st.booleans(),
    forward=st.sampled_from(["atomic", "confirmed"]),
    flow=st.booleans(),
    grows=st.booleans(),
    release=st.booleans(),
    counts=st.booleans(),
)
orderings: st.SearchStrategy[Ordering] = st.sampled_from(["blocking", "non_blocking", "per_group"])
results = st.sampled_from(
    ["succeed", "succeed", "fail", "fail", "fail", "keep", "keep", "poison", "discard", "defer", "release"]
)


class EngineMachine(World, RuleBasedStateMachine):
    """One engine between a broker that loses connections and an application that does anything."""

    @initialize(
        policy=policies,
        able=capabilities,
        ordering=orderings,
        credit=st.integers(1, 4),
        max_parked=st.integers(1, 4),
        seed=st.integers(0, 99),
        in_order=st.booleans(),
        drain_after=st.sampled_from([3, 12, 1000, 1000]),
        by_broker=st.booleans(),
    )
    def begin(
        self,
        policy: RedeliveryPolicy,
        able: Capabilities,
        ordering: Ordering,
        credit: int,
        max_parked: int,
        seed: int,
        in_order: bool,
        drain_after: int,
        by_broker: bool,
    ) -> None:
        if by_broker:
            ordering, able = "non_blocking", replace(able, reschedule="atomic")
        engine = Engine(
            1,
            policies=RedeliveryPolicyMap({}, default=policy),
            dead_letters=DeadLetterRouting(),
            credit=credit,
            max_parked=max_parked,
            ordering=ordering,
            maximum_deferrals=DEFERRALS,
            random=Random(seed),
            rescheduling=BrokerRedelivery("queue://orders", "run", maximum_deferrals=DEFERRALS)
            if by_broker
            else None,
        )
        engine.state.wall_offset = WALL_OFFSET
        window = credit if able.grows else credit + max_parked
        broker = Broker(able, window=window, in_order=in_order)
        self.set_up(engine, broker, policy, ordering, credit, max_parked)
        self.drain_after = drain_after
        self.reconnect()

    # The events.

    @rule(
        groups=st.lists(st.sampled_from([None, "g", "g", "h"]), min_size=2, max_size=6),
        persistent=st.booleans(),
        ttl=st.sampled_from([None, None, None, None, 5.0]),
    )
    def send(self, groups: list[str | None], persistent: bool, ttl: float | None) -> None:
        expires_at = None if ttl is None else WALL_OFFSET + self.now + ttl
        for group in groups:
            letter = Letter(len(self.letters), group, expires_at, persistent)
            self.letters.append(letter)
            self.broker.waiting.append(letter)

    @precondition(lambda self: self.broker.up)
    @rule(
        read=st.sampled_from([100, 100, 1]),
        deliver=st.sampled_from([1, 3, 5]),
        outcomes=st.lists(results, min_size=3, max_size=8),
    )
    def work(self, read: int, deliver: int, outcomes: list[str]) -> None:
        self.read(read)
        self.deliver(deliver)
        for result in outcomes:
            self.want()
            if self.running:
                self.settle(len(self.running) - 1, result)

    @precondition(lambda self: not self.broker.up or not self.broker.wire)
    @rule(deliver=st.sampled_from([1, 5]), outcomes=st.lists(results, min_size=3, max_size=5))
    def come_back(self, deliver: int, outcomes: list[str]) -> None:
        if not self.broker.up:
            self.reconnect()
        self.work(100, deliver, outcomes)

    @precondition(lambda self: self.engine.reschedules and self.broker.up and not self.drained)
    @rule(outcomes=st.lists(st.sampled_from(["fail", "fail", "defer", "keep"]), min_size=2, max_size=5))
    def go_round(self, outcomes: list[str]) -> None:
        """Deliver messages that the broker holds, which fail again and again."""
        for _ in range(4):
            self.read(100)
            while self.broker.unconfirmed:
                self.confirm(refuse=False)
            self.wait_until(max(self.now, *(at for at, _ in self.broker.scheduled), 0.0))
            self.work(100, 5, outcomes)

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 3), result=results)
    def settle_one(self, place: int, result: str) -> None:
        self.settle(place % len(self.running), result)

    @precondition(lambda self: self.broker.unconfirmed)
    @rule(refuse=st.booleans())
    def confirm(self, refuse: bool) -> None:
        self.feed(self.broker.confirm(refuse=refuse))

    @precondition(lambda self: self.broker.up)
    @rule(
        running=st.sampled_from([0, 1, 3]),
        read=st.integers(0, 3),
        outcomes=st.lists(results, max_size=2),
        back=st.booleans(),
    )
    def cut(self, running: int, read: int, outcomes: list[str], back: bool) -> None:
        if running:
            self.read(100)
            self.deliver(running)
        for _ in range(running):
            self.want()
        self.read(read)
        if self.broker.unconfirmed:
            self.broker.confirm()  # done, but the answer is lost
        self.broker.cut()
        self.outlive()
        self.arrived.clear()
        self.feed(ConnectionLost(self.broker.epoch, TransportError("cut")))
        for result in outcomes:
            if self.running:
                self.settle(0, result)
        if back:
            self.reconnect()
            self.read(100)
            self.deliver(5)

    @precondition(lambda self: not self.broker.up)
    @rule()
    def reconnect(self) -> None:
        self.granted, self.began = 0, self.now
        self.feed(Connected(self.broker.connect(), self.broker.capabilities))

    @rule(seconds=st.sampled_from([0.1, 1.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.wait_until(self.now + seconds)

    @rule()
    def pass_until_due(self) -> None:
        times = [at for at in (self.engine.load.next_due(), self.engine.next_alarm()) if at is not None]
        times += [at for at, _ in self.broker.scheduled]
        if times:
            self.wait_until(max(self.now, min(times)))

    def wait_until(self, at: float) -> None:
        """Pass time; a broker that left commands unread for longer than its heart-beats allow reads them first."""
        behind = self.behind_since if self.broker.wire else self.now
        if at - behind > PATIENCE and self.broker.up:
            self.read(1000)
        self.now = self.broker.now = at
        self.tick()

    @precondition(lambda self: len(self.letters) > self.drain_after and not self.drained)
    @rule()
    def drain(self) -> None:
        self.drained = True
        self.feed(Drained())

    # The invariants.

    @invariant()
    def parked_is_what_is_held(self) -> None:
        if not hasattr(self, "engine"):
            return
        held = sum(arrival.state in ("parked", "settling", "held") for arrival in self.arrived)
        groups = {arrival.group for arrival in self.arrived if arrival.state == "parked"} - {None}
        behind = sum(arrival.state == "ready" and arrival.group in groups for arrival in self.arrived)
        most = held + behind if self.ordering == "per_group" else held
        # A failed message may be redelivered behind its successor: it then waits for that, and does not count.
        least = most if self.broker.in_order and not self.released else 0
        assert least <= self.engine.load.parked <= most

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "engine"):
            return
        known = {id(letter) for letter in self.broker.waiting} | {id(a.letter) for a in self.broker.unsettled}
        known |= {id(letter) for _, letter in self.broker.scheduled}
        for letter in self.letters:
            assert letter.ended or id(letter) in known

    def teardown(self) -> None:
        """Once nothing fails any more, every message ends."""
        if not hasattr(self, "engine"):
            return
        for _ in range(40 + 20 * len(self.letters)):
            if all(letter.ended for letter in self.letters) or self.drained:
                return
            self.one_good_round()
        raise AssertionError("stuck with " + ", ".join(f"{a}" for a in self.broker.unsettled))

    def one_good_round(self) -> None:
        if any(arrival.state == "held" for arrival in self.arrived):
            self.cut(0, 100, [], back=False)  # returns what cannot be released
        if not self.broker.up:
            self.reconnect()
        self.read(100)
        self.deliver(100)
        self.want()
        while self.running:
            self.settle(0, "succeed")
        self.read(100)
        while self.broker.unconfirmed:
            self.confirm(refuse=False)
        self.pass_until_due()
        if self.broker.scheduled:
            self.wait_until(max(self.now, min(due for due, _ in self.broker.scheduled)))


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)


def test_delays_that_grow_for_ever_stay_within_the_calendar() -> None:
    """Found at random: 44 delays, each 3.5 times the one before, led to the year 25655, which no header can hold."""
    machine = EngineMachine()
    policy = RedeliveryPolicy(
        maximum_redeliveries=-1,
        initial_redelivery_delay=0.0,
        redelivery_delay=2.0,
        maximum_redelivery_delay=LONGEST,
        use_exponential_back_off=True,
        back_off_multiplier=3.5,
    )
    able = Capabilities("model", forward="atomic")
    machine.begin(policy, able, "blocking", 1, 4, seed=0, in_order=False, drain_after=3, by_broker=True)
    machine.send(groups=[None, None], persistent=False, ttl=None)
    for _ in range(11):
        machine.go_round(outcomes=["fail", "fail"])
    machine.teardown()
    assert all(letter.ended for letter in machine.letters)
