"""Which handlers of a session are at work, which of its commits have no answer yet, and who asks."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from redelivery.message import Message

__all__ = ["Busy", "SessionActivity"]

Busy = Literal["handler", "commit"]
"""What a session waits for: a handler that runs, or the answer to a commit."""

_IN_HAND: ContextVar[object] = ContextVar("redelivery.in_hand", default=None)
"""The message whose handler runs here. Tasks that a handler makes are the handler's, too; threads are not."""


class SessionActivity:
    """What a session is busy with. Its lock is the session's own.

    The session is for one thread, as in JMS: what settles all of it must not take what a handler elsewhere still
    works on.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # the application keeps to one thread; closing comes from another
        self.listens = False  # whether there is a listener
        self._quiet = threading.Condition(self.lock)
        self._unwritten: set[Message] = set()
        self._unanswered = 0  # commits

    def begins(self, message: Message) -> None:
        """Learn that a handler begins, in this thread or task."""
        with self.lock:
            self._unwritten.add(message)
        _IN_HAND.set(message)

    def ended(self, message: Message) -> None:
        """Learn that the handler has ended, whatever it came to."""
        with self.lock:
            self._unwritten.discard(message)
            if _IN_HAND.get() is message:
                _IN_HAND.set(None)  # nothing here keeps it
            self._quiet.notify_all()

    def commits(self) -> None:
        """Learn that a commit is on its way."""
        with self.lock:
            self._unanswered += 1

    def answered(self) -> None:
        """Learn that it is settled."""
        with self.lock:
            self._unanswered -= 1
            self._quiet.notify_all()

    def others(self, own: object = None) -> set[Message]:
        """Return what handlers have in hand, but for the caller's own (or `own`, for another thread's sake)."""
        mine = own or _IN_HAND.get()
        with self.lock:
            return {message for message in self._unwritten if message is not mine}

    def only_here(self, call: str) -> None:
        """Raise ConfigurationError if a handler of another thread or task is at work."""
        if self.others():
            raise ConfigurationError(
                f"{call}(): a handler of this session is at work in another thread or task, and only there may it be "
                "settled, or sent with; make a session for each thread"
            )

    def check_pull(self, call: str) -> None:
        """Raise ConfigurationError if the session has a listener: messages go to that one."""
        if self.listens:
            whose = "its" if call == "receive" else "this"
            raise ConfigurationError(
                f"{call}(): {whose} session has a listener, and gives no message to others; make a session for each"
            )

    @staticmethod
    def mine() -> object:
        """Return what the caller's own handler has in hand, if it is one."""
        return _IN_HAND.get()

    def wait_quiet(self, deadline: float, own: object) -> Busy | None:
        """Wait until no handler but the one of `own` is at work, and no commit unanswered; return what still is.

        In real time: it is about the wire, and about code that runs.
        """
        with self.lock:
            while (busy := self._busy(own)) and (left := deadline - time.monotonic()) > 0:
                self._quiet.wait(left)
            return busy

    def wait_answered(self, deadline: float) -> None:
        """Wait until no commit is unanswered, as above, but for no handler."""
        with self.lock:
            while self._unanswered and (left := deadline - time.monotonic()) > 0:
                self._quiet.wait(left)

    def _busy(self, own: object) -> Busy | None:
        if any(message is not own for message in self._unwritten):
            return "handler"
        return "commit" if self._unanswered else None
