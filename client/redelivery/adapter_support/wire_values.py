"""Values of a wire description, from which an adapter restores deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["values_of"]


def values_of(wire: Mapping[str, str], *names: str) -> list[str]:
    """Return the values of these names.

    Raises:
        ConfigurationError: one of them is missing.
    """
    missing = [name for name in names if name not in wire]
    if missing:
        raise ConfigurationError(
            f"wire has no {', '.join(missing)}: give what `wire()` of this protocol's adapter returned"
        )
    return [wire[name] for name in names]
