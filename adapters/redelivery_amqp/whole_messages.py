"""Whether a message makes sense as a whole, so that a copy of it can be the same message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redelivery_amqp import codec
from redelivery_amqp.bounded_values import check, decoded
from redelivery_amqp.section_fields import PROPERTIES_FIELDS, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["copyable"]


def copyable(raw: bytes, places: Sequence[tuple[int, int, int]]) -> bool:
    """Whether a copy of this message can be the same message: all that it is copied from makes sense."""
    codes = [code for code, _, _ in places]
    others = [code for code in codes if code not in codec.BODIES]
    # In the standard's order, and none twice: a copy has one of each.
    if not places or codes != sorted(codes) or len(set(others)) < len(others):
        return False
    try:
        return all(_sensible(raw, *place) for place in places)
    except (codec.Unknown, ValueError):
        return False


def _sensible(raw: bytes, code: int, begin: int, end: int) -> bool:
    if code == codec.DATA:
        return raw[begin] in (0xA0, 0xB0)
    if code in (codec.SEQUENCE, codec.VALUE):
        check(raw, begin, end)
        return True
    # As its parts are found when it is copied: a section's list or map is not described.
    codec.places_in(raw, begin)
    value: Any = decoded(raw, begin, end)
    if code == codec.HEADER:
        return isinstance(value, list)
    if code == codec.PROPERTIES:
        return isinstance(value, list) and _all_typed(cast("list[object]", value))
    if not isinstance(value, dict):
        return False
    names = cast("dict[object, object]", value)
    return code != codec.APPLICATION_PROPERTIES or all(isinstance(name, str) for name in names)


def _all_typed(fields: list[object]) -> bool:
    """Whether no field of the properties section is lost for its type."""
    kept = typed(fields, codec.PROPERTIES)
    return len(fields) <= PROPERTIES_FIELDS and all(
        field is not None or came is None for field, came in zip(kept, fields, strict=True)
    )
