"""Consumer of dead letters: each is kept until the end, redriven, or purged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.core.events import Confirmed, Deferred, Discarded, Poisoned
from redelivery.driver.port import ConsumerHooks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.redrive import Redrive
    from redelivery.core.delivery import Delivery
    from redelivery.driver.port import ConsumerPort

__all__ = ["HELD", "DeadLetterConsumer"]

# Dead letters kept at once, at most: RabbitMQ's prefetch ends at 65,535.
HELD = 60_000
# Bytes of their bodies, about; the broker has them in its memory as well.
HELD_BYTES = 256 * 1024 * 1024
# Dead letters kept at first where a window is given once, because all of it is sent at once; then so many times more.
FIRST, WIDER = 1000, 8
# Seconds. Longer than any run: kept dead letters are released at its end.
LONG = 7 * 86400.0
_KEEP, _SEND, _DROP = Cause("kept"), Cause("redriven"), Cause("purged")


class DeadLetterConsumer:
    """Takes dead letters one by one. `most`: number it can keep."""

    def __init__(self, redrive: Redrive, most: int = HELD) -> None:
        self.redrive = redrive
        self.most = most
        self.held = 0
        self.held_bytes = 0
        self.confirmed: Callable[[Delivery], None] | None = None
        """Callback for each message whose copy the broker has confirmed; runs on the adapter's thread."""
        self._consumer: ConsumerPort | None = None

    def hooks(self, *, keeps_history: bool) -> ConsumerHooks:
        """Return the hooks in which it differs from an application's consumer.

        Expired dead letters are read as well. History is neither taken over from other runs nor left to them. The
        report has the number of redriven messages; the log has no line for each.
        """
        return ConsumerHooks(
            shares_history=False,
            keeps_history=keeps_history,
            logs_results=False,
            expires=False,
            confirmed=self.answered,
        )

    def started(self, consumer: ConsumerPort) -> None:
        """Use the consumer that was started with these hooks."""
        self._consumer = consumer

    @property
    def port(self) -> ConsumerPort:
        """Port of the consumer."""
        assert self._consumer is not None, "started"
        return self._consumer

    def answered(self, event: Confirmed) -> None:
        """Handle the broker's answer to a copy."""
        if event.error is not None:
            self.redrive.refusal = event.error
        elif self.confirmed is not None:
            self.confirmed(event.delivery)

    @property
    def capabilities(self) -> Capabilities | None:
        """Capabilities of the broker for the queue."""
        return self.port.engine.capabilities

    @property
    def release_limit(self) -> int | None:
        """Releases after which the broker drops a message of the queue; None: no limit."""
        able = self.capabilities
        return None if able is None else able.release_limit

    @property
    def unconfirmed(self) -> int:
        """Number of copies that the broker has not confirmed."""
        return self.port.engine.load.unconfirmed

    def take(self, timeout: float) -> Delivery | None:
        """Return the next dead letter; None after `timeout` seconds. Raises what stopped the consumer."""
        return self.port.take(None, timeout)

    def keep(self, delivery: Delivery) -> None:
        """Keep it until the consumer closes, which releases it."""
        self.held += 1
        self.held_bytes += len(delivery.body)
        self.port.settle(delivery, Deferred(delivery, LONG, _KEEP))

    @property
    def full(self) -> str | None:
        """Reason why it can keep no more; None: it can."""
        if self.held < self.most and self.held_bytes < HELD_BYTES:
            return None
        return f"{self.held} dead letters ({self.held_bytes / 1024**2:.1f} MiB) that stay are kept in memory"

    def wider(self) -> int:
        """Return how many the next consumer can keep: more, if this one was full and they were not too large."""
        if self.held < self.most:
            return self.most
        return min(HELD, self.most * WIDER, HELD_BYTES // max(1, self.held_bytes // self.held))

    def send_on(self, deliveries: Sequence[Delivery], *, together: bool) -> list[Delivery]:
        """Send copies of them to their destinations, `together` in one transaction; a retry sends each by itself.

        Return them without those whose connection was lost before: the broker redelivers these.
        """
        self.port.settle_many([Poisoned(delivery, _SEND) for delivery in deliveries], together=together)
        return [delivery for delivery in deliveries if delivery.outcome != "stale"]

    def drop(self, delivery: Delivery) -> bool:
        """Accept it. False if the connection was lost before: the broker redelivers it."""
        return self.port.settle(delivery, Discarded(delivery, _DROP)) != "stale"

    def wait_below(self, pending: int) -> None:
        """Wait until fewer than so many copies are unconfirmed. Raises what ended the consumer."""
        self.port.wait_unconfirmed(pending)
