"""A connection as it stands at the moment: consumers, sends, and what the adapter says.

Locks are taken in this order: introducing, writing, a channel's, the link's own.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.adapter import AdapterEvent, Browsed, Opening, Sent, Subscribed
from redelivery.core.commands import Commit, Send, Unsubscribe
from redelivery.core.events import Arrived, Confirmed, Connected, ConnectionLost
from redelivery.core.protocol_poison import Suspects
from redelivery.driver.connection.browser import Browsers
from redelivery.driver.connection.open_consumers import Totals
from redelivery.driver.connection.pending_sends import Sends, end
from redelivery.driver.connection.shared_history import Legacy
from redelivery.driver.consumer.message_log import Drops
from redelivery.errors import AdapterError, RedeliveryError, TransactionRolledBack, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.adapter import Adapter
    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.consumer.dispatcher import Channel
    from redelivery.settings import Endpoint, Settings

__all__ = ["CLOSE_TIMEOUT", "IN_HAND", "MANY", "Link", "closed"]

logger = logging.getLogger("redelivery")

MANY = 1000  # more than ever wait
IN_HAND = 1.0  # seconds that commands may be in a thread's hand at least: writing waits for nobody
# Seconds that closing a consumer or a connection may take, unless the application says otherwise.
CLOSE_TIMEOUT = 5.0


class Link:
    """One connection over all its reconnects, without the thread that keeps it."""

    def __init__(self, settings: Settings, adapter: Adapter, clock: Clock) -> None:
        self.capabilities: Capabilities | None = None
        self.channels: dict[int, Channel] = {}
        self.browsers = Browsers()
        self.totals = Totals()
        self.legacy = Legacy()
        self.suspects = Suspects()
        self.drops = Drops(0 if settings.discarding is None else settings.report_interval)
        self._settings = settings
        self._adapter = adapter
        self._clock = clock
        self._introducing = threading.RLock()
        # From taking what is collected until it is written: nothing overtakes it.
        self._writing = threading.RLock()
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._epoch = 0
        self._lost_epoch = 0
        self._up = False
        self._closing = False
        self._failure: RedeliveryError | None = None  # why it was given up
        self._deferred: list[AdapterCommand] = []
        self._sends = Sends()
        self._subscribing: dict[int, Future[None]] = {}
        self._standing: set[Future[None]] = set()  # of those that wait for the connection

    @property
    def up(self) -> bool:
        """Whether the connection stands."""
        return self._up and self._lost_epoch != self._epoch

    # A connection begins.

    def _connect(self, endpoint: Endpoint) -> None:
        self._epoch += 1
        opening = Opening(self._settings, endpoint, self._epoch, self._clock)
        self.capabilities = self._adapter.open(opening, self._sink)
        with self._introducing:
            with self._lock:
                if self._lost_epoch == self._epoch:
                    raise TransportError(f"{endpoint}: the connection was lost at once")
                if not self._closing:
                    self._up = True
                channels = list(self.channels.values())
                self._deferred.clear()  # it was for a connection that is gone
                self._clock.notify(self._turn, MANY)
            for channel in channels if self._up else ():
                self._introduce(channel, self._epoch)
        if not self._up and self._closing:
            self._adapter.close(0)  # whoever closes has not waited for this connection
            raise closed()
        broker = f"{self.capabilities.broker} {self.capabilities.version}".rstrip()
        logger.info("connected to %s (%s)", endpoint, broker)
        with self._lock:
            standing = list(self._standing) if self._up else []  # it may be lost again
        for future in standing:
            end(future, None)

    def _introduce(self, channel: Channel, epoch: int) -> None:
        """Subscribe a channel on the connection of this epoch. A channel that has ended stays away from the broker."""
        if channel.closed:
            return
        assert self.capabilities is not None
        # The engine must know the epoch before the first delivery of it; credit follows the subscription.
        commands = channel.connected(Connected(epoch, self.capabilities))
        if self.channels.get(channel.subscribe.consumer) is channel:  # nobody has closed it meanwhile
            # If the next connection is open already, it drops this, and gets its own.
            self._adapter.execute([replace(channel.subscribe, epoch=epoch), *commands])

    # Consumers and sends.

    def subscribe(self, channel: Channel) -> Future[None]:
        """Start a consumer; the future ends when the broker has confirmed or refused it."""
        future: Future[None] = Future()
        number = channel.subscribe.consumer
        with self._introducing:  # or the same subscription might be made here and by a reconnect
            with self._lock:
                if self._closing:
                    end(future, self._failure or closed())
                    return future
                self.channels[number] = channel
                self.legacy.opened(channel.subscribe.window)
                self._subscribing[number] = future
                up, epoch = self._up, self._epoch
            if up:
                self._introduce(channel, epoch)
        return future

    def unsubscribe(self, channel: Channel, timeout: float = CLOSE_TIMEOUT) -> None:
        """End a consumer, within `timeout` seconds: the broker takes back what it has not settled.

        Dead letters whose answer is on its way are waited for: else their messages would be handled again elsewhere.
        """
        number = channel.subscribe.consumer
        deadline = time.monotonic() + timeout
        channel.stop()
        channel.wait_answered(deadline)
        with self._introducing:  # or a reconnect might subscribe after this
            if self.channels.get(number) is channel:
                channel.forsake(TransportError("the consumer was closed"))
                channel.wait_written(max(deadline, time.monotonic() + IN_HAND))
                self.flush()
                with self._lock:
                    self.channels.pop(number, None)
                    self._subscribing.pop(number, None)
                self.legacy.closed(channel.subscribe.window)
                self._adapter.execute((Unsubscribe(number),))
        self.totals.retire(channel)

    def send(self, message: Outgoing) -> Future[None]:
        """Send; the future ends when the broker has confirmed or refused it, or the connection is lost."""
        return self._asked((message,), lambda token: Send(token, message))

    def commit(self, deliveries: Sequence[Delivery], messages: Sequence[Outgoing]) -> Future[None]:
        """Accept and send in one transaction; the future ends as that of `send`. TransactionRolledBack: unsent."""
        return self._asked(messages, lambda token: Commit(token, deliveries, messages), TransactionRolledBack)

    def give_up(self, answer: Future[None]) -> None:
        """Count what a commit sends, which nobody waits for any longer, as an abandoned send."""
        self._sends.give_up(answer)

    def _asked(
        self,
        messages: Sequence[Outgoing],
        command: Callable[[int], AdapterCommand],
        unsent: type[RedeliveryError] | None = None,
    ) -> Future[None]:
        with self._lock:
            try:
                if not self._up:
                    raise self._failure or TransportError("not connected: the connection was lost")
                token, future = self._sends.begin(messages)
            except RedeliveryError as error:
                refused: Future[None] = Future()
                end(refused, error if unsent is None else unsent(str(error)))
                return refused
        try:
            self._adapter.execute((command(token),))
        except Exception as error:  # noqa: BLE001 - a value that the protocol has no room for, or a fault
            what = AdapterError(f"the message cannot be written: {type(error).__name__}: {error}")
            self._sends.answered(token, what)
        return future

    def standing(self) -> Future[None]:
        """Return a future that ends when the connection stands, or with an error when it is given up or closed."""
        future: Future[None] = Future()
        with self._lock:
            up, closing = self._up, self._closing
            if not up and not closing:
                self._standing.add(future)
                future.add_done_callback(self._standing.discard)  # also of who has given up waiting
                return future
        end(future, None if up else self._failure or closed())
        return future

    def flush(self) -> None:
        """Write all that is collected, on this thread."""
        self._run_deferred()
        self._write_collected(float("inf"))

    def _run_deferred(self) -> None:
        with self._writing:
            with self._lock:
                deferred, self._deferred = self._deferred, []
            if deferred:
                self._adapter.execute(deferred)

    def _write_collected(self, now: float) -> bool:
        """Write the settlements that have waited long enough at the time `now`; return whether there were any."""
        found = False
        for channel in list(self.channels.values()):
            with self._writing:
                if commands := channel.pending(now):
                    found = True
                    self._adapter.execute(commands)
        return found

    # The adapter's events.

    def _sink(self, event: AdapterEvent) -> None:
        match event:
            case Arrived():
                channel = self.channels.get(event.consumer)
                if channel is not None:
                    channel.feed(event)
                else:
                    self.browsers.feed(event)
            case Browsed():
                self.browsers.feed(event)
            case Confirmed():
                channel = self.channels.get(event.delivery.consumer)
                if channel is not None:
                    channel.feed(event)
            case Sent():
                self._sends.answered(event.token, event.error)
            case Subscribed():
                self._subscribed(event)
            case ConnectionLost():
                self._lost(event)

    def _subscribed(self, event: Subscribed) -> None:
        if isinstance(event.error, TransportError):
            return  # the connection was lost: the next one subscribes again
        self.browsers.subscribed(event)
        with self._lock:
            future = self._subscribing.pop(event.consumer, None)
            channel = self.channels.get(event.consumer)
        if event.error is not None and channel is not None:
            channel.stop(event.error)  # the keeper unsubscribes: part of it may stand at the broker
        end(future, event.error)

    def _lost(self, event: ConnectionLost) -> None:
        with self._lock:
            if event.epoch != self._epoch or self._lost_epoch == event.epoch:
                return  # stomp.py may report a loss twice
            self._lost_epoch = event.epoch
            channels = list(self.channels.values())
            # Counted for the connection: the message may come to another consumer each time.
            event.stop = self.suspects.accuse(event.suspect, event.error, self._clock.monotonic())
        if not self._closing:
            logger.warning("connection lost: %s", event.error)
        self.browsers.lost(event.error)
        for channel in channels:
            channel.feed(event)
            if (
                channel.error is not None
            ):  # stopped over it: whoever waits for its subscription must hear of that
                end(self._subscribing.pop(channel.subscribe.consumer, None), channel.error)
        # Only now may the keeper reconnect: an engine that learned of the next connection first would take what it
        # holds from this one for live.
        with self._lock:
            if event.epoch == self._epoch:
                self._up = False
            self._clock.notify(self._turn, MANY)
        self._fail_waiting(event.error)

    def _fail_waiting(self, error: RedeliveryError, *, for_good: bool = False) -> None:
        """End what the loss of a connection ends; `for_good`: also what would wait for the next one."""
        self._sends.lost(error)
        if for_good:
            with self._lock:
                waiting = [*self._subscribing.values(), *self._standing]
                self._subscribing, self._standing = {}, set()
            for future in waiting:
                end(future, error)


def closed() -> TransportError:
    """Return the error for what the application's own `close` has ended."""
    return TransportError("the connection was closed")
