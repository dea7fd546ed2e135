"""Second letters of one message: Artemis routes its own dead letter to each queue of the dead-letter address."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Literal

from redelivery.core.destination import Destination

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from redelivery.core.delivery import Delivery

__all__ = ["SecondLetters"]

_PARTS = ("ADDRESS", "QUEUE", "MESSAGE{}ID")


class SecondLetters:
    """Recognises the letters that another queue of the same address has, too, among the queues of one look.

    By the broker's record of the message that died (its address, queue and number), and by all that they hold: a user
    who may send to a dead-letter address can write any record, and must not make another's letter disappear. A copy of
    this library has no record.
    """

    def __init__(self, queues: Iterable[str]) -> None:
        addresses = Counter(_address(each) for each in queues)
        self._shared = {address for address, count in addresses.items() if count > 1}
        # The queue in which each letter was seen first.
        self._seen: dict[Hashable, str] = {}
        # Letters whose message has been sent back, with the queues whose second letter has been removed.
        self._gone: dict[Hashable, set[str]] = {}
        # Deliveries that are to go, with their letters: a delivery that has gone has no body any more.
        self._going: dict[Delivery, Hashable] = {}

    def has(self, delivery: Delivery, queue: str) -> bool:
        """Return True if a queue that was looked at before has this letter, too; remember it otherwise."""
        return self._is_second(self._letter(delivery, queue), queue)

    def judge(self, delivery: Delivery, queue: str) -> Literal["go", "doubles", "second"]:
        """Return what a redrive does with a letter: send it back, remove it, since its message was, or let it stay."""
        letter = self._letter(delivery, queue)
        if not self._is_second(letter, queue):
            verdict: Literal["go", "doubles", "second"] = "go"
        else:
            verdict = "doubles" if queue not in self._gone.get(letter, {queue}) else "second"
        if letter is not None and verdict != "second":
            self._going[delivery] = letter
        return verdict

    def gone(self, delivery: Delivery) -> None:
        """Note that the message of a letter has been sent back."""
        if (letter := self._going.pop(delivery, None)) is not None:
            self._gone.setdefault(letter, set())

    def removed(self, delivery: Delivery, queue: str) -> None:
        """Note that the second letter of a queue was removed."""
        self._gone[self._going.pop(delivery)].add(queue)

    def _is_second(self, letter: Hashable | None, queue: str) -> bool:
        return letter is not None and self._seen.setdefault(letter, queue) != queue

    def _letter(self, delivery: Delivery, queue: str) -> Hashable | None:
        address = _address(queue)
        if address not in self._shared or (record := _record(delivery)) is None:
            return None
        held = (
            delivery.body_kind,
            delivery.content_type,
            delivery.correlation_id,
            delivery.reply_to,
            sorted(delivery.headers.items(), key=repr),
        )
        return address, record, hashlib.sha256(delivery.body + repr(held).encode("utf-8", "replace")).digest()


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
