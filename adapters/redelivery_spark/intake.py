"""The connection of a source: one consumer, from which messages are taken, and settled, in lists."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.connection import Connection
from redelivery.core.dead_letter import arrived_whole
from redelivery.core.events import Poisoned, Released, Succeeded
from redelivery.core.policy_map import RedeliveryPolicyMap
from redelivery.core.recall import RETURN
from redelivery.drive.arguments import single
from redelivery.drive.channel import Channel
from redelivery.drive.planning import planned
from redelivery.errors import RedeliveryError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward
    from redelivery.core.delivery import Cause, Delivery
    from redelivery.core.engine import Engine
    from redelivery.drive.arguments import ConsumerOptions
    from redelivery_spark.options import SourceOptions

__all__ = ["Intake"]

MOST_OWED = 100_000
MOST_PREFETCHED = 30_000  # RabbitMQ and Classic take no larger window over STOMP than 65,535


class _Lists(Channel):
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
            writes = self._take(self._outbox.all())
        self._write(writes)


class Intake(Connection):
    """A connection with one consumer. What was taken and not settled, the broker takes back at the end."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options.connection_uri())
        self._source = options
        self._lists: _Lists | None = None
        self._epoch, self._since = -1, 0.0  # the connection that messages come over, and since when
        self._kept: dict[Hashable, Delivery] = {}  # by row identity: what the broker still has
        # What has been decided of messages that the broker has yet to send again.
        self._owed: dict[Hashable, tuple[Cause | None, Callable[[], None] | None]] = {}

    def begin(self) -> None:
        """Connect and subscribe. Raises RedeliveryError."""
        self.__enter__()
        source = self._source
        settings = self.settings
        if source.ack == "wal":
            # Nothing waits unacknowledged: the log holds it. And nothing can be poisoned that the broker has let go.
            auto = settings.dead_letter == "auto"
            settings = replace(
                settings,
                policies=RedeliveryPolicyMap(),
                dead_letter="forward" if auto else settings.dead_letter,
            )
        settings = replace(settings, credit=min(2 * source.most_messages, MOST_PREFETCHED))
        options: ConsumerOptions = {"selector": source.selector, "subscription": source.subscription}
        subscribe, engine = planned(
            next(self._numbers), single(source.destination), options, settings, self.capabilities
        )
        channel = _Lists(subscribe, engine, self._keeper, self._clock, settings.policies, self._observer)
        self._keeper.totals.add(channel)
        self._lists = channel
        self._await_subscription(channel)

    @property
    def clock(self) -> Clock:
        """What it waits by."""
        return self._clock

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do, as of the last connection."""
        found = self._keeper.capabilities
        assert found is not None, "begun"
        return found

    def log_capabilities(self) -> Capabilities:
        """What can be done about rows of the log: held as long as anybody likes, dead-lettered by a copy."""
        able = replace(self.capabilities, flow=False, release=True, counts=False, forward="confirmed")
        if self._source.ack == "commit":
            return able
        return replace(able, poison_persistent=False, poison_non_persistent=False, max_hold=None)

    def engine_for_log(self, credit: int) -> Engine:
        """Return the engine for rows of the log: `credit` is how many may run at once."""
        settings = replace(self.settings, credit=credit)
        if self._source.ack == "wal" and settings.dead_letter == "auto":
            settings = replace(settings, dead_letter="forward")
        waiting = credit + self.most_parked
        settings = replace(settings, max_parked=waiting)
        options: ConsumerOptions = {"subscription": self._source.subscription}
        destination = single(self._source.destination)
        _, engine = planned(0, destination, options, settings, self.log_capabilities(), counted=True)
        return engine

    @property
    def most_parked(self) -> int:
        """How many rows may wait in the log before nothing fresh is taken."""
        return self.settings.max_parked or 1000

    @property
    def buffered(self) -> int:
        """How many messages have arrived and wait to be taken."""
        return 0 if self._lists is None else self._lists.engine.ready()

    def may_be_known(self, delivery: Delivery) -> bool:
        """Whether the broker may send this message for a second time.

        It says so itself, but for Artemis over STOMP: of what a dead connection held, 99 of 100 came unmarked. There a
        new connection is looked at for as long as copies may come over it.
        """
        if delivery.redelivered:
            return True
        if not self.capabilities.own_ids:
            return False
        now = self._clock.monotonic()
        if delivery.epoch != self._epoch:
            self._epoch, self._since = delivery.epoch, now
        return now - self._since < RETURN

    def take(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Take messages, as many as are here. Raises what stopped the consumer."""
        assert self._lists is not None, "begun"
        return self._lists.take_many(most, most_bytes, timeout)

    def must_stay(self, delivery: Delivery) -> bool:
        """Whether the broker must keep the message until it is done with: no copy could be made of it."""
        whole = self.settings.empty_body == "forward"
        return self._source.ack == "commit" or not arrived_whole(delivery, empty_is_whole=whole)

    def keep(self, key: Hashable, delivery: Delivery) -> None:
        """Leave a message unacknowledged until its row is done with, which it may be already."""
        if key not in self._owed:
            self._kept[key] = delivery
            return
        cause, done = self._owed.pop(key)
        if cause is None:
            self.settle([delivery])
        else:
            self.refuse(delivery, cause)
        if done is not None:
            done()

    def owes(self, key: Hashable) -> bool:
        """Whether a message that the broker sends again has been decided about before it came."""
        return key in self._owed

    def settle(self, deliveries: Sequence[Delivery]) -> None:
        """Accept messages."""
        if deliveries and self._lists is not None:
            self._lists.accept_many(deliveries)

    @property
    def keeps(self) -> bool:
        """Whether the broker has originals of rows."""
        return bool(self._kept) or self._source.ack == "commit"

    def settle_kept(self, keys: Sequence[Hashable]) -> None:
        """Accept the originals of rows that are done with: now, or when the broker sends them again after a restart."""
        self.settle([self._kept.pop(key) for key in keys if key in self._kept])
        if self._source.ack == "commit":
            for key in keys:
                self._owe(key, None, None)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Have the broker give messages to others, uncounted."""
        assert self._lists is not None, "begun"
        for delivery in deliveries:
            if delivery.state == "running":
                self._lists.settle(delivery, Released(delivery))

    def refuse(self, delivery: Delivery, cause: Cause) -> None:
        """Have a message dead-lettered that does not get into the log."""
        assert self._lists is not None, "begun"
        self._lists.settle(delivery, Poisoned(delivery, cause))

    # What the redeliveries ask for.

    def accept(self, key: Hashable) -> None:
        """Accept the original, if the broker still has it."""
        self.settle_kept([key])

    def poison(self, key: Hashable, cause: Cause, done: Callable[[], None]) -> None:
        """Have the broker dead-letter the original, when it is here."""
        delivery = self._kept.pop(key, None)
        if delivery is None:
            self._owe(key, cause, done)
        else:
            self.refuse(delivery, cause)
            done()

    def _owe(self, key: Hashable, cause: Cause | None, done: Callable[[], None] | None) -> None:
        self._owed[key] = cause, done
        while len(self._owed) > MOST_OWED:
            self._owed.pop(next(iter(self._owed)))

    def forward(self, command: Forward, done: Callable[[RedeliveryError | None], None]) -> None:
        """Send a copy."""
        future = self._keeper.send(command.copy)

        def answered(_: object) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, RedeliveryError):
                error = TransportError(str(error))
            done(error)

        future.add_done_callback(answered)
