"""How a kind of delivery reads a property in another way than others do, where thousands are read at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ColumnRule"]


class ColumnRule(NamedTuple):
    """How one property is read: from these headers, each of which stands once, and by what of their values."""

    headers: tuple[str, ...]
    read: Callable[..., Any]
