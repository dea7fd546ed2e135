"""Protocol class of the link that a delivery arrived on, as far as deliveries need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import proton

    from redelivery.core.commands import Subscribe
    from redelivery_amqp.partial_reading import LargeMaps
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.settlement_progress import SettlementProgress
    from redelivery_amqp.subscribed_names import SubscribedNames

__all__ = ["DeliverySource"]


class DeliverySource(Protocol):
    """Link that a delivery arrived on; `ReceiverLink` implements it."""

    command: Subscribe
    consumer: int
    epoch: int
    profile: AmqpProfile
    destination: str
    kind: str
    many: bool
    names: SubscribedNames
    ended: bool
    session: Any
    progress: SettlementProgress
    unsettled: set[Any]
    large: LargeMaps

    @property
    def keeps_notes(self) -> bool:
        """True if the queue keeps notes on its messages."""
        ...

    def describe(self, source: proton.Terminus) -> None:
        """Fill in the source terminus: address, distribution mode, capabilities, durability."""
