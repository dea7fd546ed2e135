"""What a delivery asks of the link that it came over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import proton

    from redelivery_amqp.partial_reading import LargeMaps
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.settlement_progress import SettlementProgress
    from redelivery_amqp.subscribed_names import SubscribedNames

__all__ = ["DeliverySource"]


class DeliverySource(Protocol):
    """The link that a delivery came over: `ReceiverLink` implements it."""

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
        """Whether the queue keeps notes on its messages."""
        ...

    def describe(self, source: proton.Terminus) -> None:
        """Say where the messages are to come from."""
