"""Deliveries to release at the end of a subscription, while other threads settle."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery_stomp.delivery import UnsettledDeliveries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery_stomp.delivery import Returnable

MEANWHILE = 0.05  # seconds that the other thread gets


class Held:
    """A delivery."""

    def returned(self) -> bytes:
        return b"NACK"


def test_what_is_being_settled_is_not_returned() -> None:
    """A delivery that is being settled is not released: the message may be another consumer's after that."""
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
