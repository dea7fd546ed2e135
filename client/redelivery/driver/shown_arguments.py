"""Keyword arguments of a TypedDict, as `help` and `inspect.signature` show them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

from redelivery.core.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["shows"]

Function = TypeVar("Function", bound="Callable[..., Any]")


def shows(kind: type) -> Callable[[Function], Function]:
    """Let `help` show the keyword arguments of a TypedDict in the place of `**options`.

    All are None by default, but the breaker, which None switches off.
    """

    def decorate(function: Function) -> Function:
        plain = inspect.signature(function)
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=Breaker() if name == "breaker" else None,
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in kind.__annotations__.items()
        ]
        first = [p for p in plain.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        cast("Any", function).__signature__ = plain.replace(parameters=[*first, *named])
        return function

    return decorate
