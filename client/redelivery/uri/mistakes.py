"""Mistakes of one connection URI, collected, so that one error lists all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from redelivery.errors import ConfigurationError, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Mistakes"]

Rank = Literal["address", "option", "java"]
_RANKS: tuple[Rank, ...] = ("address", "option", "java")


class Mistakes:
    """Mistakes of one URI: those of its addresses first, then those of options, then the Java client's own options."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, ConfigurationError]] = {}
        self.rewritable = False
        """True if a mistake is one that a rewritten URI does not have: a scheme, or an option to remove or rename."""

    def add(self, error: ConfigurationError, rank: Rank = "option", *, rewritable: bool = False) -> None:
        """Add a mistake; the same text is added once."""
        self._found.setdefault(str(error), (_RANKS.index(rank), error))
        self.rewritable = self.rewritable or rewritable

    def attempt(self, step: Callable[[], object], rank: Rank = "option") -> None:
        """Run a step, and add the ConfigurationError that it raises."""
        try:
            step()
        except ConfigurationError as error:
            self.add(error, rank)

    def __len__(self) -> int:
        """Number of mistakes."""
        return len(self._found)

    def ordered(self) -> list[ConfigurationError]:
        """Return the mistakes, most important first."""
        return [found for _, found in sorted(self._found.values(), key=lambda item: item[0])]

    def error(self, suggestion: str | None = None, left_out: Sequence[str] = ()) -> ConfigurationError:
        """Return (not raise) one error for all.

        Args:
            suggestion: The URI that would work, without credentials; None: none is known.
            left_out: Options that the suggestion leaves out, and that the user may want to correct.
        """
        ordered = self.ordered()
        texts, first = [str(one) for one in ordered], ordered[0]
        without = f" without {', '.join(left_out)}" if left_out else ""
        works = f"this works{without}: {suggestion}"
        if len(texts) == 1:
            text = texts[0] if suggestion is None else f"{texts[0]}; {works}"
        else:
            lines = listed(f"{len(texts)} mistakes in the URI:", texts)
            if suggestion is not None:
                lines.append(works)
            text = "\n".join(lines)
        return ConfigurationError(text, option=first.option, errors=texts, suggestion=suggestion)
