"""What both kinds of session share: everything but the waiting."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery.core.convert import seconds
from redelivery.core.delivery import Cause
from redelivery.core.events import Failed
from redelivery.drive.holdings import KEPT, Holdings, checked_mode, in_doubt
from redelivery.drive.sending import outgoing
from redelivery.drive.sends import end
from redelivery.errors import ConfigurationError, RedeliveryError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import timedelta

    from redelivery.clock import Clock
    from redelivery.drive.arguments import ListenOptions
    from redelivery.drive.base import Listener
    from redelivery.drive.channel import Channel
    from redelivery.drive.holdings import Mode
    from redelivery.drive.keeper import Keeper
    from redelivery.drive.sending import SendOptions
    from redelivery.message import Message
    from redelivery.session_message import SessionMessage

__all__ = ["Attempt", "Seat", "SessionBase"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One commit on its way. `future` ends with the broker's answer, and may be cancelled."""

    messages: list[SessionMessage]
    answer: Future[None]
    future: Future[None]
    deadline: float
    timeout: float


@dataclass(frozen=True, slots=True)
class Seat:
    """What a session needs of its connection; the callables are those of its kind, threaded or asyncio."""

    keeper: Keeper
    clock: Clock
    check_open: Callable[[], None]
    subscribed: Callable[..., Any]
    listening: Callable[..., Listener[Any]]
    send: Callable[..., Any]


class SessionBase:
    """The part of a session that does not wait."""

    def __init__(self, seat: Seat, mode: str) -> None:
        self._holdings = Holdings(checked_mode(mode, seat.keeper.capabilities))
        self._seat = seat
        self._channels: list[Channel] = []
        self._listeners: list[Listener[Any]] = []
        self._closed = False

    @property
    def mode(self) -> Mode:
        """`auto`, `client`, `individual`, `transacted` or `dups_ok`."""
        return self._holdings.mode

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._closed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.mode}>"

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigurationError("the session is closed; make a new one with connection.session(...)")
        self._seat.check_open()

    def _only(self, modes: tuple[Mode, ...], call: str) -> None:
        self._check_open()
        if self.mode not in modes:
            raise ConfigurationError(
                f"{call}() is for sessions of the mode {' or '.join(modes)}, and this one is {self.mode}",
                option="mode",
            )

    def _check_listener(self, options: ListenOptions) -> None:
        self._check_open()
        if options.get("workers", 1) != 1:
            raise ConfigurationError(
                f"workers={options.get('workers')}: a session delivers one message at a time; make a session for each",
                option="workers",
            )
        if self._listeners and self.mode in KEPT:  # a commit of one would accept what the other has in hand
            raise ConfigurationError(
                f"a {self.mode} session has one listener: what it settles covers all that its session has in hand; "
                "make a session for each",
                option="mode",
            )

    def _consuming(self, channel: Channel) -> None:
        """Keep a new consumer's channel, and no longer those of consumers that are closed."""
        open_channels = self._seat.keeper.channels
        self._channels = [c for c in self._channels if open_channels.get(c.subscribe.consumer) is c]
        self._channels.append(channel)

    def _acknowledge(self) -> None:
        self._only(("client",), "acknowledge")
        self._holdings.acknowledge()

    def _recover(self) -> None:
        self._only(("client", "individual", "auto", "dups_ok"), "recover")
        for message in self._holdings.take()[0]:
            message.conclude(Failed(message.delivery, Cause("recovered")))

    def _roll_back(self, charge: Collection[Message] | None = None) -> None:
        self._only(("transacted",), "rollback")
        self._holdings.roll_back(Cause("rolled back"), charge)

    def _keep(self, destination: str, body: bytes | str, options: SendOptions) -> str:
        identity, message = outgoing(destination, body, options, self._seat.clock)
        self._holdings.send(message)
        return identity

    def _begin_commit(self, timeout: float | timedelta) -> Attempt | None:
        self._only(("transacted",), "commit")
        limit = seconds(timeout, "timeout")
        deadline = self._seat.clock.monotonic() + limit
        messages, sends = self._holdings.take_to_commit()
        if not messages and not sends:
            return None
        answer = self._seat.keeper.commit([message.delivery for message in messages], sends)
        future: Future[None] = Future()
        answer.add_done_callback(lambda done: end(future, _error(done)))
        return Attempt(messages, answer, future, deadline, limit)

    def _conclude(self, attempt: Attempt, error: RedeliveryError | None) -> None:
        """Settle by the broker's answer. Raises it, if it is an error."""
        self._holdings.conclude(attempt.messages, error)
        if error is not None:
            raise in_doubt(error) from None

    def _late(self, attempt: Attempt) -> TransportError:
        """Have the messages settled by an answer that comes late; return the error for `commit`."""

        def conclude(done: Future[None]) -> None:
            # Not on the thread that reads: what follows from an answer may have to be written.
            threading.Thread(
                target=Holdings.conclude,
                args=(attempt.messages, _error(done)),
                name="redelivery-commit",
                daemon=True,
            ).start()

        self._seat.keeper.give_up(attempt.answer)
        attempt.answer.add_done_callback(conclude)
        return TransportError(
            f"the broker did not answer the commit within {attempt.timeout:g} s, and may still carry it out, whole: "
            "its messages are settled when the answer comes, and come again if the connection is lost before"
        )

    def _end(self) -> list[Channel]:
        """End it, and return the channels to be unsubscribed."""
        if self._closed:
            return []
        self.abandon()
        self._closed = True
        channels, self._channels = self._channels, []
        for listener in self._listeners:
            listener.ended = True
        return channels + [each.channel for each in self._listeners if each.channel is not None]

    def _unsubscribe(self, channels: list[Channel], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for channel in channels:
            self._seat.keeper.unsubscribe(channel, max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        """Roll back what is not committed, as closing does."""
        if self.mode == "transacted" and not self._closed:
            self._holdings.abandon(self._holdings.cause or Cause("the session was closed before its commit"))


def _error(done: Future[None]) -> RedeliveryError | None:
    error = done.exception()
    assert error is None or isinstance(error, RedeliveryError), "adapters answer with no other"
    return error
