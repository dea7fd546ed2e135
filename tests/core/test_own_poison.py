"""The broker's own poison acknowledgement: where it is used rather than a copy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.core.bench import routed

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Forward, PoisonAck, SetAside
from redelivery.core.delivery import EXPIRED, Cause, Delivery, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterRoute
    from redelivery.core.delivery import BodyKind

PROVEN = Capabilities("model", poison_persistent=True, forward="atomic")
LAST = replace(PROVEN, own_poison="last")  # ActiveMQ Classic over STOMP
ASKED = replace(PROVEN, own_poison="asked")  # ActiveMQ Classic over AMQP


class Seen(Delivery):
    """Message with a body kind, persistent by its own mark, perhaps of a fan-out."""

    def __init__(
        self,
        kind: BodyKind = "text",
        *,
        persistent: bool = True,
        to: str = "queue://a",
        fanned_out: bool = False,
        headers: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(1, 1, b"x")
        self._kind: BodyKind = kind
        self._persistent, self._to = persistent, to
        self._fanned_out, self._headers = fanned_out, headers or {}

    @property
    def body_kind(self) -> BodyKind:
        return self._kind

    @property
    def persistent(self) -> bool:
        return self._persistent

    @property
    def destination(self) -> str:
        return self._to

    @property
    def fanned_out(self) -> bool:
        return self._fanned_out

    @property
    def headers(self) -> Mapping[str, object]:
        return self._headers


@pytest.mark.parametrize(
    ("able", "route", "kind", "persistent", "expected"),
    [
        (PROVEN, "auto", "text", True, PoisonAck),
        (PROVEN, "auto", "partial", True, PoisonAck),
        (LAST, "auto", "text", True, Forward),
        (LAST, "auto", "text", False, Forward),
        (LAST, "auto", "partial", True, PoisonAck),
        (LAST, "auto", "unknown", True, PoisonAck),
        (LAST, "auto", "unknown-bytes", True, PoisonAck),
        (LAST, "auto", "partial", False, SetAside),
        (LAST, "forward", "text", True, Forward),
        (LAST, "forward", "partial", True, SetAside),
        # On request: a message that is not persistent would still be dropped.
        (LAST, "ack", "text", True, PoisonAck),
        (LAST, "ack", "partial", True, PoisonAck),
        (LAST, "ack", "text", False, Forward),
        (LAST, "ack", "partial", False, SetAside),
        (ASKED, "auto", "text", True, Forward),
        (ASKED, "auto", "partial", True, SetAside),
        (ASKED, "ack", "text", True, PoisonAck),
        (ASKED, "ack", "text", False, Forward),
    ],
)
def test_only_what_is_kept_for_certain_is_left_to_the_broker(
    able: Capabilities, route: DeadLetterRoute, kind: BodyKind, expected: type[object], *, persistent: bool
) -> None:
    """A message that the broker may drop is copied, and set aside if it cannot be copied."""
    delivery = Seen(kind, persistent=persistent)
    assert isinstance(routed(dead_letter=route).command(delivery, Record(1), able, 0.0, 0.0), expected)


@pytest.mark.parametrize("route", ["auto", "ack", "forward"])
@pytest.mark.parametrize("able", [PROVEN, LAST, ASKED])
def test_no_message_of_a_fan_out_is_left_to_the_broker(able: Capabilities, route: DeadLetterRoute) -> None:
    """Where other queues have the message, too, it is copied by every route, and set aside if it cannot be copied."""
    routing = routed(dead_letter=route)
    kinds: tuple[tuple[BodyKind, type[object]], ...] = (
        ("text", Forward),
        ("partial", SetAside),
        ("unknown", SetAside),
    )
    for kind, expected in kinds:
        delivery = Seen(kind, fanned_out=True)
        assert isinstance(routing.command(delivery, Record(1), able, 0.0, 0.0), expected)


def test_a_message_that_names_its_origin_is_not_left_to_the_broker() -> None:
    """A message that cannot be copied and names an origin is set aside, though asked: a redrive would believe it."""
    forged = Seen("partial", headers={"redeliveryOriginalDestination": "queue://admin"})
    expired = Record(1)
    expired.cause = EXPIRED
    for record, route in ((Record(1), "auto"), (Record(1), "ack"), (expired, "auto")):
        routing = routed(dead_letter=route)
        assert isinstance(routing.command(forged, record, LAST, 0.0, 0.0), SetAside)


def test_a_chosen_destination_does_not_keep_what_cannot_be_copied() -> None:
    """A body that cannot be copied goes to the broker's own dead-letter queue, though another one is configured."""
    routing = routed(destination="queue://dead")
    assert isinstance(routing.command(Seen("partial"), Record(1), LAST, 0.0, 0.0), PoisonAck)
    assert isinstance(routing.command(Seen("text"), Record(1), LAST, 0.0, 0.0), Forward)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("kind", ["partial", "unknown"])
def test_what_has_expired_and_cannot_be_copied_is_left_to_the_broker(
    kind: BodyKind, *, persistent: bool
) -> None:
    """An expired message is left to the broker, which handles all expired ones alike; not one of a fan-out."""
    expired = Record()
    expired.cause = EXPIRED
    delivery, fanned_out = Seen(kind, persistent=persistent), Seen(kind, fanned_out=True)
    none = Capabilities("without such an acknowledgement")
    cases: tuple[tuple[Capabilities, DeadLetterRoute, Delivery, type[object]], ...] = (
        (LAST, "auto", delivery, PoisonAck),
        (LAST, "ack", delivery, PoisonAck),
        (LAST, "forward", delivery, SetAside),
        (LAST, "auto", fanned_out, SetAside),
        (none, "auto", delivery, SetAside),
        (LAST, "auto", Seen("text", persistent=persistent), Forward),
    )
    for able, route, message, expected in cases:
        routing = routed(dead_letter=route)
        assert isinstance(routing.command(message, expired, able, 0.0, 0.0), expected)


def test_no_individual_queue_of_an_address_that_can_name_none() -> None:
    """A producer's address that is no queue name uses the shared dead-letter queue, without an error."""
    routing = routed("native://a.#", strategy="individual")
    for destination, expected in (("native://a.b", "queue://DLQ.a.b"), ("native://a.b?x", "queue://DLQ")):
        assert routing.destination_for(destination, PROVEN) == expected


def test_no_individual_queue_of_a_pattern() -> None:
    """A message whose own queue is not known uses the shared dead-letter queue."""
    routing = routed("queue://a.>", strategy="individual")
    for destination, expected in (
        ("queue://a.b", "queue://DLQ.a.b"),
        ("queue://a.>", "queue://DLQ"),
        ("queue://a.b,admin", "queue://DLQ"),
    ):
        assert routing.destination_for(destination, PROVEN) == expected


def test_a_place_that_was_named_is_never_left_to_the_broker() -> None:
    """A body that cannot be copied is set aside, if a consumer or an exception has named a place for it."""
    named = Record(1)
    named.cause = Cause("no", place="queue://invalid")
    chosen = replace(routed("a"), chosen="queue://own")
    for routing, record in ((routed("a"), named), (chosen, Record(1))):
        assert isinstance(routing.command(Seen("partial"), record, LAST, 0.0, 0.0), SetAside)
