"""Checks of the functions that `process` and `foreach_batch` call: nothing awaits or iterates over their results."""

from __future__ import annotations

import functools
import inspect
import zlib
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

from redelivery.core.application_functions import (
    COROUTINE,
    FUTURE,
    GENERATOR,
    closed,
    is_async_callable,
    is_unrun,
)
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["check_function", "check_result", "mark_of"]


# ---- User functions --------------------------------------------------------------------------------------


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


# ---- Verdict names ---------------------------------------------------------------------------------------
# Names of handlers in verdicts: the same in each attempt and after a restart, different for two handlers.

_PLAIN = (str, bytes, int, float, bool, complex, type(None))
_DEEPEST = 5  # nested functions


def mark_of(handler: object, name: str | None, columns: str, before: Sequence[str]) -> str:
    """Return a handler's mark.

    `name`: the user's name for it; None: its qualified name and the plain values that it was made with, because two
    functions of one factory, two lambdas or two partials differ in nothing else. `columns`: the columns that it
    returns. `before`: the marks of the handlers that have had the rows already. Raises ConfigurationError.
    """
    if name is not None:
        if not name.strip():
            raise ConfigurationError("process: name= is empty; give a name, or None", option="name")
        mark = _digest(f"name {name}")
        if mark in before:
            raise ConfigurationError(
                f"process: name={name!r} is the name of another handler of the same rows; give each its own",
                option="name",
            )
        return mark
    told = f"{_told(handler, _DEEPEST)} {columns}"
    mark, number = _digest(told), 1
    while mark in before:
        number += 1
        mark = _digest(f"{told} {number}")
    return mark


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode(errors='surrogatepass')):08x}"


def _told(value: object, depth: int) -> str:
    """Describe a value as any other process would: no addresses, no order of a set."""
    if isinstance(value, _PLAIN):
        return repr(value)
    # Not a list: its content can change before the next start.
    if depth and isinstance(value, tuple):
        return f"({', '.join(_told(each, depth - 1) for each in cast('tuple[object, ...]', value))})"
    if depth and isinstance(value, functools.partial):
        named = sorted(value.keywords.items())
        return f"partial {_told((value.func, *value.args, *named), depth)}"
    if depth and isinstance(value, MethodType):
        return f"method {_told(value.__func__, depth - 1)} of {type(value.__self__).__qualname__}"
    if isinstance(value, FunctionType):
        return _function(value, depth)
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _function(function: FunctionType, depth: int) -> str:
    name = function.__qualname__
    if "<lambda>" in name:
        name += f" {_code(function.__code__)}"
    if not depth:
        return name
    held = [_content(cell) for cell in function.__closure__ or ()]
    return f"{name} {_told((*(function.__defaults__ or ()), *held), depth)}"


def _content(cell: object) -> object:
    """Return the content of a closure's cell."""
    return getattr(cell, "cell_contents", None)


def _code(code: CodeType) -> str:
    constants = [_code(each) if isinstance(each, CodeType) else _told(each, 1) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
