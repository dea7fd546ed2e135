"""What is true of each message, whatever anybody believes; and what must never happen to one.

Messages that nobody can tell apart may change places: what must hold, holds for all of them together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tests.simulator.profiles import Message

__all__ = ["Truth", "Violation"]


class Violation(Exception):
    """An invariant does not hold. Its text begins with the name of that, and a colon."""


class Truth:
    """Keeps what happened, and checks. `tries`: handlers that may fail with a message before it is poison."""

    def __init__(self, messages: Sequence[Message], tries: int) -> None:
        self.size = Counter(message.like for message in messages)
        # When handlers of such messages ended well, and when such messages were sent that are accepted: steps.
        self.successes: dict[Hashable, list[int]] = defaultdict(list)
        self.removed: dict[Hashable, list[int]] = defaultdict(list)
        self.failed: Counter[Hashable] = Counter()  # since the last success
        self.ever: Counter[Hashable] = Counter()
        self.condemned: Counter[Hashable] = Counter()  # by the application
        self.not_before: dict[str, float] = {}
        self.gone: dict[str, str] = {}
        self.dead: Counter[str] = Counter()
        # Whose history has been lost in a way that is documented: it starts afresh.
        self.afresh: set[Hashable] = set()
        # Whether the connection has gone to another address: there the broker's own ids prove nothing.
        self.moved = False
        self.handled_again = 0
        self._tries = tries

    def known(self, message: Message) -> bool:
        """Whether the message can be known again at all."""
        return not self.moved and message.like not in self.afresh

    def succeeded(self, message: Message, step: int) -> None:
        """A handler has ended well: if the message comes again it starts afresh."""
        self.successes[message.like].append(step)
        self.failed[message.like] = 0

    def failed_once(self, message: Message, *, nameless: bool) -> None:
        """A handler has failed. Raises Violation."""
        like = message.like
        self.failed[like] += 1
        self.ever[like] += 1
        most = self.size[like] * self._tries
        if self.known(message) and not nameless and self.failed[like] > most:
            raise Violation(f"limit: {message.name} has failed {self.failed[like]} times; {most} are allowed")

    def accepted(self, message: Message, step: int) -> None:
        """The broker has removed a message. Raises Violation if no handler has succeeded with it, or its equal."""
        name, like = message.name, message.like
        self.gone[name] = "dead" if self.dead[name] else "accepted"
        if self.dead[name]:
            return
        removed, successes = self.removed[like], self.successes[like]
        removed.append(message.sent)
        for sent in removed:
            if sum(at >= sent for at in removed) > sum(at > sent for at in successes):
                raise Violation(
                    f"loss: {name} is accepted at step {step}, and no handler has succeeded with it"
                )

    def restored(self, message: Message) -> None:
        """The broker has forgotten what it did last."""
        name = message.name
        if self.gone.pop(name, None) == "accepted" and not self.dead[name]:
            self.removed[message.like].remove(message.sent)
        elif self.dead[name]:
            self.dead[name] -= 1

    def died(self, message: Message, *, expired: bool, nameless: bool, count: int) -> None:
        """A dead letter is stored. Raises Violation if nobody has condemned the message."""
        like = message.like
        self.dead[message.name] += 1
        exact = self.known(message) and not nameless and self.size[like] == 1
        failed = self.failed[like] if exact else self.ever[like]
        exhausted = failed and failed + count >= self._tries
        if not expired and not self.condemned[like] and not exhausted:
            raise Violation(f"false dead letter: {message.name} after {failed} failures of its own")
        if self.gone.get(message.name) == "accepted":
            raise Violation(f"dead and accepted: {message.name}")

    def begins(self, message: Message, now: float, running: Sequence[Message], *, nameless: bool) -> None:
        """A handler gets a message. Raises Violation if it is too early, or another one has it."""
        like, known = message.like, self.known(message) and not nameless
        if known and sum(other.like == like for other in running) >= self.size[like]:
            raise Violation(f"overlap: {message.name} is begun while a handler has it")
        due = self.not_before.get(message.name, 0.0)
        if known and self.size[like] == 1 and now < due - 1e-9:
            raise Violation(f"early: {message.name} is begun at {now}, due at {due}")
        self.handled_again += bool(self.successes[like])
