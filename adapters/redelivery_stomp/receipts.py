"""Pending receipts: maps a `receipt-id` to the callback of its request."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redelivery.errors import RedeliveryError

__all__ = ["REQUEST", "Answer", "Receipts", "every_step"]


# ---- Receipts --------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Answer = Callable[[RedeliveryError | None], None]


# Kind of SUBSCRIBE and DISCONNECT. A kind is the letter before the number of its receipt ids.
REQUEST = "q"


class PendingReceipt(NamedTuple):
    """One request without an answer. `address`: its `destination` header, or empty."""

    answer: Answer
    kind: str
    address: str


class Receipts:
    """Requests without an answer, in the order of their receipt ids."""

    def __init__(self, token: str) -> None:
        """`token`: the beginning of each receipt id, which the frame scanner looks for in each RECEIPT."""
        self._token = token
        self._numbers = itertools.count(1)
        self._waiting: dict[str, PendingReceipt] = {}
        # Requests with an answer that the broker may still refuse: the last one of each `destination` header.
        self._doubtful: dict[str, Answer] = {}

    def __len__(self) -> int:
        """Return the number of requests without an answer."""
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def expect(self, answer: Answer, kind: str, address: str) -> tuple[str, str]:
        """Return a `receipt` header. Its RECEIPT or ERROR goes to `answer`."""
        name = f"{self._token}-{kind}{next(self._numbers)}"
        self._waiting[name] = PendingReceipt(answer, kind, address)
        return "receipt", name

    def doubt(self, refused: Answer, address: str) -> None:
        """Call `refused` for an ERROR that is about this `destination` header and about no pending request."""
        self._doubtful[address] = refused

    def take(self, name: str) -> Answer | None:
        """Return the callback of this receipt id, and remove it."""
        found = self._waiting.pop(name, None)
        return None if found is None else found.answer

    def wrap(self, name: str, wrapped: Callable[[Answer], Answer]) -> None:
        """Replace the callback of this receipt id, unless a lost connection has answered it."""
        pending = self._waiting.get(name)
        if pending is not None:
            self._waiting[name] = pending._replace(answer=wrapped(pending.answer))

    def named(self, text: str, names: Callable[[str, str, str], bool]) -> Answer | None:
        """Return the callback of the request that an ERROR without a `receipt-id` refuses, and remove it.

        `names`: `StompProfile.names`, which finds a destination in the text.
        """
        for name, pending in list(self._waiting.items()):
            if pending.address and names(text, pending.address, pending.kind):
                return self.take(name)
        for address in list(self._doubtful):
            if names(text, address, REQUEST):
                return self._doubtful.pop(address)
        return None

    def first_request(self) -> Answer | None:
        """Return the callback of the oldest pending request of the kind `REQUEST`, and remove it."""
        requests = (name for name, pending in list(self._waiting.items()) if pending.kind == REQUEST)
        return next((self.take(name) for name in requests), None)

    def all(self) -> list[Answer]:
        """Return the callbacks of all pending requests, oldest first, and remove them."""
        waiting, self._waiting = self._waiting, {}
        return [each.answer for each in waiting.values()]


# ---- Every step ------------------------------------------------------------------------------------------
# Carries out all of several steps, even if some raise.


def every_step(steps: Iterable[Callable[[], object]]) -> None:
    """Call every step, also after one that raises. An exception here is a fault of this library, and is logged."""
    for step in steps:
        try:
            step()
        except Exception:
            logger.exception("a step of reporting a lost connection failed")
