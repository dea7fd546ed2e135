"""A listener's hooks `on_retry` and `on_dead_letter`, called by an observer of its consumer.

`on_retry` is called where the handler ran, before the next message there. `on_dead_letter` is called after the broker
has confirmed the dead letter, on another thread, because the thread that reads from the broker must not be blocked.
`on_dead_letter` is called at most once for a message in a process, and never if the broker does not answer.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from redelivery.core.async_callable import is_async_callable
from redelivery.driver.consumer.hook_call import HookCall, HookFaults
from redelivery.errors import ConfigurationError
from redelivery.events import DeadLettered, DeadLettering, Observer
from redelivery.events.retry_and_death import Death, Retry
from redelivery.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from redelivery.core.delivery import Delivery, Record
    from redelivery.driver.arguments import ConsumerOptions, ListenOptions
    from redelivery.events import Event, Finished, MessageEvent
    from redelivery.message import Settler

__all__ = ["HookCalls", "add_hooks", "check_hooks", "start_hooks"]

# Messages whose dead letter is unconfirmed, and their bytes. Past them the oldest is dropped; its hook then gets a
# message without the body.
MOST, MOST_BYTES = 1000, 64 * 1024 * 1024


def check_hooks(options: ListenOptions, *, awaits: bool, mode: str | None) -> None:
    """Refuse hooks that would not be called.

    Args:
        options: Arguments of the listener.
        awaits: True on an asyncio connection: a hook may be `async def`.
        mode: Mode of its session; None: no session.

    Raises:
        ConfigurationError: A hook is not callable, is `async def` on a connection with threads, or the session's mode
            settles messages together.
    """
    for name in ("on_retry", "on_dead_letter"):
        hook = options.get(name)
        if hook is None:
            continue
        if not callable(hook):
            raise ConfigurationError(f"{name}= must be callable, not {type(hook).__name__}", option=name)
        if is_async_callable(hook) and not awaits:
            raise ConfigurationError(f"{name}= is async def; use redelivery.connect_async", option=name)
        if mode in ("transacted", "client"):
            raise ConfigurationError(
                f"{name}=: a {mode} session settles messages together, after their handlers have ended; use "
                "observers=[...], which get the result then",
                option=name,
            )


class HookCalls(Protocol):
    """Interface for calling the hooks of a connection; `HookThread` and `HookTasks` implement it."""

    def here(self, call: HookCall) -> None:
        """Make a call on the handler's thread, or on its loop."""

    def elsewhere(self, call: HookCall) -> None:
        """Queue a call for another thread or the loop, where it may take long."""

    def close(self, timeout: float) -> None:
        """Make the queued calls, within `timeout` seconds."""

    @property
    def dropped(self) -> int:
        """Number of calls that were dropped, because too many waited."""
        ...


class Dying(NamedTuple):
    """A message whose dead letter is unconfirmed, with its body, which the library itself does not keep."""

    message: Message
    error: BaseException | None
    size: int


class ListenerHooks(Observer):
    """Calls the hooks of one listener."""

    def __init__(
        self,
        on_retry: Callable[[Message, Retry], object] | None,
        on_dead_letter: Callable[[Message, Death], object] | None,
        calls: HookCalls,
    ) -> None:
        """Set the hooks.

        Args:
            on_retry: The listener's hook, or None.
            on_dead_letter: The listener's hook, or None.
            calls: Makes the calls.
        """
        self.settler: Settler | None = None
        """The consumer's settler once it is started, to make a message from a delivery that no handler had."""
        self._on_retry = on_retry
        self._on_dead_letter = on_dead_letter
        self._calls = calls
        self._faults = HookFaults()
        self._dying: dict[Record | Delivery, Dying] = {}
        self._bytes = 0
        # Handlers end on other threads than the one that brings the broker's answers.
        self._lock = threading.Lock()

    def finished(self, token: Any, result: Finished) -> None:  # noqa: ARG002 - `started` gives no token
        """Call `on_retry`, or keep the message for `on_dead_letter`."""
        message = result.message or self._message(result.delivery)
        if result.outcome == "redelivered" and self._on_retry is not None:
            hook = self._on_retry
            retry = Retry(
                result.delay or 0.0,
                result.delivery_count,
                result.maximum,
                result.cause or "unknown",
                result.error,
            )
            self._calls.here(
                HookCall("on_retry", lambda: hook(message, retry), result, self._faults, result.delivery.size)
            )
        elif result.outcome == "poisoned" and self._on_dead_letter is not None:
            self._keep(result, message, result.error)

    def event(self, event: Event) -> None:
        """Call `on_dead_letter` for a dead letter that the broker has confirmed."""
        if self._on_dead_letter is None:
            return
        if isinstance(event, DeadLettering):
            if _key(event.delivery) in self._dying or event.delivery.state == "settled":
                # Kept already, or the broker's answer was first.
                return
            self._keep(event, self._message(event.delivery), None)
        elif isinstance(event, DeadLettered):
            hook = self._on_dead_letter
            dying = self._taken(_key(event.delivery))
            if dying is None:
                dying = Dying(self._message(event.delivery), None, event.delivery.size)
            message, death = dying.message, Death(event.cause, event.delivery_count, dying.error)
            self._calls.elsewhere(
                HookCall("on_dead_letter", lambda: hook(message, death), event, self._faults, dying.size)
            )

    def _keep(self, event: MessageEvent, message: Message, error: BaseException | None) -> None:
        key, size = _key(event.delivery), event.delivery.size
        with self._lock:
            self._remove(key)
            while self._dying and (len(self._dying) >= MOST or self._bytes + size > MOST_BYTES):
                self._remove(next(iter(self._dying)))
            self._dying[key] = Dying(message, error, size)
            self._bytes += size

    def _taken(self, key: Record | Delivery) -> Dying | None:
        """Remove and return what is kept of a message; None: nothing."""
        with self._lock:
            return self._remove(key)

    def _remove(self, key: Record | Delivery) -> Dying | None:
        dying = self._dying.pop(key, None)
        if dying is not None:
            self._bytes -= dying.size
        return dying

    def _message(self, delivery: Delivery) -> Message:
        assert self.settler is not None, "its consumer is started"
        return Message(delivery, self.settler)


def add_hooks(consumer: ConsumerOptions, options: ListenOptions, calls: HookCalls) -> None:
    """Add the hooks of a listener to the observers of its consumer, if it has any."""
    on_retry, on_dead_letter = options.get("on_retry"), options.get("on_dead_letter")
    if on_retry is not None or on_dead_letter is not None:
        hooks = ListenerHooks(on_retry, on_dead_letter, calls)
        consumer["observers"] = (*(consumer.get("observers") or ()), hooks)


def start_hooks(observers: Iterable[object], settler: Settler) -> None:
    """Set the settler of the hooks among observers: their consumer has started."""
    for each in observers:
        if isinstance(each, ListenerHooks):
            each.settler = settler


def _key(delivery: Delivery) -> Record | Delivery:
    """Return the key of the message over all connections: the engine's record of it.

    Not its id: two messages may have the same one.
    """
    return delivery.record or delivery
