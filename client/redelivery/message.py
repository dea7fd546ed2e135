"""A message as the application sees it: one delivery, to be settled once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, Self

from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.core.delivery import Cause
from redelivery.core.events import Failed, Poisoned, Released, Succeeded
from redelivery.errors import AlreadySettled
from redelivery.failure_log import log_failure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from types import TracebackType

    from redelivery.classifier import Classifier
    from redelivery.core.delivery import Delivery, Outcome
    from redelivery.core.events import Event

__all__ = ["Message", "message_for", "pulled"]


class Settler(Protocol):
    """What a message is settled by; the dispatcher of its consumer implements it."""

    errors: Classifier

    def settle(self, delivery: Delivery, event: Event) -> Outcome:
        """Feed the result of a dispatch, and return what became of it. Raises AlreadySettled."""
        ...

    def wall_time(self, at: float) -> datetime:
        """Return a time of the connection's clock as a date, in UTC."""
        ...

    def is_last(self, delivery: Delivery) -> bool:
        """Whether a failure charged now would be poison by its destination's policy."""
        ...


class GivingSession(Protocol):
    """A session that gives out messages; `SessionState` implements it."""

    def message(self, delivery: Delivery, dispatcher: Any, *, handled: bool) -> Message:
        """Return the message of a delivery. `handled`: a handler gets it."""
        ...

    def pulled(self, message: Any) -> None:
        """Take note that a `receive` is about to return a message."""


class MessageSource(Settler, Protocol):
    """Where deliveries come from, and are settled; the dispatcher of a consumer implements it."""

    @property
    def session_state(self) -> GivingSession | None:
        """The session of the consumer."""
        ...


