"""Producers' annotations that look like notes of RabbitMQ 4's redelivery: none harms a message."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.amqp.peer import proton
from tests.amqp.test_delivery import AT, message
from tests.core.bench import CAUSE, Bench
from tests.core.model import WALL_OFFSET

from redelivery.core.broker_redelivery import BASE, BrokerRedelivery
from redelivery.core.capabilities import Capabilities
from redelivery.core.cause import CAUSE_LIMIT
from redelivery.core.commands import Dispatch, Forward, PoisonAck, Reschedule, Subscribe
from redelivery.core.dead_lettering.routing import COPY, DEFERRALS, DUE, DeadLetterRouting
from redelivery.core.delivery import Cause
from redelivery.core.events import Arrived, Failed, Wanted
from redelivery_amqp.delivery import AmqpDelivery
from redelivery_amqp.notes import annotations_of, notes_of
from redelivery_amqp.queue_facts import QueueFacts
from redelivery_amqp.rabbitmq_profile import AmqpRabbitMQ4
from redelivery_amqp.receiver import ReceiverLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.commands import Command

QUEUE = "queue://orders"
ABLE = Capabilities("model", forward="confirmed", reschedule="native", release=True, counts=True)
MOST, DELAY = 3, 60.0
LONG, ULONG = 2**63 - 1, 2**64 - 1

VALUES = st.one_of(
    st.integers(-LONG - 1, LONG),
    st.sampled_from([0, -1, 1, 3, LONG, -LONG - 1]),
    st.integers(0, ULONG).map(proton.ulong),
    st.integers(0, 255).map(proton.ubyte),
    st.integers(-(2**31), 2**31 - 1).map(proton.int32),
    st.integers(-LONG, LONG).map(proton.timestamp),
    st.floats().map(float),
    st.booleans(),
    st.none(),
    st.text(max_size=20),
    st.sampled_from(
        ["1", "0003", "-1", "1e9", " 2", "²", "9" * 5000, "2025-01-01T00:00:00+00:00", "99999-01-01"]
    ),
    st.text(alphabet="abc", max_size=9).map(proton.symbol),
    st.binary(max_size=9),
    st.just(uuid.UUID(int=7)),
    st.characters(max_codepoint=0xD7FF).map(proton.char),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3),
)
NAMES = (
    COPY, DUE, BASE, DEFERRALS, "redeliveryCount", "redeliveryCause", "redeliveryFirstFailure",
    "redeliveryLastFailure", "redelivery",
)  # fmt: skip
COPIES = st.sampled_from([f"@{QUEUE}", f"x@{QUEUE}", "@queue://other", QUEUE, ""])


@st.composite
def annotated(draw: st.DrawFn) -> dict[str, Any]:
    """Return annotations: some of a redelivery, in most cases of this queue, and the broker's timestamp."""
    found = {f"x-opt-{name}": draw(VALUES) for name in NAMES if draw(st.booleans())}
    if draw(st.booleans()):
        found[f"x-opt-{COPY}"] = draw(COPIES)
    if draw(st.booleans()):
        found["x-opt-delivery-time"] = draw(VALUES)
    return found


def arrived(annotations: Mapping[str, Any], count: int, epoch: int = 1, **fields: Any) -> AmqpDelivery:
    """Return a delivery of a quorum queue."""
    noted = {proton.symbol(name): value for name, value in annotations.items()}
    data = message(id="one", creation_time=AT, annotations=noted, delivery_count=count, **fields)
    link = ReceiverLink(Subscribe(1, QUEUE, 100), epoch, AmqpRabbitMQ4((4, 3)), lambda _: None)
    link.facts = QueueFacts("quorum")
    return AmqpDelivery(link, data, None, 0, 1e9)


def bench() -> Bench:
    """Return an engine whose broker holds messages back, one minute before each of three redeliveries."""
    ways = BrokerRedelivery(QUEUE, "run")
    return Bench(able=ABLE, dead_letters=DeadLetterRouting(scheduled=True), rescheduling=ways)


def wanted(at: Bench) -> Any:
    """Ask the engine for a delivery; return the dispatched one, or None."""
    return next((each.delivery for each in at.feed(Wanted()) if isinstance(each, Dispatch)), None)


def begun(at: Bench, delivery: AmqpDelivery) -> int:
    """Report its arrival, and wait up to its policy's delay until it is dispatched; return its count."""
    at.feed(Arrived(1, [delivery]))
    found = wanted(at)
    if found is None:
        at.now += DELAY
        found = wanted(at)
    assert found is delivery, "it is handled, and not much later"
    return 0 if delivery.record is None else delivery.record.count


def failed(at: Bench, delivery: AmqpDelivery) -> Command:
    """Report that its handler failed; return the first command."""
    return at.feed(Failed(delivery, CAUSE))[0]


@given(annotated(), annotated(), st.integers(0, 2**32 - 1))
@example({f"x-opt-{COPY}": f"@{QUEUE}", f"x-opt-{BASE}": proton.ulong(ULONG), f"x-opt-{DUE}": LONG}, {}, 5)
def test_no_annotation_or_property_keeps_a_message_from_its_handler(
    annotations: dict[str, Any], properties: dict[str, Any], count: int
) -> None:
    """A message with any annotation is dispatched with an attempt left, and a failure continues from its count."""
    kept = {name.removeprefix("x-opt-"): value for name, value in properties.items() if _plain(value)}
    delivery = arrived(annotations, count, properties=kept)
    at = bench()
    before = begun(at, delivery)
    assert 0 <= before <= MOST
    command = failed(at, delivery)
    assert isinstance(command, Reschedule | Forward)
    assert command.count == before + 1
    assert isinstance(command, Forward) == (before == MOST)


