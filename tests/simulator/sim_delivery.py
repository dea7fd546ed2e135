"""Delivery of a message of the simulated broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Delivery

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from typing import Any

    from tests.simulator.profiles import Message, Profile

    from redelivery.core.commands import Reschedule
    from redelivery.core.delivery import BodyKind
    from redelivery.core.outgoing import Outgoing

__all__ = ["QUEUE", "SimDelivery"]

QUEUE = "queue://q"


class SimDelivery(Delivery):
    """Delivery. `number`: the id that the broker made."""

    __slots__ = (
        "copy",
        "final",
        "given",
        "heard",
        "marked",
        "message",
        "noted_then",
        "number",
        "profile",
        "seen",
    )

    def __init__(self, consumer: int, epoch: int, message: Message, profile: Profile, number: int) -> None:
        super().__init__(consumer, epoch, message.body.encode())
        self.message = message
        self.profile = profile
        self.number = number
        self.marked, self.seen = message.mark, message.count
        # The settlement that was written.
        self.final: str | None = None
        # True if its handler's result will be charged: the handler is waited for.
        self.heard = True
        # The delayed copy that will replace it.
        self.copy: Outgoing | None = None
        # Notes on the message at its arrival; and those of its release.
        self.noted_then = message.notes
        self.given: Reschedule | None = None

    @property
    def strong(self) -> bool:
        return self.profile.strong

    @property
    def digested(self) -> bool:  # type: ignore[override]
        return not self.profile.strong

    @property
    def key(self) -> Hashable | None:
        message = self.message
        if self.strong:
            return QUEUE, self.number
        return None if message.key is None else (QUEUE, message.key, message.created)

    @property
    def dated(self) -> bool:
        return self.message.created is not None

    def digest(self) -> bytes:
        return repr(self.message.like).encode()

    @property
    def redelivered(self) -> bool:
        return self.marked

    @property
    def broker_count(self) -> int | None:
        return self.seen if self.profile.counts else None

    @property
    def destination(self) -> str:
        return QUEUE

    @property
    def group(self) -> str | None:
        return self.message.group

    @property
    def expires_at(self) -> float | None:
        return self.message.expires

    @property
    def body_kind(self) -> BodyKind:
        return "partial" if self.message.torn else "bytes"

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.message.headers

    @property
    def noted(self) -> Mapping[str, Any]:
        return {**self.headers, **self.noted_then}

    @property
    def message_id(self) -> str | None:
        return self.message.key
