"""What a consumer of a port does for its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.core.delivery import Delivery, Outcome
    from redelivery.core.engine import Engine
    from redelivery.core.events import Event
    from redelivery.errors import RedeliveryError

__all__ = ["ConsumerPort"]


class ConsumerPort(Protocol):
    """A consumer that a port has started; `PortDispatcher` implements it."""

    error: RedeliveryError | None
    """What stopped it, or None."""

    @property
    def engine(self) -> Engine:
        """Its engine, to be read."""
        ...

    def take(self, after: Event | None = None, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery; None after `timeout` seconds, or at the end. Raises what stopped the consumer."""
        ...

    def take_many(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Return all deliveries that are here, within limits, after waiting for the first one."""
        ...

    def settle(self, delivery: Delivery, event: Event) -> Outcome:
        """Feed the result of a dispatch, and return what became of it. Raises AlreadySettled."""
        ...

    def settle_many(self, events: Sequence[Event], *, together: bool = False) -> None:
        """Feed results and write their settlements at once; `together`: in one transaction."""

    def wait_unconfirmed(self, below: int) -> None:
        """Wait until fewer poison acknowledgements are unconfirmed. Raises what stopped the consumer."""

    def accept_bulk(self, deliveries: Sequence[Delivery], *, more: int = 0) -> None:
        """Accept deliveries that the consumer's `BulkIntake` has given, and grant the credit that they used up.

        One write. Deliveries of an earlier connection, and those that were accepted before, are left out. `more`:
        credit besides, where the broker is given any; below 0, so much less than was used up.
        """

    def wire(self) -> Mapping[str, str]:
        """Return how the deliveries of the connection that stands are read, for `restorer`.

        Names and values for JSON, with the key "scheme"; no secret is among them. Ask after `BulkIntake.take`: where
        `BulkIntake.epoch` is still that of the deliveries afterwards, it is theirs. After a loss it stays as it was.

        Raises:
            ConfigurationError: the adapter restores no deliveries.
            TransportError: not connected yet.
        """
        ...