@given(annotated(), st.integers(0, MOST - 1))
@example({f"x-opt-{COPY}": f"@{QUEUE}", f"x-opt-{DEFERRALS}": proton.timestamp(1)}, 0)
def test_what_is_noted_takes_the_place_of_what_was_there(annotations: dict[str, Any], count: int) -> None:
    """Notes of a redelivery replace the count: another process continues from it, and not before the due time."""
    first = bench()
    delivery = arrived(annotations, count)
    before = begun(first, delivery)
    command = failed(first, delivery)
    if not isinstance(command, Reschedule):
        return
    second = bench()
    second.now = first.now
    again = arrived({**annotations, **annotations_of(command.notes)}, count)
    second.feed(Arrived(1, [again]))
    assert wanted(second) is None, "it has come early"
    second.now += DELAY
    assert wanted(second) is again
    assert again.record is not None
    assert again.record.count == before + 1


@given(annotated(), annotated())
def test_a_message_is_the_same_whatever_is_noted_on_it(one: dict[str, Any], other: dict[str, Any]) -> None:
    """The identity and the digest of a message do not depend on its notes."""
    first, second = arrived(one, 0), arrived(other, 3)
    assert (first.key, first.digest(), first.body) == (second.key, second.digest(), second.body)
    assert first.proof == second.proof


@given(annotated(), st.integers(0, 2**32 - 1))
def test_notes_of_another_queue_are_not_believed(annotations: dict[str, Any], count: int) -> None:
    """Notes of another queue are ignored: the message is dispatched at once, with the broker's own count."""
    at = bench()
    delivery = arrived({**annotations, f"x-opt-{COPY}": "@queue://other"}, count)
    at.feed(Arrived(1, [delivery]))
    assert wanted(at) is delivery, "at once"
    assert (0 if delivery.record is None else delivery.record.count) == min(count, MOST)


@given(annotated(), st.text(max_size=30))
def test_a_dead_letter_is_read_whatever_it_says(annotations: dict[str, Any], reason: str) -> None:
    """Any notes of a dead letter can be read: cause and origin are text, or absent, and new notes can be made."""
    delivery = arrived({**annotations, "x-first-death-reason": reason, "x-first-death-queue": reason}, 0)
    assert isinstance(delivery.died_of, str | None)
    assert isinstance(delivery.origin, str | None)
    notes = notes_of(PoisonAck(delivery, Cause.of(reason), 1))
    back = arrived(annotations_of(notes), 0)
    assert back.noted["redeliveryCause"] == Cause.of(reason).text
    assert back.noted["redeliveryCount"] == "1"


def test_notes_count_more_than_properties_and_are_no_other_annotations() -> None:
    """A note replaces a property of the same name; other annotations are not notes."""
    annotations = {"x-opt-redeliveryCount": "2", "x-opt-delivery-time": 7, "x-opt-other": 1}
    delivery = arrived(annotations, 0, properties={"redeliveryCount": "1", "mine": "x"})
    assert dict(delivery.noted) == {"redeliveryCount": "2", "mine": "x"}
    assert dict(delivery.headers) == {"redeliveryCount": "1", "mine": "x"}


@pytest.mark.parametrize("length", [CAUSE_LIMIT - 1, CAUSE_LIMIT, CAUSE_LIMIT + 1, 200_000])
def test_a_cause_of_any_length_is_kept_within_its_limit(length: int) -> None:
    """A cause longer than its limit is cut, and marked as cut."""
    delivery = arrived({f"x-opt-{COPY}": f"@{QUEUE}", "x-opt-redeliveryCause": "x" * length}, 0)
    begun(bench(), delivery)
    assert delivery.record is not None
    assert delivery.record.cause is not None
    text = delivery.record.cause.text
    assert len(text) == min(length, CAUSE_LIMIT)
    assert text.endswith("…") == (length > CAUSE_LIMIT)


@pytest.mark.parametrize(
    "key", [b"\x53\x07", b"\x40", b"\xa0\x01\xff", b"\xa3\x01\xff", b"\xa1\x0dx-opt-redeliv"]
)
def test_annotations_whose_names_are_no_symbols_are_passed_over(key: bytes) -> None:
    """Annotations whose names are numbers, null or binary are skipped."""
    entry = key + b"\xa1\x01x"
    data = b"\0Sr\xc1" + bytes([len(entry) + 1, 2]) + entry + b"\0Su\xa0\x01b"
    link = ReceiverLink(Subscribe(1, QUEUE, 100), 1, AmqpRabbitMQ4(), lambda _: None)
    delivery = AmqpDelivery(link, data, None, 0, WALL_OFFSET)
    assert (delivery.body, dict(delivery.headers)) == (b"b", {})
    assert begun(bench(), delivery) == 0


def _plain(value: object) -> bool:
    """Return True if an application property may have such a value."""
    return not isinstance(value, list | dict)
