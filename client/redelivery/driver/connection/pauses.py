"""Pauses of a connection's consumers, also of those that start later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.events import Continued, Paused
from redelivery.driver.arguments import single
from redelivery.errors import ConfigurationError, near_miss

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["Pauses"]


class Pauses:
    """Destinations that are paused. Called from the application's threads, without a lock."""

    def __init__(self, dispatchers: Sequence[Dispatcher]) -> None:
        self._dispatchers = dispatchers
        self._all = False
        self._paused: set[str] = set()

    def change(self, destination: str | None, listeners: Iterable[str], *, paused: bool) -> None:
        """Pause or resume the consumers of a destination; None: all, and all that start later.

        `listeners`: destinations of listeners that may not be started yet.

        Raises:
            ConfigurationError: No consumer and no listener has this destination.
        """
        if destination is None:
            self._all = paused
            self._paused.clear()
            chosen = list(self._dispatchers)
        else:
            name = str(single(destination))
            chosen = [each for each in list(self._dispatchers) if each.subscribe.destination == name]
            known = {str(single(each)) for each in listeners}
            known |= {each.subscribe.destination for each in list(self._dispatchers)}
            if name not in known:
                what = "pause" if paused else "resume"
                raise ConfigurationError(
                    f"{what}({destination!r}): nothing consumes from {name}{near_miss(name, known)}",
                    option="destination",
                )
            if paused:
                self._paused.add(name)
            else:
                self._paused.discard(name)
        for dispatcher in chosen:
            dispatcher.feed(Paused() if paused else Continued())

    def begin(self, dispatcher: Dispatcher) -> None:
        """Pause a consumer that is about to start, if its destination is paused."""
        if self._all or dispatcher.subscribe.destination in self._paused:
            dispatcher.feed(Paused())
