"""A message of a session: settled with others, as its session's mode says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redelivery.core.delivery import Cause
from redelivery.core.events import Released, Succeeded
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
    """The session of a message, as the message sees it; `SessionState` implements it."""

    activity: SessionActivity
    cause: Cause | None

    @property
    def mode(self) -> str:
        """`auto`, `client`, `individual`, `transacted` or `dups_ok`."""
        ...

    def forget(self, delivery: Delivery) -> bool:
        """Let go of a delivery that is settled by itself. False: a commit has taken it."""
        ...

    def acknowledge(self, call: str) -> None:
        """Accept all that the session has given out so far."""


class SessionMessage(Message):
    """One delivery to a session.

    In a `client` session `accept()` accepts all that the session has given out so far. In a `transacted` one `commit()`
    and `rollback()` settle, nothing else does, and `with message:` lets every exception through.
    """

    __slots__ = ("_dispatcher", "_state")

    def __init__(self, delivery: Delivery, dispatcher: Dispatcher, session_state: MessageSession) -> None:
        super().__init__(delivery, dispatcher)
        self._dispatcher = dispatcher
        self._state = session_state

    @property
    def delivery(self) -> Delivery:
        """The delivery itself."""
        return self._delivery

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher that it came over."""
        return self._dispatcher

    @property
    def live(self) -> bool:
        """Whether it can still be settled at the broker: its connection stands, and its consumer is open."""
        return self._delivery.epoch == self._dispatcher.engine.epoch

    def conclude(self, event: Event) -> None:
        """Settle it, as its session says."""
        self._outcome = self._dispatcher.settle(self._delivery, event)

    def result(self, error: BaseException | None) -> Event | None:
        """Return what the end of a handler means: nothing yet, where the session settles."""
        settles = self._state.mode not in ("client", "transacted")
        # While it is in hand: in between, another thread's call would take it.
        if settles:
            self._state.forget(self._delivery)
        self._state.activity.ended(self)
        if settles:
            return super().result(error)
        if error is not None:
            cause = self._state.cause = Cause.of(error)
            logger.warning(
                "%s: %s: delivery %d failed (%s); it stays with its session, unsettled",
                self.destination, self.message_id, self.delivery_count, cause.text,
            )  # fmt: skip
        return None

    def handler_over(self) -> None:
        self._state.activity.ended(self)

    def give_back(self) -> None:
        # A commit on its way may accept it yet: its answer settles, not the end of who waited for it. Nor may another
        # thread's commit take it between its handler's end and its release: that one has not done it.
        held = self._outcome is None and self._state.forget(self._delivery)
        self._state.activity.ended(self)
        if held:
            self.conclude(Released(self._delivery))

    def _settle(self, event: Event) -> bool:
        if self._state.mode == "transacted":
            raise ConfigurationError(
                "in a transacted session commit() and rollback() settle messages, all of them together"
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
