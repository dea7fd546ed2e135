"""A listener's `on_retry` and `on_dead_letter`: an observer of its consumer.

`on_retry` is called where the handler ran, before the next message there. `on_dead_letter` is called once the broker
has confirmed the dead letter: elsewhere, because the thread that reads from the broker must not be kept. A message is
reported dead at most once by a process, and never where the broker does not answer.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NamedTuple, Protocol

from redelivery.driver.consumer.hook_call import HookCall, HookFaults
from redelivery.errors import ConfigurationError
from redelivery.events import DeadLettered, DeadLettering, Observer
from redelivery.events.retry_and_death import Death, Retry
from redelivery.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Any

    from redelivery.core.delivery import Delivery
    from redelivery.driver.arguments import ConsumerOptions, ListenOptions
    from redelivery.events import Event, Finished, MessageEvent
    from redelivery.message import Settler

__all__ = ["HookCalls", "add_hooks", "check_hooks", "start_hooks"]

# Messages whose dead letter has no answer yet; past them the oldest is forgotten: its hook gets what is left of it.
MOST = 10_000


def check_hooks(options: ListenOptions, *, awaits: bool, mode: str | None) -> None:
    """Refuse hooks that would not be called.

    Raises:
        ConfigurationError: one is not callable, is `async def` where nothing awaits it, or is for a session whose mode
            settles messages together (`mode`; None: no session).
    """
    for name in ("on_retry", "on_dead_letter"):
        hook = options.get(name)
        if hook is None:
            continue
        if not callable(hook):
            raise ConfigurationError(f"{name}= must be callable, not {type(hook).__name__}", option=name)
        if inspect.iscoroutinefunction(hook) and not awaits:
            raise ConfigurationError(f"{name}= is async def; use redelivery.connect_async", option=name)
        if mode in ("transacted", "client"):
            raise ConfigurationError(
                f"{name}=: a {mode} session settles messages together, later than their handlers end; use "
                "observers=[...], which are shown the result then",
                option=name,
            )


class HookCalls(Protocol):
    """Interface of what calls the hooks of a connection; `HookThread` and `HookTasks` implement it."""

    def here(self, call: HookCall) -> None:
        """Make a call on the handler's thread, or on its loop."""

    def elsewhere(self, call: HookCall) -> None:
        """Have a call made where it may take long."""

    def close(self, timeout: float) -> None:
        """Make the calls that wait, within `timeout` seconds."""


class Dying(NamedTuple):
    """A message whose dead letter is not confirmed yet. It is kept with its body, which the library lets go of."""

    message: Message
    error: BaseException | None


class ListenerHooks(Observer):
    """Calls the hooks of one listener."""

    def __init__(
        self,
        on_retry: Callable[[Message, Retry], object] | None,
        on_dead_letter: Callable[[Message, Death], object] | None,
        calls: HookCalls,
    ) -> None:
        """Call hooks.

        Args:
            on_retry: see above.
            on_dead_letter: see above.
            calls: makes the calls.
        """
        self.settler: Settler | None = None
        """Of the consumer, once it is started: makes a message of a delivery that no handler had."""
        self._on_retry = on_retry
        self._on_dead_letter = on_dead_letter
        self._calls = calls
        self._faults = HookFaults()
        self._dying: dict[Hashable, Dying] = {}

    def finished(self, token: Any, result: Finished) -> None:  # noqa: ARG002 - the hooks begin nothing
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
            self._calls.here(HookCall("on_retry", lambda: hook(message, retry), result, self._faults))
        elif result.outcome == "poisoned" and self._on_dead_letter is not None:
            self._keep(result, Dying(message, result.error))

    def event(self, event: Event) -> None:
        """Call `on_dead_letter` for what the broker has confirmed."""
        if self._on_dead_letter is None:
            return
        if isinstance(event, DeadLettering):
            if _key(event) in self._dying or event.delivery.state == "settled":
                # Known; or the broker's answer came first.
                return
            self._keep(event, Dying(self._message(event.delivery), None))
        elif isinstance(event, DeadLettered):
            hook = self._on_dead_letter
            dying = self._dying.pop(_key(event), None) or Dying(self._message(event.delivery), None)
            death = Death(event.cause, event.delivery_count, dying.error)
            call = HookCall("on_dead_letter", lambda: hook(dying.message, death), event, self._faults)
            self._calls.elsewhere(call)

    def _keep(self, event: MessageEvent, dying: Dying) -> None:
        while len(self._dying) >= MOST:
            self._dying.pop(next(iter(self._dying)), None)
        self._dying[_key(event)] = dying

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
    """Have the hooks among observers know what their consumer's messages are settled by."""
    for each in observers:
        if isinstance(each, ListenerHooks):
            each.settler = settler


def _key(event: MessageEvent) -> Hashable:
    """Return what the message is known by over connections; without an id, this delivery."""
    return event.message_id or id(event.delivery)
