"""Functions of an application: those that are asynchronous, results whose work is not done, ends of the program."""

from __future__ import annotations

import inspect
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeGuard

__all__ = [
    "COROUTINE",
    "FUTURE",
    "GENERATOR",
    "closed",
    "ends_program",
    "is_async_callable",
    "is_failure_type",
    "is_unrun",
    "leaves",
]


# ---- Async callable --------------------------------------------------------------------------------------
# Callables that return a coroutine when they are called, as far as can be seen before the call.


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


# ---- Unrun result ----------------------------------------------------------------------------------------
# Return values of a user's function whose work is not done: a coroutine, another awaitable, a generator, a Future.

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


# ---- Program end -----------------------------------------------------------------------------------------
# Exceptions by which Python ends the program: the only ones of a handler that are no failure of its message.
#
# Each other one is charged, whatever its base class. `gevent.Timeout`, `greenlet.GreenletExit` and asyncio's
# `CancelledError` are no `Exception`: uncharged, the message that raises them would end every process at its start.
#
# All is decided by `type(error)`. `isinstance` asks the exception for its class, and a faulty one raises then.

_ENDS = (SystemExit, KeyboardInterrupt)


def ends_program(error: BaseException) -> bool:
    """True if this is Python's own wish to end, or a group with such a one in it."""
    kind = type(error)
    if issubclass(kind, Exception):
        return False
    return issubclass(kind, _ENDS) or any(issubclass(type(leaf), _ENDS) for leaf in leaves(error))


def is_failure_type(kind: object) -> TypeGuard[type[BaseException]]:
    """True for a class of exceptions that are failures of a message."""
    return isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, _ENDS)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the exceptions of a group and of the groups in it, in order, at any depth; or over one exception."""
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if issubclass(type(error), BaseExceptionGroup):
            waiting += reversed(cast("BaseExceptionGroup[BaseException]", error).exceptions)
        else:
            yield error
