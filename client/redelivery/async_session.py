"""Asyncio session: the methods of `Session`, awaited."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self, Unpack

from redelivery.async_consumer import AsyncConsumer
from redelivery.core.option_values import seconds
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.session.session_base import SessionBase
from redelivery.driver.session.session_state import COMMIT_TIMEOUT
from redelivery.driver.waiting import answer_on_loop, in_own_thread
from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta
    from types import TracebackType

    from redelivery.driver.arguments import ConsumerOptions
    from redelivery.driver.connection.sends import SendOptions
    from redelivery.message import Message

__all__ = ["AsyncSession"]


class AsyncSession(SessionBase):
    """Consumers, listeners and sends whose messages are settled together, for one task.

    Made by `AsyncConnection.session`. Leaving its `async with` block closes the session. A transacted session
    then rolls back what it has not committed.
    """

    async def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Start a consumer of this session. Arguments and errors as for `Connection.consumer`.

        Args:
            destination: As for `Connection.consumer`, and so are the keyword arguments.

        Returns:
            The consumer, which the broker has confirmed.

        Raises:
            ConfigurationError: The session is closed, or it has a listener; or as for `Connection.consumer`.
        """
        self._check_consumer()
        dispatcher, waiter = await self._port.subscribed(destination, options, self._state)
        dispatcher.pulled = True
        self._consuming(dispatcher)
        return AsyncConsumer(dispatcher, waiter, self._port.driver.unsubscribe)

    async def acknowledge(self) -> None:
        """Acknowledge all messages that the session has given out. Only in the mode `client`.

        Raises:
            ConfigurationError: The session has another mode, or is closed.
        """
        self._acknowledge()

    async def recover(self) -> None:
        """Redeliver all unsettled messages of the session. Each is charged a redelivery.

        Raises:
            ConfigurationError: The session is transacted: use `rollback`.
        """
        self._recover()

    async def commit(self, *, timeout: float | timedelta = COMMIT_TIMEOUT) -> None:
        """Acknowledge what was received and send what was kept since the last commit: all of it, or nothing.

        Args:
            timeout: Seconds, or a timedelta, for the reconnect and the broker's answer together. Default 30.

        Raises:
            ConfigurationError: The session is not transacted, or is closed.
            AdapterError: The broker refused the commit. The transaction is rolled back: nothing was sent, and
                each message received is charged a redelivery.
            TransactionRolledBack: Nothing was sent, and the messages received are redelivered; see
                `Session.commit`.
            TransportError: The connection was lost, or no answer arrived in time. The broker committed either
                the whole transaction or nothing. In the second case it redelivers the messages; the sends are
                not repeated.
        """
        deadline, patience = self._commits(timeout)
        if patience > self._port.clock.monotonic():
            with suppress(TimeoutError, RedeliveryError):  # then the commit reports it
                await answer_on_loop(patience, self._port.driver.standing(), self._port.clock)
        attempt = self._begin_commit(deadline, timeout)
        if attempt is None:
            return
        error: RedeliveryError | None = None
        try:
            await answer_on_loop(attempt.deadline, attempt.future, self._port.clock)
        except TimeoutError:
            raise self._late(attempt) from None
        except RedeliveryError as refused:
            error = refused
        # Cancelling the task does not undo the commit.
        except BaseException:
            self._late(attempt)
            raise
        self._conclude(attempt, error)

    async def rollback(self, charge: Collection[Message] | None = None) -> None:
        """Drop the messages sent since the last commit, and redeliver the messages received since then.

        Args:
            charge: Messages that are charged a redelivery; the others are redelivered at once. None: all.

        Raises:
            ConfigurationError: The session is not transacted, or is closed.
        """
        self._roll_back(charge)

    async def send(self, destination: str, body: bytes | str, **options: Unpack[SendOptions]) -> str:
        """Send a message as `AsyncConnection.send` does; in the mode `transacted`, with the next commit.

        In that mode it returns at once: the broker's answer to the commit is the confirmation.

        Args:
            destination: As for `Connection.send`, and so are the keyword arguments and the errors.
            body: `str` arrives as a JMS TextMessage, `bytes` as a BytesMessage.

        Returns:
            The id of the message, which is its `redeliveryId` property.
        """
        self._check_open()
        if self.mode == "transacted":
            return self._keep(destination, body, options)
        sent: str = await self._port.send(destination, body, **options)
        return sent

    async def close(self, timeout: float | timedelta = CLOSE_TIMEOUT) -> None:
        """End the session, its consumers and listeners, as `Session.close` does.

        Args:
            timeout: Seconds, or a timedelta, to wait at most. Default 5.

        Raises:
            ConfigurationError: `timeout` is not a duration.
        """
        timeout = seconds(timeout, "timeout")
        # In one call: a cancelled close still ends all of them.
        if self._begin_end():
            await in_own_thread(self._finish, self._state.activity.mine(), timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
