"""Text of a producer, such as a message id, written for people: it cannot begin a line, or control a terminal."""

from __future__ import annotations

__all__ = ["NO_ID", "printable", "printable_id"]

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
