"""Ends of links and their sessions, and the order of the sessions that begin after them.

RabbitMQ answers late, and on the channel of the request. Frames of an old session would arrive in the next session of
the same channel ("no such handle"), and messages that the old one released are not on their queue yet. proton reuses a
channel as soon as its own end is written. With RabbitMQ, therefore, a session is ended after the broker has answered
the end of its link, and another one begins after the broker has answered the end of the session
(docs/measured/rabbitmq-amqp.md). RabbitMQ 3.10 sometimes stops a session before it has written that answer; the wait
for it is limited.

Every method except `wait` runs under the wire's lock.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from redelivery.adapter_support.sockets import ResponseTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    import proton

    from redelivery_amqp.management_link import ManagementLink
    from redelivery_amqp.receiver import ReceiverLink, RoundTrip
    from redelivery_amqp.sender import SenderLink

__all__ = ["DetachQueue"]

# Seconds. A session whose end has no answer counts as ended after them. A late answer still finds its session if it
# arrives before the answer to the next begin. After that, proton takes it for the end of the next session, and the
# connection is lost. The limit is therefore far above the time that a busy broker needs.
UNENDED = 5.0


class DetachQueue:
    """Ending links and sessions of one connection.

    Args:
        stuck: Called without the lock when the end of a link has had no answer for the response timeout.
        unended: Called without the lock when the end of a session has had no answer for 5 s; it calls `go_on`.
        in_turn: No session begins while another one ends.
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
        # Receivers whose link end the broker has not answered.
        self._leaving: list[ReceiverLink] = []
        # Links whose session end the broker has not answered.
        self._ending: list[ReceiverLink | SenderLink | ManagementLink] = []
        # Links whose session end is not awaited any more. Freeing one would remove proton's entry of the session that
        # has its channel by now.
        self._unended: list[ReceiverLink | SenderLink | ManagementLink] = []
        # Links that `free_ended` frees. Messages that arrived with their end are taken before.
        self._ended: list[ReceiverLink | SenderLink | ManagementLink | RoundTrip] = []
        self._begins: deque[Callable[[], None]] = deque()
        self._given_back = threading.Event()
        self._given_back.set()

    def begin(self, action: Callable[[], None]) -> None:
        """Begin a session now, or after the end of those that are ending."""
        if self._in_turn and (self._leaving or self._ending):
            self._begins.append(action)
        else:
            action()

    def leave(self, receiver: ReceiverLink) -> None:
        """End a consumer's link, and its session now or after the broker's answer."""
        stood = receiver.handle is not None
        receiver.detach(alone=self._in_turn)
        if self._in_turn and stood:
            self._leaving.append(receiver)
            self._given_back.clear()
            self._for_links.asked()

    def answered(self, receiver: ReceiverLink) -> None:
        """Handle the broker's answer to the end of a consumer's link: released messages are on their queue again."""
        if receiver in self._leaving:
            self._leaving.remove(receiver)
            if not self._leaving:
                self._given_back.set()
                self._for_links.answered()
        receiver.session.close()
        self._await_end(receiver)

    def close(self, one: ReceiverLink | SenderLink | ManagementLink) -> None:
        """Answer the end of a link, and end its session.

        The session is kept until the broker has ended it too. Otherwise proton would give its channel to the next one
        without an end before the begin, and Broker-J closes the connection over that.
        """
        one.close()
        self._await_end(one)

    def _await_end(self, one: ReceiverLink | SenderLink | ManagementLink) -> None:
        self._ending.append(one)
        if self._in_turn:
            self._for_sessions.asked()

    def over(self, session: proton.Session) -> None:
        """Handle a session that both sides have ended."""
        for known in (self._ending, self._unended):
            for one in [one for one in known if one.session == session]:
                known.remove(one)
                self.ended(one)
        self._begin_next()

    def ended(self, one: ReceiverLink | SenderLink | ManagementLink | RoundTrip) -> None:
        """Add a link that has ended on both sides, to be freed."""
        self._ended.append(one)

    def free_ended(self) -> None:
        """Free the links that have ended. Called only at the end of a turn of the I/O thread.

        The turn can have read messages of such a link together with its end, and it knows the link by its pointer.
        """
        ended, self._ended = self._ended, []
        for one in ended:
            one.free()

    def go_on(self) -> None:
        """Stop waiting for the answers to the ends of sessions."""
        self._unended += self._ending
        self._ending.clear()
        self._begin_next()

    def _begin_next(self) -> None:
        if not self._ending:
            self._for_sessions.answered()
        while self._begins and not self._leaving and not self._ending:
            self._begins.popleft()()

    def fail(self) -> None:
        """Handle the loss of the connection: no end is answered any more."""
        self._for_links.end()
        self._for_sessions.end()
        self._begins.clear()
        self._given_back.set()

    def wait(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until the broker has answered the ends of all links. Only where `in_turn`."""
        self._given_back.wait(timeout)
