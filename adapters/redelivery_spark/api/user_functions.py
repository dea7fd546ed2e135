"""Checks of the functions that `process` and `foreach_batch` call: nothing awaits or iterates over their results."""

from __future__ import annotations

import inspect
from typing import Any, cast

from redelivery.core.async_callable import is_async_callable
from redelivery.core.unrun_result import COROUTINE, FUTURE, GENERATOR, closed, is_unrun
from redelivery.errors import ConfigurationError

__all__ = ["check_function", "check_result"]


def check_function(given: object, option: str, takes: str) -> None:
    """Raise ConfigurationError if an argument is not a plain function: its rows would pass, or fail, unhandled."""
    if not callable(given):
        raise ConfigurationError(
            f"{option}={given!r}: not callable; give a function of {takes}", option=option
        )
    function = cast("Any", given)
    if is_async_callable(function) or inspect.isasyncgenfunction(function):
        raise _unrun(option, COROUTINE)
    if inspect.isgeneratorfunction(function):
        raise _unrun(option, GENERATOR)


def check_result(result: object, option: str) -> None:
    """Raise ConfigurationError if a function has returned a coroutine, a generator or a Future: its work is not done.

    The query ends, and no row is charged: each delivery would end in the same way.
    """
    if result is not None and is_unrun(result):
        raise _unrun(option, closed(result))


def _unrun(option: str, kind: str) -> ConfigurationError:
    hints = {GENERATOR: "it must not yield", FUTURE: "return its result()"}
    hint = hints.get(kind, "write a plain function, which may call asyncio.run(…)")
    return ConfigurationError(f"{option}= returns {kind}; {hint}", option=option)
