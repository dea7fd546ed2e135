"""Rules by which a kind of delivery reads a property, if it differs from the others, for thousands at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ColumnRule"]


class ColumnRule(NamedTuple):
    """The headers that one property is read from, each of which occurs once, and the function of their values."""

    headers: tuple[str, ...]
    read: Callable[..., Any]
