"""A consumer of dead letters that go back: the engine, its retries and its confirmations, with another end."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redelivery.core.commands import Forward, ForwardAll
from redelivery.core.delivery import Cause
from redelivery.core.events import Confirmed, Deferred, Discarded, Poisoned
from redelivery.driver.consumer.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.commands import AdapterCommand
    from redelivery.core.dead_lettering.redrive import Redrive
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Arrived, Event
    from redelivery.driver.consumer import message_log

__all__ = ["HELD", "DeadLetterConsumer"]

HELD = 60_000  # dead letters that may be held here at once: RabbitMQ's prefetch ends at 65,535
HELD_BYTES = 256 * 1024 * 1024  # of their bodies, about; the broker has them in its memory as well
FIRST, WIDER = (
    1000,
    8,
)  # held at first where a window is given once, for all are sent at once; then so many times more
LONG = 7 * 86400.0  # seconds: until after the end, when what is held is given back
_KEEP, _SEND, _DROP = Cause("kept"), Cause("redriven"), Cause("purged")


class DeadLetterConsumer(Dispatcher):
    """Takes dead letters one by one; each is kept here until the end, sent on, or dropped."""

    redrive: Redrive
    confirmed: Callable[[Delivery], None] | None = None
    """Told of each copy that the broker has confirmed, on the adapter's thread."""
    most: int = HELD
    """Dead letters that it may hold."""
    held: int = 0
    held_bytes: int = 0

    def _now(self) -> float:
        now = super()._now()
        # None is expired to the engine, whatever its headers say: a dead letter that was asked for is looked at.
        self.engine.wall_offset = -inf
        return now

    def _result(self, event: Event, now: float) -> message_log.Line | None:
        super()._result(event, now)
        return None  # the log has no line for each: whoever redrives is told how many

    def _claim(self, event: Arrived, now: float) -> None:
        """Take over nothing: what another run held, this one may send."""

    def _leave_behind(self) -> None:
        """Leave nothing to others: a dead letter that was held here waits for nothing."""

    def feed(self, event: Event) -> None:
        """Feed an event; keep what the broker says of a copy."""
        if isinstance(event, Confirmed) and event.error is not None:
            self.redrive.refusal = event.error
        elif isinstance(event, Confirmed) and self.confirmed is not None:
            self.confirmed(event.delivery)
        super().feed(event)

    def keep(self, delivery: Delivery) -> None:
        """Hold it until the consumer closes, which gives it back."""
        self.held += 1
        self.held_bytes += len(delivery.body)
        self.settle(delivery, Deferred(delivery, LONG, _KEEP))

    @property
    def full(self) -> str | None:
        """Why it may hold no more, or None."""
        if self.held < self.most and self.held_bytes < HELD_BYTES:
            return None
        return f"{self.held} dead letters ({self.held_bytes / 1024**2:.1f} MiB) that stay are held here"

    def wider(self) -> int:
        """Return how many the next one may hold: more, if this one was full and they were not too large."""
        if self.held < self.most:
            return self.most
        return min(HELD, self.most * WIDER, HELD_BYTES // max(1, self.held_bytes // self.held))

    def send_on(self, deliveries: Sequence[Delivery], *, together: bool) -> list[Delivery]:
        """Send them where they belong, `together` in one transaction; tried again, each goes by itself.

        Return them without those whose connection was lost before: they come again.
        """
        with self._lock:
            now = self._now()
            for delivery in deliveries:
                self._result(Poisoned(delivery, _SEND), now)
            if self.closed:
                self._notice_end()
            writes = self._settlements.all()
            writes = self._take(_joined(writes) if together else writes)
            self._wake()
        self._write(writes)
        return [delivery for delivery in deliveries if delivery.outcome != "stale"]

    def drop(self, delivery: Delivery) -> bool:
        """Accept it. False if the connection was lost before: it comes again."""
        return self.settle(delivery, Discarded(delivery, _DROP)) != "stale"

    def wait_below(self, pending: int) -> None:
        """Wait until fewer than so many copies are unconfirmed, or the consumer has ended.

        Raises:
            RedeliveryError: what ended it.
        """
        with self._lock:
            while self.engine.unconfirmed >= pending and self.error is None:
                self._wait(1.0)
        if self.error is not None:
            raise self.error


def _joined(commands: Sequence[AdapterCommand]) -> Sequence[AdapterCommand]:
    """Make one transaction of all that is forwarded."""
    forwards = [command for command in commands if isinstance(command, Forward)]
    if len(forwards) < 2:
        return commands
    return [*(command for command in commands if not isinstance(command, Forward)), ForwardAll(forwards)]
