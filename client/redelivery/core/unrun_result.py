"""Return values of a user's function that still have to be run: a coroutine, another awaitable, a generator."""

from __future__ import annotations

import inspect
from contextlib import suppress

__all__ = ["closed", "is_unrun"]


def is_unrun(result: object) -> bool:
    """True if a return value still has to be run: an awaitable, a generator, or an async generator."""
    try:
        return inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
    except Exception:  # noqa: BLE001 - a proxy without its object raises when it is asked for its class
        return False


def closed(result: object) -> str:
    """Close a return value that nothing runs; return its kind: "a coroutine"."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        with suppress(BaseException):
            # Without it Python warns that the coroutine never ran.
            result.close()
    if not inspect.isawaitable(result):
        return "a generator"
    return "a coroutine" if inspect.iscoroutine(result) else f"an awaitable ({type(result).__name__})"
