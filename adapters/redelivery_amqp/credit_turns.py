"""Turns in which the consumers of a connection get their first credit.

RabbitMQ closes the whole connection over a message that it cannot deliver, and does not say of which queue. On the next
connection the consumers therefore get their first credit one after another: if that connection ends too, the last one
is known. Usually all get it at once.

Every method runs under the wire's lock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from redelivery.adapter_support.response_timeout import ResponseTimeout
from redelivery_amqp.disconnect_cause import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_amqp.proton_engine import ProtonEngine
    from redelivery_amqp.receiver import ReceiverLink

__all__ = ["CreditTurns"]


class CreditTurns:
    """Credit of the attached consumers of one connection.

    Args:
        wire: The engine that credit is written to.
        after: Called without the lock after `AT_ONCE` seconds; it calls `next`.
        apart: True: consumers get their first credit so many seconds apart.
    """

    def __init__(self, wire: ProtonEngine, after: Callable[[], None], *, apart: bool) -> None:
        self._wire = wire
        self._apart = apart
        self._timer = ResponseTimeout(after, AT_ONCE)
        self._waiting: dict[ReceiverLink, int] = {}
        # Consumers that have had their turn.
        self._served: set[ReceiverLink] = set()

    def flow(self, receiver: ReceiverLink, credit: int) -> None:
        """Change the credit of a consumer now, or at its turn; `credit` below 0 takes some back."""
        if not self._apart:
            self._grant(receiver, credit)
            return
        credit += self._waiting.pop(receiver, 0)
        if credit > 0:
            self._waiting[receiver] = credit
            if not self._served:
                self.next()
        elif credit < 0:
            self._grant(receiver, credit)

    def next(self) -> None:
        """Begin the turn of the next consumer; after the last one, all get what has come for them meanwhile."""
        receiver = next((each for each in self._waiting if each not in self._served), None)
        if receiver is None:
            self._end()
            return
        self._served.add(receiver)
        self._grant(receiver, self._waiting.pop(receiver))
        self._timer.asked()

    def forget(self, receiver: ReceiverLink) -> None:
        """Drop the credit of a consumer that ends."""
        self._waiting.pop(receiver, None)

    def quiet(self) -> None:
        """End the turns, and write nothing: the connection is lost."""
        self._waiting.clear()
        self._timer.end()

    def _end(self) -> None:
        self._apart = False
        self._timer.end()
        waiting, self._waiting = self._waiting, {}
        for receiver, credit in waiting.items():
            self._grant(receiver, credit)

    def _grant(self, receiver: ReceiverLink, credit: int) -> None:
        if credit > 0:
            receiver.credited = time.monotonic()
        self._wire.flow(receiver.handle, credit)
