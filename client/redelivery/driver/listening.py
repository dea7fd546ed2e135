"""Method `listen` of connections and sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from redelivery.driver.connection.connection_end import RunnerT
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.driver.arguments import ConsumerOptions, ListenOptions
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_timeout import HandlerDeadline
    from redelivery.driver.session.session_state import SessionState
    from redelivery.message import Message

__all__ = ["HandlerRegistration", "Listening", "RunnerT"]


# ---- Listening -------------------------------------------------------------------------------------------

Handler = TypeVar("Handler", bound="Callable[[Message], Any]")


class Listening(ABC):
    """Interface of classes that register handlers; `ConnectionBase` and `SessionBase` implement it."""

    @overload
    def listen(self, destination: str, handler: Handler, **options: Unpack[ListenOptions]) -> Handler: ...
    @overload
    def listen(
        self, destination: str, handler: None = None, **options: Unpack[ListenOptions]
    ) -> Callable[[Handler], Handler]: ...
    def listen(
        self, destination: str, handler: Handler | None = None, **options: Unpack[ListenOptions]
    ) -> Handler | Callable[[Handler], Handler]:
        """Register a handler: `run` or `start` calls `handler(message)` for each message, `workers` at a time.

        When the handler returns, the message is acknowledged. When it raises, the policy decides on the redelivery.
        `listen` is also a decorator. A plain handler runs on a thread. With `connect_async` an `async def` handler runs
        on the loop.

        In a session one message is handled at a time. In the modes `client` and `transacted` the handler itself
        acknowledges, or commits. If it raises, the exception is logged, the message stays unsettled in the session, and
        the next message is dispatched, as with the ActiveMQ Java client.

        Args:
            destination: Name of the destination, as for `consumer`.
            handler: Function that is called with each `Message`, and awaited if it is `async def`. None: return a
                decorator.
            workers: Number of messages that are handled at the same time. Default 1.
            selector, subscription, credit, ordering, errors, breaker, rate, observers: As for
                `consumer`.
            dead_letter, maximum_set_aside: As for `consumer`.
            timeout: Seconds that a handler may take; None: no limit. Default None. A handler that takes longer has
                failed, even if it succeeds later, and is logged with its stack. An `async def` handler is cancelled. A
                thread cannot be stopped: after twice the timeout `connection.error` is a HandlerTimeout, which `run`
                and `wait` raise.
            on_retry: Called as `f(message, retry)` when a delivery has failed and its message is redelivered, on the
                handler's thread, before the next message there; see `redelivery.events.Retry`.
            on_dead_letter: Called as `f(message, death)` when the broker has confirmed a dead letter, once for each, on
                a thread of its own; see `redelivery.events.Death`. With `connect_async` both hooks are called on the
                loop, and may be `async def`. Their exceptions are logged and change nothing.

        Returns:
            The handler; without `handler`, a decorator that registers a function and returns it.

        Raises:
            ConfigurationError: An argument cannot be used, the handler is `async def` without `connect_async`, or the
                connection was drained, or the session was closed.
            TypeError: A keyword argument is unknown.
        """
        self._check_listener(options)
        _refuse_handler(destination)
        if handler is None:

            def decorate(function: Handler) -> Handler:
                return self.listen(destination, function, **options)

            return decorate
        self._listening(destination, handler, options)
        return handler

    @abstractmethod
    def _check_listener(self, options: ListenOptions) -> None:
        """Raise ConfigurationError if a listener cannot be registered now; its handler is not known yet."""

    @abstractmethod
    def _listening(
        self, destination: str, handler: Callable[[Message], Any], options: ListenOptions
    ) -> object:
        """Register a handler. Raises ConfigurationError."""


def _refuse_handler(destination: object) -> None:
    """Refuse the handler in the place of the destination: the decorator was written without parentheses."""
    if callable(destination):
        name = getattr(destination, "__name__", "handler")
        raise ConfigurationError(
            f'listen needs a destination: write @connection.listen("orders") above {name}',
            option="destination",
        )


# ---- Handler registration --------------------------------------------------------------------------------
# A handler that `listen` has registered, before and after its start.


@dataclass(slots=True)
class HandlerRegistration(Generic[RunnerT]):
    """A handler that is registered; once it is started, its dispatcher and the threads or tasks that run it."""

    destination: str
    handler: Callable[[Message], Any]
    workers: int
    options: ConsumerOptions
    deadline: HandlerDeadline | None = None
    session_state: SessionState | None = None
    """State of the session that the listener belongs to; None: of no session."""
    ended: bool = False
    """True if its session was closed."""
    dispatcher: Dispatcher | None = None
    runners: list[RunnerT] = field(default_factory=list[RunnerT])
