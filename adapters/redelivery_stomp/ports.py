"""Protocols by which the parts of a connection use it. `StompConnection` implements them; no part imports it.

| part | uses |
|---|---|
| listener | `FrameReceiver` |
| rabbitmq_requeue | `FrameWriter`, and a callable that forgets a subscription |
| transactions, frame_limits | `StompIo` |
| subscribing | `SubscribeIo`, and the table of subscriptions |
| further_subscriptions | `FurtherIo` |
| artemis_questions | `QuestionIo`, and a callable that opens such a connection |
| receipts, disconnect_cause, subscriptions, delivery | values and callables only |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from stomp.utils import Frame

    from redelivery.adapter import Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery_stomp.delivery import Subscription
    from redelivery_stomp.disconnect_cause import StompDisconnectCause
    from redelivery_stomp.profile_base import StompProfile
    from redelivery_stomp.receipts import Answer, Receipts
    from redelivery_stomp.subscriptions import Subscriptions

__all__ = [
    "FrameReceiver", "FrameWriter", "FurtherIo", "QuestionIo", "StompIo", "SubscribeIo", "SubscriberTurns", "Turns",
]  # fmt: skip


class FrameReceiver(Protocol):
    """Handles the frames other than MESSAGE, and the end of the connection."""

    def on_connected(self, received: Frame, /) -> None:
        """Handle CONNECTED."""

    def on_receipt(self, received: Frame, /) -> None:
        """Handle a RECEIPT."""

    def on_error(self, received: Frame, /) -> None:
        """Handle an ERROR."""

    def lost(self, reason: str, /, *, by_broker: bool = ...) -> None:
        """Report the end of the connection, once; `by_broker`: the broker ended it."""


class FrameWriter(Protocol):
    """Writes whole frames, and makes the `receipt` headers that ask for answers."""

    def write(self, data: bytes, /) -> None:
        """Write whole frames. Never waits for the broker."""

    def receipt(self, answer: Answer, kind: str = ..., address: str = ...) -> tuple[str, str]:
        """Return a `receipt` header. Its RECEIPT or ERROR goes to `answer`; `address`: the request's destination."""
        ...


class StompIo(FrameWriter, Protocol):
    """The writing side of a connection to a known broker."""

    @property
    def profile(self) -> StompProfile:
        """The broker's profile."""
        ...

    @property
    def epoch(self) -> int:
        """Number of the connection."""
        ...

    @property
    def order(self) -> AbstractContextManager[object]:
        """Lock: with it held, no subscription ends between two writes."""
        ...

    @property
    def receipts(self) -> Receipts:
        """The requests without an answer."""
        ...

    @property
    def disconnect_cause(self) -> StompDisconnectCause:
        """Cause of the connection's end."""
        ...

    def lost(self, reason: str, /, *, by_broker: bool = ...) -> None:
        """End the connection and report it, once; `by_broker`: the broker ended it."""


class SubscribeIo(StompIo, Protocol):
    """The part of a connection that starts consumers."""

    @property
    def able(self) -> Capabilities:
        """Capabilities of the broker."""
        ...

    @property
    def over(self) -> bool:
        """True if nothing more can be written."""
        ...

    def wire_id(self, name: str, /) -> str:
        """Return the id that a subscription has at the broker."""
        ...


class FurtherIo(FrameWriter, Protocol):
    """The part of a connection that begins and ends further subscriptions of a consumer."""

    @property
    def order(self) -> AbstractContextManager[object]:
        """Lock: with it held, no subscription ends between two writes."""
        ...

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions of the connection."""
        ...

    @property
    def turns(self) -> Turns:
        """The subscriptions that have not begun."""
        ...

    def wire_id(self, name: str, /) -> str:
        """Return the id that a subscription has at the broker."""
        ...


class Turns(Protocol):
    """Begins subscriptions one after the other."""

    def widen(self, source: Subscription, number: int, command: Subscribe, /) -> None:
        """Begin one more subscription of a consumer that has started."""


class SubscriberTurns(Protocol):
    """Begins consumers one after the other."""

    def begin(self, subscription: Subscription, sink: Sink, checked: set[str], /) -> None:
        """Begin a consumer."""


class QuestionIo(FrameWriter, Protocol):
    """A connection for questions to the broker's management."""

    @property
    def profile(self) -> StompProfile:
        """The broker's profile."""
        ...

    @property
    def epoch(self) -> int:
        """Number of the connection."""
        ...

    @property
    def version(self) -> str:
        """The protocol version that the broker chose."""
        ...

    @property
    def order(self) -> AbstractContextManager[object]:
        """Lock: with it held, no subscription ends between two writes."""
        ...

    @property
    def turns(self) -> SubscriberTurns:
        """The subscriptions that have not begun."""
        ...

    def abandon(self) -> None:
        """Close at once."""

    def close(self, timeout: float, /) -> bool:
        """Close properly, within `timeout` seconds."""
        ...
