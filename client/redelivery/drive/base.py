"""What both connections are made of: settings, adapter, keeper, and a channel for each consumer."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack

from redelivery.classifier import Classifier, checked_errors
from redelivery.clock import Clock, SystemClock
from redelivery.drive import log
from redelivery.drive.arguments import (
    ConnectOptions,
    ConsumerOptions,
    check_drops,
    checked_consumer,
    checked_policies,
    known,
)
from redelivery.drive.channel import Channel
from redelivery.drive.keeper import Keeper
from redelivery.drive.planning import planned
from redelivery.errors import ConfigurationError, TransportError
from redelivery.registry import adapter_for
from redelivery.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.adapter import Adapter
    from redelivery.core.report import Report
    from redelivery.message import Message
    from redelivery.settings import Endpoint, Settings

__all__ = ["SUBSCRIBE_TIMEOUT", "ConnectionBase", "Listener", "not_subscribed"]

SUBSCRIBE_TIMEOUT = 30.0  # seconds for the connection to stand and the broker to confirm a subscription


RunnerT = TypeVar("RunnerT")


@dataclass(slots=True)
class Listener(Generic[RunnerT]):
    """A handler that is registered; once it is started, its channel and the threads or tasks that run it."""

    destination: str
    handler: Callable[[Message], Any]
    workers: int
    options: ConsumerOptions
    channel: Channel | None = None
    runners: list[RunnerT] = field(default_factory=list[RunnerT])


class ConnectionBase(Generic[RunnerT]):
    """The part of a connection that does not wait."""

    _maker = "connect"

    def __init__(self, uri: str, **options: Unpack[ConnectOptions]) -> None:
        known(options, ConnectOptions)
        if options.get("ledger") is not None:
            raise ConfigurationError("ledger= is not supported yet", option="ledger")
        self._errors = checked_errors(options.get("errors")) or Classifier()
        parsed = parse_uri(uri)
        policies = checked_policies(options.get("policies"), parsed)
        self.settings: Settings = replace(parsed, policies=policies)
        check_drops(self.settings)
        adapter = adapter_for(self.settings.scheme)
        self._clock: Clock = options.get("clock") or _clock_of(adapter, self.settings) or SystemClock()
        self._observer = log.guarded(options.get("observer"))
        self._keeper = Keeper(self.settings, adapter, self._clock)
        self._channels = self._keeper.totals.channels  # of the consumers that are open
        self._numbers = itertools.count(1)  # of consumers, which several threads may make at once
        self._listeners: list[Listener[RunnerT]] = []
        self._failure: BaseException | None = None  # what ends a run
        self._entered = False
        self._closed = False
        self._drained = False

    def __repr__(self) -> str:
        where = ", ".join(str(endpoint) for endpoint in self.settings.endpoints)
        return f"<{type(self).__name__} {where}>"

    @property
    def connected(self) -> bool:
        """Whether the connection stands at the moment."""
        return self._keeper.up

    def session(self, mode: str) -> NoReturn:
        """Sessions are not supported yet. Raises ConfigurationError."""
        raise ConfigurationError(f"session({mode!r}): sessions are not supported yet", option="session")

    def report(self) -> Report:
        """Return what has become of all dispatches so far."""
        return self._keeper.totals.report()

    def _patience(self, timeout: float) -> float:
        """Return how long a send may wait for a lost connection: `failover`'s own `timeout` may cut it short."""
        limit = self.settings.failover.timeout
        return timeout if limit is None else min(timeout, limit)

    def _check_open(self) -> None:
        if not self._entered or self._closed:
            state = "closed" if self._closed else "not open yet"
            raise ConfigurationError(
                f"the connection is {state}; use it inside `with redelivery.connect(...)`"
            )

    def _check_fresh(self) -> None:
        """Refuse to run what has been drained: nothing would be handled any more. Raises ConfigurationError."""
        if self._drained:
            raise ConfigurationError(
                f"this connection has been drained; make a new one with redelivery.{self._maker}(...)"
            )

    def _channel(self, destination: str, options: ConsumerOptions) -> Channel:
        """Make the channel of a new consumer."""
        known(options, ConsumerOptions)
        parsed = checked_consumer(self.settings, destination, options)
        capabilities = self._keeper.capabilities
        assert capabilities is not None, "checked by _check_open"
        number = next(self._numbers)
        errors = checked_errors(options.get("errors")) or self._errors
        subscribe, engine = planned(
            number, parsed, {**options, "errors": errors}, self.settings, capabilities
        )
        policies = self.settings.policies
        channel = Channel(subscribe, engine, self._keeper, self._clock, policies, self._observer)
        channel.errors = errors
        channel.inherit()
        self._keeper.totals.add(channel)
        return channel


def _clock_of(adapter: Adapter, settings: Settings) -> Clock | None:
    """Return the clock that a broker inside this process has been given, if it has: time must be one."""
    clock_at: Callable[[Endpoint], Clock | None] | None = getattr(adapter, "clock_at", None)
    found = None if clock_at is None else (clock_at(endpoint) for endpoint in settings.endpoints)
    return None if found is None else next((clock for clock in found if clock is not None), None)


def not_subscribed(channel: Channel) -> TransportError:
    """Return the error for a consumer that the broker did not confirm in time."""
    return TransportError(
        f"the broker did not confirm the subscription to {channel.subscribe.destination} within "
        f"{SUBSCRIBE_TIMEOUT:g} s"
    )
