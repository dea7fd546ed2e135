"""Values of settings as text: blanks, placeholders, and Spring's words for true and false."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redelivery.importers.imported import Value

if TYPE_CHECKING:
    from redelivery.importers.imported import Notes

__all__ = ["BOOLEANS", "settled"]

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
    found = _PLACEHOLDER.fullmatch(text)
    if found is None or found[2] is None:
        notes.add(value.line, f"{name}={text}", "a placeholder's value is not known here; left out")
        return None
    notes.add(value.line, f"{name}={text}", f"a placeholder; its default {found[2]!r} is taken")
    return Value(found[2].strip(), value.line)
