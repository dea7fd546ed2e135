"""Decoding of bodies to text, as the option `decode` asks for."""

from __future__ import annotations

import json

from redelivery.errors import RedeliveryError

__all__ = ["UndecodableBody", "decoded"]


class UndecodableBody(RedeliveryError):
    """A body is not what `decode` asks for, and `onDecodeError=fail`. Another run of the batch would fail, too."""


def decoded(body: bytes, decode: str) -> tuple[str | None, str | None]:
    """Return a body as text, and the reason why it cannot be decoded; one of the two is None.

    Args:
        body: Body of the message.
        decode: `text` (UTF-8), or `json` (which is checked, and stays text).
    """
    try:
        text = body.decode()
        if decode == "json":
            json.loads(text)
    # UnicodeDecodeError and JSONDecodeError are ValueErrors.
    except (ValueError, RecursionError) as error:
        return None, f"cannot be decoded as {decode}: {type(error).__name__}: {_where(error)}"
    return text, None


def _where(error: Exception) -> str:
    """Return the place of the error, without quoting the body."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at byte {error.start}"
    return "nested too deeply" if isinstance(error, RecursionError) else "it has no meaning"
