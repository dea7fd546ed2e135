"""A connection that reads dead letters: shown where the broker can show them, else taken and given back."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from redelivery.core.capabilities import cannot_browse
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.dlq.dlq_consumer import FIRST, HELD, DeadLetterConsumer
from redelivery.driver.port import ConnectionPort
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Delivery
    from redelivery.ledger import Ledger
    from redelivery.settings import Settings

__all__ = ["DeadLetterConnection"]

# Dead letters that may be on their way here: what a kill gives back is counted by some brokers.
CREDIT = 200
# Messages that a first window in bytes is meant for: it is widened by what is held.
WIDE = 1000


class DeadLetterConnection:
    """A connection whose consumers look after dead letters. Its ledger is only read: none of them is an attempt."""

    def __init__(self, uri: str, *, ledger: Ledger | None = None, clock: Clock | None = None) -> None:
        self._port = ConnectionPort(uri, ledger=ledger, clock=clock)
        self.full: str | None = None
        """Why what was taken last may not be all, or None."""

    def __enter__(self) -> Self:
        """Connect. Raises as `ConnectionPort.__enter__` does."""
        self._port.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close; the broker takes back what is held."""
        self._port.close()

    @property
    def settings(self) -> Settings:
        """What the URI says."""
        return self._port.settings

    @property
    def ledger(self) -> Ledger | None:
        """What remembers why the broker was asked to poison messages itself."""
        return self._port.ledger

    @property
    def clock(self) -> Clock:
        """What it waits by."""
        return self._port.clock

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do. Raises ConfigurationError outside of `with`."""
        return self._port.capabilities

    @property
    def first(self) -> int:
        """How many may be held at first: a window that counts messages, and is given once, has all of them sent."""
        able = self.capabilities
        return HELD if able.flow or able.window_in_bytes else FIRST

    def shown(self, queue: str) -> Iterator[Delivery]:
        """Go through what is on a queue, and leave it there.

        Raises:
            ConfigurationError: this broker takes what it shows.
        """
        if not self.capabilities.browse:
            raise ConfigurationError(cannot_browse(self.capabilities), option="take")
        return self._port.browse(queue, window=CREDIT)

    def taken(self, queue: str, idle: float) -> Iterator[Delivery]:
        """Go through what is on a queue by taking it, until nothing comes any more; then give it back.

        Its end: nothing for `idle` seconds, before the broker has answered for the queue, and after it.
        """
        asked, self.full = False, None
        with self.taker(queue, Redrive("")) as taker:
            while (full := taker.full) is None:
                delivery = taker.take(idle)
                if delivery is not None:
                    asked = False
                    yield delivery
                    taker.keep(delivery)
                elif asked:
                    return
                else:
                    self.ask(queue)
                    asked = True
            self.full = full

    def flush(self) -> None:
        """Return when all settlements so far are written, also those that another thread has taken to write."""
        self._port.flush()

    def ask(self, queue: str) -> None:
        """Have the broker answer for a queue: so it is not merely slow to hand out what is there.

        What was settled before it has read then, too. A second consumer is begun and ended; what it is given goes back,
        to the first.

        Raises:
            TransportError: it does not answer.
        """
        self.flush()
        with self.taker(queue, Redrive(""), credit=1, held=0):
            pass

    @contextmanager
    def taker(
        self,
        queue: str,
        redrive: Redrive,
        selector: str | None = None,
        *,
        credit: int = CREDIT,
        held: int = HELD,
        recalls: bool = True,
    ) -> Generator[DeadLetterConsumer]:
        """Consume a dead-letter queue, holding so many at most; at the end what is held is given back.

        `recalls`: what comes again over another connection is known, by its key; else whoever takes it knows more.
        """
        able = self.capabilities
        # More than is held: copies on their way count as well, and the engine would warn of redelivery.maxParked.
        settings = replace(self.settings, credit=credit, max_parked=held + credit, ordering="non_blocking")
        plan = self._port.plan(queue, {"selector": selector}, settings=settings, route=redrive)
        plan = plan.for_dead_letters().with_window(credit + (WIDE if able.window_in_bytes else held))
        taker = DeadLetterConsumer(redrive, held)
        with self._port.consume(plan, taker.hooks(keeps_history=recalls)) as consumer:
            taker.started(consumer)
            yield taker
