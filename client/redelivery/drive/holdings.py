"""Sessions, but for the waiting: what the application has been given and not settled, and what is to be sent."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, cast

from redelivery.core.delivery import Cause
from redelivery.core.events import Committed, Deferred, Failed, Succeeded
from redelivery.errors import AdapterError, ConfigurationError, TransportError, near_miss
from redelivery.session_message import SessionMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.core.outgoing import Outgoing
    from redelivery.drive.channel import Channel
    from redelivery.errors import RedeliveryError
    from redelivery.message import Message

__all__ = ["COMMIT_TIMEOUT", "KEPT", "Holdings", "Mode", "checked_mode", "in_doubt"]

Mode = Literal["auto", "client", "individual", "transacted", "dups_ok"]
MODES: tuple[Mode, ...] = ("auto", "client", "individual", "transacted", "dups_ok")
COMMIT_TIMEOUT = 30.0  # seconds for the broker to answer a commit
KEPT: tuple[Mode, ...] = ("client", "transacted")  # a handler's end settles nothing there


def checked_mode(mode: object, capabilities: Capabilities | None) -> Mode:
    """Return the mode if there is such a one, and the broker can do it. Raises ConfigurationError."""
    for known in MODES:
        if mode == known:
            break
    else:
        hint = near_miss(mode, MODES) if isinstance(mode, str) else ""
        raise ConfigurationError(
            f"session mode must be one of {', '.join(MODES)}, not {mode!r}{hint}", option="mode"
        )
    if known == "transacted" and capabilities is not None and not capabilities.transactions:
        raise ConfigurationError(
            f"session('transacted'): {capabilities.broker} has no transactions over this protocol that cover what is "
            "received; use 'individual' or 'client', or another protocol",
            option="mode",
        )
    return known


class Holdings:
    """The messages that one session has given out and not settled, oldest first; a transaction's sends."""

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self.cause: Cause | None = None  # why the last handler failed
        self._lock = threading.RLock()  # the application keeps to one thread; closing comes from another
        self._given: dict[Delivery, SessionMessage] = {}
        self._sends: list[Outgoing] = []
        self._abandoned = False  # rolled back, and the application has not been told

    def message(self, delivery: Delivery, channel: Channel) -> SessionMessage:
        """Return the message for a delivery, and hold it."""
        message = SessionMessage(delivery, channel, self)
        with self._lock:
            self._given[delivery] = message
        return message

    def pulled(self, message: Message) -> None:
        """Take note that a `receive` returns it: in the modes of the reference that acknowledge by themselves, now."""
        if self.mode in ("auto", "dups_ok"):
            message.accept()

    def forget(self, delivery: Delivery) -> None:
        """Hold it no longer: it has been settled by itself."""
        with self._lock:
            self._given.pop(delivery, None)

    def send(self, message: Outgoing) -> None:
        """Keep a message until the commit."""
        with self._lock:
            self._sends.append(message)

    def take(self) -> tuple[list[SessionMessage], list[Outgoing]]:
        """Take everything: what comes from now on belongs to the next transaction."""
        with self._lock:
            given, self._given = list(self._given.values()), {}
            sends, self._sends = self._sends, []
            self.cause = None
            self._abandoned = False
        return given, sends

    def take_to_commit(self) -> tuple[list[SessionMessage], list[Outgoing]]:
        """As `take`. Raises TransportError, and rolls back, if a part of the transaction is rolled back already."""
        with self._lock:
            abandoned, taken = self._abandoned, self.take()
        if abandoned:
            error = TransportError("the transaction was rolled back when its connection was drained")
            self.conclude(taken[0], error)
            raise error
        return taken

    def abandon(self, cause: Cause) -> None:
        """Roll back for the application, whose next commit hears of it: it must not take it for done."""
        with self._lock:
            anything = self._abandoned or bool(self._given or self._sends)
            messages = self.take()[0]
            self._abandoned = anything
        for message in messages:
            message.conclude(_failed(message, cause))

    def acknowledge(self) -> None:
        """Accept everything that has been given out so far."""
        for message in self.take()[0]:
            message.conclude(Succeeded(message.delivery))

    def roll_back(self, cause: Cause, charge: Collection[Message] | None = None) -> None:
        """Have everything come again: charged a redelivery, or only what `charge` names. Raises ConfigurationError."""
        if charge is not None:
            self._check_held(charge := _listed(charge))
        cause = self.cause or cause
        for message in self.take()[0]:
            charged = charge is None or any(message is one for one in charge)
            message.conclude(_failed(message, cause) if charged else _again(message, cause))

    def _check_held(self, messages: Iterable[Message]) -> None:
        with self._lock:
            held = list(self._given.values())
        for message in messages:
            if not any(message is one for one in held):
                raise ConfigurationError(
                    f"charge=: {message!r} is none of this transaction's messages", option="charge"
                )

    @staticmethod
    def conclude(messages: Iterable[SessionMessage], error: RedeliveryError | None) -> None:
        """Settle what a commit was about, by its answer.

        Committed, it is settled at the broker. Refused, it is a failure like a rollback, as in the reference. Lost with
        the connection, it is deferred: if it was not committed, it comes again, and is charged in the end:
        a transaction that breaks its connection each time must end.
        """
        make: Callable[[SessionMessage, Cause], Event] = _in_doubt
        if isinstance(error, AdapterError):
            make = _failed
        for message in messages:
            if error is None:
                message.conclude(Committed(message.delivery))
            else:
                message.conclude(make(message, Cause.of(error)))


def _listed(charge: object) -> list[Message]:
    """Return what `charge=` names, read once: it may be an iterator. Raises ConfigurationError."""
    if not isinstance(charge, Iterable):
        raise ConfigurationError(
            f"charge= must be a list of messages, not {type(charge).__name__}", option="charge"
        )
    return list(cast("Iterable[Message]", charge))


def _failed(message: SessionMessage, cause: Cause) -> Event:
    return Failed(message.delivery, cause)


def _again(message: SessionMessage, cause: Cause, *, counted: bool = False) -> Event:
    return Deferred(message.delivery, 0.0, cause, counted=counted)


def _in_doubt(message: SessionMessage, cause: Cause) -> Event:
    return _again(message, cause, counted=True)


def in_doubt(error: RedeliveryError) -> RedeliveryError:
    """Return the error that `commit` raises."""
    if isinstance(error, AdapterError):
        return AdapterError(f"the broker refused the transaction, and rolled it back: {error}")
    return TransportError(
        f"{error}; the transaction has been committed as a whole or not at all: what was not committed comes again"
    )
