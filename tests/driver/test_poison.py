"""Routes of poison messages; none loses a message."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import eventually

import redelivery
from redelivery import ConfigurationError

if TYPE_CHECKING:
    from tests.driver.twins import Twin


@pytest.mark.parametrize(
    ("options", "action", "destination"),
    [
        ("redelivery.deadLetter=auto", "poisoned", "queue://DLQ"),
        ("redelivery.deadLetter=ack", "poisoned", "queue://DLQ"),
        ("redelivery.deadLetter=forward", "forwarded", "queue://DLQ"),
        ("redelivery.deadLetterDestination=graveyard", "forwarded", "queue://graveyard"),
        ("redelivery.deadLetter=forward&redelivery.deadLetterDestination=graveyard", "forwarded", "queue://graveyard"),
    ],
)  # fmt: skip
def test_each_route_keeps_the_message(twin: Twin, options: str, action: str, destination: str) -> None:
    """A dead letter has body, cause and count, by the broker's acknowledgement and as a copy."""
    connection = twin.connect(f"?{options}&jms.redeliveryPolicy.maximumRedeliveries=0")
    consumer = twin.call(connection.consumer("orders"))
    identity = twin.broker.send(
        "orders", "body", headers={"colour": "red"}, correlation_id="c", persistent=False
    )
    twin.receive(consumer).fail(ValueError("no"))
    (letter,) = twin.broker.dead_letters(destination)
    assert (letter.text, letter.cause, letter.count) == ("body", "ValueError: no", 1)
    assert (letter.original_destination, letter.original_id) == ("queue://orders", identity)
    assert (letter.headers["colour"], letter.persistent) == ("red", True)
    assert twin.broker.depth("orders") == 0
    assert action in [step.action for step in twin.broker.history(identity)]
    assert connection.report().poisoned == 1


def test_each_route_tells_the_same(twin: Twin) -> None:
    """The broker's dead letter and a copy have the same properties, with the times of the failures."""
    told = []
    for route in ("ack", "forward"):
        options = f"?redelivery.deadLetter={route}&jms.redeliveryPolicy.maximumRedeliveries=1"
        consumer = twin.call(twin.connect(options).consumer(route))
        identity = twin.broker.send(route, "body", headers={"colour": "red", "redeliveryCause": "old"})
        began = twin.clock.monotonic()
        for delay in (0, 1):
            twin.receive(consumer, delay).fail(ValueError("no"))
        letter = twin.broker.dead_letters()[-1]
        assert (letter.original_id, letter.original_destination) == (identity, f"queue://{route}")
        first, last = (
            datetime.fromisoformat(letter.headers[f"redelivery{which}Failure"]).timestamp()
            - (twin.clock.time() - twin.clock.monotonic())
            - began
            for which in ("First", "Last")
        )
        assert (first, last) == (pytest.approx(0, abs=0.001), pytest.approx(1, abs=0.001))
        told.append(sorted(letter.headers))
        assert (letter.cause, letter.count, letter.headers["colour"]) == ("ValueError: no", 2, "red")
    assert told[0] == told[1]


def test_discard_drops_it(twin: Twin) -> None:
    """`deadLetter=discard` accepts a poison message and counts it as discarded."""
    connection = twin.connect("?redelivery.deadLetter=discard&jms.redeliveryPolicy.maximumRedeliveries=0")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "body")
    message = twin.receive(consumer)
    message.fail()
    assert message.outcome == "discarded"
    assert (twin.broker.depth("orders"), twin.broker.depth("DLQ")) == (0, 0)
    assert connection.report() == redelivery.Report(discarded=1)


def tries(twin: Twin, identity: str, began: float) -> list[float]:
    """Return the seconds from `began` to each try of a message's dead letter."""
    steps = twin.broker.history(identity)
    return [step.at - began for step in steps if step.action in ("refused", "forwarded")]


