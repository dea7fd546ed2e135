"""Notes for a dead letter that RabbitMQ makes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redelivery.core.commands import PoisonAck
from redelivery.core.delivery import Cause
from redelivery_amqp.notes import LONGEST_ID, notes_of

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery


class Poison:
    """A message with an id."""

    destination = "queue://orders"

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id


def noted(message_id: str) -> dict[str, Any]:
    """Return the notes for the dead letter of a message with this id."""
    return dict(notes_of(PoisonAck(cast("Delivery", Poison(message_id)), Cause.of("bad"), 3)))


def test_a_note_fits_into_one_frame() -> None:
    """A long message id is left out of the notes, which must fit in one frame; the message itself keeps it."""
    told = {
        "redeliveryCause": "bad",
        "redeliveryCount": "3",
        "redeliveryOriginalDestination": "queue://orders",
    }
    assert noted("i" * LONGEST_ID) == {**told, "redeliveryOriginalId": "i" * LONGEST_ID}
    assert noted("i" * (LONGEST_ID + 1)) == told
