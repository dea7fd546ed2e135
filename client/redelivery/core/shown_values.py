"""Values written for people: a producer's text, which cannot control a terminal, and dates."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

__all__ = ["LAST", "NO_ID", "calendar_time", "move_command", "printable", "printable_id"]


# ---- Printable -------------------------------------------------------------------------------------------
# Text of a producer, such as a message id, written for people: it cannot begin a line, or control a terminal.

# Characters. A longer id is not written into a command.
_LONGEST_ID = 120

NO_ID = "no id"
"""Written in the place of an id that a message does not have."""


def printable(text: str) -> str:
    """Return `text` with control characters written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_id(message_id: str | None) -> str:
    """Return the id of a message as a line of a log has it."""
    return printable(message_id or NO_ID)


def move_command(destination: str, message_id: str | None) -> str:
    """Return the command that moves one message of a queue to another place, over AMQP; `ID` for an id of odd form."""
    named = message_id and len(message_id) <= _LONGEST_ID and message_id.isprintable()
    identity = shlex.quote(message_id) if message_id and named else "ID"
    queue = shlex.quote(printable(destination.removeprefix("queue://")))
    return f"redelivery dlq redrive AMQP-URI {queue} --id {identity} --to PLACE"


# ---- Calendar time ---------------------------------------------------------------------------------------
# Seconds since the Unix epoch as dates, up to the calendar's last year, 9999.

LAST = datetime.max.replace(tzinfo=UTC)
"""Last moment that has a date."""


def calendar_time(seconds: float) -> datetime | None:
    """Return the date in UTC; None if it is beyond the calendar, as an expiration that means "never" is."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
