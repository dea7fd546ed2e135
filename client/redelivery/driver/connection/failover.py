"""Schedule of reconnecting: which address is tried next, and the delay before."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

from redelivery.errors import RedeliveryError, TransportError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenacity import Retrying

    from redelivery.settings import Endpoint, FailoverSettings, Settings

__all__ = ["FailoverAddresses", "delay_after", "retrying", "starting"]


# Seconds that a connection must be up; after a shorter one, the next reconnect is delayed longer.
STEADY = 1.0


class FailoverAddresses:
    """The addresses of a connection, in the order in which they are tried."""

    def __init__(self, settings: Settings) -> None:
        self.current = ""
        """Address of the last connection."""
        self.failed = False
        """True if once no address has answered."""
        self._addresses = list(settings.endpoints)
        if settings.failover.randomize and len(self._addresses) > 1:
            Random().shuffle(self._addresses)  # noqa: S311 - spreads clients over brokers, protects nothing
        self._turn = -1
        self._failover = settings.failover
        # Connections in a row that were up for less than `STEADY` seconds.
        self._fleeting = 0

    def delay_after_loss(self, stood: float) -> float:
        """Return the delay in seconds after the loss of a connection that was up for `stood` seconds.

        Without a delay, a broker that ends each connection at once would get connections in a hot loop.
        """
        self._fleeting = 0 if stood >= STEADY else self._fleeting + 1
        if not self._fleeting:
            return 0.0
        return delay_after((self._fleeting - 1) * len(self._addresses), self._failover, len(self._addresses))

    def try_each(self, connect: Callable[[Endpoint], None]) -> None:
        """Connect to each address in turn until one answers. Raises TransportError if none does."""
        failures: list[str] = []
        for _ in self._addresses:
            endpoint = self.next()
            if failures:
                logger.info("%s; trying %s", failures[-1], endpoint)
            try:
                connect(endpoint)
            except TransportError as error:
                failures.append(str(error))
            else:
                return
        self.failed = True
        raise TransportError("; ".join(failures))

    def next(self) -> Endpoint:
        """Return the address after the last one."""
        self._turn = (self._turn + 1) % len(self._addresses)
        return self._addresses[self._turn]


def starting(failover: FailoverSettings, nap: Callable[[float], None], *, patient: bool) -> Retrying:
    """Return tenacity's loop for the first connection; each round tries all addresses once.

    The URI may set the number of rounds. Default one; with `patient` there is no limit.
    """
    rounds = failover.startup_max_reconnect_attempts
    if rounds is None:
        rounds = -1 if patient else 1
    return _loop(failover, 1, rounds, nap, TransportError)


def delay_after(attempts: int, failover: FailoverSettings, addresses: int) -> float:
    """Return the delay in seconds after so many failed attempts."""
    rounds, within = divmod(attempts, addresses)
    if within or not rounds:
        return 0.0
    factor = failover.back_off_multiplier ** min(rounds - 1, 64) if failover.use_exponential_back_off else 1.0
    return min(failover.initial_reconnect_delay * factor, failover.max_reconnect_delay)


def retrying(failover: FailoverSettings, addresses: int, nap: Callable[[float], None]) -> Retrying:
    """Return tenacity's loop over attempts to reconnect.

    The delays are those of ActiveMQ's failover transport. The first round over all addresses has no delay. Before the
    second one the delay is `initial_reconnect_delay`; with exponential back-off it is multiplied by
    `back_off_multiplier` for each further round, up to `max_reconnect_delay`. A `max_reconnect_attempts` below 0 means
    no limit.
    """
    return _loop(failover, addresses, failover.max_reconnect_attempts, nap, RedeliveryError)


def _loop(
    failover: FailoverSettings,
    addresses: int,
    attempts: int,
    nap: Callable[[float], None],
    on: type[RedeliveryError],
) -> Retrying:
    import tenacity  # noqa: PLC0415 - takes 15 ms, and only a connection needs it

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
