"""Model of a broker and of an application's view, against which the engine's properties are checked."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redelivery.core.commands import Accept, Command, Credit, Forward, PoisonAck, Release
from redelivery.core.delivery import Delivery
from redelivery.core.events import Arrived, Confirmed
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import BodyKind

WALL_OFFSET = 1_700_000_000.0


@dataclass(eq=False)
class Letter:
    """A message with its whole history."""

    number: int
    group: str | None = None
    expires_at: float | None = None
    persistent: bool = True
    attempts: int = 0  # deliveries that ended unsettled: the broker's count
    failures: int = 0  # dispatches that failed
    processed: bool = False  # a handler succeeded, or discarded it
    not_before: float = 0.0
    dead: int = 0  # dead letters made of it
    safe: bool = False  # the engine knows of one
    outlived: bool = False  # a long connection did not redeliver it
    partial: bool = False  # the body did not arrive whole
    size: int = 4  # bytes
    accepted: bool = False  # the broker has taken its accept
    told: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of its last delayed copy
    copies: int = 0  # delayed ones made of it

    @property
    def ended(self) -> bool:
        return self.accepted or self.dead > 0

    def start_afresh(self) -> None:
        """Count as redriven by an operator: the engine has dropped its verdict."""
        self.dead = self.failures = 0
        self.safe = self.outlived = False
        self.not_before = 0.0


class Arrival(Delivery):
    """One delivery of a letter."""

    __slots__ = ("copies", "letter", "mark", "marks")

    def __init__(self, letter: Letter, epoch: int, *, counts: bool) -> None:
        super().__init__(1, epoch, b"body")
        self.letter = letter
        self.copies = letter.copies
        self.mark = letter.attempts > 0
        self.marks = letter.attempts if counts else None

    @property
    def size(self) -> int:
        return self.letter.size

    @property
    def key(self) -> Hashable:
        return self.letter.number if not self.copies else (self.letter.number, self.copies)

    @property
    def strong(self) -> bool:
        return True

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.letter.told

    @property
    def destination(self) -> str:
        return "queue://orders"

    @property
    def redelivered(self) -> bool:
        return self.mark

    @property
    def broker_count(self) -> int | None:
        return self.marks

    @property
    def expires_at(self) -> float | None:
        return self.letter.expires_at

    @property
    def group(self) -> str | None:
        return self.letter.group

    @property
    def persistent(self) -> bool:
        return self.letter.persistent

    @property
    def body_kind(self) -> BodyKind:
        return "partial" if self.letter.partial else "bytes"

    def __repr__(self) -> str:
        return (
            f"<{self.letter.number}{self.letter.group or ''} epoch {self.epoch} seq {self.seq} {self.state}>"
        )


@dataclass
class Broker:
    """Keeps deliveries until they are settled; reads commands one by one: a cut can lose the rest."""

    capabilities: Capabilities
    window: int
    in_order: bool = True  # redeliveries keep their place
    waiting: deque[Letter] = field(default_factory=deque[Letter])
    unsettled: dict[Arrival, None] = field(default_factory=dict[Arrival, None])
    wire: deque[Command] = field(default_factory=deque[Command])
    unconfirmed: deque[PoisonAck | Forward] = field(default_factory=deque[PoisonAck | Forward])
    scheduled: list[tuple[float, Letter]] = field(default_factory=list[tuple[float, Letter]])
    now: float = 0.0
    epoch: int = 0
    up: bool = False
    credit: int = 0

    def deliver(self, most: int) -> Arrived | None:
        """Send up to `most` messages."""
        for due, letter in [one for one in self.scheduled if one[0] <= self.now]:
            self.scheduled.remove((due, letter))
            self.waiting.append(letter)
        able = self.capabilities
        grown = self.credit if able.grows else 0
        room = self.credit if able.flow else self.window + grown - len(self.unsettled)
        batch: list[Delivery] = []
        while self.up and self.waiting and len(batch) < min(room, most):
            arrival = Arrival(self.waiting.popleft(), self.epoch, counts=self.capabilities.counts)
            self.unsettled[arrival] = None
            batch.append(arrival)
        self.credit -= len(batch) if able.flow else 0
        return Arrived(1, batch) if batch else None

    def read(self) -> None:
        """Carry out the oldest command."""
        command = self.wire.popleft()
        match command:
            case Credit():
                self.credit += command.messages
            case Accept():
                for delivery in command.deliveries:
                    self._take(delivery).accepted = True
            case Release():
                for delivery in reversed(command.deliveries):
                    self._return(self._take(delivery))
            case PoisonAck() | Forward():
                asked = [one.delivery for one in self.unconfirmed]
                assert command.delivery not in asked, (
                    "a second poison acknowledgement, and the first has no answer yet"
                )
                self.unconfirmed.append(command)
            case _:
                raise AssertionError(f"{command!r} is not for a broker")

    def _take(self, delivery: Delivery) -> Letter:
        assert isinstance(delivery, Arrival)
        assert delivery in self.unsettled, f"{delivery} is settled a second time"
        del self.unsettled[delivery]
        return delivery.letter

    def _return(self, letter: Letter) -> None:
        """Put a message back at its old place, or behind the others."""
        if not self.in_order:
            self.waiting.append(letter)
            return
        behind = sum(other.number < letter.number for other in self.waiting)
        self.waiting.insert(behind, letter)

    def confirm(self, *, refuse: bool = False) -> Confirmed:
        """Answer the oldest poison acknowledgement; if it is confirmed, the message is a dead letter."""
        command = self.unconfirmed.popleft()
        delivery = command.delivery
        assert isinstance(delivery, Arrival)
        if refuse:
            return Confirmed(delivery, AdapterError("refused"))
        if isinstance(command, Forward) and command.copy.delay is not None:
            letter = self._take(delivery)  # atomic: only one may exist
            letter.told, letter.attempts = command.copy.headers, 0
            letter.copies += 1
            self.scheduled.append((self.now + command.copy.delay, letter))
            return Confirmed(delivery)
        delivery.letter.dead += 1
        if isinstance(command, PoisonAck) or self.capabilities.forward == "atomic":
            self._take(delivery)
        return Confirmed(delivery)

    def connect(self) -> int:
        """Open the next connection."""
        self.epoch += 1
        self.up = True
        self.credit = 0
        return self.epoch

    def cut(self) -> None:
        """Lose the connection: unread commands are lost, unsettled messages are redelivered with the flag."""
        self.up = False
        self.wire.clear()
        self.unconfirmed.clear()
        for arrival in self.unsettled:
            arrival.letter.attempts += 1
            self._return(arrival.letter)
        self.unsettled.clear()
