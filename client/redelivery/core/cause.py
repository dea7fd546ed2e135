"""Cause of a failed delivery, as text that fits into a header."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CAUSE_LIMIT", "EXPIRED", "HELD", "UNKNOWN", "Cause"]

# Characters. Artemis refuses headers larger than its minimum large message size (100 KiB).
CAUSE_LIMIT = 1024
# Not `kind.__name__`: a metaclass may have its own, which raises.
_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of a failed delivery: `text` is bounded and free of control characters, fit for a header."""

    text: str
    kind: str | None = field(default=None, compare=False)  # type of the exception, or None
    place: str | None = field(default=None, compare=False)
    """Dead-letter destination that a classifier chose for the type of the exception; None: the usual one."""

    @classmethod
    def of(cls, error: BaseException | str, place: str | None = None) -> Cause:
        """Return the cause for an exception (its type and text) or for a reason given as text."""
        if isinstance(error, BaseException):
            try:
                # A plain `str`: a subclass may run any code when it is formatted.
                detail = str.__str__(str(error))
            except BaseException:  # noqa: BLE001 - an exception that fails to describe itself must still be charged
                detail = ""
            kind = _name_of(type(error))
            text = f"{kind}: {detail}" if detail else kind
        else:
            kind, text = None, error
        # Lone surrogates go too: they have no UTF-8. Any producer may have sent the text: only its beginning is read.
        text = "".join(c if c.isprintable() else " " for c in text[: CAUSE_LIMIT + 1])
        return cls(text if len(text) <= CAUSE_LIMIT else text[: CAUSE_LIMIT - 1] + "…", kind, place)


EXPIRED, UNKNOWN = Cause("expired"), Cause("unknown")
HELD = Cause("its delays are longer than the broker lets a message be held, again and again")
