"""Wrapper of one observer: which of its methods are called, and which of its exceptions have been logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from redelivery.events import Event, Observer
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from redelivery.core.commands import Subscribe
    from redelivery.events import Finished, ObservedConnection, Sent
    from redelivery.message import Message

__all__ = ["ObservedConsumer", "Watcher", "Watching"]

Watching = Observer | Callable[[Event], object]
"""An observer as an application gives it: an `Observer`, or a function of one event."""


class ObservedConsumer(Protocol):
    """Interface of an observation of a worker's runs; `Observation` implements it."""

    subscribe: Subscribe

    def wall(self) -> float:
        """Read the wall clock."""
        ...

    def ended(self, error: BaseException) -> None:
        """Stop the consumer: an observer raised a `BaseException` that is no `Exception`."""

    def failed(self, observer: Watcher, error: BaseException) -> None:
        """Log an observer's exception; stop the consumer if it is no `Exception`."""


class Watcher:
    """Methods of one observer that are called; None: it does not override that method."""

    def __init__(self) -> None:
        self.started: Callable[[Message], object] | None = None
        self.call: Callable[[Event], object] | None = None
        """The observer itself, if it is a function: it is called with every event."""
        self.finished: Callable[[Any, Finished], object] | None = None
        self.sending: Callable[[str, MutableMapping[str, Any]], object] | None = None
        self.sent: Callable[[Any, Sent], object] | None = None
        self.event: Callable[[Event], object] | None = None
        self.event_types: tuple[type[Event], ...] | None = None
        """Types of events that `event` is called with; None: all."""
        self.attached: Callable[[ObservedConnection], object] | None = None
        self._logged: set[type[BaseException]] = set()

    @classmethod
    def of(cls, observer: Watching) -> Watcher:
        """Return the wrapper of an observer."""
        found = cls()
        if isinstance(observer, Observer):
            found.methods_of(observer)
        else:
            found.calls(observer)
        return found

    def methods_of(self, observer: Observer) -> None:
        """Call the methods that it overrides. With `started`, `finished` is always called; with `sending`, `sent`."""
        kind = type(observer)
        if kind.started is not Observer.started:
            self.started = observer.started
        if self.started or kind.finished is not Observer.finished:
            self.finished = observer.finished
        if kind.sending is not Observer.sending:
            self.sending = observer.sending
        if self.sending or kind.sent is not Observer.sent:
            self.sent = observer.sent
        if kind.event is not Observer.event:
            self.event, self.event_types = observer.event, observer.event_types
        if kind.attached is not Observer.attached:
            self.attached = observer.attached

    def wants(self, kind: type[Event]) -> bool:
        """True if `event` is called with events of this type."""
        return self.event is not None and (self.event_types is None or kind in self.event_types)

    def calls(self, observer: Callable[[Event], object]) -> None:
        """Call a function with every event."""
        self.call = observer
        self.finished = lambda _, event: observer(event)
        self.sent = lambda _, event: observer(event)
        self.event = observer

    def failed(self, error: BaseException, destination: str) -> BaseException | None:
        """Log an exception of the observer, once for each type; return it if it is no `Exception`, else None."""
        ends = None if isinstance(error, Exception) else error
        if type(error) not in self._logged:
            self._logged.add(type(error))
            where = f"{destination}: " if destination else ""
            text = "%sthe observer failed; that has no effect on messages%s"
            logger.error(text, where, ", but its consumer stops" if ends and where else "", exc_info=error)
        return ends
