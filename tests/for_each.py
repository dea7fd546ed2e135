"""One test for many values.

A thousand golden vectors as single tests would take longer to collect than to check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

T = TypeVar("T")


def for_each(values: Collection[T]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Make one test of a function that tests one value; a failure names the value."""

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            assert values, "there is something to test"
            for value in values:
                try:
                    check(value)
                except BaseException as error:
                    error.add_note(f"for {value!r}")
                    raise

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate
