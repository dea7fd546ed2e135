"""The one place where the integration tests wait."""

from __future__ import annotations

import contextlib
import faulthandler
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

# Seconds. Artemis may stand still for ten of them after a connection was cut
# (docs/measured/artemis-stomp-cuts.md, "Still for 10 s after a cut").
PATIENCE = 60.0
# Seconds that a busy machine may add to an event that is immediate on an idle one. A test that compares clocks must
# allow for them: expected and wrong behaviour must differ by more than that, or in their order.
SLACK = 5.0


def eventually(
    predicate: Callable[[], T],
    timeout: float = PATIENCE,
    interval: float = 0.05,
    message: str = "",
) -> T:
    """Poll `predicate` until it is truthy, and return that value. Raises AssertionError after `timeout` seconds.

    The stacks of all threads are on stderr then. An AssertionError inside the predicate counts as "not yet", and is the
    cause of the final one.
    """
    deadline = time.monotonic() + timeout
    while True:
        last: AssertionError | None = None
        value: T | None = None
        try:
            value = predicate()
        except AssertionError as error:
            last = error
        if value:
            return value
        if time.monotonic() >= deadline:
            faulthandler.dump_traceback()  # pytest shows these stacks with the failure
            what = message or getattr(predicate, "__name__", "condition")
            raise AssertionError(f"not within {timeout:g} s: {what} (last: {last or value!r})") from last
        time.sleep(interval)


def gathered(take: Callable[[], Iterable[T]], expected: int) -> list[T]:
    """Take once, and again until `expected` have been found or `PATIENCE` is over; what is missing is the caller's."""
    found: list[T] = []

    def enough() -> bool:
        found.extend(take())
        return len(found) >= expected

    with contextlib.suppress(AssertionError):
        eventually(enough)
    return found


def never(
    predicate: Callable[[], object],
    within: float = 1.0,
    interval: float = 0.05,
    message: str = "",
) -> None:
    """Check `predicate` for `within` seconds. Raises AssertionError as soon as it is truthy."""
    deadline = time.monotonic() + within
    while True:
        value = predicate()
        if value:
            what = message or getattr(predicate, "__name__", "condition")
            raise AssertionError(f"happened within {within:g} s, and must not: {what} ({value!r})")
        if time.monotonic() >= deadline:
            return
        time.sleep(interval)


def settled(read: Callable[[], T], quiet: float = 1.0, timeout: float = 30.0, interval: float = 0.05) -> T:
    """Read until the value has not changed for `quiet` seconds, and return it; to count arrivals, for example."""
    end = time.monotonic() + timeout
    value, since = read(), time.monotonic()
    while time.monotonic() < end and time.monotonic() - since < quiet:
        time.sleep(interval)
        now = read()
        if now != value:
            value, since = now, time.monotonic()
    return value
