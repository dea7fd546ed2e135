"""A broker whose own acknowledgement keeps persistent messages, where a producer may mark messages wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.core.bench import routed

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Forward, PoisonAck, SetAside
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import EXPIRED, Delivery, Record

if TYPE_CHECKING:
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterRoute
    from redelivery.core.delivery import BodyKind

PROVEN = Capabilities("model", poison_persistent=True, forward="atomic")
UNPROVEN = replace(PROVEN, proves_persistent=False)


class Seen(Delivery):
    """Message with a body kind, persistent by its own mark."""

    def __init__(self, kind: BodyKind = "text", *, persistent: bool = True, to: str = "queue://a") -> None:
        super().__init__(1, 1, b"x")
        self._kind, self._persistent, self._to = kind, persistent, to

    @property
    def body_kind(self) -> BodyKind:
        return self._kind

    @property
    def persistent(self) -> bool:
        return self._persistent

    @property
    def destination(self) -> str:
        return self._to


@pytest.mark.parametrize(
    ("able", "route", "kind", "persistent", "expected"),
    [
        (PROVEN, "auto", "text", True, PoisonAck),
        (PROVEN, "auto", "partial", True, PoisonAck),
        (UNPROVEN, "auto", "text", True, Forward),
        (UNPROVEN, "auto", "partial", True, SetAside),
        (UNPROVEN, "auto", "unknown", True, SetAside),
        (UNPROVEN, "forward", "partial", True, SetAside),
        # The user guarantees it; a message marked as not persistent would still be dropped.
        (UNPROVEN, "ack", "text", True, PoisonAck),
        (UNPROVEN, "ack", "partial", True, PoisonAck),
        (UNPROVEN, "ack", "text", False, Forward),
        (UNPROVEN, "ack", "partial", False, SetAside),
    ],
)
def test_only_what_is_kept_for_certain_is_left_to_the_broker(
    able: Capabilities, route: DeadLetterRoute, kind: BodyKind, expected: type[object], *, persistent: bool
) -> None:
    """A message that the broker may drop is copied, and set aside if it cannot be copied."""
    delivery = Seen(kind, persistent=persistent)
    assert isinstance(routed(dead_letter=route).command(delivery, Record(1), able, 0.0, 0.0), expected)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("kind", ["partial", "unknown"])
def test_what_has_expired_and_cannot_be_copied_is_left_to_the_broker(
    kind: BodyKind, *, persistent: bool
) -> None:
    """An expired message is left to the broker, which handles all expired ones alike; the consumer does not stop."""
    expired = Record()
    expired.cause = EXPIRED
    delivery = Seen(kind, persistent=persistent)
    for able, route, expected in (
        (UNPROVEN, "auto", PoisonAck),
        (UNPROVEN, "ack", PoisonAck),
        (UNPROVEN, "forward", SetAside),
        (Capabilities("without such an acknowledgement"), "auto", SetAside),
    ):
        routing = routed(dead_letter=route)
        assert isinstance(routing.command(delivery, expired, able, 0.0, 0.0), expected)
    assert isinstance(
        DeadLetterRouting().command(Seen("text", persistent=persistent), expired, UNPROVEN, 0.0, 0.0), Forward
    )


def test_what_is_set_aside_tells_how_to_vouch_for_it() -> None:
    """The advice to guarantee it is given only if the broker's acknowledgement keeps messages that are persistent."""
    for able, persistent, told in (
        (UNPROVEN, True, True),
        (UNPROVEN, False, False),
        (Capabilities("m"), True, False),
    ):
        command = DeadLetterRouting().command(
            Seen("partial", persistent=persistent), Record(1), able, 0.0, 0.0
        )
        assert isinstance(command, SetAside)
        assert ("redelivery.deadLetter=ack" in str(command.error)) is told


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
