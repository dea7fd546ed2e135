"""Schedule of reconnecting: which address is tried next, and the delay before."""

from __future__ import annotations

import logging
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from redelivery.adapter_support.sockets import resolved
from redelivery.errors import AdapterError, BrokerUnavailable, RedeliveryError, TransportError
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
        # All addresses of each name, at its last look-up.
        self._found: dict[Endpoint, Sequence[Endpoint]] = {}
        # Names that have failed since the last success.
        self._unreached: set[Endpoint] = set()
        # Connections in a row that were up for less than `STEADY` seconds.
        self._fleeting = 0

    @property
    def number(self) -> int:
        """Number of addresses, as far as the names were looked up."""
        return sum(len(self._used(name)) for name in self._named)

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
            BrokerUnavailable: None has accepted the log-in, and one has refused it for now.
            AdapterError: One has refused the log-in for good, and none has accepted it.
        """
        failures: list[tuple[Endpoint, TransportError | AdapterError]] = []
        for endpoint in self._round():
            if failures:
                logger.info("%s; trying %s", _told(failures[-1:]), endpoint)
            self._last = endpoint
            try:
                connect(endpoint)
            except (TransportError, AdapterError) as error:
                failures.append((endpoint, error))
                self._unreached.add(endpoint.name)
            else:
                if endpoint.one_node:
                    self._last = endpoint.name
                self._unreached.clear()
                return
        self.failed = True
        raise _failure(failures)

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
        at = names.index(last.name)
        own = self._addresses_of(names[at])
        after = own.index(last) + 1 if last in own else 0
        yield from own[after:]
        for name in names[at + 1 :] + names[:at]:
            yield from self._addresses_of(name)
        yield from own[:after]

    def _addresses_of(self, name: Endpoint) -> list[Endpoint]:
        """Return the addresses of a name; shuffled by a rule that is the same in each round."""
        self._found[name] = self._look_up(name)
        used = self._used(name)
        if self._failover.randomize and not used[0].one_node:
            salt = self._own_salt()
            used.sort(key=lambda address: hash((salt, address.ip)))
        return used

    def _used(self, name: Endpoint) -> list[Endpoint]:
        """Return the addresses of a name that a round tries.

        One of IPv4 and one of IPv6 are those of one node. They are one address, unless it has failed: one of them may
        accept and be silent. A try of both as one takes the first that accepts; therefore the second is tried first
        then, and the silent one does not cost its time-out again.
        """
        found = self._found.get(name, (name,))
        if len(found) != 2 or len({":" in (each.ip or "") for each in found}) == 1:
            return list(found)
        if name not in self._unreached:
            return [name]
        return [replace(each, one_node=True) for each in reversed(found)]

    def _own_random(self) -> Random:
        if self._random is None:
            self._random = Random()  # noqa: S311 - spreads clients over brokers, protects nothing
        return self._random

    def _own_salt(self) -> float:
        if self._salt is None:
            self._salt = self._own_random().random()
        return self._salt


def _failure(failures: Sequence[tuple[Endpoint, TransportError | AdapterError]]) -> RedeliveryError:
    """Return the error of a round in which no address has accepted the log-in."""
    text = _told(failures)
    refusals = [error for _, error in failures if isinstance(error, AdapterError)]
    if not all(error.passes for error in refusals):
        return AdapterError(text, passes=False)
    return BrokerUnavailable(text) if refusals else TransportError(text)


def _told(failures: Sequence[tuple[Endpoint, TransportError | AdapterError]]) -> str:
    """Return the errors, each once; behind one of a node with two addresses, to which of these it belongs."""
    told: dict[str, list[str]] = {}
    for endpoint, error in failures:
        told.setdefault(str(error), []).extend([endpoint.ip] if endpoint.one_node and endpoint.ip else [])
    return "; ".join(f"{text} ({', '.join(at)})" if at else text for text, at in told.items())


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
