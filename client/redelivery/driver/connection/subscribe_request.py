"""Time limit of a subscription, and the error when it is exceeded."""

from __future__ import annotations

from redelivery.errors import TransportError

__all__ = ["SUBSCRIBE_TIMEOUT", "not_subscribed"]

# Seconds for the connection to be up and the broker to confirm a subscription.
SUBSCRIBE_TIMEOUT = 30.0


def not_subscribed(destination: str) -> TransportError:
    """Return the error for a consumer that the broker did not confirm in time."""
    return TransportError(
        f"the broker did not confirm the subscription to {destination} within {SUBSCRIBE_TIMEOUT:g} s"
    )
