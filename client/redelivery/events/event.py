"""Base classes of all events: of a connection, of a consumer and of a message."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery

__all__ = ["ConsumerEvent", "Event", "MessageEvent"]


@dataclass(slots=True, repr=False, eq=False)
class Event:
    """Base of all events."""

    name: ClassVar[str] = "event"
    """Name of this kind of event, in logs and labels."""
    computed: ClassVar[tuple[str, ...]] = ()
    """Properties that `fields` returns in addition to the dataclass' own fields."""

    logger: ClassVar[str] = "redelivery.connection"
    """Name of the logger of its log line, if it has one."""

    at: float
    """Time of the event: Unix time in seconds."""

    def fields(self) -> dict[str, Any]:
        """Return the event as plain values for a log: text, numbers, booleans, None."""
        own = [each.name for each in dataclasses.fields(self) if not each.name.startswith("_")]
        return {"event": self.name} | {name: _plain(getattr(self, name)) for name in (*self.computed, *own)}

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.fields().items() if name != "event")
        return f"{type(self).__name__}({inside})"


def _plain(value: object) -> object:
    """Return a value that JSON can carry."""
    if isinstance(value, BaseException):
        return type(value).__name__
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


@dataclass(slots=True, repr=False, eq=False)
class ConsumerEvent(Event):
    """Interface of the events of one consumer."""

    computed: ClassVar[tuple[str, ...]] = ("destination", "consumer")
    logger = "redelivery.consumers"

    _subscribe: Subscribe

    @property
    def destination(self) -> str:
        """Destination that the consumer consumes from, with its wildcards: `queue://orders`."""
        return self._subscribe.destination

    @property
    def consumer(self) -> int:
        """Number of the consumer on its connection, from 1."""
        return self._subscribe.consumer

    @property
    def subscription(self) -> str | None:
        """Name of the consumer's durable subscription, or None."""
        return self._subscribe.subscription


@dataclass(slots=True, repr=False, eq=False)
class MessageEvent(ConsumerEvent):
    """Interface of the events of one delivery of a message."""

    computed: ClassVar[tuple[str, ...]] = ("destination", "consumer", "message_destination", "message_id")
    logger = "redelivery.messages"

    _delivery: Delivery

    @property
    def delivery(self) -> Delivery:
        """The delivery; for the library's own use."""
        return self._delivery

    @property
    def message_destination(self) -> str:
        """Destination to which the message was sent; differs from `destination` if the consumer has wildcards."""
        return self._delivery.destination

    @property
    def message_id(self) -> str | None:
        """Id of the message, as `Message.message_id`, or None."""
        return self._delivery.message_id

    @property
    def sent_as(self) -> str | None:
        """Id that `send` of this library returned, if the broker has given the message another id; else None."""
        sent = self._delivery.headers.get("redeliveryId")
        own = self._delivery.message_id
        return str(sent) if sent is not None and sent != own else None
