"""Schedule of reconnecting: which address is tried next, and the delay before."""

from __future__ import annotations

import logging
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from redelivery.adapter_support.sockets import resolved
from redelivery.errors import AdapterError, RedeliveryError, TransportError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tenacity import Retrying

    from redelivery.settings import Endpoint, FailoverSettings, Settings

__all__ = ["FailoverAddresses", "delay_after", "retrying", "starting"]


# Seconds that a connection must be up; after a shorter one, the next reconnect is delayed longer.
STEADY = 1.0
# Part of a delay that is drawn: the clients of a node that comes back do not all connect at the same moments.
JITTER = 0.25


class FailoverAddresses:
    """The addresses of a connection, in the order in which they are tried: each address of a name is one of them."""

    def __init__(
        self, settings: Settings, look_up: Callable[[Endpoint], Sequence[Endpoint]] = resolved
    ) -> None:
        self.current = ""
        """Address of the last connection."""
        self.failed = False
        """True if once no address has answered."""
        self._named = list(settings.endpoints)
        self._failover = settings.failover
        self._look_up = look_up
        # Made at the first use: processes that are forked before must not draw the same.
        self._random: Random | None = None
        self._salt: float | None = None
        self._last: Endpoint | None = None
        # Number of addresses of each name, at its last look-up.
        self._counts: dict[Endpoint, int] = {}
        # Connections in a row that were up for less than `STEADY` seconds.
        self._fleeting = 0

    @property
    def number(self) -> int:
        """Number of addresses, as far as the names were looked up."""
        return sum(self._counts.get(name, 1) for name in self._named)

    def delay_after_loss(self, stood: float) -> float:
        """Return the delay in seconds after the loss of a connection that was up for `stood` seconds.

        Without a delay, a broker that ends each connection at once would get connections in a hot loop.
        """
        self._fleeting = 0 if stood >= STEADY else self._fleeting + 1
        return delay_after(self._fleeting - 1, self._failover, self.draw()) if self._fleeting else 0.0

    def draw(self) -> float:
        """Draw by how much a delay is shortened, from 0 to 1. Clients of the embedded broker are no crowd: 0."""
        return self._own_random().random() if self._named[0].port else 0.0

    def try_each(self, connect: Callable[[Endpoint], None]) -> None:
        """Connect to each address in turn, from the one after the last, until one answers.

        An address that refuses the log-in does not end the round: its node may be up before its users are there.

        Raises:
            TransportError: None has answered.
            AdapterError: One has refused the log-in, and none has accepted it.
        """
        failures: list[TransportError | AdapterError] = []
        for endpoint in self._round():
            if failures:
                logger.info("%s; trying %s", failures[-1], endpoint)
            self._last = endpoint
            try:
                connect(endpoint)
            except (TransportError, AdapterError) as error:
                failures.append(error)
            else:
                return
        self.failed = True
        text = "; ".join(map(str, failures))
        refused = any(isinstance(error, AdapterError) for error in failures)
        raise AdapterError(text, passes=False) if refused else TransportError(text)

    def _round(self) -> Iterator[Endpoint]:
        """Yield all addresses, from the one after the last. Each name is looked up in its turn: its nodes may move."""
        names = self._named
        if self._last is None:
            if self._failover.randomize:
                self._own_random().shuffle(names)
            for name in names:
                yield from self._addresses_of(name)
            return
        last = self._last
        at = names.index(replace(last, ip=None))
        own = self._addresses_of(names[at])
        after = own.index(last) + 1 if last in own else 0
        yield from own[after:]
        for name in names[at + 1 :] + names[:at]:
            yield from self._addresses_of(name)
        yield from own[:after]

    def _addresses_of(self, name: Endpoint) -> list[Endpoint]:
        """Return the addresses of a name; shuffled by a rule that is the same in each round."""
        found = list(self._look_up(name))
        self._counts[name] = len(found)
        if self._failover.randomize:
            salt = self._own_salt()
            found.sort(key=lambda address: hash((salt, address.ip)))
        return found

    def _own_random(self) -> Random:
        if self._random is None:
            self._random = Random()  # noqa: S311 - spreads clients over brokers, protects nothing
        return self._random

    def _own_salt(self) -> float:
        if self._salt is None:
            self._salt = self._own_random().random()
        return self._salt


def starting(
    failover: FailoverSettings, nap: Callable[[float], None], draw: Callable[[], float], *, patient: bool
) -> Retrying:
    """Return tenacity's loop for the first connection; each round tries all addresses once.

    The URI may set the number of rounds. Default one; with `patient` there is no limit.
    """
    rounds = failover.startup_max_reconnect_attempts
    if rounds is None:
        rounds = -1 if patient else 1
    return _loop(failover, rounds, nap, draw, TransportError)


def delay_after(rounds: int, failover: FailoverSettings, drawn: float = 0.0) -> float:
    """Return the delay in seconds after so many failed rounds over all addresses; `drawn`, 0 to 1, shortens it."""
    if not rounds:
        return 0.0
    factor = failover.back_off_multiplier ** min(rounds - 1, 64) if failover.use_exponential_back_off else 1.0
    longest = min(failover.initial_reconnect_delay * factor, failover.max_reconnect_delay)
    return longest * (1 - JITTER * drawn)


def retrying(failover: FailoverSettings, nap: Callable[[float], None], draw: Callable[[], float]) -> Retrying:
    """Return tenacity's loop over rounds of reconnecting.

    The delays are those of ActiveMQ's failover transport, shorter by up to a quarter. The first round over all
    addresses has no delay. Before the second one the delay is `initial_reconnect_delay`; with exponential back-off it
    is multiplied by `back_off_multiplier` for each further round, up to `max_reconnect_delay`. A
    `max_reconnect_attempts` below 0 means no limit.
    """
    return _loop(failover, failover.max_reconnect_attempts, nap, draw, RedeliveryError)


def _loop(
    failover: FailoverSettings,
    attempts: int,
    nap: Callable[[float], None],
    draw: Callable[[], float],
    on: type[RedeliveryError],
) -> Retrying:
    import tenacity  # noqa: PLC0415 - takes 15 ms, and only a connection needs it

    def wait(state: tenacity.RetryCallState) -> float:
        return delay_after(state.attempt_number, failover, draw())

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
