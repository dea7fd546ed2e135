"""Return values of a user's function whose work is not done: a coroutine, another awaitable, a generator, a Future."""

from __future__ import annotations

import inspect
from concurrent.futures import Future
from contextlib import suppress
from typing import cast

__all__ = ["COROUTINE", "FUTURE", "GENERATOR", "closed", "is_unrun"]

# Kinds of return values, as errors name them.
COROUTINE = "a coroutine, which nothing runs here"
GENERATOR = "a generator, which nothing runs here"
FUTURE = "a Future, which nothing waits for here"


def is_unrun(result: object) -> bool:
    """True if the work of a return value is not done: an awaitable, a generator, an async generator, a Future."""
    try:
        return (
            inspect.isawaitable(result)
            or inspect.isgenerator(result)
            or inspect.isasyncgen(result)
            or isinstance(result, Future)
        )
    except Exception:  # noqa: BLE001 - a proxy without its object raises when it is asked for its class
        return False


def closed(result: object) -> str:
    """Close a return value whose work is not done; return its kind, such as `COROUTINE`.

    The work of a Future may have begun, and may still fail.
    """
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        with suppress(BaseException):
            # Without it Python warns that the coroutine never ran.
            result.close()
    if inspect.iscoroutine(result):
        return COROUTINE
    if inspect.isawaitable(result):
        return f"an awaitable ({type(result).__name__}), which nothing runs here"
    if isinstance(result, Future):
        cast("Future[object]", result).cancel()
        return FUTURE
    return GENERATOR
