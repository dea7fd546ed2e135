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
"""What the handler, or the application, made of a delivery."""

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
"""What follows: a redelivery by this client, or by the broker, which holds a delayed copy or the message itself; a dead
letter, made by the broker or as a copy that this client sends; the message is dropped; the consumer stops; the message
stays here for good."""


@dataclass(slots=True, repr=False, eq=False)
class Started(MessageEvent):
    """A handler begins with a delivery. On its thread or task."""

    name = "started"
    computed: ClassVar[tuple[str, ...]] = (*MessageEvent.computed, "delivery_count")

    message: Message

    @property
    def delivery_count(self) -> int:
        """Number of this delivery, from 1."""
        return self.message.delivery_count

    def fields(self) -> dict[str, Any]:
        """As for any event; without the message itself."""
        found = MessageEvent.fields(self)
        del found["message"]
        return found


class ResultDetails(NamedTuple):
    """What there is to say of a result that is no plain success."""

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


# Most results are plain successes.
_ACCEPTED = ResultDetails("accepted", "succeeded")


@dataclass(slots=True, repr=False, eq=False)
class Finished(MessageEvent):
    """A delivery has its result. On the thread or task of its handler, before the next message is handled there.

    For a message that the application has received itself, when it settles it.
    """

    name = "finished"
    computed: ClassVar[tuple[str, ...]] = (
        *MessageEvent.computed, "verdict", "outcome", "delivery_count", "maximum", "cause_type", "cause", "next_step",
        "delay", "to",
    )  # fmt: skip

    message: Message | None
    """The message, where a handler had it."""
    seconds: float | None
    """Seconds for which a handler had it; None: the application has received it itself."""
    details: ResultDetails = _ACCEPTED
    """Of the library: read the properties."""

    @property
    def outcome(self) -> Outcome | None:
        """What became of the delivery; None: its session has not committed, or acknowledged, it yet."""
        return self.details.outcome

    @property
    def verdict(self) -> Verdict:
        """What the handler, or the application, made of it."""
        return self.details.verdict

    @property
    def error(self) -> BaseException | None:
        """What the handler raised."""
        return self.details.error

    @property
    def delivery_count(self) -> int:
        """Number of this delivery, from 1: those that were charged before, and this one."""
        found = self.details.delivery_count
        if found is not None:
            return found
        record = self.delivery.record
        return 1 if record is None else record.count + 1

    @property
    def maximum(self) -> int | None:
        """Deliveries that the policy allows; None: no limit, or it was not asked because nothing failed."""
        return self.details.maximum

    @property
    def cause(self) -> str | None:
        """Type and text of the failure, or the reason that the handler gave; None: nothing failed."""
        return self.details.cause

    @property
    def cause_type(self) -> str | None:
        """Name of the type of exception, if the cause is one."""
        return self.details.cause_type

    @property
    def deferrals(self) -> int:
        """How often the message has been deferred."""
        return self.details.deferrals

    @property
    def next_step(self) -> NextStep:
        """What follows."""
        return self.details.next_step

    @property
    def delay(self) -> float | None:
        """Seconds until the redelivery, as the policy plans it; None: there is none. An open breaker makes it later."""
        return self.details.delay

    @property
    def to(self) -> str | None:
        """Destination of the dead letter, if this client sends it."""
        return self.details.to

    def fields(self) -> dict[str, Any]:
        """As for any event; without the message itself."""
        found = MessageEvent.fields(self)
        for own in ("message", "details"):
            del found[own]
        return found
