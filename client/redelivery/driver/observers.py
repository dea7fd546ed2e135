"""Observers of a connection: which of their methods are called, in which order, and how their exceptions are handled.

The log is the first observer. Each observer is inspected once, when the connection is made: a method that is not
overridden is never called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from redelivery.core.application_functions import is_async_callable
from redelivery.driver.event_log import EventLog
from redelivery.errors import ConfigurationError
from redelivery.events import Event, Finished, Observer, Received, Started
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery.events import ObservedConnection, Sent
    from redelivery.message import Message

__all__ = ["Observers", "Watcher", "Watching", "checked_observers"]


# ---- Watcher ---------------------------------------------------------------------------------------------
# Wrapper of one observer: which of its methods are called, and which of its exceptions have been logged.

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


# ---- Observers -------------------------------------------------------------------------------------------


class Observers:
    """The log, and the observers of one connection, or of one of its consumers."""

    def __init__(self, observers: Iterable[Watching] = (), log: EventLog | None = None) -> None:
        self._all = tuple(observers)
        self._log = log or EventLog()
        self._every = every = [Watcher.of(each) for each in self._all]
        self._connection: ObservedConnection | None = None
        self._runs = [each for each in every if each.finished is not None]
        self.one = self._runs[0] if len(self._runs) == 1 and self._runs[0].call is None else None
        """The observer of deliveries, if there is one and it is an `Observer`: its methods are called directly."""
        self._sends = [each for each in every if each.sent is not None]
        self._events = [each for each in every if each.event is not None]
        self.watches_runs = bool(self._runs)
        """True if an observer wants every delivery."""
        self.watches_events = bool(self._events)
        """True if an observer wants other events."""
        self.watches_arrivals = any(each.wants(Received) for each in every)
        """True if an observer wants `Received` events; only if `watches_events`."""
        self.watches_sends = bool(self._sends)
        """True if an observer wants every message that is sent."""

    def also(self, observers: Iterable[Watching]) -> Observers:
        """Return these observers and more, for one consumer."""
        more = tuple(observers)
        if not more:
            return self
        found = Observers((*self._all, *more), self._log)
        if self._connection is not None:
            found.attach(self._connection, but=len(self._all))
        return found

    def attach(self, connection: ObservedConnection, but: int = 0) -> None:
        """Give the observers their connection, without the first `but` ones, which have it. Raises nothing."""
        self._connection = connection
        for each in self._every[but:]:
            if each.attached is not None:
                try:
                    each.attached(connection)
                except Exception as error:  # noqa: BLE001 - logged
                    each.failed(error, "")

    def look(self, *, last: bool = False) -> None:
        """Make the log write the lines of groups that are due; `last`: of all groups."""
        self._log.look(last=last)

    def emit(self, events: Iterable[Event]) -> BaseException | None:
        """Show events to the log and to the observers. Call it without a lock.

        Returns:
            An observer's exception that is no `Exception`: the caller must stop. None: there was none.
        """
        ends: BaseException | None = None
        for event in events:
            self._log.observe(event)
            if isinstance(event, Finished):
                if event.message is None:
                    # With a message, a handler has it: the observers are shown this event when the handler ends.
                    ends = self._end([None] * len(self._runs), event) or ends
                continue
            for each in self._events:
                if each.event_types is not None and type(event) not in each.event_types:
                    continue
                try:
                    each.event(event)  # type: ignore[misc]
                except BaseException as error:  # noqa: BLE001 - logged
                    ends = each.failed(error, getattr(event, "destination", "")) or ends
        return ends

    def begin(self, message: Message, delivery: Delivery, watch: ObservedConsumer) -> object:
        """Show that a handler begins; return the tokens of the observers, for `end`. Raises nothing."""
        tokens: list[object] = []
        for each in self._runs:
            token: object = None
            try:
                if each.started is not None:
                    token = each.started(message)
                elif each.call is not None:
                    each.call(Started(watch.wall(), watch.subscribe, delivery, message))
            except BaseException as error:  # noqa: BLE001 - logged
                watch.failed(each, error)
            tokens.append(token)
        return tokens

    def end(self, tokens: Any, event: Finished, watch: ObservedConsumer) -> None:
        """Show that an observed run has ended; its line was logged before. Raises nothing."""
        ends = self._end(tokens, event)
        if ends is not None:
            watch.ended(ends)

    def _end(self, tokens: Sequence[object], event: Finished) -> BaseException | None:
        ends: BaseException | None = None
        for token, each in zip(tokens, self._runs, strict=True):
            try:
                each.finished(token, event)  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - logged
                ends = each.failed(error, event.destination) or ends
        return ends

    def sending(self, destination: str, headers: MutableMapping[str, Any]) -> Sequence[object]:
        """Show that a message is about to be sent; return a token of each observer, for `sent`."""
        tokens: list[object] = []
        for each in self._sends:
            token: object = None
            if each.sending is not None:
                try:
                    token = each.sending(destination, headers)
                except BaseException as error:  # noqa: BLE001 - logged
                    each.failed(error, destination)
            tokens.append(token)
        return tokens

    def sent(self, tokens: Sequence[object], event: Sent) -> None:
        """Show that a `send` has ended."""
        for token, each in zip(tokens, self._sends, strict=True):
            try:
                each.sent(token, event)  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - logged: the message has been sent
                each.failed(error, event.destination)


def checked_observers(observers: object) -> tuple[Watching, ...]:
    """Check the observers that an application gave, and return them.

    Raises:
        ConfigurationError: One of them is neither callable nor an Observer, or is `async def`.
    """
    if observers is None:
        return ()
    if isinstance(observers, str | bytes) or not isinstance(observers, Sequence):
        raise ConfigurationError(
            f"observers={_shown(observers)}: a list is needed; write observers=[...]", option="observers"
        )
    for each in cast("Sequence[object]", observers):
        why = _not_one(each)
        if why is not None:
            raise ConfigurationError(f"observers: {_shown(each)} {why}", option="observers")
    return tuple(cast("Sequence[Watching]", observers))


def _not_one(each: object) -> str | None:
    """Return why an object is not an observer, and what to write instead; None: it is one."""
    if isinstance(each, Observer):
        return None
    if inspect.isclass(each) and issubclass(each, Observer):
        return f"is a class; make an observer of it: {_shown(each)}()"
    call = cast("Callable[..., object]", each) if callable(each) else None
    if call is None:
        return "is no observer; give a redelivery.events.Observer, or a function of one event"
    if is_async_callable(call):
        return "is async def, and nothing awaits it; write def, and hand the event over to a task there"
    return None


def _shown(value: object) -> str:
    return getattr(value, "__qualname__", None) or type(value).__name__
