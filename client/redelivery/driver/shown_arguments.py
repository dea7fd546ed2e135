"""Signatures for `help` and `inspect.signature` with the keyword arguments of a TypedDict."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

from redelivery.core.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["shows"]

Function = TypeVar("Function", bound="Callable[..., Any]")


def shows(kind: type) -> Callable[[Function], Function]:
    """Return a decorator: `help` shows the keyword arguments of a TypedDict instead of `**options`.

    Their default is None, except for `breaker`: there None means no breaker.
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
