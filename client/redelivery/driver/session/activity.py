"""Activity of a session: handlers that run, and commits without an answer."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

from redelivery.clock import capped
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from redelivery.message import Message

__all__ = ["Busy", "SessionActivity"]

Busy = Literal["handler", "commit"]
"""Activity that keeps a session busy: a handler runs, or the broker has not answered a commit."""

_IN_HAND: ContextVar[object] = ContextVar("redelivery.in_hand", default=None)
"""Message whose handler runs in this context. Tasks that a handler makes belong to it, too; threads do not."""


class SessionActivity:
    """Handlers that run and commits without an answer, of one session. Its lock is the session's own.

    A session is for one thread, as in JMS: a call that settles everything must not take the message of a handler that
    runs in another thread.
    """

    def __init__(self) -> None:
        # The application uses one thread; `close` may be called from another.
        self.lock = threading.RLock()
        # True if the session has a listener.
        self.listens = False
        self._quiet = threading.Condition(self.lock)
        self._handling: set[Message] = set()
        # Number of commits without an answer.
        self._unanswered = 0

    def begins(self, message: Message) -> None:
        """Count a handler that begins in this thread or task."""
        with self.lock:
            self._handling.add(message)
        _IN_HAND.set(message)

    def ended(self, message: Message) -> None:
        """Stop counting a handler: it has ended, with any result."""
        with self.lock:
            self._handling.discard(message)
            if _IN_HAND.get() is message:
                # Keep no reference to the message.
                _IN_HAND.set(None)
            self._quiet.notify_all()

    def commits(self) -> None:
        """Count a commit that is being written."""
        with self.lock:
            self._unanswered += 1

    def answered(self) -> None:
        """Stop counting a commit: it has its answer, or was not written."""
        with self.lock:
            self._unanswered -= 1
            self._quiet.notify_all()

    def others(self, own: object = None) -> set[Message]:
        """Return the messages of running handlers, without the caller's own (or `own`, the one of another thread)."""
        mine = own or _IN_HAND.get()
        with self.lock:
            return {message for message in self._handling if message is not mine}

    def only_here(self, call: str) -> None:
        """Raise ConfigurationError if a handler runs in another thread or task."""
        if self.others():
            raise ConfigurationError(
                f"{call}(): a handler of this session runs in another thread or task, and only that handler may settle "
                "or send; make a session for each thread"
            )

    def check_pull(self, call: str) -> None:
        """Raise ConfigurationError if the session has a listener, which gets all messages."""
        if self.listens:
            whose = "its" if call == "receive" else "this"
            raise ConfigurationError(
                f"{call}(): {whose} session has a listener, which gets all its messages; make a session for each"
            )

    @staticmethod
    def mine() -> object:
        """Return the message of the handler that calls, or None."""
        return _IN_HAND.get()

    def wait_quiet(self, deadline: float, own: object) -> Busy | None:
        """Wait until no handler but the one of `own` runs and all commits have answers; return what is left, or None.

        In real time: the wait is for the broker and for running code, not for a schedule.
        """
        with self.lock:
            while (busy := self._busy(own)) and (left := deadline - time.monotonic()) > 0:
                self._quiet.wait(capped(left))
            return busy

    def wait_answered(self, deadline: float) -> None:
        """Wait until all commits have answers; handlers may run."""
        with self.lock:
            while self._unanswered and (left := deadline - time.monotonic()) > 0:
                self._quiet.wait(capped(left))

    def _busy(self, own: object) -> Busy | None:
        if any(message is not own for message in self._handling):
            return "handler"
        return "commit" if self._unanswered else None
