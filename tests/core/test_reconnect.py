"""Facts that outlive a connection, and results that must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.bench import CAUSE, NOTHING, Bench
from tests.core.model import Arrival, Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Accept, Credit, Hold, PoisonAck, Stop
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.events import (
    Arrived,
    Confirmed,
    ConnectionLost,
    Deferred,
    Discarded,
    Event,
    Failed,
    Poisoned,
    Released,
    Succeeded,
)
from redelivery.core.pending_confirms import STORED
from redelivery.core.protocol_poison import HeadOfQueue, ProtocolPoison
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.commands import Command

RESULTS: dict[str, Callable[[Arrival], Event]] = {
    "success": Succeeded,
    "failure": lambda d: Failed(d, CAUSE),
    "poison": lambda d: Poisoned(d, CAUSE),
    "discard": lambda d: Discarded(d, CAUSE),
    "deferral": lambda d: Deferred(d, 1.0, CAUSE),
    "release": Released,
}


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("connected", [False, True])
def test_a_late_result_is_stale(result: str, connected: bool) -> None:
    """A result whose connection is gone yields no command for its delivery, before and after the reconnect."""
    bench = Bench()
    delivery = bench.run(Letter(0))
    bench.lose()
    if connected:
        bench.connect()
    event: Event = RESULTS[result](delivery)
    assert bench.feed(event) == NOTHING
    assert (delivery.outcome, delivery.state) == ("stale", "lost")
    assert bench.engine.state.counts.stale == 1


def test_what_was_ready_or_parked_is_dropped() -> None:
    """No delivery of a lost connection is dispatched: the broker redelivers the message."""
    bench = Bench()
    bench.fail(bench.run(Letter(0)))
    bench.arrive(Letter(1))
    bench.lose()
    bench.now += 60
    assert bench.want() is None
    assert (bench.engine.load.parked, bench.engine.load.next_due()) == (0, None)


def test_count_and_due_time_are_kept() -> None:
    """A message that failed before the loss is parked for the rest of its delay, and its count continues."""
    bench = Bench()
    letter = Letter(0)
    bench.fail(bench.run(letter))
    bench.lose()
    bench.now += 20
    bench.connect()
    copy = bench.again(letter)
    assert bench.engine.load.next_due() == bench.now + 40
    assert bench.want() is None
    bench.now += 40
    assert bench.want() is copy
    (hold,) = bench.fail(copy)
    assert isinstance(hold, Hold)
    assert hold.count == 2


def test_a_copy_waits_for_its_old_handler_and_is_accepted_if_that_succeeds() -> None:
    """A message that is redelivered while its old handler runs waits; after a success it is accepted unseen."""
    bench = Bench()
    letter = Letter(0)
    old = bench.run(letter)
    bench.lose()
    bench.connect()
    copy = bench.again(letter)
    assert bench.want() is None
    accept, _ = bench.succeed(old)
    assert isinstance(accept, Accept)
    assert list(accept.deliveries) == [copy]
    assert old.outcome == "stale"
    assert bench.engine.state.counts.deduplicated == 1


def test_a_copy_is_charged_once_if_its_old_handler_fails() -> None:
    """The failure of the old handler is charged to the copy, which is then parked for the policy's delay."""
    bench = Bench()
    letter = Letter(0)
    old = bench.run(letter)
    bench.lose()
    bench.connect()
    copy = bench.again(letter)
    (hold,) = bench.fail(old)
    assert isinstance(hold, Hold)
    assert (hold.delivery, hold.count) == (copy, 1)
    bench.now += 60
    assert bench.want() is copy


def test_a_copy_of_what_was_poisoned_meanwhile_is_poison() -> None:
    """A verdict that could not be sent is kept: the copy is dead-lettered without a dispatch."""
    bench = Bench()
    letter = Letter(0)
    old = bench.run(letter)
    bench.lose()
    bench.feed(Poisoned(old, CAUSE))
    bench.connect()
    copy = bench.again(letter)
    (poison,) = bench.commands
    assert isinstance(poison, PoisonAck)
    assert (poison.delivery, poison.cause) == (copy, CAUSE)


def test_a_verdict_that_cannot_be_sent_stops_the_consumer() -> None:
    """If the copy of a poison message can be neither copied nor poisoned, the consumer stops."""
    bench = Bench(able=Capabilities("model"), dead_letters=DeadLetterRouting(maximum_set_aside=0))
    letter = Letter(0, partial=True)
    old = bench.run(letter)
    bench.lose()
    bench.feed(Poisoned(old, CAUSE))
    bench.connect()
    bench.again(letter)
    assert isinstance(bench.commands[0], Stop)
    bench.arrive(Letter(1))
    assert bench.want() is None


def test_a_second_loss_drops_the_waiting_copy() -> None:
    """A copy whose own connection is lost is never accepted; the next copy is."""
    bench = Bench()
    letter = Letter(0)
    old = bench.run(letter)
    for _ in range(2):
        bench.lose()
        bench.connect()
        copy = bench.again(letter)
    accept, _ = bench.succeed(old)
    assert isinstance(accept, Accept)
    assert list(accept.deliveries) == [copy]


def test_a_lost_accept_is_sent_again_without_running() -> None:
    """A flagged copy of a message accepted on a lost connection is accepted unseen; one without the flag is handled."""
    bench = Bench()
    marked, unmarked = Letter(0), Letter(1)
    for letter in (marked, unmarked):
        bench.succeed(bench.run(letter))
    bench.lose()
    bench.connect()
    bench.again(marked)
    assert isinstance(bench.commands[0], Accept)
    fresh = bench.arrive(unmarked)[0]
    assert bench.want() is fresh


