"""Log of an exception that a handler raised: its traceback, at DEBUG.

The outcome of the message is another line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from redelivery.core.delivery import Cause
from redelivery.core.shown_values import printable_id
from redelivery.handler_exceptions import Defer, Discard, Poison
from redelivery.log import loggers

if TYPE_CHECKING:
    from redelivery.core.delivery import Outcome

__all__ = ["log_failure"]

_log = loggers["redelivery.messages"]


class Handled(Protocol):
    """Interface of a message that was given to a handler; `Message` implements it."""

    @property
    def destination(self) -> str:
        """Destination to which it was sent."""
        ...

    @property
    def message_id(self) -> str | None:
        """Its id."""
        ...

    @property
    def delivery_count(self) -> int:
        """Number of the delivery."""
        ...

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the delivery; None: it is unsettled."""
        ...


def log_failure(message: Handled, error: BaseException) -> None:
    """Log a handler's traceback, at DEBUG. The outcome is logged in one line, when it is decided."""
    if message.outcome is not None:
        _log.warning(
            "%s: %s: handler raised after it settled the message (%s); the message stays %s",
            message.destination, printable_id(message.message_id), Cause.of(error).text, message.outcome,
            extra=_fields("raised after it was settled", message),
        )  # fmt: skip
    if not issubclass(type(error), (Poison, Discard, Defer)):
        # As a tuple: logging asks for the truth value of `exc_info`, and an exception may raise then.
        _log.debug(
            "%s: %s: traceback of delivery %d",
            message.destination, printable_id(message.message_id), message.delivery_count,
            exc_info=(type(error), error, error.__traceback__), extra=_fields("traceback", message),
        )  # fmt: skip


def _fields(event: str, message: Handled) -> dict[str, Any]:
    """Return the fields of a log line about a message."""
    found = {
        "event": event, "destination": message.destination, "message_id": message.message_id,
        "delivery_count": message.delivery_count,
    }  # fmt: skip
    return {"redelivery": found}
