"""A connection that reads dead letters: shown where the broker can show them, else taken and given back."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.connection import Connection
from redelivery.core.capabilities import cannot_browse
from redelivery.core.commands import Subscribe
from redelivery.core.redrive import Redrive
from redelivery.drive.arguments import single
from redelivery.drive.browser import Browser
from redelivery.drive.planning import planned
from redelivery.errors import ConfigurationError
from redelivery.letters.channel import HELD, Taker

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Delivery
    from redelivery.ledger import Ledger

__all__ = ["Reading"]

CREDIT = 200  # dead letters that may be on their way here: what a kill gives back is counted by some brokers
WIDE = 1000  # messages that a first window in bytes is meant for: it is widened by what is held


class Reading(Connection):
    """A connection whose consumers look after dead letters. Its ledger only tells: none of them is an attempt."""

    _counts = False

    @property
    def ledger(self) -> Ledger | None:
        """What remembers why the broker was told to poison messages itself."""
        return self._ledger

    @property
    def clock(self) -> Clock:
        """What it waits by."""
        return self._clock

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do. Raises ConfigurationError outside of `with`."""
        self._check_open()
        assert self._keeper.capabilities is not None, "checked by _check_open"
        return self._keeper.capabilities

    def pause(self, seconds: float) -> None:
        """Wait by the connection's clock."""
        until, never = self._clock.monotonic() + seconds, threading.Condition()
        with never:
            while (left := until - self._clock.monotonic()) > 0:
                self._clock.wait(never, left)

    def shown(self, queue: str) -> Iterator[Delivery]:
        """Go through what is on a queue, and leave it there.

        Raises:
            ConfigurationError: this broker takes what it shows.
        """
        if not self.capabilities.browse:
            raise ConfigurationError(cannot_browse(self.capabilities), option="take")
        number = next(self._numbers)
        browser = Browser(
            Subscribe(number, queue, window=CREDIT, browse=True), self._keeper.write, self._clock
        )
        self._keeper.browsers[number] = browser
        try:
            yield from browser
        finally:
            del self._keeper.browsers[number]

    def taken(self, queue: str, idle: float) -> Iterator[Delivery]:
        """Go through what is on a queue by taking it, until nothing has come for `idle` seconds; then give it back."""
        with self.taker(queue, Redrive("")) as taker:
            while (delivery := taker.take(None, idle)) is not None:
                yield delivery
                taker.keep(delivery)

    @contextmanager
    def taker(self, queue: str, redrive: Redrive, selector: str | None = None) -> Generator[Taker]:
        """Consume a dead-letter queue; at the end what is held is given back."""
        able = self.capabilities
        settings = replace(self.settings, credit=CREDIT, max_parked=HELD, ordering="non_blocking")
        subscribe, engine = planned(
            next(self._numbers), single(queue), {"selector": selector}, settings, able, redrive=redrive
        )
        window = CREDIT + (WIDE if able.window_in_bytes else HELD)
        taker = Taker(replace(subscribe, window=window), engine, self._keeper, self._clock, settings.policies)
        taker.redrive = redrive
        self._keeper.totals.add(taker)
        self._await_subscription(taker)
        try:
            yield taker
        finally:
            self._keeper.unsubscribe(taker)
