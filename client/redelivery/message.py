"""Message as the application sees it: one delivery, to be settled once."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.core.delivery import Cause
from redelivery.core.events import Failed, Poisoned, Released, Succeeded
from redelivery.errors import AlreadySettled
from redelivery.escapes import Counting, begun, judged, own_end

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from types import TracebackType

    from redelivery.classifier import Classifier
    from redelivery.core.delivery import Delivery, Outcome
    from redelivery.core.events import Event
    from redelivery.escapes import Begun

__all__ = ["Message", "message_for", "pulled"]


class Settler(Counting, Protocol):
    """Interface through which a message is settled; the dispatcher of its consumer implements it."""

    errors: Classifier

    def settle(self, delivery: Delivery, event: Event) -> Outcome:
        """Feed the result of a dispatch to the engine; return the outcome. Raises AlreadySettled."""
        ...

    def wall_time(self, at: float) -> datetime:
        """Return a time of the connection's clock as a date, in UTC."""
        ...

    def is_last(self, delivery: Delivery) -> bool:
        """True if a failure charged now would make the message poison by its destination's policy."""
        ...


class GivingSession(Protocol):
    """Session that gives out messages; `SessionState` implements it."""

    def message(self, delivery: Delivery, dispatcher: Any, *, handled: bool) -> Message:
        """Return the message of a delivery. `handled`: True if it goes to a handler."""
        ...

    def pulled(self, message: Any) -> None:
        """Record that a `receive` is about to return a message."""


class MessageSource(Settler, Protocol):
    """Source of deliveries, which also settles them; the dispatcher of a consumer implements it."""

    @property
    def session_state(self) -> GivingSession | None:
        """Session of the consumer, or None."""
        ...


