"""Values of settings as text: blanks, placeholders, and Spring's words for true and false."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redelivery.importers.imported import Value

if TYPE_CHECKING:
    from redelivery.importers.imported import Notes

__all__ = ["BOOLEANS", "default_of", "settled"]

BOOLEANS = {"on": "true", "yes": "true", "1": "true", "off": "false", "no": "false", "0": "false"}
"""Words that Spring reads as a boolean, other than true and false."""

_PLACEHOLDER = re.compile(r"[$#]\{([^{}:]*)(?::([^{}]*))?\}")


def settled(name: str, value: Value, notes: Notes) -> Value | None:
    """Return a value without placeholder; None if it is known only while the broker runs, which is noted.

    `${name:default}` gives its default, as in a broker without another setting of that name; that is noted,
    too.
    """
    text = value.text.strip()
    if "${" not in text and "#{" not in text:
        return Value(text, value.line)
    default = default_of(text)
    if default is None:
        notes.add(
            value.line, f"{name}={text}", "a placeholder's value is not known here; left out", left_out=True
        )
        return None
    notes.add(value.line, f"{name}={text}", f"a placeholder; its default {default!r} is taken")
    return Value(default.strip(), value.line)


def default_of(text: str) -> str | None:
    """Return the default of a placeholder `${name:default}`; None: the text is another one."""
    found = _PLACEHOLDER.fullmatch(text)
    return found[2] if found is not None else None
