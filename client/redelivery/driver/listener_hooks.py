"""Hooks of a listener, `on_retry` and `on_dead_letter`: their bounded queue, and their calls on a thread or a loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from redelivery.clock import join_within, start_attached
from redelivery.core.application_functions import is_async_callable
from redelivery.core.delivery import Cause
from redelivery.driver.event_log import named
from redelivery.errors import ConfigurationError
from redelivery.events import DeadLettered, DeadLettering, Observer
from redelivery.events.event import Death, Retry
from redelivery.log import logger, loggers
from redelivery.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery, Record
    from redelivery.driver.arguments import ConsumerOptions, ListenOptions
    from redelivery.events import Event, Finished, MessageEvent
    from redelivery.message import Settler

__all__ = [
    "HookCall",
    "HookCalls",
    "HookFaults",
    "HookQueue",
    "HookTasks",
    "HookThread",
    "add_hooks",
    "check_hooks",
    "start_hooks",
]


# ---- Hook queue ------------------------------------------------------------------------------------------
# Queue of calls of an application's hooks: bounded in number and bytes, because a hook may wait for a slow service.
#
# Each call keeps its message. Without a bound a flood of poison messages would fill the memory.

MOST_CALLS = 1000
MOST_BYTES = 64 * 1024 * 1024
"""Of messages. One call is kept, however large its message is."""


class HookQueue:
    """Calls that wait, in order. Not thread-safe."""

    def __init__(self) -> None:
        self._calls: deque[HookCall] = deque()
        self._bytes = 0
        self.dropped = 0
        """Number of calls that were dropped so far, because too many waited."""

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: HookCall) -> bool:
        """Add a call; drop the oldest ones while too many wait. Return True if they are the first: see `tell`."""
        self._calls.append(call)
        self._bytes += call.size
        first = not self.dropped
        while len(self._calls) > MOST_CALLS or (self._bytes > MOST_BYTES and len(self._calls) > 1):
            self._pop().drop()
            self.dropped += 1
        return first and self.dropped > 0

    def take(self) -> HookCall | None:
        """Remove and return the oldest call; None: none waits."""
        return self._pop() if self._calls else None

    def clear(self) -> int:
        """Drop all calls, because the connection closes; return their number."""
        left = len(self._calls)
        while self._calls:
            self._pop().drop()
        return left

    def _pop(self) -> HookCall:
        call = self._calls.popleft()
        self._bytes -= call.size
        return call


def tell() -> None:
    """Log that calls are dropped: once for a connection, and without a lock, because a log handler may be slow."""
    logger.warning(
        "calls of on_dead_letter and on_retry are dropped, the oldest first: the hooks are too slow, and %d calls or "
        "%d MiB of messages wait; health().connection.hook_calls_dropped has their number",
        MOST_CALLS,
        MOST_BYTES // 1024**2,
    )


# ---- Hook tasks ------------------------------------------------------------------------------------------
# Calls of an application's hooks on an asyncio loop: an `async def` hook is awaited in a task.

# Hooks that are awaited at the same time. Further calls wait in the queue.
AT_ONCE = 100
# Seconds that cancelled hooks get for their end.
GRACE = 1.0


class HookTasks:
    """Calls and tasks of the hooks of one connection's listeners."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._lock = threading.Lock()
        self._calls = HookQueue()
        self._closed = False

    def entered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop for all calls from now on."""
        self._loop = loop

    @property
    def dropped(self) -> int:
        """Number of calls that were dropped, because too many waited."""
        return self._calls.dropped

    def here(self, call: HookCall) -> None:
        """Make a call at once; the caller is on the loop. What it returns to be awaited may have to wait."""
        result = call()
        if not inspect.iscoroutine(result):
            return
        if self._closed:
            result.close()
        elif len(self._tasks) < AT_ONCE:
            self._await(result, call)
        else:
            self._add(call.begun(result))

    def elsewhere(self, call: HookCall) -> None:
        """Schedule a call on the loop, from any thread."""
        if self._loop is not None and not self._closed:
            self._add(call)
            # RuntimeError: the loop is closed; no hook is called any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._next)

    def close(self, timeout: float) -> None:
        """Do nothing: `wait` waits on the loop."""

    async def wait(self, timeout: float) -> None:
        """Make the queued calls and wait for the tasks of hooks, for `timeout` seconds at most; cancel the others."""
        mine, deadline = asyncio.current_task(), time.monotonic() + timeout
        while self._next():
            pass
        while (tasks := self._tasks - {mine}) and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if cancelled := self.end():
            await asyncio.wait(cancelled, timeout=GRACE)

    def end(self) -> set[asyncio.Future[None]]:
        """Make no call any more, and cancel the tasks but the caller's own; return these. On the loop."""
        self._closed = True
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        with self._lock:
            left = self._calls.clear() + len(tasks)
        if left:
            logger.warning("%d calls of hooks had not ended when the connection was closed", left)
        return tasks

    def _add(self, call: HookCall) -> None:
        with self._lock:
            first = self._calls.add(call)
        if first:
            tell()

    def _next(self) -> bool:
        """Make the next call, unless too many hooks are awaited; return True if there was one. On the loop."""
        if len(self._tasks) >= AT_ONCE:
            return False
        with self._lock:
            call = self._calls.take()
        if call is None:
            return False
        result = call()
        if inspect.iscoroutine(result):
            self._await(result, call)
        return True

    def _await(self, hook: Coroutine[Any, Any, object], call: HookCall) -> None:
        task = asyncio.ensure_future(_awaited(hook, call))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        self._go_on()

    def _go_on(self) -> None:
        """Make the calls that wait, while there is room: a plain hook leaves the room to the next one."""
        if self._next() and self._calls and self._loop is not None:
            self._loop.call_soon(self._go_on)


