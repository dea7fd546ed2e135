"""Second letters of one message: Artemis routes its own dead letter to each queue of the dead-letter address."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redelivery.core.destination import Destination

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from redelivery.core.delivery import Delivery

__all__ = ["SecondLetters"]

_PARTS = ("ADDRESS", "QUEUE", "MESSAGE{}ID")


class SecondLetters:
    """Recognises the letters that another queue of the same address has, too, among the queues of one look.

    By the broker's record of the message that died: its address, queue and number. A copy of this library has none.
    """

    def __init__(self, queues: Iterable[str]) -> None:
        addresses = Counter(_address(each) for each in queues)
        self._shared = {address for address, count in addresses.items() if count > 1}
        # The queue in which each record was seen first; and the records whose message has been sent back.
        self._seen: dict[Hashable, str] = {}
        self._gone: set[Hashable] = set()

    def has(self, delivery: Delivery, queue: str) -> bool:
        """Return True if a queue that was looked at before has this letter, too; remember it otherwise."""
        record = self._key(delivery, queue)
        return record is not None and self._seen.setdefault(record, queue) != queue

    def gone(self, delivery: Delivery, queue: str) -> None:
        """Note that the message of this letter has been sent back."""
        if (record := self._key(delivery, queue)) is not None:
            self._gone.add(record)

    def is_gone(self, delivery: Delivery, queue: str) -> bool:
        """Return True if the message of a letter has been sent back: the same letter of another queue."""
        return self._key(delivery, queue) in self._gone

    def _key(self, delivery: Delivery, queue: str) -> Hashable | None:
        address = _address(queue)
        if address not in self._shared or (record := _record(delivery)) is None:
            return None
        return address, record


def _address(queue: str) -> str:
    return Destination.parse(queue).name.partition("::")[0]


def _record(delivery: Delivery) -> Hashable | None:
    """Return Artemis' record of a message that it has dead-lettered itself, or None."""
    for marks, prefix, mark in (
        (delivery.annotations, "x-opt-ORIG-", "-"),
        (delivery.headers, "_AMQ_ORIG_", "_"),
    ):
        found = [marks.get(f"{prefix}{part.format(mark)}") for part in _PARTS]
        if found[-1] is not None:
            return tuple(map(str, found))
    return None
