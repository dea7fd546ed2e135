"""Driver of one connection, over all its reconnects: consumers, sends, the adapter's events, and its own thread.

The thread reconnects, resubscribes, runs the timers of the engines, and writes collected settlements while a handler
is busy. The adapter's own thread only reads from the socket and passes events on.

Order of locks: introducing, writing, a consumer's, the connection's own.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING, assert_never

from redelivery import events
from redelivery.adapter import AdapterEvent, Agreeing, Browsed, Hearing, Opening, Sent, Subscribed
from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.clock import capped, join_within
from redelivery.core.commands import Commit, Send, Unsubscribe
from redelivery.core.events import Arrived, Confirmed, Connected, ConnectionLost, QueueFound, TakenBack
from redelivery.core.protocol_poison import ProtocolPoison
from redelivery.driver.connection.broker_redelivery_probe import DelayProbes
from redelivery.driver.connection.browser import Browsers
from redelivery.driver.connection.failover import FailoverAddresses, retrying, starting
from redelivery.driver.connection.forked import ForkedAdapter, orphaned_by_forks
from redelivery.driver.connection.open_consumers import OpenConsumers
from redelivery.driver.connection.refused_consumers import RefusedConsumers
from redelivery.driver.connection.sends import PendingSends, closed, end
from redelivery.driver.connection.shared_history import SharedHistory
from redelivery.driver.connection.subscribe_request import SUBSCRIBE_TIMEOUT
from redelivery.driver.connection.vital_signs import DriverHooks, VitalSigns, longest_sleep, nudge
from redelivery.driver.consumer.consumer_events import Drops
from redelivery.driver.observers import Observers
from redelivery.errors import (
    AdapterError,
    ConfigurationError,
    RedeliveryError,
    TransactionRolledBack,
    TransportError,
)
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.adapter import Adapter, Agreed
    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.connection.connection_ledger import ConnectionLedger
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.settings import Endpoint, Settings

__all__ = ["CLOSE_TIMEOUT", "ConnectionDriver", "PlainPasswords", "is_loopback"]


# ---- Standing --------------------------------------------------------------------------------------------
# Futures of calls that wait until a connection is up: sends, commits, a start in the background.


class Standing:
    """Futures that end when the connection is up, for any thread. No foreign code is called with the lock held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Future[None]] = set()
        # Error of every new future: waiting is not possible any more.
        self._refusal: RedeliveryError | None = None

    def __len__(self) -> int:
        """Return the number of waiting futures."""
        return len(self._waiting)

    def wait(self, found: Callable[[], tuple[bool, RedeliveryError | None]]) -> Future[None]:
        """Return a future that ends when the connection is up, or with an error when it will not be up again.

        `found`: returns True if the connection is up now, and the error if it will never be, or None.
        """
        future: Future[None] = Future()
        with self._lock:
            self._waiting.add(future)
            refusal = self._refusal
        # Also if the caller cancels it.
        future.add_done_callback(self._drop)
        # After it was added: a connection that begins in between ends the future, too.
        up, error = found()
        if up or error is not None or refusal is not None:
            end(future, None if up else error or refusal)
        return future

    def end(self, error: RedeliveryError | None) -> None:
        """End all futures: the connection is up (None), or never will be (the error)."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            end(future, error)

    def refuse(self, error: RedeliveryError) -> None:
        """End all futures with an error, and from now on each new one."""
        with self._lock:
            self._refusal = error
        self.end(error)

    def _drop(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting.discard(future)


# ---- Plain passwords -------------------------------------------------------------------------------------
# Warning before a password leaves this host unencrypted, in STOMP's CONNECT or AMQP's SASL PLAIN.

# Scheme of a URI that encrypts the same protocol. Protocols of other adapters are not known here.
_ENCRYPTED = {"stomp": "stomp+ssl", "amqp": "amqps"}


def is_loopback(host: str) -> bool:
    """True if data for this host does not leave this machine. No name is looked up."""
    try:
        address = ip_address(host)
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


class PlainPasswords:
    """Warnings of one connection: one for each name, whichever of its addresses is used."""

    def __init__(self, settings: Settings) -> None:
        self._has_password = settings.password is not None
        self._warned: set[Endpoint] = set()

    def before(self, endpoint: Endpoint) -> None:
        """Log a warning before the password is first sent to this name; never the user name or the password."""
        encrypted, name = _ENCRYPTED.get(endpoint.scheme), endpoint.name
        if not self._has_password or encrypted is None or name in self._warned or is_loopback(endpoint.host):
            return
        self._warned.add(name)
        logger.warning(
            "%s: the password is sent unencrypted, readable on the network; use %s://", name, encrypted
        )


# ---- Connection driver -----------------------------------------------------------------------------------

MANY = 1000  # more threads than ever wait
# Seconds. Closing waits at least this long for commands that another thread is writing: a write ends quickly.
IN_HAND = 1.0
# Seconds that closing a consumer or a connection may take, unless the application gives another limit.
CLOSE_TIMEOUT = 5.0
# Seconds between two checks for collected settlements, while there are any.
POLL = 0.002
# Checks in a row that find no settlements; then the driver's thread goes to sleep.
POLLS_IDLE = 25


class ConnectionDriver:
    """One connection over all its reconnects, and its background thread."""

    def __init__(
        self,
        settings: Settings,
        adapter: Adapter,
        clock: Clock,
        connection_ledger: ConnectionLedger | None = None,
        observers: Observers | None = None,
    ) -> None:
        self.capabilities: Capabilities | None = None
        self.dispatchers: dict[int, Dispatcher] = {}
        self.browsers = Browsers()
        self.open_consumers = OpenConsumers()
        self.shared_history = SharedHistory(unique_ids=settings.unique_ids)
        self.protocol_poison = ProtocolPoison()
        self.signs = VitalSigns()
        self.hooks = DriverHooks()
        discards = any(one.strategy == "discarding" for one in settings.dead_letters)
        self.drops = Drops(settings.report_interval if discards else 0)
        self.observers = observers or Observers()
        self._settings, self._adapter, self._clock = settings, adapter, clock
        self._introducing = threading.RLock()
        # Held from taking collected settlements until they are written, to keep their order.
        self._writing = threading.RLock()
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._epoch = self._lost_epoch = 0
        self._up = self._closing = False
        self._failure: RedeliveryError | None = None  # why it was given up
        self._deferred: list[AdapterCommand] = []
        self._sends = PendingSends()
        self._subscribing: dict[int, Future[None]] = {}
        self._standing = Standing()
        self._connection_ledger = connection_ledger
        self._probes = DelayProbes(self, clock)
        self._addresses = FailoverAddresses(settings)
        self.refused_consumers = RefusedConsumers(settings.failover)
        self._plain_passwords = PlainPasswords(settings)
        self._connected_at = 0.0
        self._agreed: Agreed | None = None
        self._poked = self._polling = False
        # Dispatchers with settlements, and with timers: few of thousands. A dispatcher first has something, then adds
        # itself. The thread works in the opposite order (first it removes one, then it checks it). Nothing is missed.
        self._collecting: set[Dispatcher] = set()
        self._alarmed: set[Dispatcher] = set()
        # Dispatchers with an error. Each is unsubscribed when all its work is over.
        self._stopped: set[Dispatcher] = set()
        # True if the timers of all dispatchers are to run: the ledger has something for any of them.
        self._everyone = False
        self._thread: threading.Thread | None = None

    @property
    def up(self) -> bool:
        """True if the connection is up."""
        return self._up and self._lost_epoch != self._epoch

    def silence(self) -> float | None:
        """Return the real seconds since a byte arrived from the broker; None: not known, or not connected."""
        return self._adapter.silence() if self._up and isinstance(self._adapter, Hearing) else None

    @property
    def heartbeat(self) -> float | None:
        """Most seconds between two heart-beats of the broker, as agreed; None: it sends none."""
        return None if self._agreed is None else self._agreed.expects

    @property
    def subscribe_timeout(self) -> float:
        """Seconds for the broker to be reached and to confirm a first subscription; `inf`: the start waits."""
        return inf if self.refused_consumers.start_waits else SUBSCRIBE_TIMEOUT

    # Start of a connection.

    def _connect(self, endpoint: Endpoint) -> None:
        if self._closing:
            raise closed()
        self._epoch += 1
        self._plain_passwords.before(endpoint)
        opening = Opening(self._settings, endpoint, self._epoch, self._clock)
        self.capabilities = self._adapter.open(opening, self._sink)
        # Now, not in a probe: the adapter may take a lock for it.
        self._agreed = self._adapter.agreed() if isinstance(self._adapter, Agreeing) else None
        # Not the epoch: it counts addresses that did not answer, too.
        again, self._addresses.current = bool(self._addresses.current), str(endpoint)
        self.signs.connected(str(endpoint), self.capabilities, self._clock.monotonic())
        if self._connection_ledger is not None:
            self._connection_ledger.reconnected(self._clock.monotonic())
        with self._introducing:
            with self._lock:
                if self._lost_epoch == self._epoch:
                    raise TransportError(f"{endpoint}: the connection was lost while it was opened")
                self._connected_at = self._clock.monotonic()
                if not self._closing:
                    self._up = True
                dispatchers = list(self.dispatchers.values())
                # These commands were for the lost connection.
                self._deferred.clear()
                # Those that were refused with the last connection are subscribed at once, or later.
                self.refused_consumers.leaves()
                self._clock.notify(self._turn, MANY)
            for dispatcher in dispatchers if self._up else ():
                if not self.refused_consumers.waits(dispatcher.subscribe.consumer):
                    self._introduce(dispatcher, self._epoch)
        if not self._up and self._closing:
            # The thread that closes the driver did not wait for this connection.
            self._adapter.close(0)
            raise closed()
        named, late = (self.capabilities.broker, self.capabilities.version), self._addresses.failed
        up = events.Connected(
            self._clock.time(), str(endpoint), *named, again, late, self.refused_consumers.unserved
        )
        self.observers.emit((up,))
        # The new connection may be lost already.
        if self._up:
            self._standing.end(None)

    def _introduce(self, dispatcher: Dispatcher, epoch: int, since: float | None = None) -> None:
        """Subscribe a dispatcher on the connection of this epoch, unless the dispatcher has ended.

        `since`: when its part of the connection begins; None: with the connection.
        """
        if dispatcher.closed:
            future = self._subscribing.pop(dispatcher.subscribe.consumer, None)
            end(future, TransportError("the consumer was closed before it was subscribed"))
            return
        assert self.capabilities is not None
        # The engine must know the epoch before the first delivery of that epoch; credit follows the subscription.
        began = self._connected_at if since is None else since
        event = Connected(epoch, self.capabilities, self._addresses.current, began)
        commands = dispatcher.connected(event)
        if self.dispatchers.get(dispatcher.subscribe.consumer) is dispatcher:  # not closed meanwhile
            # If the next connection is open already, the adapter drops these commands: their epoch is old.
            self._adapter.execute([replace(dispatcher.subscribe, epoch=epoch), *commands])

    # Consumers and sends.

    def subscribe(self, dispatcher: Dispatcher) -> Future[None]:
        """Start a consumer; the future ends when the broker has confirmed or refused the subscription.

        A consumer that needs the broker to hold messages back is subscribed only after a probe has shown that it does.
        """
        return self._probes.before(dispatcher, self._subscribe)

    def _subscribe(self, dispatcher: Dispatcher) -> Future[None]:
        future: Future[None] = Future()
        number = dispatcher.subscribe.consumer
        # Without the lock, a reconnect might make the same subscription a second time.
        with self._introducing:
            with self._lock:
                if self._closing:
                    end(future, self._failure or closed())
                    return future
                self.dispatchers[number] = dispatcher
                # Timers that it has already, and ledger work that any dispatcher of the connection can do.
                self._alarmed.add(dispatcher)
                if dispatcher.error is not None:
                    self._stopped.add(dispatcher)
                dispatcher.share(self.shared_history)
                self._subscribing[number] = future
                up, epoch = self._up, self._epoch
            if up:
                self._introduce(dispatcher, epoch)
        return future

    def unsubscribe(self, dispatcher: Dispatcher, timeout: float = CLOSE_TIMEOUT) -> None:
        """End a consumer within `timeout` seconds; the broker takes its unsettled messages back.

        Wait for the confirmations of dead letters: without them, other consumers would handle those messages again.
        """
        deadline = time.monotonic() + timeout
        dispatcher.stop()
        try:
            dispatcher.wait_answered(deadline)
        finally:
            self._part_with(dispatcher, deadline)

    def _part_with(self, dispatcher: Dispatcher, deadline: float) -> None:
        number = dispatcher.subscribe.consumer
        # Without the lock, a reconnect might subscribe after this.
        with self._introducing:
            if self.dispatchers.get(number) is dispatcher:
                dispatcher.disconnect(TransportError("the consumer was closed"))
                dispatcher.wait_written(max(deadline, time.monotonic() + IN_HAND))
                self._run_deferred()
                with self._writing:
                    self._write_what_waits(dispatcher, float("inf"))
                with self._lock:
                    self.dispatchers.pop(number, None)
                    self._subscribing.pop(number, None)
                    self._forget(dispatcher)
                self.signs.withdraw(number)
                dispatcher.unshare(self.shared_history)
                self._adapter.execute((Unsubscribe(number),))
        self.open_consumers.retire(dispatcher)

    def send(self, message: Outgoing) -> Future[None]:
        """Send; the future ends when the broker has confirmed or refused the message, or the connection is lost."""
        return self._sends.ask((message,), lambda token: Send(token, message), None, self)

    def commit(self, deliveries: Sequence[Delivery], messages: Sequence[Outgoing]) -> Future[None]:
        """Accept and send in one transaction; the future ends as that of `send`. TransactionRolledBack: unsent."""
        return self._sends.ask(
            messages, lambda t: Commit(t, deliveries, messages), TransactionRolledBack, self
        )

    def give_up(self, answer: Future[None]) -> None:
        """Count the messages of a commit, for which the application does not wait any longer, as abandoned sends."""
        self._sends.give_up(answer)

    def not_connected(self) -> RedeliveryError | None:
        """Return why nothing can be sent now; None: the connection is up."""
        if self._up:
            return None
        return self._failure or TransportError("not connected: the connection was lost")

    def standing(self) -> Future[None]:
        """Return a future that ends when the connection is up, or with an error when it is given up or closed."""
        return self._standing.wait(lambda: (self._up, (self._failure or closed()) if self._closing else None))

    def refuse_waiting(self, error: RedeliveryError) -> None:
        """End all waiting for the connection to be up, now and later, with an error: the connection drains."""
        self._standing.refuse(error)

    def flush(self) -> None:
        """Write all collected settlements, and the commands that were left to the driver's thread, on this thread."""
        with Uninterrupted():
            self._run_deferred()
            self._write_collected(float("inf"))

    def _run_deferred(self) -> None:
        with self._writing:
            with self._lock:
                deferred, self._deferred = self._deferred, []
            if deferred:
                self._adapter.execute(deferred)

    def _write_collected(self, now: float) -> bool:
        """Write the settlements that are due at the time `now`; return True if there were any."""
        found = False
        # With the lock: a dispatcher that another thread has taken out, and is about to put back, would be missed.
        with self._writing:
            collecting = tuple(self._collecting)
        for dispatcher in collecting:
            with self._writing:
                self._collecting.discard(dispatcher)
                found = self._write_what_waits(dispatcher, now) or found
                if dispatcher.collecting:
                    self._collecting.add(dispatcher)
        return found

    def _write_what_waits(self, dispatcher: Dispatcher, now: float) -> bool:
        """Write the settlements of one dispatcher, with the lock of writing; return True if there were any."""
        if commands := dispatcher.pending(now):
            self._adapter.execute(commands)
        return bool(commands)

    # The adapter's events.

    def _sink(self, event: AdapterEvent) -> None:
        match event:
            case Arrived():
                (self.dispatchers.get(event.consumer) or self.browsers).feed(event)
            case Browsed():
                self.browsers.feed(event)
            case Confirmed() | TakenBack():
                whose = event.delivery.consumer if isinstance(event, Confirmed) else event.consumer
                if (dispatcher := self.dispatchers.get(whose)) is not None:
                    dispatcher.feed(event)
            case QueueFound():
                if (dispatcher := self.dispatchers.get(event.consumer)) is not None:
                    dispatcher.feed(event)
                    dispatcher.show(dispatcher.events.cautions(event.capabilities))
            case Sent():
                self._sends.answered(event.token, event.error)
            case Subscribed():
                self._subscribed(event)
            case ConnectionLost():
                try:
                    self._lost(event)
                except BaseException as error:
                    self._fault(error)
                    raise
            case _:
                assert_never(event)

    def _subscribed(self, event: Subscribed) -> None:
        if isinstance(event.error, TransportError):
            # The connection was lost; after the reconnect the consumer is subscribed again.
            return
        self.browsers.subscribed(event)
        event = self._told(event)
        if self._passes(event):
            return
        with self._lock:
            future = self._subscribing.pop(event.consumer, None)
            dispatcher = self.dispatchers.get(event.consumer)
            served = event.error is None and dispatcher is not None
            refusals = self.refused_consumers.confirmed(event.consumer) if served else 0
        if event.error is None:
            self.signs.confirm(event.consumer)
            if dispatcher is not None:
                self.shared_history.served(dispatcher.subscribe, self._clock.monotonic())
                if event.capabilities is not None:
                    dispatcher.feed(QueueFound(event.consumer, event.capabilities))
                dispatcher.show(dispatcher.events.began(event.capabilities, refusals))
        elif dispatcher is not None:
            self.signs.withdraw(event.consumer)
            if future is None:
                # After a reconnect no call of the application waits for the error.
                dispatcher.show(dispatcher.events.refused_for_good(event.error))
            # The driver's thread unsubscribes: the broker may have made a part of the subscription.
            dispatcher.stop(event.error)
        end(future, event.error)

    def _told(self, event: Subscribed) -> Subscribed:
        """Return the event; with an error, if the broker's own place for dead letters is a part of a circle."""
        dispatcher, able = self.dispatchers.get(event.consumer), event.capabilities
        if dispatcher is None or able is None or not dispatcher.subscribe.own_place:
            return event
        try:
            self.open_consumers.refuse_circle(dispatcher, able)
        except ConfigurationError as error:
            return replace(event, error=error)
        return event

    def _passes(self, event: Subscribed) -> bool:
        """Return True for a refusal that passes: the consumer is subscribed again, later or on the next connection."""
        error, number = event.error, event.consumer
        with self._lock:
            dispatcher, refused = self.dispatchers.get(number), self.refused_consumers
            if not isinstance(error, AdapterError) or dispatcher is None or dispatcher.closed:
                return False
            now, addresses = self._clock.monotonic(), self._addresses.number
            times = refused.refused(number, error, now, self.dispatchers, addresses)
            self._poked = True
            self._clock.notify(self._turn, MANY)
        if not times:
            return False
        self.signs.withdraw(number)
        dispatcher.show(dispatcher.events.refused(error, times))
        return True

    def _lost(self, event: ConnectionLost) -> None:
        with self._lock:
            if event.epoch != self._epoch or self._lost_epoch == event.epoch:
                # stomp.py may report a loss twice.
                return
            self._lost_epoch = event.epoch
            dispatchers = list(self.dispatchers.values())
            # Counted for the whole connection: each time another consumer may get the message.
            now = self._clock.monotonic()
            stop = self.protocol_poison.accuse(event.suspect, event.error, now)
            self.refused_consumers.lost(now, alone=self.refused_consumers.all_of(self.dispatchers))
        stopping = ConnectionLost(event.epoch, event.error, event.suspect, event.consumer, stop=stop)
        self.browsers.lost(event.error)
        self.shared_history.connection_lost(now, event.epoch, now - self._connected_at)
        for dispatcher in dispatchers:
            dispatcher.feed(stopping)
            # The loss has stopped the consumer: a call that waits for its subscription gets the error.
            if dispatcher.error is not None:
                end(self._subscribing.pop(dispatcher.subscribe.consumer, None), dispatcher.error)
        if not self._closing:
            unserved = self.refused_consumers.unserved
            self.observers.emit((events.ConnectionLost(self._clock.time(), event.error, unserved),))
        # Only now may the driver's thread reconnect. An engine that heard of the next connection before this loss would
        # treat its deliveries of the lost connection as valid.
        with self._lock:
            if event.epoch == self._epoch:
                self._up = False
            self._clock.notify(self._turn, MANY)
        self._fail_waiting(event.error)

    def _fail_waiting(self, error: RedeliveryError, *, for_good: bool = False) -> None:
        """End sends with the error of a lost connection; `for_good`: also subscriptions and waits for a reconnect."""
        self._sends.lost(error)
        if for_good:
            with self._lock:
                waiting, self._subscribing = list(self._subscribing.values()), {}
            for future in waiting:
                end(future, error)
            self._standing.end(error)

    # Opening and closing.

    def open(self, *, later: bool = False, patient: bool = False) -> None:
        """Connect for the first time, then start the driver's thread.

        `patient`: try the addresses until one answers; else each once. `later`: if no address answers, try again in the
        background, as after a loss, instead of raising TransportError.

        Raises:
            TransportError: No address answered.
            AdapterError: A broker refused the log-in.
            ConfigurationError: A setting cannot work.
            LedgerError: The ledger cannot count.
        """
        if self._connection_ledger is not None:
            self._connection_ledger.open(self.expect_alarm)
        self._clock.attach()
        orphaned_by_forks(self)
        try:
            for attempt in starting(
                self._settings.failover, self._nap, self._addresses.draw, patient=patient
            ):
                with attempt:
                    self._addresses.try_each(self._connect_first)
        except BaseException as error:
            if later and isinstance(error, TransportError):
                logger.warning("not connected yet, trying again in the background: %s", error)
                self._start()
                return
            self._clock.detach()
            self._adapter.close(0)
            if self._connection_ledger is not None:
                self._connection_ledger.close()
            raise
        self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._keep, name="redelivery-connection", daemon=True)
        self.signs.thread = self._thread
        self._thread.start()

    def _connect_first(self, endpoint: Endpoint) -> None:
        if self._closing:
            raise RedeliveryError("the connection was closed while it was connecting")
        self._connect(endpoint)

    def close(self, timeout: float) -> None:
        """Wait for confirmed dead letters, write settlements, close, and end the thread, within `timeout` seconds."""
        settled = False
        try:
            # Real time: the limit is for the broker's answers, not for a schedule.
            settled = self._close_by(time.monotonic() + timeout)
        # Also for Ctrl-C: no later call would close it, and the broker would wait for the settlements.
        except BaseException:
            with Uninterrupted():
                self._begin_close()
                self._abandon(closed(), 0.0)
            raise
        finally:
            self.browsers.lost(closed())
            self._fail_waiting(closed(), for_good=True)
            if self._connection_ledger is not None:
                self._connection_ledger.close(settled=settled)

    def _close_by(self, deadline: float) -> bool:
        """Close in order; return True if the broker has read all settlements."""
        dispatchers = list(self.dispatchers.values())
        for dispatcher in dispatchers:
            dispatcher.stop()
        for dispatcher in dispatchers:
            dispatcher.wait_answered(deadline)
        up = self._begin_close()
        if self._thread is not None and self._thread is not threading.current_thread():
            # The thread writes the collected settlements before it ends.
            join_within(self._thread, max(0.0, deadline - time.monotonic()))
        else:
            self._write_the_rest()
        written = max(deadline, time.monotonic() + IN_HAND)
        for dispatcher in dispatchers:
            dispatcher.disconnect(closed())
            dispatcher.wait_written(written)
        return self._adapter.close(capped(max(0.0, deadline - time.monotonic()))) and up

    def _begin_close(self) -> bool:
        """Begin the end of the driver's thread; return True if the connection was up."""
        with self._lock:
            self._closing = True
            up, self._up = self._up, False
            self._clock.notify(self._turn, MANY)
        return up

    def _write_the_rest(self) -> None:
        for dispatcher in list(self.dispatchers.values()):
            # A result from now on is stale: it could not be written any more.
            dispatcher.disconnect(closed())
        self.flush()

    # Writing.

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        """Carry out commands on this thread."""
        self._adapter.execute(commands)

    def defer(self, commands: Sequence[AdapterCommand]) -> None:
        """Leave commands to the driver's thread."""
        with self._lock:
            self._deferred += commands
            self._clock.notify(self._turn)

    def expect(self, dispatcher: Dispatcher) -> None:
        """Watch the settlements that a dispatcher collects: they are written soon, however long its handler runs."""
        self._collecting.add(dispatcher)
        if not self._polling and self.capabilities is not None and self.capabilities.batch:
            with self._lock:
                self._polling = True
                self._clock.notify(self._turn, MANY)

    def expect_alarm(self, dispatcher: Dispatcher | None = None) -> None:
        """Wake the thread: the next timer of an engine may have moved forward. None: the timer of any engine."""
        with self._lock:
            if dispatcher is None:
                self._everyone = True
            else:
                self._alarmed.add(dispatcher)
            self._poked = True
            self._clock.notify(self._turn)

    def stopped(self, dispatcher: Dispatcher) -> None:
        """Mark a dispatcher as stopped with an error: the driver's thread unsubscribes it when its work is over."""
        self._stopped.add(dispatcher)
        self.hooks.stopped(dispatcher)

    def poke(self) -> None:
        """Wake the driver's thread for a sign of life, without waiting for a lock: the thread may hang with it."""
        self._poked = True
        nudge(self._turn, self._clock)

    def forked(self, error: ConfigurationError) -> None:
        """End in a child process: its parent's adapter is not used there, and the parent's locks are replaced."""
        self._adapter, self._connection_ledger, self._thread = ForkedAdapter(self._adapter, error), None, None
        self._lock, self._introducing, self._writing = threading.Lock(), threading.RLock(), threading.RLock()
        self._turn, self._standing = threading.Condition(self._lock), Standing()
        self._failure, self._closing, self._up, self._sends = error, True, False, PendingSends()
        for dispatcher in self.dispatchers.values():
            dispatcher.error, dispatcher.closed = error, True
        self.dispatchers = {}

    def _forget(self, dispatcher: Dispatcher) -> None:
        """Remove a dispatcher from all sets, with the lock; another dispatcher takes over its ledger's timers."""
        for those in (self._collecting, self._alarmed, self._stopped):
            those.discard(dispatcher)
        self.refused_consumers.forget(dispatcher.subscribe.consumer)
        if self._connection_ledger is not None and self.dispatchers:
            self._alarmed.add(next(iter(self.dispatchers.values())))

    # The thread.

    def _keep(self) -> None:
        try:
            self._keep_on()
        except BaseException as error:  # noqa: BLE001 - all consumers get it
            self._fault(error)
        if self._failure is not None:
            self._abandon(self._failure)

    def _keep_on(self) -> None:
        idle = 0
        try:
            while True:
                # Before the lock: a dispatcher's lock is never taken inside it.
                until_alarm = self._until_alarm()
                self.signs.turned(self._clock.monotonic(), self.hooks.beat)
                with self._lock:
                    if self._up and not self._deferred and not self._closing and not self._poked:
                        if self._polling:
                            # Real time: collected settlements are to be written soon, whatever clock is used.
                            self._turn.wait(POLL)
                        else:
                            self._clock.wait(self._turn, until_alarm)
                    self._poked = False
                    everyone, self._everyone = self._everyone, False
                    up, closing = self._up, self._closing
                if closing:
                    if self._failure is None:
                        self._write_the_rest()
                    return
                self._part_with_stopped()
                if not up:
                    if everyone:
                        self._everyone = True
                    self._reconnect()
                    continue
                self._run_deferred()
                self._subscribe_again()
                for dispatcher in list(self.dispatchers.values()) if everyone else tuple(self._alarmed):
                    dispatcher.tick()
                idle = 0 if self._write_collected(self._clock.monotonic()) else idle + 1
                if self._polling and idle > POLLS_IDLE:
                    # First clear the flag, then check. A dispatcher first collects, then sets it. Nothing is missed.
                    self._polling = False
                    if any(dispatcher.collecting for dispatcher in tuple(self._collecting)):
                        self._polling = True
        finally:
            self._clock.detach()

    def _part_with_stopped(self) -> None:
        """Unsubscribe consumers that stopped with an error: the broker gives their unsettled messages to others."""
        for dispatcher in tuple(self._stopped):
            if self.dispatchers.get(dispatcher.subscribe.consumer) is not dispatcher:
                # Closed meanwhile, or not subscribed yet; `_subscribe` then adds it again.
                self._stopped.discard(dispatcher)
            elif dispatcher.over:
                self.unsubscribe(dispatcher)

    def _subscribe_again(self) -> None:
        """Subscribe the refused consumers that are due; end a connection that serves none of its consumers."""
        with self._lock:
            why = next(iter(filter(None, map(self.refused_consumers.reason, self.dispatchers))), None)
            serves_none = self.refused_consumers.leaves()
            due = [] if serves_none else self.refused_consumers.due(self._clock.monotonic())
            epoch = self._epoch
        if serves_none:
            self._leave(epoch, why)
        with self._introducing:
            now = self._clock.monotonic()
            for number in due:
                if (dispatcher := self.dispatchers.get(number)) is not None:
                    self._introduce(dispatcher, epoch, now)

    def _leave(self, epoch: int, why: AdapterError | None) -> None:
        """Treat the connection as lost: the next address may serve the consumers."""
        self._adapter.close(0)
        told = "" if why is None else f": {why}"
        self._lost(
            ConnectionLost(epoch, TransportError(f"{self._addresses.current}: no consumer is served{told}"))
        )

    def _until_alarm(self) -> float | None:
        alarms: list[float] = []
        for dispatcher in tuple(self._alarmed):
            self._alarmed.discard(dispatcher)
            alarm = dispatcher.next_alarm()
            if alarm is not None:
                self._alarmed.add(dispatcher)
                alarms.append(alarm)
        if (again := self.refused_consumers.next_due()) is not None:
            alarms.append(again)
        until = max(0.0, min(alarms) - self._clock.monotonic()) if alarms else None
        return longest_sleep(until, self._clock)

    def _reconnect(self) -> None:
        if self._settings.failover.max_reconnect_attempts == 0:
            self._give_up(TransportError("the connection was lost, and maxReconnectAttempts is 0"))
            return
        # One that served no consumer was left, or the consumers are asked later.
        stood = inf if self.refused_consumers.unserved else self._clock.monotonic() - self._connected_at
        self._nap(self._addresses.delay_after_loss(stood))
        self.signs.connecting = True
        try:
            for attempt in retrying(self._settings.failover, self._nap, self._addresses.draw):
                with attempt:
                    if self._closing:
                        return
                    self._addresses.try_each(self._connect)
        except (TransportError, AdapterError, ConfigurationError) as error:
            if self._closing:
                return
            failure = TransportError(f"gave up reconnecting: {error}")
            logger.error("%s", failure)  # noqa: TRY400 - the traceback says nothing more
            self._give_up(failure)
        finally:
            self.signs.connecting = False

    def _fault(self, error: BaseException) -> None:
        """Give the connection up after a fault in this library or an adapter: consumers would wait for ever."""
        logger.error("the connection is given up", exc_info=error)
        self._give_up(AdapterError(f"internal error: {error!r}"))

    def _give_up(self, failure: RedeliveryError) -> None:
        self._failure = failure
        self._begin_close()
        self.hooks.given_up(failure)
        self.observers.emit((events.GivenUp(self._clock.time(), failure),))
        for dispatcher in list(self.dispatchers.values()):
            dispatcher.stop(failure)
        self.browsers.lost(failure)
        self._fail_waiting(failure, for_good=True)

    def _abandon(self, failure: RedeliveryError, timeout: float = CLOSE_TIMEOUT - IN_HAND) -> None:
        """Close without acknowledging: the broker gives the messages to others. Not on a thread of the adapter."""
        began, dispatchers = time.monotonic(), list(self.dispatchers.values())
        for dispatcher in dispatchers:
            # The fault, which is logged already, may be in this dispatcher.
            with suppress(BaseException):
                dispatcher.disconnect(failure)
        for dispatcher in dispatchers:
            dispatcher.wait_written(began + IN_HAND)
        self._adapter.close(timeout)

    def _nap(self, seconds: float) -> None:
        with self._lock:
            deadline = self._clock.monotonic() + seconds
            while not self._closing and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._turn, left)