async def _awaited(hook: Coroutine[Any, Any, object], call: HookCall) -> None:
    """Await a hook; log an exception that it raises."""
    try:
        await hook
    except Exception as error:  # noqa: BLE001 - logged
        call.failed(error)


# ---- Hook thread -----------------------------------------------------------------------------------------
# Thread of a connection that calls an application's hooks: a hook may take long, and may wait for the connection.


class HookThread:
    """One thread, started by the first call. It makes the calls one after the other, in order.

    It is counted by the clock, and waits on it: a manual clock does not move before the queued calls are made.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = threading.Condition()
        self._calls = HookQueue()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def dropped(self) -> int:
        """Number of calls that were dropped, because too many waited."""
        return self._calls.dropped

    def here(self, call: HookCall) -> None:
        """Make a call on the current thread."""
        call()

    def elsewhere(self, call: HookCall) -> None:
        """Queue a call for the hook thread; drop it if the connection is closed."""
        with self._turn:
            if self._closed:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._keep, name="redelivery-hooks", daemon=True)
                start_attached(thread, self._clock)
                self._thread = thread
            first = self._calls.add(call)
            self._clock.notify(self._turn)
        if first:
            tell()

    def close(self, timeout: float) -> None:
        """Make the queued calls and end the thread, within `timeout` seconds of real time."""
        with self._turn:
            self._closed = True
            self._clock.notify(self._turn)
        if self._thread is not None and self._thread is not threading.current_thread():
            join_within(self._thread, timeout)
        with self._turn:
            left = self._calls.clear()
        if left:
            logger.warning("%d calls of on_dead_letter were not made before the connection was closed", left)

    def _keep(self) -> None:
        try:
            while (call := self._next()) is not None:
                call()
        finally:
            self._clock.detach()

    def _next(self) -> HookCall | None:
        """Wait for the next call, and return it; None: the thread is to end."""
        with self._turn:
            while (call := self._calls.take()) is None and not self._closed:
                self._clock.wait(self._turn, None)
            return call


# ---- Hook call -------------------------------------------------------------------------------------------
# Call of a listener's hook: an exception of the hook is logged with its message, and changes nothing.

# Pairs of hook and exception type that are remembered. Past them no traceback is logged.
MOST_TYPES = 100


class HookFaults:
    """Exceptions of one listener's hooks: the traceback is logged once for each hook and type."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[tuple[str, type[BaseException]]] = set()

    def first(self, hook: str, error: BaseException) -> bool:
        """Return True if a hook has not raised this type before."""
        key = hook, type(error)
        with self._lock:
            if key in self._seen or len(self._seen) >= MOST_TYPES:
                return False
            self._seen.add(key)
            return True


class HookCall:
    """One call of a hook, for the message of an event."""

    __slots__ = ("_begun", "_call", "_event", "_faults", "_hook", "size")

    def __init__(
        self, hook: str, call: Callable[[], object], event: MessageEvent, faults: HookFaults, size: int = 0
    ) -> None:
        """Set the hook's name, the function that calls it, and the event that it is called for.

        `size`: bytes of the message that it keeps.
        """
        self.size = size
        self._begun: Coroutine[Any, Any, object] | None = None
        self._hook = hook
        self._call = call
        self._event = event
        self._faults = faults

    def __call__(self) -> object:
        """Make the call; log an exception that it raises."""
        try:
            return self._call()
        except BaseException as error:  # noqa: BLE001 - logged
            self.failed(error)
            return None

    def begun(self, coroutine: Coroutine[Any, Any, object]) -> HookCall:
        """Return the rest of this call: what it has returned is still to be awaited."""
        rest = HookCall(self._hook, lambda: coroutine, self._event, self._faults, self.size)
        rest._begun = coroutine
        return rest

    def drop(self) -> None:
        """Note that the call is not made."""
        if self._begun is not None:
            # Otherwise Python warns that it was never awaited.
            self._begun.close()

    def failed(self, error: BaseException) -> None:
        """Log an exception of the hook."""
        event, cause = self._event, Cause.of(error)
        text = f"{named(event)}: {self._hook} failed ({cause.text}); that has no effect on the message"
        traceback = (
            (type(error), error, error.__traceback__) if self._faults.first(self._hook, error) else None
        )
        fields = {
            "event": "hook failed", "destination": event.destination, "consumer": event.consumer,
            "message_destination": event.message_destination, "message_id": event.message_id,
            "hook": self._hook, "cause": cause.text, "cause_type": cause.kind,
        }  # fmt: skip
        log = loggers["redelivery.messages"]
        log.log(logging.ERROR, "%s", text, exc_info=traceback, extra={"redelivery": fields})


# ---- Listener hooks --------------------------------------------------------------------------------------
# A listener's hooks `on_retry` and `on_dead_letter`, called by an observer of its consumer.
#
# `on_retry` is called where the handler ran, before the next message there. `on_dead_letter` is called after the
# broker has confirmed the dead letter, on another thread, because the thread that reads from the broker must not be
# blocked. `on_dead_letter` is called at most once for a message in a process, and never if the broker does not
# answer.

# Messages whose dead letter is unconfirmed, and their bytes. Past them the oldest is dropped; its hook then gets a
# message without the body.
MOST_DYING, MOST_DYING_BYTES = 1000, 64 * 1024 * 1024


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
            while self._dying and (len(self._dying) >= MOST_DYING or self._bytes + size > MOST_DYING_BYTES):
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
