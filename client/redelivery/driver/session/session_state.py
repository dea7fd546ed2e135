"""State of a session: messages that the application has got and not settled, and messages that a commit will send."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Protocol, cast

from redelivery.core.delivery import Cause
from redelivery.core.events import Committed, Deferred, Failed, Released, Succeeded
from redelivery.core.pending_confirms import back_off
from redelivery.core.shown_values import printable_id
from redelivery.driver.session.activity import SessionActivity
from redelivery.errors import (
    AdapterError,
    AlreadySettled,
    ConfigurationError,
    TransactionRolledBack,
    TransportError,
    near_miss,
)
from redelivery.failure_log import log_failure
from redelivery.log import logger
from redelivery.message import Message

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.errors import RedeliveryError

__all__ = ["COMMIT_TIMEOUT", "KEPT", "Mode", "SessionMessage", "SessionState", "checked_mode", "in_doubt"]


# ---- Session message -------------------------------------------------------------------------------------
# Message of a session: in some modes it is settled together with others.


class MessageSession(Protocol):
    """Interface of a session for its messages; `SessionState` implements it."""

    activity: SessionActivity
    cause: Cause | None

    @property
    def mode(self) -> str:
        """Acknowledgement mode: `auto`, `client`, `individual`, `transacted` or `dups_ok`."""
        ...

    def forget(self, delivery: Delivery) -> bool:
        """Remove a delivery that is settled alone. False: a commit has taken it."""
        ...

    def acknowledge(self, call: str) -> None:
        """Accept all messages that the session has given to the application so far."""


class SessionMessage(Message):
    """One delivery to a session.

    In a `client` session `accept()` accepts all messages that the application has got so far. In a `transacted` one
    only `commit()` and `rollback()` settle, and `with message:` passes every exception on.
    """

    __slots__ = ("_dispatcher", "_state")

    def __init__(self, delivery: Delivery, dispatcher: Dispatcher, session_state: MessageSession) -> None:
        super().__init__(delivery, dispatcher)
        self._dispatcher = dispatcher
        self._state = session_state

    @property
    def delivery(self) -> Delivery:
        """Delivery of the message."""
        return self._delivery

    @property
    def dispatcher(self) -> Dispatcher:
        """Dispatcher of the consumer that received it."""
        return self._dispatcher

    @property
    def live(self) -> bool:
        """True if the broker can still settle it: its connection has not been lost, and its consumer is open."""
        return self._delivery.epoch == self._dispatcher.engine.state.epoch

    def conclude(self, event: Event) -> None:
        """Settle the message with this result."""
        self._outcome = self._dispatcher.settle(self._delivery, event)

    def result(self, error: BaseException | None) -> Event | None:
        """Return the result to feed at the end of a handler; None if a call of the session settles the message."""
        settles = self._state.mode not in ("client", "transacted")
        # Before `ended`: in between, a settling call of another thread would take the message.
        if settles:
            self._state.forget(self._delivery)
        self._state.activity.ended(self)
        if settles:
            return super().result(error)
        if error is not None:
            cause = self._state.cause = Cause.of(error)
            logger.warning(
                "%s: %s: delivery %d failed (%s); it stays unsettled until its session settles it",
                self.destination, printable_id(self.message_id), self.delivery_count, cause.text,
            )  # fmt: skip
        return None

    def handler_over(self) -> None:
        self._state.activity.ended(self)

    def give_back(self) -> None:
        # If a commit without an answer has taken the message, the broker's answer settles it, not this call. And first
        # `forget`, then `ended`: in between, another thread's commit would accept a message that nothing has handled.
        held = self._outcome is None and self._state.forget(self._delivery)
        self._state.activity.ended(self)
        if held:
            self.conclude(Released(self._delivery))

    def _settle(self, event: Event) -> bool:
        if self._state.mode == "transacted":
            raise ConfigurationError(
                "in a transacted session only commit() and rollback() settle messages, all of them together"
            )
        if self._state.mode == "client" and isinstance(event, Succeeded) and self._outcome is None:
            self._state.acknowledge("accept")
            return self.outcome != "stale"
        self._state.forget(self._delivery)
        return super()._settle(event)

    def settle_for(self, error: BaseException | None) -> bool:
        if self._state.mode != "transacted":
            return super().settle_for(error)
        if isinstance(error, Exception):
            log_failure(self, error)
        return error is None


# ---- Session state ---------------------------------------------------------------------------------------

Mode = Literal["auto", "client", "individual", "transacted", "dups_ok"]
MODES: tuple[Mode, ...] = ("auto", "client", "individual", "transacted", "dups_ok")
# Seconds for the broker to answer a commit.
COMMIT_TIMEOUT = 30.0
# Modes in which the end of a handler settles nothing.
KEPT: tuple[Mode, ...] = ("client", "transacted")


def checked_mode(mode: object, capabilities: Capabilities | None) -> Mode:
    """Return the mode. Raises ConfigurationError if it is unknown, or the broker cannot do it."""
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
            f"session('transacted'): {capabilities.broker} has no transactions over this protocol that cover received "
            "messages; use 'individual' or 'client', or another protocol",
            option="mode",
        )
    return known


class SessionState:
    """Messages that the application has got from one session and not settled, oldest first; a transaction's sends."""

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self.cause: Cause | None = None  # why the last handler failed
        self.activity = SessionActivity()
        self._lock = self.activity.lock
        self._given: dict[Delivery, SessionMessage] = {}
        self._sends: list[Outgoing] = []
        # Messages of commits for whose answer no call waits any longer.
        self._late: set[SessionMessage] = set()
        # True if a rollback has happened that the application does not know of: its next commit raises.
        self._abandoned = False
        # Commits in a row that were rolled back before anything was sent.
        self._unsent = 0

    def message(self, delivery: Delivery, dispatcher: Dispatcher, *, handled: bool) -> SessionMessage:
        """Return the message for a delivery, and keep it; `handled`: a handler for it begins now in this thread."""
        message = SessionMessage(delivery, dispatcher, self)
        with self._lock:
            self._given[delivery] = message
            if handled:
                self.activity.begins(message)
        return message

    def pulled(self, message: Message) -> None:
        """Record that `receive` returns a message; accept it in the modes that acknowledge automatically, as in JMS."""
        if self.mode in ("auto", "dups_ok"):
            message.accept()

    def forget(self, delivery: Delivery) -> bool:
        """Remove a delivery that is settled alone. False: a commit has taken it."""
        with self._lock:
            return self._given.pop(delivery, None) is not None

    @property
    def anything(self) -> bool:
        """True if there is something to commit."""
        return bool(self._given or self._sends)

    def idle(self, dispatcher: object) -> int:
        """Return the number of unsettled messages of a dispatcher for which no handler runs and no `commit` waits."""
        with self._lock:
            busy = self.activity.others(self)
            held = [*self._late, *(message for message in self._given.values() if message not in busy)]
        return len([message for message in held if message.dispatcher is dispatcher])

    def late(self, messages: Sequence[SessionMessage]) -> None:
        """Keep messages of a commit for whose answer no call waits any longer."""
        with self._lock:
            self._late.update(messages)

    def send(self, message: Outgoing) -> None:
        """Keep a message until the commit. Raises ConfigurationError if a handler runs in another thread or task."""
        with self._lock:
            self.activity.only_here("send")
            self._sends.append(message)

    def take(self, call: str) -> tuple[list[SessionMessage], list[Outgoing]]:
        """Take all messages and sends; later ones belong to the next transaction.

        Raises ConfigurationError, with the name of `call`, if a handler runs in another thread or task.
        """
        with self._lock:
            self.activity.only_here(call)
            return self._take()

    def _take(self, leave: Collection[Message] = ()) -> tuple[list[SessionMessage], list[Outgoing]]:
        held = self._given
        self._given = {delivery: one for delivery, one in held.items() if one in leave}
        sends, self._sends = self._sends, []
        self.cause = None
        self._abandoned = False
        return [one for one in held.values() if one not in leave], sends

    def take_to_commit(self) -> tuple[list[SessionMessage], list[Outgoing]]:
        """As `take`; if a part of the transaction is rolled back already, roll back and raise TransactionRolledBack."""
        with self._lock:
            self.activity.only_here("commit")
            abandoned, (messages, sends) = self._abandoned, self._take()
            gone = [message for message in messages if not message.live]
            error: TransactionRolledBack | None = None
            if abandoned:
                error = TransactionRolledBack(
                    "the transaction was rolled back when its connection was drained"
                )
            elif gone:
                error = TransactionRolledBack(
                    f"the transaction is rolled back: {len(gone)} of its {len(messages)} messages came over a "
                    "connection that is lost, or to a consumer that is closed; its messages are redelivered, and "
                    "nothing was sent"
                )
            elif messages or sends:
                self.activity.commits()
        if error is not None:
            self.conclude(messages, error)
            raise error
        return messages, sends

    def take_settled_alone(self) -> list[SessionMessage]:
        """Take all messages for `recover`, without those of running handlers if the end of a handler settles."""
        with self._lock:
            if self.mode in KEPT:
                self.activity.only_here("recover")
            return self._take(self.activity.others())[0]

    def abandon(self, cause: Cause, own: object = None) -> None:
        """Roll back without a call of the application; its next commit raises TransactionRolledBack.

        Messages of running handlers stay with them; `own`: the message of the caller's handler is rolled back.
        """
        with self._lock:
            anything = self._abandoned or bool(self._given or self._sends)
            messages = self._take(self.activity.others(own))[0]
            self._abandoned = anything
        for message in messages:
            _conclude(message, _failed(message, cause))

    def acknowledge(self, call: str) -> None:
        """Accept all messages that the application has got so far."""
        for message in self.take(call)[0]:
            _conclude(message, Succeeded(message.delivery))

    def roll_back(self, cause: Cause, charge: Collection[Message] | None = None) -> None:
        """Redeliver all messages. A redelivery is used up by each, or only by those in `charge`.

        Raises ConfigurationError if `charge` has another message.
        """
        if charge is not None:
            self._check_held(charge := _listed(charge))
        cause = self.cause or cause
        for message in self.take("rollback")[0]:
            charged = charge is None or any(message is one for one in charge)
            _conclude(message, _failed(message, cause) if charged else _again(message, cause))

    def _check_held(self, messages: Iterable[Message]) -> None:
        with self._lock:
            held = list(self._given.values())
        for message in messages:
            if not any(message is one for one in held):
                raise ConfigurationError(
                    f"charge=: {message!r} is not a message of this transaction", option="charge"
                )

    def conclude(self, messages: Sequence[SessionMessage], error: RedeliveryError | None) -> None:
        """Settle the messages of a commit by the broker's answer.

        - Committed: the broker has settled them.
        - Refused: they have failed, as after a rollback; as in the ActiveMQ Java client.
        - Connection lost: they are deferred. If the transaction was not committed, the broker redelivers them. Such
          deferrals count and are charged in the end: a transaction that breaks its connection each time must end.
        - Rolled back before anything was sent, because the broker does not answer: they are deferred, with a longer
          delay each time, and not charged: the transaction is not the reason.
        """
        with self._lock:
            self._late.difference_update(messages)
        unsent = isinstance(error, TransactionRolledBack) and all(message.live for message in messages)
        delay = back_off(self._unsent + 1) if unsent else 0.0
        self._unsent = self._unsent + 1 if unsent else 0
        for message in messages:
            if error is None:
                _conclude(message, Committed(message.delivery))
            elif isinstance(error, AdapterError):
                _conclude(message, _failed(message, Cause.of(error)))
            else:
                _conclude(message, _again(message, Cause.of(error), delay=delay, counted=not unsent))


def _listed(charge: object) -> list[Message]:
    """Return the messages of `charge=`, read once: it may be an iterator. Raises ConfigurationError."""
    if not isinstance(charge, Iterable):
        raise ConfigurationError(
            f"charge= must be a list of messages, not {type(charge).__name__}", option="charge"
        )
    return list(cast("Iterable[Message]", charge))


def _conclude(message: SessionMessage, event: Event) -> None:
    """Settle one of many messages. If it is settled already, do nothing: the others must be settled, too."""
    with suppress(AlreadySettled):
        message.conclude(event)


def _failed(message: SessionMessage, cause: Cause) -> Event:
    return Failed(message.delivery, cause)


def _again(message: SessionMessage, cause: Cause, *, delay: float = 0.0, counted: bool = False) -> Event:
    return Deferred(message.delivery, delay, cause, counted=counted)


def in_doubt(error: RedeliveryError) -> RedeliveryError:
    """Return the error that `commit` raises."""
    if isinstance(error, AdapterError):
        return AdapterError(f"the broker refused the transaction, and rolled it back: {error}")
    if isinstance(error, TransactionRolledBack):
        return error
    return TransportError(
        f"{error}; the transaction has been committed as a whole or not at all: if not, its messages are redelivered"
    )
