"""The asyncio session: the twin of `Session`, awaited."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self, Unpack

from redelivery.async_consumer import AsyncConsumer
from redelivery.core.option_values import seconds
from redelivery.driver.asyncio_wait import answer_on_loop, in_own_thread
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.session.session_base import SessionBase
from redelivery.driver.session.session_state import COMMIT_TIMEOUT
from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta
    from types import TracebackType

    from redelivery.driver.arguments import ConsumerOptions
    from redelivery.driver.connection.send_request import SendOptions
    from redelivery.message import Message

__all__ = ["AsyncSession"]


class AsyncSession(SessionBase):
    """Consumers, listeners and sends that are settled together, for one task. Made by `AsyncConnection.session`.

    With `async with` it is closed at the end: what a transacted one has not committed is rolled back.
    """

    async def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Start a consumer of this session. Arguments and errors as for `Connection.consumer`."""
        self._check_consumer()
        dispatcher, waiter = await self._port.subscribed(destination, options, self._state)
        dispatcher.pulled = True
        self._consuming(dispatcher)
        return AsyncConsumer(dispatcher, waiter, self._port.driver.unsubscribe)

    async def acknowledge(self) -> None:
        """Accept all that the session has given out so far; in the mode `client` only. Raises ConfigurationError."""
        self._acknowledge()

    async def recover(self) -> None:
        """Have all that is not settled come again, each charged a redelivery, as `Session.recover` does."""
        self._recover()

    async def commit(self, *, timeout: float | timedelta = COMMIT_TIMEOUT) -> None:
        """Accept all that was received and send all that was sent since the last commit, as `Session.commit` does."""
        deadline, patience = self._commits(timeout)
        if patience > self._port.clock.monotonic():
            with suppress(TimeoutError, RedeliveryError):  # then the commit says so
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
        except BaseException:  # a task that is cancelled does not take the commit back
            self._late(attempt)
            raise
        self._conclude(attempt, error)

    async def rollback(self, charge: Collection[Message] | None = None) -> None:
        """Drop what was sent, and have what was received come again, as `Session.rollback` does."""
        self._roll_back(charge)

    async def send(self, destination: str, body: bytes | str, **options: Unpack[SendOptions]) -> str:
        """Send as `Connection.send`; in the mode `transacted` with the commit, whose answer is the confirmation."""
        self._check_open()
        if self.mode == "transacted":
            return self._keep(destination, body, options)
        sent: str = await self._port.send(destination, body, **options)
        return sent

    async def close(self, timeout: float | timedelta = CLOSE_TIMEOUT) -> None:
        """End the session, its consumers and listeners, as `Session.close` does."""
        timeout = seconds(timeout, "timeout")
        if self._begin_end():  # in one call: a close that is cancelled ends all of them even so
            await in_own_thread(self._finish, self._state.activity.mine(), timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
