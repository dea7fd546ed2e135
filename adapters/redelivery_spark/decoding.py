"""Whether a body is what the source was told to expect."""

from __future__ import annotations

import json
from typing import Protocol

__all__ = ["Expected", "decoded"]


class Expected(Protocol):
    """What a body must be: options of a source."""

    @property
    def text(self) -> bool:
        """Whether it is decoded."""
        ...

    @property
    def decode(self) -> str:
        """As what."""
        ...


def decoded(body: bytes, options: Expected) -> tuple[str | None, str | None]:
    """Return the body as text, and what is wrong with it; one of the two is None, or both where nothing is decoded."""
    if not options.text:
        return None, None
    try:
        text = body.decode()
        if options.decode == "json":
            json.loads(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        return None, f"cannot be decoded as {options.decode}: {type(error).__name__}: {_where(error)}"
    return text, None


def _where(error: Exception) -> str:
    """Say where it is wrong, without quoting the body."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at byte {error.start}"
    return "nested too deeply" if isinstance(error, RecursionError) else "it has no meaning"
