"""Callables that return a coroutine when they are called, as far as can be seen before the call."""

from __future__ import annotations

import inspect
from functools import partial

__all__ = ["is_async_callable"]


def is_async_callable(given: object) -> bool:
    """True if calling an object returns a coroutine, as far as can be seen without a call.

    That is an `async def` function or method, an object with an `async def __call__`, and a `partial` of one of these.
    Of a decorated function, the wrapper decides, not what it wraps: `asyncio.run(function(message))` in a plain wrapper
    is no coroutine. What a plain function returns is checked after the call, with `unrun_result`.
    """
    while isinstance(given, partial):
        given = given.func
    # Of the type, as Python itself calls it: a class is called to make an object, whatever its objects' `__call__` is.
    call = getattr(type(given), "__call__", None)  # noqa: B004 - whether that is async, not whether it is there
    return inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(call)
