"""How links and their sessions end, and who begins after them.

RabbitMQ answers on the channel that it was asked on, and takes its time: what an old session still says there would
be heard on the next session of the same channel ("no such handle"), and what was released in the old one is not on its
queue yet. proton gives a channel away as soon as its own end is written. So there a session ends when the end of its
link has been answered, and another begins when that is answered, too (docs/measured/amqp.md). RabbitMQ 3.10 sometimes
stops a session before it has written that answer: it is not waited for for ever.

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

    from redelivery_amqp.management_link import ManagementLink
    from redelivery_amqp.receiver import ReceiverLink
    from redelivery_amqp.sender import SenderLink

__all__ = ["DetachQueue"]

# Seconds after which a session counts as over whose end has no answer. An answer that is only late still finds its
# session if it comes before the one to the next begin. Behind that, proton would take it for the end of the next one,
# and the connection would be made anew: so the limit is far above what a busy broker needs.
UNENDED = 5.0


class DetachQueue:
    """Those of one connection. `in_turn`: no session begins while one ends.

    Two are called without the lock, when there has been no answer for so long that others would wait for ever:
    `stuck` if it is about the end of a link, `unended` about that of a session, which is to call `go_on`.
    """

    def __init__(
        self,
        stuck: Callable[[], None] = lambda: None,
        unended: Callable[[], None] = lambda: None,
        *,
        in_turn: bool,
    ) -> None:
        self._in_turn = in_turn
        self._for_links = ResponseTimeout(stuck)
        self._for_sessions = ResponseTimeout(unended, UNENDED)
        # Whose links' ends are not answered.
        self._leaving: list[ReceiverLink] = []
        # Whose sessions' ends are not answered.
        self._ending: list[ReceiverLink | SenderLink | ManagementLink] = []
        # Those that are waited for no longer. If one were freed, proton would forget whose its channel is by now.
        self._unended: list[ReceiverLink | SenderLink | ManagementLink] = []
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
            self._for_links.asked()

    def answered(self, receiver: ReceiverLink) -> None:
        """The broker has answered the end of a consumer's link: it has taken back what was released before."""
        if receiver not in self._leaving:
            receiver.free()
            return
        self._leaving.remove(receiver)
        if not self._leaving:
            self._given_back.set()
            self._for_links.answered()
        receiver.session.close()
        self._ending.append(receiver)
        self._for_sessions.asked()

    def close(self, one: ReceiverLink | SenderLink | ManagementLink) -> None:
        """Answer the end of a link, and end its session.

        Kept until the broker has ended the session too: proton would give its channel to the next one, with no end
        before its begin, and Broker-J closes a connection over that.
        """
        one.close()
        self._ending.append(one)
        if self._in_turn:
            self._for_sessions.asked()

    def over(self, session: proton.Session) -> None:
        """Both sides have ended a session."""
        for known in (self._ending, self._unended):
            for one in [one for one in known if one.session == session]:
                known.remove(one)
                one.free()
        self._begin_next()

    def go_on(self) -> None:
        """Wait no longer for the answers to the ends of sessions."""
        self._unended += self._ending
        self._ending.clear()
        self._begin_next()

    def _begin_next(self) -> None:
        if not self._ending:
            self._for_sessions.answered()
        while self._begins and not self._leaving and not self._ending:
            self._begins.popleft()()

    def fail(self) -> None:
        """The connection is gone: nothing is answered any more."""
        self._for_links.end()
        self._for_sessions.end()
        self._begins.clear()
        self._given_back.set()

    def wait(self, timeout: float) -> None:
        """Wait until the broker has answered the ends of all links, if it is one that is waited for."""
        self._given_back.wait(timeout)
