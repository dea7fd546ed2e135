"""Which address comes next, and how long to wait before: the schedule of reconnecting."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

from redelivery.errors import RedeliveryError, TransportError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tenacity import Retrying

    from redelivery.settings import Endpoint, FailoverSettings, Settings

__all__ = ["FailoverAddresses", "delay_after", "retrying", "starting"]


# Seconds that a connection must stand, or the next one has to wait longer.
STEADY = 1.0


class FailoverAddresses:
    """The addresses of a connection, in the order in which they are tried."""

    def __init__(self, settings: Settings) -> None:
        self.current = ""
        """Where the last connection went to."""
        self._addresses = list(settings.endpoints)
        if settings.failover.randomize and len(self._addresses) > 1:
            Random().shuffle(self._addresses)  # noqa: S311 - spreads clients over brokers, protects nothing
        self._turn = -1
        self._failover = settings.failover
        # Connections in a row that did not stand for long enough.
        self._fleeting = 0

    def delay_after_loss(self, stood: float) -> float:
        """Return how long to wait after the loss of a connection that stood for so many seconds.

        A broker that ends each connection at once must not be connected to in a hot loop.
        """
        self._fleeting = 0 if stood >= STEADY else self._fleeting + 1
        if not self._fleeting:
            return 0.0
        return delay_after((self._fleeting - 1) * len(self._addresses), self._failover, len(self._addresses))

    def round(self) -> Iterator[Endpoint]:
        """Go through each address once."""
        for _ in self._addresses:
            yield self.next()

    def next(self) -> Endpoint:
        """Return the address after the last one."""
        self._turn = (self._turn + 1) % len(self._addresses)
        return self._addresses[self._turn]


def starting(failover: FailoverSettings, nap: Callable[[float], None], *, patient: bool) -> Retrying:
    """Return tenacity's loop over rounds of first attempts.

    Unless the URI sets their number, it is one; `patient`: there is no limit.
    """
    rounds = failover.startup_max_reconnect_attempts
    if rounds is None:
        rounds = -1 if patient else 1
    return _loop(failover, 1, rounds, nap, TransportError)


def delay_after(attempts: int, failover: FailoverSettings, addresses: int) -> float:
    """Return how long to wait after so many attempts."""
    rounds, within = divmod(attempts, addresses)
    if within or not rounds:
        return 0.0
    factor = failover.back_off_multiplier ** min(rounds - 1, 64) if failover.use_exponential_back_off else 1.0
    return min(failover.initial_reconnect_delay * factor, failover.max_reconnect_delay)


def retrying(failover: FailoverSettings, addresses: int, nap: Callable[[float], None]) -> Retrying:
    """Return tenacity's loop over attempts to reconnect.

    The delays are those of ActiveMQ's failover transport: a round over all addresses without a pause, then
    `initial_reconnect_delay`, then, with exponential back-off, `back_off_multiplier` times more after each round,
    up to `max_reconnect_delay`. `max_reconnect_attempts` below 0 never gives up.
    """
    return _loop(failover, addresses, failover.max_reconnect_attempts, nap, RedeliveryError)


def _loop(
    failover: FailoverSettings,
    addresses: int,
    attempts: int,
    nap: Callable[[float], None],
    on: type[RedeliveryError],
) -> Retrying:
    import tenacity  # noqa: PLC0415 - 15 ms that only a connection needs

    def wait(state: tenacity.RetryCallState) -> float:
        return delay_after(state.attempt_number, failover, addresses)

    def told(state: tenacity.RetryCallState) -> None:
        number = state.attempt_number
        error = state.outcome.exception() if state.outcome is not None else None
        every = failover.warn_after_reconnect_attempts
        level = logging.WARNING if number == 1 or (every > 0 and number % every == 0) else logging.INFO
        logger.log(level, "cannot connect (attempt %d): %s", number, error)

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(on),
        stop=tenacity.stop_never if attempts < 0 else tenacity.stop_after_attempt(max(1, attempts)),
        wait=wait,
        sleep=nap,
        before_sleep=told,
        reraise=True,
    )
