"""The connection of a source: one consumer, from which messages are taken, and settled, in lists."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.routing import arrived_whole
from redelivery.core.events import Poisoned, Released, Succeeded
from redelivery.core.message_history import RETURN
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.driver.port import (
    CLOSE_TIMEOUT,
    ConnectionPort,
    ConsumerHooks,
    ConsumerOptions,
    dead_letters_of,
    single,
)
from redelivery.errors import RedeliveryError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward
    from redelivery.core.delivery import Cause, Delivery
    from redelivery.core.engine import Engine
    from redelivery.driver.port import ConsumerPort
    from redelivery.settings import Settings
    from redelivery_spark.options.stream_options import SourceOptions

__all__ = ["SourceConnection"]

# RabbitMQ and Classic take no larger window over STOMP than 65,535.
MOST_PREFETCHED = 30_000
MOST_UNACKNOWLEDGED = 60_000
TRICKLE = 2


class SourceConnection:
    """A connection with one consumer. What was taken and not settled, the broker takes back at the end."""

    def __init__(self, options: SourceOptions, *, share: bool = False) -> None:
        """`share`: it is a task's, which takes what one batch may have, and ends."""
        self._port = ConnectionPort(options.connection_uri())
        self._source = options
        self._share = share
        self._consumer: ConsumerPort | None = None
        self._epoch: int = -1
        # The connection that messages come over, and since when it is known.
        self._since = 0.0
        # How many messages had arrived when it had stood for a while.
        self._early: int | None = None

    def begin(self) -> None:
        """Connect and subscribe. Raises RedeliveryError."""
        self._port.__enter__()
        source = self._source
        settings = self.settings
        route = None
        # Where tasks consume, the driver does so to learn that there is something, and leaves it to them.
        batches = 1 if self._share else 2  # one is ahead
        credit = TRICKLE if source.shares else min(batches * source.most_messages, MOST_PREFETCHED)
        if source.ack == "wal":
            # Nothing waits unacknowledged: the log holds it.
            settings = replace(settings, policies=RedeliveryPolicyMap())
            # A copy tells the cause, but of what cannot be copied.
            if settings.dead_letter == "auto":
                destination = single(source.destination)
                route = replace(dead_letters_of(settings, destination, source.subscription), scheduled=True)
        else:
            # What waits in the log stays unacknowledged, and must not keep the others out.
            credit = min(credit + source.most_messages + self.most_parked, MOST_UNACKNOWLEDGED)
        settings = replace(settings, credit=credit)
        options: ConsumerOptions = {"selector": source.selector, "subscription": source.subscription}
        plan = self._port.plan(source.destination, options, settings=settings, route=route)
        if source.shares or self._share:
            # Nothing waits here: what else a window fixed at the beginning lets through is kept from the other tasks.
            plan = plan.with_window(credit)
        # Not by keys alone: the log knows bodies, too.
        self._consumer = self._port.subscribe(plan, ConsumerHooks(keeps_history=False))

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close within `timeout` seconds; the broker takes back what is not settled."""
        self._port.close(timeout)

    @property
    def settings(self) -> Settings:
        """What the URI says."""
        return self._port.settings

    @property
    def connected(self) -> bool:
        """Whether the connection stands at the moment."""
        return self._port.connected

    @property
    def clock(self) -> Clock:
        """What it waits by."""
        return self._port.clock

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do, as of the last connection."""
        return self._port.capabilities

    def log_capabilities(self) -> Capabilities:
        """What can be done about rows of the log: held as long as anybody likes, dead-lettered by a confirmed copy."""
        able = replace(self.capabilities, flow=False, release=True, counts=False, forward="confirmed")
        if able.reschedule == "native":
            # What is in the log is not the broker's any more, so it can hold nothing of it back.
            able = replace(able, reschedule="none")
        return able if self.commits else replace(able, max_hold=None)

    def engine_for_log(self) -> Engine:
        """Return the engine for rows of the log. How many run at once is the batch's affair."""
        credit = self._source.most_messages
        settings = replace(self.settings, credit=credit, max_parked=credit + self.most_parked)
        options: ConsumerOptions = {"subscription": self._source.subscription}
        able = self.log_capabilities()
        if not self.commits and settings.dead_letter == "ack":
            # The broker will have let go of almost all of them.
            able = replace(able, poison_persistent=False, poison_on_request=False)
        destination = self._source.destination
        return self._port.plan(
            destination, options, settings=settings, capabilities=able, counted=True
        ).engine

    @property
    def most_parked(self) -> int:
        """How many rows may wait in the log before nothing fresh is taken."""
        return self.settings.max_parked or 1000

    @property
    def buffered(self) -> int:
        """How many messages have arrived and wait to be taken."""
        return 0 if self._consumer is None else self._consumer.engine.load.ready()

    def now(self) -> float:
        """Return the time of its clock."""
        return self.clock.monotonic()

    def age(self) -> float | None:
        """Return for how many seconds the connection has stood, as far as is known here; None: it is down."""
        self._watch()
        return self.now() - self._since if self.connected else None

    @property
    def epoch(self) -> int:
        """Which connection messages come over."""
        self._watch()
        return self._epoch

    def _watch(self) -> None:
        assert self._consumer is not None, "begun"
        engine, now = self._consumer.engine, self.now()
        if engine.epoch != self._epoch:
            self._epoch, self._since, self._early = engine.epoch, now, None
        elif self._early is None and now - self._since >= RETURN:
            self._early = engine.arrived

    def early(self, delivery: Delivery) -> bool:
        """Whether a message came so soon after the connection began that it may be lost with the one before."""
        return self._early is None or delivery.seq <= self._early

    @property
    def settled_down(self) -> bool:
        """Whether nothing comes any more that was acknowledged on the connection before this one."""
        return self._early is not None and not self.commits

    def may_be_known(self, delivery: Delivery) -> bool:
        """Whether the broker may send this message for a second time.

        It says so itself, but for Artemis: there a new connection is looked at for as long as copies may come over it.
        """
        again = delivery.redelivered or (not self.capabilities.marks and self.early(delivery))
        return again and delivery.identity is not None

    def on_this_connection(self, delivery: Delivery) -> bool:
        """Whether a message can still be settled by its own handle."""
        return delivery.epoch == self._epoch and delivery.state != "lost"

    @property
    def unconfirmed(self) -> int:
        """How many of its dead letters the broker has not confirmed."""
        return 0 if self._consumer is None else self._consumer.engine.load.unconfirmed

    def take(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Take messages, as many as are here. Raises what stopped the consumer."""
        assert self._consumer is not None, "begun"
        self._watch()
        taken = self._consumer.take_many(most, most_bytes, timeout)
        for delivery in taken:
            delivery.read_ahead()  # a row has all of it
        return taken

    @property
    def commits(self) -> bool:
        """Whether the broker keeps each message until its batch is committed."""
        return self._source.ack == "commit"

    @property
    def empty_is_whole(self) -> bool:
        """Whether the user vouches for empty bodies."""
        return self.settings.empty_body == "forward"

    def must_stay(self, delivery: Delivery) -> bool:
        """Whether the broker must keep the message until it is done with: no copy could be made of it."""
        return self.commits or not arrived_whole(delivery, empty_is_whole=self.empty_is_whole)

    def settle(self, deliveries: Sequence[Delivery]) -> None:
        """Accept messages."""
        if deliveries and self._consumer is not None:
            self._consumer.settle_many([Succeeded(delivery) for delivery in deliveries])

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Have the broker give messages to others, uncounted."""
        assert self._consumer is not None, "begun"
        for delivery in deliveries:
            if delivery.state == "running":
                self._consumer.settle(delivery, Released(delivery))

    def refuse(self, delivery: Delivery, cause: Cause) -> None:
        """Have a message dead-lettered."""
        assert self._consumer is not None, "begun"
        self._consumer.settle(delivery, Poisoned(delivery, cause))

    def forward(self, command: Forward, done: Callable[[RedeliveryError | None], None]) -> None:
        """Send a copy."""
        future = self._port.send(command.copy)

        def answered(_: object) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, RedeliveryError):
                error = TransportError(str(error))
            done(error)

        future.add_done_callback(answered)
