"""How links and their sessions end, and who begins after them.

RabbitMQ answers on the channel that it was asked on, and takes its time: what an old session still says there would
be heard on the next session of the same channel ("no such handle"), and what was released in the old one is not on its
queue yet. proton gives a channel away as soon as its own end is written. So there a session ends when the end of its
link has been answered, and another begins when that is answered, too (docs/measured-amqp.md).

Every method runs under the wire's lock, but `wait`.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from redelivery.adapter_support.response_timeout import ResponseTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    import proton

    from redelivery_amqp.receiver import ReceiverLink
    from redelivery_amqp.sender import SenderLink

__all__ = ["DetachQueue"]


class DetachQueue:
    """Those of one connection. `in_turn`: no session begins while one ends.

    `over` is called, without the lock, when an end has had no answer for so long that the others would wait for ever.
    """

    def __init__(self, over: Callable[[], None] = lambda: None, *, in_turn: bool) -> None:
        self._in_turn = in_turn
        self._patience = ResponseTimeout(over)
        # Whose links' ends are not answered.
        self._leaving: list[ReceiverLink] = []
        # Whose sessions' ends are not answered.
        self._ending: list[ReceiverLink | SenderLink] = []
        self._begins: deque[Callable[[], None]] = deque()
        self._given_back = threading.Event()
        self._given_back.set()

    def begin(self, action: Callable[[], None]) -> None:
        """Have a session begun, now or when those that end are over."""
        if self._in_turn and (self._leaving or self._ending):
            self._begins.append(action)
        else:
            action()

    def leave(self, receiver: ReceiverLink) -> None:
        """End a consumer's link, and its session then or now."""
        stood = receiver.handle is not None
        receiver.detach(alone=self._in_turn)
        if self._in_turn and stood:
            self._leaving.append(receiver)
            self._given_back.clear()
            self._patience.asked()

    def answered(self, receiver: ReceiverLink) -> None:
        """The broker has answered the end of a consumer's link: it has taken back what was released before."""
        if receiver not in self._leaving:
            receiver.free()
            return
        self._leaving.remove(receiver)
        if not self._leaving:
            self._given_back.set()
        receiver.session.close()
        self._ending.append(receiver)
        self._patience.asked()

    def close(self, one: ReceiverLink | SenderLink) -> None:
        """Answer the end of a link, and end its session.

        Kept until the broker has ended the session too: proton would give its channel to the next one, with no end
        before its begin, and Broker-J closes a connection over that.
        """
        one.close()
        self._ending.append(one)
        if self._in_turn:
            self._patience.asked()

    def over(self, session: proton.Session) -> None:
        """Both sides have ended a session."""
        for one in [one for one in self._ending if one.session == session]:
            self._ending.remove(one)
            one.free()
        if not self._leaving and not self._ending:
            self._patience.answered()
        while self._begins and not self._leaving and not self._ending:
            self._begins.popleft()()

    def fail(self) -> None:
        """The connection is gone: nothing is answered any more."""
        self._patience.answered()
        self._begins.clear()
        self._given_back.set()

    def wait(self, timeout: float) -> None:
        """Wait until the broker has answered the ends of all links, if it is one that is waited for."""
        self._given_back.wait(timeout)
