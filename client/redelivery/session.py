"""The synchronous session: messages settled together, as a mode says."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self, Unpack

from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.consumer import Consumer
from redelivery.core.option_values import seconds
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.session.session_base import SessionBase
from redelivery.driver.session.session_state import COMMIT_TIMEOUT
from redelivery.driver.thread_wait import answer_by
from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta
    from types import TracebackType

    from redelivery.driver.arguments import ConsumerOptions
    from redelivery.driver.connection.send_request import SendOptions
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.message import Message

__all__ = ["Session"]


class Session(SessionBase):
    """Consumers, listeners and sends that are settled together, for one thread. Made by `Connection.session`.

    As a context manager it is closed at the end: what a transacted one has not committed is rolled back.
    """

    # Consuming.

    def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Start a consumer of this session. Arguments and errors as for `Connection.consumer`."""
        self._check_consumer()
        dispatcher: Dispatcher = self._port.subscribed(destination, options, self._state)
        dispatcher.pulled = True
        self._consuming(dispatcher)
        return Consumer(dispatcher, self._port.driver.unsubscribe)

    # Settling.

    def acknowledge(self) -> None:
        """Accept all that the session has given out so far; in the mode `client` only. Raises ConfigurationError."""
        with Uninterrupted():
            self._acknowledge()

    def recover(self) -> None:
        """Have all that is not settled come again, each charged a redelivery.

        Raises:
            ConfigurationError: the session is transacted: that is what `rollback` is for.
        """
        with Uninterrupted():
            self._recover()

    def commit(self, *, timeout: float | timedelta = COMMIT_TIMEOUT) -> None:
        """Accept all that was received and send all that was sent since the last commit: all of it, or nothing.

        Args:
            timeout: seconds for the connection to stand and the broker to answer, together; 30 by default.

        Raises:
            AdapterError: the broker refused; it is rolled back, and what was received is charged a redelivery.
            TransactionRolledBack: nothing was sent, and what was received comes again: the connection that it came over
                has been lost, or a consumer closed; or there was no connection in time; or too much has no answer.
            TransportError: the connection was lost, or no answer came in time: the transaction was committed as a whole
                or not at all. What was not committed comes again; its sends are not made again.
        """
        deadline, patience = self._commits(timeout)
        if patience > self._port.clock.monotonic():
            with suppress(TimeoutError, RedeliveryError):  # then the commit says so
                answer_by(patience, self._port.driver.standing(), self._port.clock)
        attempt = self._begin_commit(deadline, timeout)
        if attempt is None:
            return
        error: RedeliveryError | None = None
        try:
            answer_by(attempt.deadline, attempt.future, self._port.clock)
        except TimeoutError:
            raise self._late(attempt) from None
        except RedeliveryError as refused:
            error = refused
        # An interrupt does not take the commit back.
        except BaseException:
            self._late(attempt)
            raise
        self._conclude(attempt, error)

    def rollback(self, charge: Collection[Message] | None = None) -> None:
        """Drop what was sent, and have what was received come again.

        Args:
            charge: the messages that are charged a redelivery; all by default. The others come again at once.
        """
        with Uninterrupted():
            self._roll_back(charge)

    # Sending.

    def send(self, destination: str, body: bytes | str, **options: Unpack[SendOptions]) -> str:
        """Send as `Connection.send`; in the mode `transacted` with the commit, whose answer is the confirmation."""
        self._check_open()
        if self.mode == "transacted":
            return self._keep(destination, body, options)
        sent: str = self._port.send(destination, body, **options)
        return sent

    # The end.

    def close(self, timeout: float | timedelta = CLOSE_TIMEOUT) -> None:
        """End the session, its consumers and listeners: a transacted one is rolled back, the rest given back.

        From any thread. A handler that runs, and a commit that the broker has not answered, are waited for, `timeout`
        seconds at most (5 by default); what is not over then is said in the log. A handler may close its own session.
        """
        timeout = seconds(timeout, "timeout")
        if self._begin_end():
            self._finish(self._state.activity.mine(), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