def test_success_after_the_loss_counts_as_accepted() -> None:
    """A message whose handler succeeds without a connection is accepted unseen when it is redelivered."""
    bench = Bench()
    letter = Letter(0)
    old = bench.run(letter)
    bench.lose()
    bench.succeed(old)
    bench.connect()
    bench.again(letter)
    assert isinstance(bench.commands[0], Accept)


def test_arrivals_and_answers_of_an_old_connection_are_nothing() -> None:
    """Arrivals and answers of a connection that is gone change nothing."""
    bench = Bench()
    poisoned = bench.run(Letter(0))
    bench.feed(Poisoned(poisoned, CAUSE))
    bench.lose()
    bench.connect()
    assert bench.feed(Confirmed(poisoned)) == NOTHING
    bench.feed(Arrived(1, [Arrival(Letter(1), 1, counts=False)]))
    assert bench.want() is None
    assert bench.feed(ConnectionLost(1, TransportError("told twice"))) == NOTHING
    assert bench.engine.state.epoch == 2


def lost(bench: Bench, suspects: ProtocolPoison) -> list[Command]:
    """Lose the connection over a message, as the driver reports it."""
    error = TransportError("frame too large")
    stop = suspects.accuse("ID:7", error, bench.now)
    return bench.feed(ConnectionLost(bench.epoch, error, "ID:7", stop=stop))


def test_three_closings_over_one_message_stop_the_consumer() -> None:
    """A message over which the broker closes the connection three times, 30 s apart, stops its consumer."""
    bench, suspects = Bench(), ProtocolPoison()
    for closing in range(3):
        commands = lost(bench, suspects)
        assert bool(commands) == (closing == 2)
        if closing < 2:
            bench.now += 31  # the longest default delay of reconnecting, and a second
            bench.connect()
    assert isinstance(commands[0], Stop)
    assert "ID:7" in str(commands[0].error)


def test_a_message_that_cannot_be_delivered_stops_the_consumer_of_its_queue() -> None:
    """Three ends over the head of a queue stop its consumer; the error names the queue, the cure, and no message."""
    bench, suspects = Bench(), ProtocolPoison()
    head = HeadOfQueue("queue://orders", "use AMQP")
    for _ in range(3):
        stop = suspects.accuse(head, TransportError("disconnected by server\nstack"), bench.now)
    assert stop is not None
    text = str(stop.error)
    assert text.startswith(
        "the broker ended the consumer of queue://orders 3 times, each within 60 s of the one before: "
        "disconnected by server. No"
    )
    assert text.endswith("; use AMQP")
    assert suspects.verdict(["ID:7", ("queue://orders", "ID:7", None)], bench.now) is None


def test_closings_far_apart_do_not_stop() -> None:
    """Closings over one message that are more than a minute apart do not stop the consumer."""
    bench, suspects = Bench(), ProtocolPoison()
    for _ in range(5):
        assert lost(bench, suspects) == NOTHING
        bench.now += 61
        bench.connect()


def test_credit_is_granted_again_and_by_the_quarter() -> None:
    """Each connection starts with the whole credit; for settled or parked messages it is granted by the quarter."""
    bench = Bench(able=Capabilities("model", flow=True), credit=8, max_parked=2)

    def granted(commands: list[Command]) -> list[int]:
        return [command.messages for command in commands if isinstance(command, Credit)]

    assert granted(bench.commands) == [8]
    deliveries = bench.arrive(*(Letter(n) for n in range(8)))
    for _ in deliveries:
        bench.want()
    parked = [granted(bench.fail(delivery)) for delivery in deliveries[:4]]
    assert parked == [[1], [], [], []], "at once where the broker may send nothing, and max_parked at most"
    settled = [granted(bench.succeed(delivery)) for delivery in deliveries[4:]]
    assert settled == [[2], [], [2], []]
    bench.lose()
    assert granted(bench.connect()) == [8]


def poisoned(bench: Bench, letter: Letter) -> None:
    """Poison a message, and confirm its dead letter."""
    delivery = bench.run(letter)
    bench.feed(Poisoned(delivery, CAUSE))
    bench.feed(Confirmed(delivery))


def test_a_poison_acknowledgement_that_the_broker_forgot_is_given_again() -> None:
    """A message that a killed broker redelivers just after its answer is poisoned again, and not handled."""
    bench, letter = Bench(), Letter(0)
    poisoned(bench, letter)
    bench.now += STORED - 0.1
    bench.lose()
    bench.connect()
    bench.again(letter)
    assert [type(command) for command in bench.commands] == [PoisonAck]
    assert bench.want() is None
    assert bench.engine.state.counts.poisoned == 1


def test_a_dead_letter_that_is_put_back_starts_afresh_after_a_loss() -> None:
    """A message that arrives after the broker had time to store its dead letter was redriven, and is handled."""
    bench, letter = Bench(), Letter(0)
    poisoned(bench, letter)
    bench.now += STORED + 0.1
    bench.lose()
    bench.connect()
    again = bench.arrive(letter)[0]
    assert bench.want() is again


def test_a_consumer_that_closes_leaves_no_verdict_that_is_carried_out() -> None:
    """After a consumer has closed, a message with a verdict has been redriven, and is handled."""
    bench = Bench()
    poisoned(bench, Letter(0))
    bench.feed(ConnectionLost(bench.epoch, TransportError("closed"), closed=True))
    bench.connect()
    again = bench.arrive(Letter(0))[0]
    assert bench.want() is again
