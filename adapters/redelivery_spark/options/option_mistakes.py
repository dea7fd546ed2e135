"""Mistakes in the options of one use, collected: one error lists all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from redelivery.errors import ConfigurationError, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["OptionMistakes"]

ValueT = TypeVar("ValueT")


class OptionMistakes:
    """Mistakes in the options of one use of the source, in the order in which they were found."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._first: ConfigurationError | None = None
        self._wrong: set[str | None] = set()

    def __len__(self) -> int:
        """Number of mistakes."""
        return len(self._texts)

    def add(self, error: ConfigurationError, *, about: Iterable[str] = ()) -> None:
        """Add the mistakes of an error, each once; `about`: more options that are wrong by it."""
        self._first = self._first or error
        self._texts += [text for text in error.errors if text not in self._texts]
        self._wrong |= {error.option, *about}

    def refuse(self, option: str, text: str) -> None:
        """Add the mistake of one option."""
        self.add(ConfigurationError(text, option=option))

    def attempt(self, step: Callable[[], ValueT], otherwise: ValueT) -> ValueT:
        """Return what a step returns, or `otherwise` if it raises a ConfigurationError, which is added."""
        try:
            return step()
        except ConfigurationError as error:
            self.add(error)
            return otherwise

    def concern(self, *options: str) -> bool:
        """True if one of these options is wrong."""
        return not self._wrong.isdisjoint(options)

    def check(self, where: str = "the options") -> None:
        """Raise one error for all mistakes, if there are any. `where`: its first line says where they are.

        Raises:
            ConfigurationError: It has the texts in `errors`, and its text has one a line, 20 at most.
        """
        if self._first is None:
            return
        if len(self._texts) == len(self._first.errors):
            raise self._first
        lines = listed(f"{len(self)} mistakes in {where}:", self._texts)
        raise ConfigurationError("\n".join(lines), option=self._first.option, errors=self._texts)
