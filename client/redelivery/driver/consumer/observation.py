"""Observation of the runs of one worker: made only if an observer wants every delivery.

It is on the hot path. For each message it makes two calls of each observer, and one object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from redelivery.events import Finished
from redelivery.events.event import ResultDetails

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery, Outcome
    from redelivery.driver.observers import Observers, Watcher
    from redelivery.events import Event, Verdict
    from redelivery.message import Message

__all__ = ["Observation", "ObservedRun"]

# Verdicts for outcomes whose result has no details.
VERDICTS: dict[Outcome | None, Verdict] = {
    "redelivered": "failed", "spared": "failed", "poisoned": "failed", "deferred": "defer", "discarded": "discard",
    "released": "release",
}  # fmt: skip


class ObservedRun(Protocol):
    """Interface of the run of a worker; `HandlerRun` implements it."""

    delivery: Delivery | None
    """Delivery that is handled now, or None."""
    since: float
    """Time of the connection's clock at which the run was started."""


class Observation:
    """State of one worker's current run for its observers, until they have been shown its end."""

    __slots__ = (
        "_ended", "_observers", "_run", "_tokens", "_wall", "delivery", "details", "error", "later", "message",
        "subscribe",
    )  # fmt: skip

    def __init__(
        self,
        run: ObservedRun,
        observers: Observers,
        subscribe: Subscribe,
        wall: Callable[[], float],
        ended: Callable[[BaseException], None],
    ) -> None:
        """Observe the runs of one worker of the consumer `subscribe`.

        `wall` reads the wall clock; `ended` is called with an observer's exception that is no `Exception`.
        """
        self.message: Message | None = None
        """The message of the run, until the end of the run has been shown; None: there is no run."""
        self.delivery: Delivery | None = None
        self.error: BaseException | None = None
        """Exception of the handler."""
        self.details: ResultDetails | None = None
        """Details of the result, if it is no plain success; it has been logged."""
        self.later: list[Event] = []
        """Broker's answers for this delivery, to be shown after the end of the run. With the lock of the consumer."""
        self.subscribe = subscribe
        self._wall = wall
        self._ended = ended
        self._tokens: object = None
        self._run = run
        self._observers = observers

    @property
    def plain(self) -> bool:
        """True if the run has succeeded and its result is final here; its session may still have to commit it."""
        return self.details is None and self.delivery is not None and self.delivery.outcome == "accepted"

    def unsettled(self, delivery: Delivery) -> bool:
        """True if the handler has this delivery and has not settled it. A redelivery has the same object."""
        return self.delivery is delivery and self.message is not None and self.details is None

    def condemned(self, delivery: Delivery) -> bool:
        """True if this run has made the delivery poison, and its end has not been shown yet."""
        found = self.details
        return self.delivery is delivery and found is not None and found.outcome == "poisoned"

    def begin(self, message: Message) -> None:
        """Show that the handler begins. Called on its thread, or in its task."""
        delivery, one = self._run.delivery, self._observers.one
        assert delivery is not None, "it runs"
        self.message, self.delivery, self.details, self.error = message, delivery, None, None
        if one is None:
            self._tokens = self._observers.begin(message, delivery, self)
        elif one.started is not None:
            try:
                self._tokens = one.started(message)
            except BaseException as error:  # noqa: BLE001 - logged
                self._tokens = None
                self.failed(one, error)

    def handling(self, handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
        """Return a wrapper of a handler that observes its runs; for a worker thread."""
        begin = self.begin

        def handle(message: Message) -> Any:
            begin(message)
            try:
                return handler(message)
            except BaseException as error:
                self.error = error
                raise

        return handle

    def show_end(self, now: float) -> bool:
        """Show that the run has ended: its result has been fed. Called without a lock.

        Returns:
            True if `take_later` must be called: the broker may have answered meanwhile. A plain success has no answer.
        """
        message, delivery, one, plain = self.message, self.delivery, self._observers.one, self.plain
        assert delivery is not None, "it has run"
        result = Finished(self._wall(), self.subscribe, delivery, message, now - self._run.since)
        if delivery.outcome != "accepted" or self.error is not None or self.details is not None:
            result.details = self._details(delivery)
        self.message = self.error = None
        if one is None:
            self._observers.end(self._tokens, result, self)
        else:
            try:
                one.finished(self._tokens, result)  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - logged
                self.failed(one, error)
        if plain:
            # If its session settles it later, that is shown as an event of its own.
            self.delivery = None
        # A session may have been rolled back just now.
        return not plain or bool(self.later)

    def take_later(self) -> Sequence[Event]:
        """Take the events that arrived before the end of the run was shown. With the lock of the consumer."""
        later, self.later = self.later, []
        self.delivery = self.details = None
        return later

    def wall(self) -> float:
        """Read the wall clock."""
        return self._wall()

    def ended(self, error: BaseException) -> None:
        """Stop the consumer: an observer raised a `BaseException` that is no `Exception`."""
        self._ended(error)

    def failed(self, observer: Watcher, error: BaseException) -> None:
        """Log an observer's exception; stop the consumer if it is no `Exception`."""
        if observer.failed(error, self.subscribe.destination) is not None:
            self.ended(error)

    def _details(self, delivery: Delivery) -> ResultDetails:
        known = self.details
        if known is None:
            known = ResultDetails(delivery.outcome, VERDICTS.get(delivery.outcome, "succeeded"))
        return known._replace(error=self.error)
