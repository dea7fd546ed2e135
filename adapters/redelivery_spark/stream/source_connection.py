"""The connection of a source: one consumer, from which messages are taken, and settled, in lists."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.connection import Connection
from redelivery.core.dead_lettering.routing import arrived_whole
from redelivery.core.events import Poisoned, Released, Succeeded
from redelivery.core.message_history import RETURN
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.driver.arguments import single
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.driver.consumer.plan import dead_letters_of, planned
from redelivery.errors import RedeliveryError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward
    from redelivery.core.delivery import Cause, Delivery
    from redelivery.core.engine import Engine
    from redelivery.driver.arguments import ConsumerOptions
    from redelivery_spark.options.stream_options import SourceOptions

__all__ = ["SourceConnection"]

MOST_PREFETCHED = 30_000  # RabbitMQ and Classic take no larger window over STOMP than 65,535
MOST_UNACKNOWLEDGED = 60_000
TRICKLE = 2


class _BatchDispatcher(Dispatcher):
    """A channel that gives out, and settles, many deliveries in one turn of its lock."""

    def take_many(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Take deliveries: at least one if one comes within `timeout` seconds, and no more than are here."""
        first = self.take(None, timeout)
        if first is None:
            return []
        taken, size = [first], len(first.body)
        with self._lock:
            now = self._now()
            while len(taken) < most and size < most_bytes:
                delivery = self._next(now)
                if delivery is None:
                    break
                taken.append(delivery)
                size += len(delivery.body)
        return taken

    def accept_many(self, deliveries: Sequence[Delivery]) -> None:
        """Accept deliveries, and write that at once."""
        with self._lock:
            now = self._now()
            for delivery in deliveries:
                self._route(self.engine.feed(Succeeded(delivery), now), now)
            writes = self._take(self._settlements.all())
        self._write(writes)


class SourceConnection(Connection):
    """A connection with one consumer. What was taken and not settled, the broker takes back at the end."""

    def __init__(self, options: SourceOptions, *, share: bool = False) -> None:
        """`share`: it is a task's, which takes what one batch may have, and ends."""
        super().__init__(options.connection_uri())
        self._source = options
        self._share = share
        self._lists: _BatchDispatcher | None = None
        self._epoch: int = -1
        self._since = 0.0  # the connection that messages come over, and since when it is known
        self._early: int | None = None  # how many messages had arrived when it had stood for a while

    def begin(self) -> None:
        """Connect and subscribe. Raises RedeliveryError."""
        self.__enter__()
        source = self._source
        settings = self.settings
        destination = single(source.destination)
        ways = None
        # Where tasks consume, the driver does so to learn that there is something, and leaves it to them.
        batches = 1 if self._share else 2  # one is ahead
        credit = TRICKLE if source.shares else min(batches * source.most_messages, MOST_PREFETCHED)
        if source.ack == "wal":
            # Nothing waits unacknowledged: the log holds it.
            settings = replace(settings, policies=RedeliveryPolicyMap())
            if settings.dead_letter == "auto":  # a copy tells the cause, but of what cannot be copied
                ways = replace(dead_letters_of(settings, destination, source.subscription), scheduled=True)
        else:
            # What waits in the log stays unacknowledged, and must not keep the others out.
            credit = min(credit + source.most_messages + self.most_parked, MOST_UNACKNOWLEDGED)
        settings = replace(settings, credit=credit)
        options: ConsumerOptions = {"selector": source.selector, "subscription": source.subscription}
        subscribe, engine = planned(
            next(self._numbers), destination, options, settings, self.capabilities, redrive=ways
        )
        if source.shares or self._share:
            # Nothing waits here: what else a window fixed at the beginning lets through is kept from the other tasks.
            subscribe = replace(subscribe, window=credit)
        engine.keep_no_history()  # by keys alone: the log knows bodies, too
        dispatcher = _BatchDispatcher(
            subscribe, engine, self._driver, self._clock, settings.policies, self._observer
        )
        self._driver.open_consumers.add(dispatcher)
        self._lists = dispatcher
        self._await_subscription(dispatcher)

    @property
    def clock(self) -> Clock:
        """What it waits by."""
        return self._clock

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do, as of the last connection."""
        found = self._driver.capabilities
        assert found is not None, "begun"
        return found

    def log_capabilities(self) -> Capabilities:
        """What can be done about rows of the log: held as long as anybody likes, dead-lettered by a confirmed copy."""
        able = replace(self.capabilities, flow=False, release=True, counts=False, forward="confirmed")
        return able if self.commits else replace(able, max_hold=None)

    def engine_for_log(self) -> Engine:
        """Return the engine for rows of the log. How many run at once is the batch's affair."""
        credit = self._source.most_messages
        settings = replace(self.settings, credit=credit, max_parked=credit + self.most_parked)
        options: ConsumerOptions = {"subscription": self._source.subscription}
        destination, able = single(self._source.destination), self.log_capabilities()
        if not self.commits and settings.dead_letter == "ack":
            # The broker will have let go of almost all of them.
            able = replace(able, poison_persistent=False, poison_on_request=False)
        _, engine = planned(0, destination, options, settings, able, counted=True)
        return engine

    @property
    def most_parked(self) -> int:
        """How many rows may wait in the log before nothing fresh is taken."""
        return self.settings.max_parked or 1000

    @property
    def buffered(self) -> int:
        """How many messages have arrived and wait to be taken."""
        return 0 if self._lists is None else self._lists.engine.ready()

    def now(self) -> float:
        """Return the time of its clock."""
        return self._clock.monotonic()

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
        assert self._lists is not None, "begun"
        engine, now = self._lists.engine, self.now()
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
        return 0 if self._lists is None else self._lists.engine.unconfirmed

    def take(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Take messages, as many as are here. Raises what stopped the consumer."""
        assert self._lists is not None, "begun"
        self._watch()
        taken = self._lists.take_many(most, most_bytes, timeout)
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
        if deliveries and self._lists is not None:
            self._lists.accept_many(deliveries)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Have the broker give messages to others, uncounted."""
        assert self._lists is not None, "begun"
        for delivery in deliveries:
            if delivery.state == "running":
                self._lists.settle(delivery, Released(delivery))

    def refuse(self, delivery: Delivery, cause: Cause) -> None:
        """Have a message dead-lettered."""
        assert self._lists is not None, "begun"
        self._lists.settle(delivery, Poisoned(delivery, cause))

    def forward(self, command: Forward, done: Callable[[RedeliveryError | None], None]) -> None:
        """Send a copy."""
        future = self._driver.send(command.copy)

        def answered(_: object) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, RedeliveryError):
                error = TransportError(str(error))
            done(error)

        future.add_done_callback(answered)