def test_a_refused_copy_is_tried_again_with_back_off(twin: Twin) -> None:
    """A refused copy is sent again with back-off; the original stays unacknowledged, and one copy arrives."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.fail_forward(3)
    identity = twin.broker.send("orders", "body")
    began = twin.clock.monotonic()
    twin.receive(consumer).poison("bad")
    for left, seconds in ((1, 1), (1, 2), (0, 4)):
        twin.advance(seconds)
        assert (twin.broker.depth("orders"), twin.broker.depth("DLQ")) == (left, 1 - left)
    assert tries(twin, identity, began) == pytest.approx([0, 1, 3, 7])
    assert connection.report().poisoned == 1


def test_a_refused_copy_is_tried_again_over_the_next_connection(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy that the broker refuses before it ends the connection is sent again after its delay; the log has why."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.fail_forward(3)
    identity = twin.broker.send("orders", "body")
    began = twin.clock.monotonic()
    twin.receive(consumer).poison("bad")
    for seconds in (1, 2, 4):
        twin.broker.cut()
        twin.advance(seconds)
    assert tries(twin, identity, began) == pytest.approx([0, 1, 3, 7])
    assert connection.report().poisoned == 1
    (said,) = [text for text in caplog.messages if "its dead letter" in text]
    assert said.startswith(f"queue://orders: {identity}: its dead letter is not confirmed (")
    assert said.endswith("); the message stays on the broker, next try in 1 s")


def test_a_missing_answer_is_asked_for_again(twin: Twin) -> None:
    """A poison acknowledgement without an answer is repeated, and makes one dead letter."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.stall_confirmations()
    twin.broker.send("orders", "body")
    twin.receive(consumer).poison("bad")
    twin.advance(31)
    assert connection.report().poisoned == 0
    twin.broker.resume_confirmations()
    twin.advance(60)
    assert connection.report().poisoned == 1
    assert len(twin.broker.dead_letters()) == 1


def test_draining_waits_for_the_confirmation(twin: Twin) -> None:
    """`drain` waits until the dead letter is confirmed, within its time."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.fail_forward(2)
    twin.broker.send("orders", "body")
    twin.receive(consumer).poison("bad")
    assert connection.report().poisoned == 0
    report = twin.call(connection.drain(timeout=10))
    assert report.poisoned == 1
    assert len(twin.broker.dead_letters()) == 1


def test_draining_does_not_wait_for_ever(twin: Twin) -> None:
    """`drain` ends in time if the broker keeps refusing the dead letter; the message stays on the broker."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.fail_forward(1000)
    twin.broker.send("orders", "body")
    twin.receive(consumer).poison("bad")
    before = twin.clock.monotonic()
    assert twin.call(connection.drain(timeout=10)).poisoned == 0
    assert twin.clock.monotonic() - before == pytest.approx(10)
    twin.leave(connection)
    assert twin.broker.depth("orders") == 1


def test_a_cut_while_poisoning_keeps_the_verdict(twin: Twin) -> None:
    """A poison message whose confirmation was lost is dead-lettered again, without being handled."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.fail_forward(1)
    twin.broker.send("orders", "body")
    twin.receive(consumer).poison("bad")
    twin.broker.cut()
    assert twin.receive(consumer, 1) is None
    # A copy that was refused before the connection was lost waits 1 s.
    eventually(twin, lambda: connection.report().poisoned)
    assert [letter.cause for letter in twin.broker.dead_letters()] == ["bad"]
    assert connection.report().poisoned == 1


def test_a_consumer_of_the_dead_letters_must_send_its_own_elsewhere(twin: Twin) -> None:
    """A consumer of the DLQ is refused, unless another dead-letter destination is named."""
    connection = twin.connect()
    with pytest.raises(ConfigurationError, match="to read the dead letters, give this consumer"):
        twin.call(connection.consumer("DLQ"))
    other = twin.connect("?redelivery.deadLetterDestination=hopeless")
    consumer = twin.call(other.consumer("DLQ"))
    twin.broker.send("DLQ", "body")
    twin.receive(consumer).poison()
    assert [letter.text for letter in twin.broker.dead_letters("hopeless")] == ["body"]


def test_a_stopped_consumer_is_not_subscribed_again(twin: Twin) -> None:
    """A consumer that ended after three closings over one message is not subscribed on the next connection."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "bad")
    for _ in range(3):
        twin.receive(consumer, 1)
        twin.broker.cut(suspect="bad")
        twin.advance(1)
    with pytest.raises(redelivery.AdapterError, match="3 times"):
        twin.receive(consumer, 1)
    twin.broker.cut()
    twin.advance(1)
    assert not twin.broker.messages("orders")[0].delivered
