"""Why a delivery failed, as text that fits into a header."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CAUSE_LIMIT", "EXPIRED", "UNKNOWN", "Cause"]

# Characters: Artemis refuses headers past its minimum large message size (100 KiB).
CAUSE_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a delivery failed: `text` is bounded and free of control characters, fit for a header."""

    text: str
    kind: str | None = field(default=None, compare=False)  # type of the exception, if any

    @classmethod
    def of(cls, error: BaseException | str) -> Cause:
        """Return the cause for an exception (its type and text) or for a reason given as text."""
        if isinstance(error, BaseException):
            try:
                # Of this very type: a subclass may do anything at all when it is formatted.
                detail = str.__str__(str(error))
            except BaseException:  # noqa: BLE001 - an exception that cannot say what it is must still be charged
                detail = ""
            text = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
        else:
            text = error
        # Also no lone surrogate, which has no UTF-8. Of a text that anybody may have sent no more is looked at.
        text = "".join(c if c.isprintable() else " " for c in text[: CAUSE_LIMIT + 1])
        kind = None if isinstance(error, str) else type(error).__name__
        return cls(text if len(text) <= CAUSE_LIMIT else text[: CAUSE_LIMIT - 1] + "…", kind)


EXPIRED, UNKNOWN = Cause("expired"), Cause("unknown")
