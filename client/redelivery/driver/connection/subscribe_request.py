"""Time limit of a subscription, and the error when it is exceeded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import TransportError

if TYPE_CHECKING:
    from redelivery.core.commands import Subscribe

__all__ = ["SUBSCRIBE_TIMEOUT", "not_subscribed"]

# Seconds for the connection to be up and the broker to confirm a subscription.
SUBSCRIBE_TIMEOUT = 30.0


def not_subscribed(subscribe: Subscribe) -> TransportError:
    """Return the error for a consumer that the broker did not confirm in time."""
    asked = (
        "; where its dead letters belong is asked of the broker's management first, and "
        "redelivery.deadLetterDestination names a place, for which no answer is awaited"
    )
    return TransportError(
        f"the broker did not confirm the subscription to {subscribe.destination} within {SUBSCRIBE_TIMEOUT:g} s"
        f"{asked if subscribe.own_place else ''}"
    )
