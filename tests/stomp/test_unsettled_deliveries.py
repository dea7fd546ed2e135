"""What is to be given back at the end of a subscription, whoever settles in the meantime."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery_stomp.unsettled_deliveries import UnsettledDeliveries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery_stomp.unsettled_deliveries import Returnable

MEANWHILE = 0.05  # seconds that the other thread gets


class Held:
    """A delivery."""

    def returned(self) -> bytes:
        return b"NACK"


def test_what_is_being_settled_is_not_returned() -> None:
    """A release behind its settlement would be one of a message that is gone, or is somebody else's."""
    unsettled, one, other = UnsettledDeliveries(), Held(), Held()
    assert unsettled.take([one, other])
    returned: list[Returnable] = []
    ending = threading.Thread(target=lambda: returned.extend(unsettled.end()))

    def settling() -> Iterator[Held]:
        ending.start()
        ending.join(MEANWHILE)
        yield one

    unsettled.settled(settling())
    ending.join()
    assert returned == [other]
    assert not unsettled.take([one])
