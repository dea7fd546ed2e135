"""Events of the handling of a message: a handler begins, and the delivery has its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from redelivery.events.event import MessageEvent

if TYPE_CHECKING:
    from redelivery.core.delivery import Outcome
    from redelivery.message import Message

__all__ = ["Finished", "NextStep", "ResultDetails", "Started", "Verdict"]


Verdict = Literal["succeeded", "failed", "poison", "discard", "defer", "release"]
"""Verdict of the handler, or of the application, on a delivery."""

NextStep = Literal[
    "none",
    "redelivery",
    "delayed copy",
    "delayed by the broker",
    "dead-letter copy",
    "poison acknowledgement",
    "drop",
    "stop",
    "set aside",
]
"""Next step after a result.

- `redelivery`: this client parks the message. `delayed copy`, `delayed by the broker`: the broker holds a copy, or the
  message itself.
- `poison acknowledgement`: the broker dead-letters the message. `dead-letter copy`: this client sends a copy.
- `drop`: the message is accepted without a dead letter. `stop`: the consumer stops. `set aside`: the message stays
  here, unacknowledged, and is not dispatched.
"""


@dataclass(slots=True, repr=False, eq=False)
class Started(MessageEvent):
    """A handler begins with a delivery. Emitted on its thread or task."""

    name = "started"
    computed: ClassVar[tuple[str, ...]] = (*MessageEvent.computed, "delivery_count")

    message: Message

    @property
    def delivery_count(self) -> int:
        """Delivery count of this delivery, from 1."""
        return self.message.delivery_count

    def fields(self) -> dict[str, Any]:
        """Return the event as plain values, without the message itself."""
        found = MessageEvent.fields(self)
        del found["message"]
        return found


class ResultDetails(NamedTuple):
    """Details of a result that is no plain success."""

    outcome: Outcome | None
    verdict: Verdict
    error: BaseException | None = None
    cause: str | None = None
    cause_type: str | None = None
    delivery_count: int | None = None
    maximum: int | None = None
    deferrals: int = 0
    next_step: NextStep = "none"
    delay: float | None = None
    to: str | None = None
    # Of a poison acknowledgement: where the broker then puts the message, in words.
    own_place: str = ""


# Shared by all plain successes, which most results are.
_ACCEPTED = ResultDetails("accepted", "succeeded")


@dataclass(slots=True, repr=False, eq=False)
class Finished(MessageEvent):
    """A delivery has its result. Emitted on the thread or task of its handler, before the next message there.

    For a message that the application has received itself, emitted when the application settles it.
    """

    name = "finished"
    computed: ClassVar[tuple[str, ...]] = (
        *MessageEvent.computed, "verdict", "outcome", "delivery_count", "maximum", "cause_type", "cause", "next_step",
        "delay", "to",
    )  # fmt: skip

    message: Message | None
    """The message, if a handler had it; else None."""
    seconds: float | None
    """Seconds that the handler took; None: the application has received the message itself."""
    details: ResultDetails = _ACCEPTED
    """For the library's own use; read the properties instead."""

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the delivery; None: its session has not committed, or acknowledged, it yet."""
        return self.details.outcome

    @property
    def verdict(self) -> Verdict:
        """Verdict of the handler, or of the application."""
        return self.details.verdict

    @property
    def error(self) -> BaseException | None:
        """Exception of the handler, or None."""
        return self.details.error

    @property
    def delivery_count(self) -> int:
        """Delivery count of this delivery, from 1: deliveries that were charged before, and this one."""
        found = self.details.delivery_count
        if found is not None:
            return found
        record = self.delivery.record
        return 1 if record is None else record.count + 1

    @property
    def maximum(self) -> int | None:
        """Number of deliveries that the policy allows; None: no limit, or nothing has failed."""
        return self.details.maximum

    @property
    def cause(self) -> str | None:
        """Type and text of the failure, or the reason that the handler gave; None: nothing failed."""
        return self.details.cause

    @property
    def cause_type(self) -> str | None:
        """Name of the exception's type, if the cause is an exception; else None."""
        return self.details.cause_type

    @property
    def deferrals(self) -> int:
        """Number of deferrals of the message."""
        return self.details.deferrals

    @property
    def next_step(self) -> NextStep:
        """Next step after this result."""
        return self.details.next_step

    @property
    def delay(self) -> float | None:
        """Seconds until the redelivery by the policy; None: there is none. An open circuit breaker makes it later."""
        return self.details.delay

    @property
    def to(self) -> str | None:
        """Destination of the dead letter, if this client sends it; else None."""
        return self.details.to

    def fields(self) -> dict[str, Any]:
        """Return the event as plain values, without the message itself."""
        found = MessageEvent.fields(self)
        for own in ("message", "details"):
            del found[own]
        return found