class Message:
    """One delivery of one message. A redelivery is a new `Message`.

    Settle it once: by leaving `with message:`, by returning from a handler, or by `accept`, `fail`, `poison`
    or `release`. A message that is never settled stays unacknowledged until its consumer closes.

    An `Exception` in `with message:` is charged as a failure, and ends there: the program goes on after the block. Put
    what depends on success into the block, or look at `outcome`. In a transacted session the exception is raised.
    Any other exception is charged, too, and raised. `SystemExit` and `KeyboardInterrupt` release the message, or
    charge it with a ledger; the cancellation of the block's own task releases it.
    """

    __slots__ = ("_begun", "_delivery", "_outcome", "_settler", "body", "redelivery_count")

    body: bytes
    """Body, always as bytes."""
    redelivery_count: int
    """Number of redeliveries charged so far, 0 on the first delivery."""

    def __init__(self, delivery: Delivery, settler: Settler) -> None:
        self._delivery = delivery
        self._settler = settler
        self._outcome: Outcome | None = None
        self._begun: Begun = None  # task of its `async with`
        self.body = delivery.body
        record = delivery.record
        self.redelivery_count = 0 if record is None else record.count

    def __repr__(self) -> str:
        state = self._outcome or "unsettled"
        return f"<Message {self.message_id!r} from {self.destination} delivery {self.delivery_count} {state}>"

    # Properties.

    @property
    def text(self) -> str:
        """Body decoded as UTF-8. Raises UnicodeDecodeError if it is not UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """Return the body parsed as JSON.

        Raises:
            ValueError: The body is not JSON.
        """
        return json.loads(self.body)

    @property
    def value(self) -> Any:
        """Body as the protocol types it (an AMQP map, list or number); in other cases the bytes."""
        value = self._delivery.value
        return self.body if isinstance(value, bytes) else value

    @property
    def headers(self) -> Mapping[str, Any]:
        """Application properties by name, as text over STOMP, typed over AMQP."""
        return self._delivery.headers

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Message annotations of AMQP 1.0 by name, read-only; empty over STOMP and memory.

        Producers, brokers and tools write there. RabbitMQ 4 puts the headers `x-…` of AMQP 0.9.1 producers there, and
        their `type` as `x-basic-type`; Artemis puts `x-opt-ORIG-…` on its dead letters. At most 100,000 keys and values
        are read, and 100 levels of one in the other; what exceeds that is left out.
        """
        return MappingProxyType(self._delivery.annotations)

    @property
    def message_id(self) -> str | None:
        """Id that the broker or the producer gave the message, or None."""
        return self._delivery.message_id

    @property
    def destination(self) -> str:
        """Destination to which the message was sent, with its kind, as in ``queue://orders``."""
        return self._delivery.destination

    @property
    def correlation_id(self) -> str | None:
        """Correlation id, or None."""
        return self._delivery.correlation_id

    @property
    def reply_to(self) -> str | None:
        """Destination where an answer is expected, qualified, or None."""
        return self._delivery.reply_to

    @property
    def content_type(self) -> str | None:
        """MIME type, or None."""
        return self._delivery.content_type

    @property
    def message_type(self) -> str | None:
        """Type that the producer gave the message (JMSType, AMQP subject, `type` of AMQP 0.9.1), or None."""
        return self._delivery.message_type

    @property
    def content_encoding(self) -> str | None:
        """Compression of the body, as ``gzip``, or None. The body is as it arrived, compressed.

        Only AMQP and RabbitMQ over STOMP have it.
        """
        return self._delivery.content_encoding

    @property
    def priority(self) -> int:
        """Priority, 0 to 9; 4 if the producer gave none."""
        return self._delivery.priority

    @property
    def persistent(self) -> bool:
        """True if the producer asked the broker to keep the message over a restart."""
        return self._delivery.persistent

    @property
    def group(self) -> str | None:
        """Message group (JMSXGroupID), or None."""
        return self._delivery.group

    @property
    def timestamp(self) -> datetime | None:
        """Time at which it was sent, as an aware datetime in UTC, or None."""
        return self._delivery.timestamp

    @property
    def expiration(self) -> datetime | None:
        """Time at which it expires, as an aware datetime in UTC. None is never."""
        return self._delivery.expiration

    @property
    def first_seen(self) -> datetime | None:
        """Time of its first charged failure here, as an aware datetime in UTC, or None before that."""
        record = self._delivery.record
        at = None if record is None else record.first_failure
        return None if at is None else self._settler.wall_time(at)

    @property
    def delivery_count(self) -> int:
        """Number of this delivery, from 1 (`redelivery_count` + 1)."""
        return self.redelivery_count + 1

    @property
    def redelivered(self) -> bool:
        """True if the message was delivered before, by the broker's flag or by the delivery count."""
        return self.redelivery_count > 0 or self._delivery.redelivered

    @property
    def last_delivery(self) -> bool:
        """True if a failure charged now makes the message poison by its destination's policy.

        A policy of `errors=` for one type of exception may decide otherwise.
        """
        return self._settler.is_last(self._delivery)

    @property
    def broker_count(self) -> int | None:
        """Number of earlier deliveries by the broker's count. None if it sends none (all STOMP brokers)."""
        return self._delivery.broker_count

    # Settling.

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of this delivery, or None while it is unsettled."""
        return self._outcome

    def accept(self) -> bool:
        """Acknowledge the message.

        If its connection was lost before, the broker redelivers the message. A redelivery that is certainly
        the same message is then acknowledged without being handled; one that may be a copy is handled again.

        Returns:
            False if the result is stale, because the connection over which it arrived was lost.

        Raises:
            AlreadySettled: The message was settled before.
        """
        return self._settle(Succeeded(self._delivery))

    def fail(self, cause: BaseException | str = "failed") -> bool:
        """Charge one redelivery: the message is redelivered after its policy's delay, or dead-lettered.

        Args:
            cause: Reason of the failure. An exception is treated as if the handler had raised it: `errors=`
                may have another policy for its type, or dead-letter, discard or defer the message.

        Returns:
            False if the result is stale, because the connection over which it arrived was lost.

        Raises:
            AlreadySettled: The message was settled before.
        """
        if isinstance(cause, Exception):
            return self._settle(self._settler.errors.event_for(self._delivery, cause))
        return self._settle(Failed(self._delivery, Cause.of(cause)))

    def poison(self, reason: BaseException | str = "poisoned by the application") -> bool:
        """Dead-letter the message now, even if its policy has redeliveries left.

        Args:
            reason: Cause, which the dead letter carries.

        Returns:
            False if the result is stale, because the connection over which it arrived was lost.

        Raises:
            AlreadySettled: The message was settled before.
        """
        return self._settle(Poisoned(self._delivery, Cause.of(reason)))

    def release(self) -> bool:
        """Give the message back to the broker. No redelivery is charged.

        ActiveMQ Classic and Artemis have no release over STOMP. There the message stays here, unacknowledged,
        until the consumer closes, and counts as parked. When such messages fill `redelivery.maxParked`, the
        one that was released first is dispatched again: if another message needs its place, or once a second.

        Returns:
            False if the result is stale, because the connection over which it arrived was lost.

        Raises:
            AlreadySettled: The message was settled before.
        """
        return self._settle(Released(self._delivery))

    def _settle(self, event: Event) -> bool:
        if self._outcome is not None:
            raise AlreadySettled(
                f"message {self.message_id} is settled already ({self._outcome}); settle each message once"
            )
        self._outcome = self._settler.settle(self._delivery, event)
        return self._outcome != "stale"

    def result(self, error: BaseException | None) -> Event | None:
        """Return the event that a handler's end causes; None if the handler settled the message itself."""
        if self._outcome is not None:
            return None
        return (
            Succeeded(self._delivery)
            if error is None
            else self._settler.errors.event_for(self._delivery, error)
        )

    def give_back(self) -> None:
        """Release the message, unless it is settled."""
        if self._outcome is None:
            self.release()

    def handler_over(self) -> None:
        """Ignore the end of a handler whose result was not waited for."""

    def settle_for(self, error: BaseException | None) -> bool:
        """Settle as leaving `with message:` does; return True if the error is dealt with."""
        if error is None:
            if self._outcome is None:
                self._settle(Succeeded(self._delivery))
            return True
        if own_end(error, self._begun):
            self.give_back()
            return False
        event, _ = judged(self, error, self._settler, self._failure_event)
        if event is not None:
            self._settle(event)
        return issubclass(type(error), Exception)

    def _failure_event(self, error: BaseException) -> Event | None:
        """Return the event for an exception of a block; None if the block settled the message itself."""
        return None if self._outcome is not None else self._settler.errors.event_for(self._delivery, error)

    def __enter__(self) -> Self:
        # Without a call: Ctrl-C in it would leave the message unsettled, because the block has not begun.
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
            # Ctrl-C interrupted before the block began: the handled message is settled even then.
            if not settled:
                self.settle_for(error)
            raise

    async def __aenter__(self) -> Self:
        self._begun = begun()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.settle_for(error) and error is not None


def message_for(delivery: Delivery, dispatcher: MessageSource, *, handled: bool = True) -> Message:
    """Return the message for a delivery whose handler starts now. Its session may settle it with others."""
    session_state = dispatcher.session_state
    return (
        Message(delivery, dispatcher)
        if session_state is None
        else session_state.message(delivery, dispatcher, handled=handled)
    )


def pulled(delivery: Delivery, dispatcher: MessageSource) -> Message:
    """Return the message for `receive`. Some sessions acknowledge it before that, as the Java client does."""
    message = message_for(delivery, dispatcher, handled=False)
    if dispatcher.session_state is not None:
        dispatcher.session_state.pulled(message)
    return message
