"""Deliveries that bypass the engine: taken and accepted in lists, over losses, take-backs and the end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from redelivery import AdapterError
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Stop
from redelivery.core.delivery import Delivery
from redelivery.core.events import Arrived, Connected, Succeeded, TakenBack
from redelivery.driver.consumer.bulk_intake import BulkIntake
from redelivery.driver.port import ConnectionPort, ConsumerHooks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.driver.port import ConsumerPort
    from redelivery.testing import ManualClock, MemoryBroker

MANY = 1 << 30


class Bench:
    """Open port with a consumer of `orders`, and its intake."""

    def __init__(self, broker: MemoryBroker, clock: ManualClock, **options: Any) -> None:
        self.broker = broker
        self.port = ConnectionPort(f"{broker.uri}?redelivery.credit=10", clock=clock)
        self.port.__enter__()
        self.intake = BulkIntake(self.port.clock, **options)
        hooks = ConsumerHooks(bulk=self.intake, keeps_history=False)
        self.consumer: ConsumerPort = self.port.subscribe(self.port.plan("orders", {}), hooks)

    def take(self, most: int = 99, most_bytes: int = MANY) -> list[Delivery]:
        """Take all ready deliveries."""
        return self.intake.take(most, most_bytes, 0.0)

    def bodies(self, most: int = 99, most_bytes: int = MANY) -> list[bytes]:
        """Take all ready deliveries; return their bodies."""
        return [each.body for each in self.take(most, most_bytes)]

    def unsettled(self) -> list[bytes]:
        """Return the bodies that are unsettled at the broker."""
        return [held.body for held in self.broker.messages("orders")]


@pytest.fixture
def bench(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> Iterator[Bench]:
    """Return a connected bench."""
    made = Bench(redelivery_broker, redelivery_clock)
    yield made
    made.port.close()


def sent(broker: MemoryBroker, *bodies: str | bytes, **options: Any) -> None:
    """Send messages to the queue."""
    for body in bodies:
        broker.send("orders", body, **options)


def test_messages_are_taken_and_accepted_in_lists(bench: Bench) -> None:
    """A taken message stays on the broker until it is accepted; then credit is granted, and the next arrives."""
    sent(bench.broker, *map(str, range(25)))
    assert bench.intake.ready() == 10
    first = bench.take()
    assert ([int(each.body) for each in first], bench.intake.ready()) == (list(range(10)), 0)
    assert len(bench.unsettled()) == 25
    bench.consumer.accept_bulk(first[:4])
    assert [int(body) for body in bench.bodies()] == [10, 11, 12, 13]
    assert len(bench.unsettled()) == 21
    bench.consumer.accept_bulk(first)
    assert (len(bench.unsettled()), bench.intake.ready()) == (15, 6)
    assert bench.consumer.engine.arrived == 0


def test_lists_end_within_limits(bench: Bench) -> None:
    """A list ends at its number of messages or bytes; a body larger than the limit is a list of its own."""
    sent(bench.broker, "aaaa", "bbbb", "cccc", "d" * 99, "e")
    assert bench.bodies(2) == [b"aaaa", b"bbbb"]
    assert bench.bodies(9, 5) == [b"cccc", b"d" * 99]
    sent(bench.broker, "f" * 9, "g")
    assert [body[:1] for body in bench.bodies(9, 1)] == [b"e"]
    assert [body[:1] for body in bench.bodies(9, 2)] == [b"f"]
    assert bench.bodies(9, 2) == [b"g"]
    assert bench.bodies() == []


@pytest.mark.parametrize("most", range(1, 8))
@pytest.mark.parametrize("most_bytes", range(1, 14, 3))
def test_nothing_is_lost_between_lists(redelivery_clock: ManualClock, most: int, most_bytes: int) -> None:
    """All messages arrive in order, however the lists are cut, and `ready` counts them right."""
    intake = BulkIntake(redelivery_clock)
    intake.connect(Connected(1, Capabilities(broker="none")))
    for lot in ("ab", "c", "defgh", "ij"):
        intake.intercept(Arrived(1, [Known(letter * 3) for letter in lot]), ())
    found: list[str] = []
    while taken := intake.take(most, most_bytes, 0.0):
        assert len(taken) <= most
        assert sum(len(each.body) for each in taken[:-1]) < most_bytes
        found += [each.body[:1].decode() for each in taken]
        assert intake.ready() == 10 - len(found)
    assert "".join(found) == "abcdefghij"


def test_a_taker_waits_for_the_first(bench: Bench, redelivery_clock: ManualClock) -> None:
    """`take` waits for its timeout by the clock, or until a message arrives."""
    found: list[list[bytes]] = []

    def run() -> None:
        found.append([each.body for each in bench.intake.take(9, MANY, 5.0)])
        found.append([each.body for each in bench.intake.take(9, MANY, 5.0)])
        redelivery_clock.detach()

    redelivery_clock.attach()
    thread = threading.Thread(target=run)
    thread.start()
    redelivery_clock.advance(4.0)
    assert found == []
    sent(bench.broker, "x")
    redelivery_clock.advance(4.0)
    assert found == [[b"x"]]
    redelivery_clock.advance(2.0)
    thread.join()
    assert found == [[b"x"], []]


def test_what_the_engine_must_see_goes_to_it(bench: Bench, redelivery_clock: ManualClock) -> None:
    """The engine dead-letters expired messages, and dispatches those that may not be whole."""
    sent(bench.broker, "plain")
    sent(bench.broker, "partial", body_kind="partial")
    sent(bench.broker, "", body_kind="unknown")
    sent(bench.broker, "", body_kind="text")
    assert bench.bodies() == [b"plain", b""]
    others = bench.consumer.take_many(9, MANY, 0.0)
    assert [each.body_kind for each in others] == ["partial", "unknown"]
    bench.consumer.settle_many([Succeeded(each) for each in others])
    late = Late(bench, redelivery_clock.time() - 1)
    dispatcher: Any = bench.consumer
    dispatcher.feed(Arrived(late.consumer, [late]))
    assert (bench.bodies(), bench.consumer.take_many(9, MANY, 0.0)) == ([], [])
    assert late.record is not None
    assert late.record.poisoned


def test_empty_bodies_that_are_vouched_for_are_plain(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """With `empty_is_whole` an empty body of unknown kind is taken in lists."""
    bench = Bench(redelivery_broker, redelivery_clock, empty_is_whole=True)
    sent(redelivery_broker, "", body_kind="unknown")
    assert bench.bodies() == [b""]
    bench.port.close()


def test_the_engine_and_the_intake_grant_credit_each_for_its_own(bench: Bench) -> None:
    """Engine and intake each grant credit for their own messages; never more than the credit is unsettled."""
    for number in range(60):
        bench.broker.send("orders", str(number), body_kind="partial" if number % 3 == 0 else "text")
    done = 0
    while bench.unsettled():
        taken, others = bench.take(), bench.consumer.take_many(99, MANY, 0.0)
        assert 0 < len(taken) + len(others) <= 10
        assert sum(held.delivered for held in bench.broker.messages("orders")) <= 10
        bench.consumer.accept_bulk(taken)
        bench.consumer.settle_many([Succeeded(each) for each in others])
        done += len(taken) + len(others)
    assert done == 60


def test_a_lost_connection_forgets_what_was_not_taken(bench: Bench, redelivery_clock: ManualClock) -> None:
    """Deliveries of a lost connection are not accepted, and grant no credit; the broker redelivers all messages."""
    sent(bench.broker, *"abcdefghijklmn")
    old, since = bench.take(4), bench.intake.since
    assert (bench.intake.epoch, bench.intake.connected, bench.intake.ready()) == (1, True, 6)
    redelivery_clock.advance(1.0)
    bench.broker.cut()
    assert (bench.intake.connected, bench.intake.ready()) == (False, 0)
    bench.consumer.accept_bulk(old)
    redelivery_clock.advance(60.0)
    assert (bench.intake.epoch, bench.intake.connected) == (2, True)
    assert bench.intake.since > since
    bench.consumer.accept_bulk(old)
    fresh = bench.take()
    assert [each.body for each in fresh] == [bytes([letter]) for letter in b"abcdefghij"]
    assert {each.epoch for each in fresh} == {2}
    bench.consumer.accept_bulk([*old, *fresh])
    assert bench.bodies() == [b"k", b"l", b"m", b"n"]
    assert bench.unsettled() == [b"k", b"l", b"m", b"n"]


def test_deliveries_of_an_older_connection_are_not_taken_in(
    bench: Bench, redelivery_clock: ManualClock
) -> None:
    """A delivery that arrives after the loss of its connection goes to the engine, which drops it."""
    bench.broker.cut()
    redelivery_clock.advance(60.0)
    dispatcher: Any = bench.consumer
    dispatcher.feed(Arrived(1, [Known("late")]))
    assert (bench.intake.ready(), bench.consumer.take_many(9, MANY, 0.0)) == (0, [])


def test_the_end_of_a_consumer_gives_back_what_is_unsettled(bench: Bench) -> None:
    """After the end of the consumer `take` returns nothing; all but accepted messages are on the broker."""
    sent(bench.broker, *"abc")
    bench.consumer.accept_bulk(bench.take(1))
    taken = bench.take(1)
    bench.port.close()
    assert (bench.bodies(), bench.intake.ready()) == ([], 0)
    bench.consumer.accept_bulk(taken)
    assert bench.unsettled() == [b"b", b"c"]


def test_what_stops_the_consumer_is_raised(bench: Bench) -> None:
    """The error that stops a consumer is raised by `take`, also in a waiting thread; ready messages stay there."""
    sent(bench.broker, "a")
    dispatcher: Any = bench.consumer
    dispatcher.stop(AdapterError("no more"))
    with pytest.raises(AdapterError, match="no more"):
        bench.take()


def test_a_message_that_breaks_connections_stops_the_consumer(bench: Bench) -> None:
    """A list with a message that breaks connections stops the consumer, and is not returned."""
    dispatcher: Any = bench.consumer
    pill = Known("pill")
    poison = dispatcher._driver.protocol_poison
    poison._closings = {pill.proof: [bench.port.clock.monotonic()]}
    poison.convicted = {pill.proof: Stop(AdapterError("it breaks every connection"))}
    dispatcher.feed(Arrived(1, [Known("good")]))
    dispatcher.feed(Arrived(1, [Known("with it"), pill]))
    with pytest.raises(AdapterError, match="breaks every connection"):
        bench.take()
    assert bench.consumer.error is not None


def test_what_the_broker_takes_back_is_not_handed_out(bench: Bench) -> None:
    """For messages that the broker took back credit is granted once; they are not accepted, nor sent to the engine."""
    sent(bench.broker, *"abc")
    sent(bench.broker, "own", body_kind="partial")
    taken = bench.take(1)
    [engines] = bench.consumer.take_many(9, MANY, 0.0)
    dispatcher: Any = bench.consumer
    ready = list(bench.intake._lots[0][0])
    credit: list[int] = []
    dispatcher._driver.defer = lambda commands: credit.extend(each.messages for each in commands)
    dispatcher.feed(TakenBack(engines.consumer, [taken[0], ready[0], engines]))
    dispatcher.feed(TakenBack(engines.consumer, [taken[0], ready[0]]))
    assert credit == [2]
    assert [each.body for each in bench.take()] == [b"c"]
    bench.consumer.accept_bulk(taken)
    assert bench.unsettled() == [b"a", b"b", b"c", b"own"]
    assert bench.consumer.settle(engines, Succeeded(engines)) == "stale"


def test_two_consumers_share_a_queue(bench: Bench) -> None:
    """Two consumers of one queue each take and accept their own messages."""
    other = BulkIntake(bench.port.clock)
    second = bench.port.subscribe(bench.port.plan("orders", {}), ConsumerHooks(bulk=other))
    sent(bench.broker, *map(str, range(8)))
    mine, theirs = bench.take(), other.take(9, MANY, 0.0)
    assert sorted(int(each.body) for each in [*mine, *theirs]) == list(range(8))
    assert len(mine) == len(theirs) == 4
    second.accept_bulk(theirs)
    assert len(bench.unsettled()) == 4
    bench.consumer.accept_bulk(mine)
    assert bench.unsettled() == []


def test_a_full_intake_pauses_the_reader(redelivery_clock: ManualClock) -> None:
    """A full intake makes each read wait for a moment, or until something is taken, but not for ever."""
    intake = BulkIntake(redelivery_clock, most_ready_bytes=3000)
    intake.connect(Connected(1, Capabilities(broker="none")))
    for body in ("a" * 2000, "b", "c"):
        assert intake.intercept(Arrived(1, [Known(body)]), ()) is None
    assert [each.body[:1] for each in intake.take(9, MANY, 0.0)] == [b"a", b"b", b"c"]


class Known(Delivery):
    """Delivery with a key of its own, on the first connection."""

    __slots__ = ()

    def __init__(self, body: str) -> None:
        super().__init__(1, 1, body.encode())

    @property
    def key(self) -> bytes:
        """Return its body."""
        return self.body

    @property
    def destination(self) -> str:
        """Return its destination."""
        return "queue://orders"


class Late(Delivery):
    """Delivery that expired before it arrived."""

    __slots__ = ("_at",)

    def __init__(self, bench: Bench, at: float) -> None:
        super().__init__(1, 1, b"late")
        self._at = at

    @property
    def destination(self) -> str:
        """Return its destination."""
        return "queue://orders"

    @property
    def expires_at(self) -> float:
        """Return a time in the past."""
        return self._at
