"""Types of errors as labels: names of classes, and never what an application has written as a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery.events import DeadLettered, Finished

__all__ = ["NO_EXCEPTION", "OWN", "dead_letter_type", "failure_type"]

# Of a failure that no exception says, as `message.fail("no stock")`.
NO_EXCEPTION = "other"
# Exceptions of the library that causes begin with, though no handler may have raised them.
OWN = frozenset(("Defer", "HandlerTimeout", "Poison"))


def failure_type(result: Finished) -> str:
    """Return the type of error of a result; empty: it did not fail.

    A handler that raises `Defer` or `Discard`, and a message that was released, did not fail.
    """
    if result.verdict == "defer":
        return "Defer" if result.outcome in ("redelivered", "poisoned") else ""
    if result.verdict not in ("failed", "poison"):
        return ""
    named, error = result.cause_type, result.error
    if error is None:
        # It was given to `fail` or `poison`: an exception, whose type this is, or a reason in words, which has none.
        return named or NO_EXCEPTION
    names = set(_names(error))
    return named if named is not None and named in names else type(error).__name__


def dead_letter_type(event: DeadLettered, seen: Callable[[str], bool]) -> str:
    """Return the type of error of a dead letter. `seen`: whether a handler has raised a type of that name.

    Its cause is text, which an application may have written: a word in front of it is no name before it was seen.
    """
    named = event.cause_type
    if named is not None and (named in OWN or seen(named) or named == "expired"):
        return named
    return NO_EXCEPTION


def _names(error: BaseException) -> Iterator[str]:
    """Return the names of the types of an exception and, if it is a group, of those in there."""
    yield type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _names(each)
