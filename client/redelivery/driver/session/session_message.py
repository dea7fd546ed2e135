"""Message of a session: in some modes it is settled together with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redelivery.core.delivery import Cause
from redelivery.core.events import Released, Succeeded
from redelivery.core.printable import printable_id
from redelivery.errors import ConfigurationError
from redelivery.failure_log import log_failure
from redelivery.log import logger
from redelivery.message import Message

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.session.activity import SessionActivity

__all__ = ["SessionMessage"]


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
        return self._delivery.epoch == self._dispatcher.engine.epoch

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
