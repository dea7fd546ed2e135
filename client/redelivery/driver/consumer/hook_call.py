"""A call of a listener's hook: what the hook raises is one line of the log on its message, and changes nothing."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.driver.event_log import named
from redelivery.log import loggers

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.events import MessageEvent

__all__ = ["HookCall", "HookFaults"]

# Types of exceptions of which a traceback is remembered: a hook has few bugs.
MOST = 100


class HookFaults:
    """What the hooks of one listener have raised: the traceback is logged once for each hook and type."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[tuple[str, type[BaseException]]] = set()

    def first(self, hook: str, error: BaseException) -> bool:
        """Return whether a hook has not raised this type before."""
        key = hook, type(error)
        with self._lock:
            if key in self._seen or len(self._seen) >= MOST:
                return False
            self._seen.add(key)
            return True


class HookCall:
    """One call of a hook, for the message of an event."""

    __slots__ = ("_call", "_event", "_faults", "_hook")

    def __init__(
        self, hook: str, call: Callable[[], object], event: MessageEvent, faults: HookFaults
    ) -> None:
        """Take in the hook's name, and what calls it."""
        self._hook = hook
        self._call = call
        self._event = event
        self._faults = faults

    def __call__(self) -> object:
        """Make the call; what it raises is logged."""
        try:
            return self._call()
        except BaseException as error:  # noqa: BLE001 - logged
            self.failed(error)
            return None

    def failed(self, error: BaseException) -> None:
        """Log what the hook has raised."""
        event, cause = self._event, Cause.of(error)
        text = f"{named(event)}: {self._hook} failed ({cause.text}); what was decided is carried out"
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