class Message:
    """One delivery of one message. A redelivery is a new `Message`.

    Settle it once: by leaving `with message:`, by returning from a handler, or by `accept`, `fail`, `poison` or
    `release`. A message that is never settled stays in flight.
    """

    __slots__ = ("_delivery", "_outcome", "_settler", "body", "redelivery_count")

    body: bytes
    """The body, always as bytes."""
    redelivery_count: int
    """Redeliveries charged so far: 0 on the first delivery."""

    def __init__(self, delivery: Delivery, settler: Settler) -> None:
        self._delivery = delivery
        self._settler = settler
        self._outcome: Outcome | None = None
        self.body = delivery.body
        record = delivery.record
        self.redelivery_count = 0 if record is None else record.count

    def __repr__(self) -> str:
        state = self._outcome or "unsettled"
        return f"<Message {self.message_id!r} from {self.destination} delivery {self.delivery_count} {state}>"

    # What it is.

    @property
    def text(self) -> str:
        """The body decoded as UTF-8. Raises UnicodeDecodeError."""
        return self.body.decode()

    def json(self) -> Any:
        """Return the body parsed as JSON. Raises ValueError."""
        return json.loads(self.body)

    @property
    def value(self) -> Any:
        """The body as the protocol types it (an AMQP map, list or number), else the bytes."""
        value = self._delivery.value
        return self.body if isinstance(value, bytes) else value

    @property
    def headers(self) -> Mapping[str, Any]:
        """Application properties: text over STOMP, typed over AMQP."""
        return self._delivery.headers

    @property
    def message_id(self) -> str | None:
        """The id that the broker or the producer gave it, or None."""
        return self._delivery.message_id

    @property
    def destination(self) -> str:
        """Where it was sent, qualified: `queue://orders`."""
        return self._delivery.destination

    @property
    def correlation_id(self) -> str | None:
        """Correlation id, or None."""
        return self._delivery.correlation_id

    @property
    def reply_to(self) -> str | None:
        """Where an answer is expected, qualified, or None."""
        return self._delivery.reply_to

    @property
    def content_type(self) -> str | None:
        """MIME type, or None."""
        return self._delivery.content_type

    @property
    def priority(self) -> int:
        """0 to 9; 4 where none was given."""
        return self._delivery.priority

    @property
    def persistent(self) -> bool:
        """Whether the producer asked the broker to keep it over a restart."""
        return self._delivery.persistent

    @property
    def group(self) -> str | None:
        """Message group (JMSXGroupID), or None."""
        return self._delivery.group

    @property
    def timestamp(self) -> datetime | None:
        """When it was sent, aware, in UTC, or None."""
        return self._delivery.timestamp

    @property
    def expiration(self) -> datetime | None:
        """When it expires, aware, in UTC, or None for never."""
        return self._delivery.expiration

    @property
    def first_seen(self) -> datetime | None:
        """When its first failure was charged here, aware, in UTC, or None before that."""
        record = self._delivery.record
        at = None if record is None else record.first_failure
        return None if at is None else self._settler.wall_time(at)

    @property
    def delivery_count(self) -> int:
        """`redelivery_count` + 1."""
        return self.redelivery_count + 1

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before: by the broker's flag, or by count."""
        return self.redelivery_count > 0 or self._delivery.redelivered

    @property
    def last_delivery(self) -> bool:
        """Whether a failure charged now is poison by its destination's policy (not one of `errors=`)."""
        return self._settler.is_last(self._delivery)

    @property
    def broker_count(self) -> int | None:
        """Earlier deliveries as the broker counts them, or None where it does not tell (all STOMP brokers)."""
        return self._delivery.broker_count

    # What becomes of it.

    @property
    def outcome(self) -> Outcome | None:
        """What became of this delivery, or None while it is unsettled."""
        return self._outcome

    def accept(self) -> bool:
        """Done with. False if it came too late: the connection was lost, and the broker sends the message again.

        What is certain to be the same message is then accepted without being handled; another copy is handled again.
        """
        return self._settle(Succeeded(self._delivery))

    def fail(self, cause: BaseException | str = "failed") -> bool:
        """Charge one redelivery: it comes again after its policy's delay, or is poison. False if too late.

        An exception is taken as if the handler had raised it: `errors=` may have another policy for its type, or
        poison, discard or defer the message.
        """
        if isinstance(cause, Exception):
            return self._settle(self._event_for(cause))
        return self._settle(Failed(self._delivery, Cause.of(cause)))

    def poison(self, reason: BaseException | str = "poisoned by the application") -> bool:
        """Dead-letter it now, whatever redeliveries its policy has left. False if too late."""
        return self._settle(Poisoned(self._delivery, Cause.of(reason)))

    def release(self) -> bool:
        """Give it back, uncharged. False if too late.

        ActiveMQ Classic and Artemis have no release over STOMP: there it is held until the consumer closes. When
        what is held has filled `redelivery.maxParked`, it is dispatched again, for others or once a second.
        """
        return self._settle(Released(self._delivery))

    def _settle(self, event: Event) -> bool:
        if self._outcome is not None:
            raise AlreadySettled(
                f"this message has been {self._outcome} already; each is settled at most once"
            )
        self._outcome = self._settler.settle(self._delivery, event)
        return self._outcome != "stale"

    def result(self, error: BaseException | None) -> Event | None:
        """Return what the end of a handler means, to be fed; None if the handler settled the message itself."""
        if self._outcome is not None:
            return None
        if error is None or isinstance(error, Exception):
            return self._event_for(error)
        return Failed(self._delivery, Cause.of(error))

    def give_back(self) -> None:
        """Release it, unless it has been settled."""
        if self._outcome is None:
            self.release()

    def handler_over(self) -> None:
        """Learn that a handler which nobody waited for has ended: nothing is made of what it came to."""

    def settle_for(self, error: BaseException | None) -> bool:
        """Settle as leaving `with message:` does; return whether the error has been dealt with."""
        if isinstance(error, Exception):
            log_failure(self, error)
        if self._outcome is None:
            self._settle(self._event_for(error))
        return error is None or isinstance(error, Exception)

    def _event_for(self, error: BaseException | None) -> Event:
        if error is None:
            return Succeeded(self._delivery)
        if not isinstance(error, Exception):
            return Released(self._delivery)
        return self._settler.errors.event_for(self._delivery, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        settled = False
        try:
            with Uninterrupted():
                settled = True
                return self.settle_for(error) and error is not None
        except BaseException:
            # Ctrl-C came before the block began: what was handled is settled all the same.
            if not settled:
                self.settle_for(error)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.settle_for(error) and error is not None


def message_for(delivery: Delivery, dispatcher: MessageSource, *, handled: bool = True) -> Message:
    """Return the message for a delivery, for a handler that begins now: its session may have it settled with others."""
    session_state = dispatcher.session_state
    return (
        Message(delivery, dispatcher)
        if session_state is None
        else session_state.message(delivery, dispatcher, handled=handled)
    )


def pulled(delivery: Delivery, dispatcher: MessageSource) -> Message:
    """Return the message that a `receive` returns: some sessions acknowledge it before that, as the reference does."""
    message = message_for(delivery, dispatcher, handled=False)
    if dispatcher.session_state is not None:
        dispatcher.session_state.pulled(message)
    return message
