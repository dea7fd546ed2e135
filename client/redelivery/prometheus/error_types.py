"""Types of errors as labels: names of classes, never a reason that an application has written."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery.events import DeadLettered, Finished

__all__ = ["NO_EXCEPTION", "OWN", "dead_letter_type", "failure_type"]

# Of a failure without an exception, as `message.fail("no stock")`.
NO_EXCEPTION = "other"
# Exceptions of the library with which causes begin, even if no handler has raised them.
OWN = frozenset(("Defer", "HandlerTimeout", "Poison"))


def failure_type(result: Finished) -> str:
    """Return the type of error of a result; empty: it did not fail.

    A handler that raises `Defer` or `Discard` did not fail, nor did a released message.
    """
    if result.verdict == "defer":
        return "Defer" if result.outcome in ("redelivered", "poisoned") else ""
    if result.verdict not in ("failed", "poison"):
        return ""
    named, error = result.cause_type, result.error
    if error is None:
        # The cause was given to `fail` or `poison`: an exception, whose type this is, or a text, which has none.
        return named or NO_EXCEPTION
    names = set(_names(error))
    return named if named is not None and named in names else type(error).__name__


def dead_letter_type(event: DeadLettered, seen: Callable[[str], bool]) -> str:
    """Return the type of error of a dead letter. `seen`: True if a handler has raised a type of that name.

    The cause is text, which an application may have written: its first word counts as a type only if it was
    seen before.
    """
    named = event.cause_type
    if named is not None and (named in OWN or seen(named) or named == "expired"):
        return named
    return NO_EXCEPTION


def _names(error: BaseException) -> Iterator[str]:
    """Iterate over the type names of an exception and, if it is a group, of the exceptions in it."""
    yield type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _names(each)
