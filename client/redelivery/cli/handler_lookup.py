"""Look-up of `module:name`: the function of `--handler`, the exceptions of `--trip`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from redelivery.driver.port import check_handler
from redelivery.errors import ConfigurationError, near_miss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["load_handler", "load_named"]


def load_handler(name: str) -> Callable[..., Any]:
    """Return the callable that `module:function` names. Raises ConfigurationError as `load_named` does."""
    found = load_named(name, "--handler", "function")
    if not callable(found):
        path = name.partition(":")[2]
        raise ConfigurationError(
            f"--handler {name}: {path} is no function but {type(found).__name__}", option="--handler"
        )
    handler: Callable[..., Any] = found
    check_handler(handler, "--handler")
    return handler


def load_named(name: str, option: str, what: str) -> Any:
    """Return the object that `module:name` names; the current directory is importable.

    Raises ConfigurationError with the name that is missing, also for any exception of the module's import. `what`: the
    word for such an object.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name.strip() or not path.strip():
        raise ConfigurationError(f"{option} is written module:{what}, not {name!r}", option=option)
    here = os.getcwd()
    if here not in sys.path:
        # As with `python -m`.
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"{option} {name}: cannot import {module_name}: {type(error).__name__}: {error}",
            option=option,
        ) from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(
                f"{option} {name}: {module_name} has no {path!r}{near_miss(path, dir(found))}",
                option=option,
            ) from None
    return found
