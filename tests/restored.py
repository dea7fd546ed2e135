"""What a delivery shows, to be compared with what the same delivery shows when it is restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.routing import arrived_whole
from redelivery.core.delivery import Delivery

if TYPE_CHECKING:
    from redelivery.adapter import Restore

__all__ = ["again", "is_plain", "shown_by"]

NAMES = sorted(
    name for name, value in vars(Delivery).items() if isinstance(value, property) and name != "state"
)


def shown_by(delivery: Delivery) -> dict[str, Any]:
    """Return all properties of a delivery, and what its methods return, as values that compare."""
    found = {name: getattr(delivery, name) for name in NAMES}
    for name in ("headers", "noted"):
        found[name] = dict(found[name])
    found["value"] = repr(found["value"]), type(found["value"])
    # A number may be none, which equals nothing.
    found["headers"], found["noted"] = repr(found["headers"]), repr(found["noted"])
    found["key"], found["proof"] = repr(found["key"]), repr(found["proof"])
    return {**found, "body": delivery.body, "digest": delivery.digest(), "digested": delivery.digested}


def again(restore: Restore, delivery: Delivery, arrived: float) -> Delivery:
    """Restore a delivery, and check that storing the restored one gives the same bytes."""
    head, body = delivery.stored()
    restored = restore(head, body, arrived)
    assert restored.stored() == (head, body)
    assert (restored.consumer, restored.epoch, restored.state) == (0, 0, "ready")
    return restored


def is_plain(delivery: Delivery, now: float) -> bool:
    """Return what `Delivery.plain` promises when it is true, by the properties that it does not ask."""
    expires = delivery.expires_at
    lives = expires is None or expires > now
    return (
        lives
        and bool(delivery.body)
        and delivery.settleable
        and arrived_whole(delivery, empty_is_whole=False)
    )
