"""Properties of a delivery, to be compared with those of the restored delivery."""

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
    """Return all properties of a delivery, and the return values of its methods, in a comparable form."""
    found = {name: getattr(delivery, name) for name in NAMES}
    for name in ("headers", "noted"):
        found[name] = dict(found[name])
    found["value"] = repr(found["value"]), type(found["value"])
    # A number may be NaN, which equals nothing.
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
    """Return the promise of `Delivery.plain`, computed from properties that `plain` does not use."""
    expires = delivery.expires_at
    lives = expires is None or expires > now
    return (
        lives
        and bool(delivery.body)
        and delivery.settleable
        and arrived_whole(delivery, empty_is_whole=False)
    )
