"""Finding the function that `--handler module:function` names."""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from redelivery.driver.port import check_handler
from redelivery.errors import ConfigurationError, near_miss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_asynchronous", "load_handler"]


def load_handler(name: str) -> Callable[..., Any]:
    """Return the callable that `module:function` names; the current directory is importable.

    Raises ConfigurationError, naming what is missing, whatever the module raises while it is imported.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name.strip() or not path.strip():
        raise ConfigurationError(f"--handler is written module:function, not {name!r}", option="--handler")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as with `python -m`
    try:
        found: Any = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"--handler {name}: cannot import {module_name}: {type(error).__name__}: {error}",
            option="--handler",
        ) from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(
                f"--handler {name}: {module_name} has no {path!r}{near_miss(path, dir(found))}",
                option="--handler",
            ) from None
    if not callable(found):
        raise ConfigurationError(
            f"--handler {name}: {path} is no function but {type(found).__name__}", option="--handler"
        )
    handler: Callable[..., Any] = found
    check_handler(handler, "--handler")
    return handler


def is_asynchronous(handler: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine: `async def`, or an object with an asynchronous `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - whether that is async, not whether it is there
    )
