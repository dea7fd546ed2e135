"""Interface of a port's consumer for its owner."""

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
    """Error that stopped the consumer, or None."""

    @property
    def engine(self) -> Engine:
        """Engine of the consumer; read it only."""
        ...

    def take(self, after: Event | None = None, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery; None after `timeout` seconds, or at the end. Raises the consumer's error."""
        ...

    def take_many(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Return all ready deliveries within limits, after waiting up to `timeout` seconds for the first one."""
        ...

    def settle(self, delivery: Delivery, event: Event) -> Outcome:
        """Feed the result of a dispatch, and return its outcome. Raises AlreadySettled."""
        ...

    def settle_many(self, events: Sequence[Event], *, together: bool = False) -> None:
        """Feed results and write their settlements at once; `together`: send dead-letter copies in one transaction."""

    def wait_unconfirmed(self, below: int) -> None:
        """Wait until fewer than `below` poison acknowledgements are unconfirmed. Raises the consumer's error."""

    def accept_bulk(self, deliveries: Sequence[Delivery], *, more: int = 0) -> None:
        """Accept deliveries that the consumer's `BulkIntake` has returned, and grant the credit that they used up.

        All in one write. Deliveries of a lost connection, and those that were accepted before, are left out. `more`:
        messages of additional credit, if any credit is granted; below 0: less credit.
        """

    def wire(self) -> Mapping[str, str]:
        """Return how the deliveries of the current connection are read, for `restorer`.

        Call it after `BulkIntake.take`. If `BulkIntake.epoch` is then still that of the deliveries, the result is for
        them. It does not change when the connection is lost.

        Returns:
            Names and values for JSON, with the key "scheme"; without secrets.

        Raises:
            ConfigurationError: The adapter cannot restore deliveries.
            TransportError: Not connected yet.
        """
        ...
