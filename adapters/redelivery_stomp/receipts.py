"""Who waits for which answer of the broker."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.errors import RedeliveryError
    from redelivery_stomp.profile_base import StompProfile

__all__ = ["REQUEST", "Answer", "Receipts"]

REQUEST = "q"  # begins the receipt ids of frames other than SEND
if TYPE_CHECKING:
    Answer = Callable[[RedeliveryError | None], None]


class Waiting(NamedTuple):
    """One who waits, and the `destination` header of the request, if it has one."""

    answer: Answer
    address: str


class Receipts:
    """Receipts that have not come yet, in the order of their requests."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Waiting] = {}
        self._doubtful: dict[
            str, Answer
        ] = {}  # answered, but a refusal may still come; by destination, the last

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def expect(self, answer: Answer, kind: str, address: str) -> tuple[str, str]:
        """Return a `receipt` header whose answer goes to `answer`."""
        name = f"{kind}{self._epoch}-{next(self._numbers)}"
        self._waiting[name] = Waiting(answer, address)
        return "receipt", name

    def doubt(self, refused: Answer, address: str) -> None:
        """Have a refusal that names this `destination`, and nobody who waits, given to `refused`: who asked last."""
        self._doubtful[address] = refused

    def take(self, name: str) -> Answer | None:
        """Return who waits for this receipt, once."""
        found = self._waiting.pop(name, None)
        return None if found is None else found.answer

    def named(self, text: str, profile: StompProfile) -> Answer | None:
        """Return whose request an ERROR without a `receipt-id` refuses, if it names the destination."""
        for name, (_, address) in list(self._waiting.items()):
            if address and profile.names(text, address):
                return self.take(name)
        for address in list(self._doubtful):
            if profile.names(text, address):
                return self._doubtful.pop(address)
        return None

    def first_request(self) -> Answer | None:
        """Return who has waited longest for the answer to another frame than SEND."""
        return next((self.take(name) for name in list(self._waiting) if name.startswith(REQUEST)), None)

    def all(self) -> list[Answer]:
        """Return all who wait; nobody does afterwards."""
        waiting, self._waiting = self._waiting, {}
        return [each.answer for each in waiting.values()]
