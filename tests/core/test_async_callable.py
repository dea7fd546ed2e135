"""Which callables return a coroutine."""

from __future__ import annotations

import asyncio
import functools
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from redelivery.core.application_functions import is_async_callable


class Asynchronous:
    """Object whose call and methods are `async def`."""

    async def __call__(self, message: object) -> None:
        """Do nothing."""

    async def method(self, message: object) -> None:
        """Do nothing."""

    @staticmethod
    async def static(message: object) -> None:
        """Do nothing."""

    @classmethod
    async def of_class(cls, message: object) -> None:
        """Do nothing."""

    part = functools.partialmethod(method)


class Plain:
    """Object whose call is a plain function."""

    def __call__(self, message: object) -> None:
        """Do nothing."""


async def function(message: object) -> None:
    """Do nothing."""


@functools.wraps(function)
async def decorated(*arguments: Any) -> None:
    """Await the function."""
    await function(*arguments)


@functools.wraps(function)
def run(*arguments: Any) -> None:
    """Run the function in a loop of its own, as decorators for command lines do."""
    asyncio.run(function(*arguments))


def lazy(message: object) -> object:
    """Return a coroutine, which only a call shows."""
    return function(message)


IT = Asynchronous()


@pytest.mark.parametrize(
    "given",
    [
        function,
        decorated,
        IT,
        IT.method,
        IT.part,
        Asynchronous.static,
        Asynchronous.of_class,
        functools.partial(function, 1),
        functools.partial(functools.partial(IT), 1),
        AsyncMock(),
    ],
    ids=[
        "function",
        "decorated",
        "object",
        "method",
        "part",
        "static",
        "of a class",
        "partial",
        "partial twice",
        "mock",
    ],
)
def test_an_asynchronous_callable_is_recognised(given: object) -> None:
    """Async functions, methods, partials of them, and objects with an async call return a coroutine."""
    assert is_async_callable(given)


@pytest.mark.parametrize(
    "given",
    [print, Plain(), Plain, Asynchronous, run, lazy, Mock(), 3],
    ids=["builtin", "object", "class", "async class", "function", "decorated", "mock", "number"],
)
def test_other_objects_are_plain(given: object) -> None:
    """A class makes an object when it is called, and of a decorated function the wrapper decides."""
    assert not is_async_callable(given)


def test_an_asynchronous_call_of_one_object_is_not_its_types() -> None:
    """An async function set as `__call__` on one object is not what Python calls."""
    given: Any = Plain()
    given.__call__ = function
    assert not is_async_callable(given)
