"""`listen`, as connections and sessions offer it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.driver.arguments import ListenOptions
    from redelivery.message import Message

__all__ = ["Listening"]

Handler = TypeVar("Handler", bound="Callable[[Message], Any]")


class Listening(ABC):
    """Interface of what registers handlers; `ConnectionBase` and `SessionBase` implement it."""

    @overload
    def listen(self, destination: str, handler: Handler, **options: Unpack[ListenOptions]) -> Handler: ...
    @overload
    def listen(
        self, destination: str, handler: None = None, **options: Unpack[ListenOptions]
    ) -> Callable[[Handler], Handler]: ...
    def listen(
        self, destination: str, handler: Handler | None = None, **options: Unpack[ListenOptions]
    ) -> Handler | Callable[[Handler], Handler]:
        """Have `handler(message)` called for each message, `workers` at a time, from `run` or `start` on.

        A return accepts; an exception goes to the policy. Also a decorator. A plain handler runs on a thread. With
        `connect_async` an `async def` one runs on the loop.

        In a session one message is handled at a time. In its modes `client` and `transacted` the handler itself
        acknowledges, or commits; an exception is logged, the message stays with the session, and the next one is
        delivered, as with the reference.

        Args:
            destination: as for `consumer`.
            handler: called with each `Message`, and awaited if it is `async def`.
            workers: how many messages are handled at a time; 1 by default.
            selector, subscription, credit, ordering, errors, breaker, rate, observers, maximum_set_aside: as for
                `consumer`.
            timeout: seconds that a handler may take; no limit by default. One that takes longer has failed, whatever it
                comes to, and is logged with its stack. An `async def` handler is cancelled; a thread cannot be stopped:
                after twice as long `connection.error` is a HandlerTimeout, with which `run` and `wait` end.

        Raises:
            ConfigurationError: the arguments cannot be honoured, or the handler is `async def` without `connect_async`.
        """
        self._check_listener(options)
        if handler is None:

            def decorate(function: Handler) -> Handler:
                return self.listen(destination, function, **options)

            return decorate
        self._listening(destination, handler, options)
        return handler

    @abstractmethod
    def _check_listener(self, options: ListenOptions) -> None:
        """Refuse a listener before its handler is known. Raises ConfigurationError."""

    @abstractmethod
    def _listening(
        self, destination: str, handler: Callable[[Message], Any], options: ListenOptions
    ) -> object:
        """Register a handler. Raises ConfigurationError."""
