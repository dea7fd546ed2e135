"""Call of a listener's hook: an exception of the hook is logged with its message, and changes nothing."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.driver.event_log import named
from redelivery.log import loggers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from redelivery.events import MessageEvent

__all__ = ["HookCall", "HookFaults"]

# Pairs of hook and exception type that are remembered. Past them no traceback is logged.
MOST = 100


class HookFaults:
    """Exceptions of one listener's hooks: the traceback is logged once for each hook and type."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[tuple[str, type[BaseException]]] = set()

    def first(self, hook: str, error: BaseException) -> bool:
        """Return True if a hook has not raised this type before."""
        key = hook, type(error)
        with self._lock:
            if key in self._seen or len(self._seen) >= MOST:
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
