"""The keeper of a connection: opens it, keeps it, and writes what no application thread is there to write.

One thread. It reconnects, resubscribes, lets engines look at the time, and flushes settlements behind a handler that
takes long. The adapter's own thread only reads and hands over.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from redelivery.drive.addresses import Addresses, delay_after, retrying, starting
from redelivery.drive.link import IN_HAND, MANY, Link, closed
from redelivery.drive.scheduled import Proofs
from redelivery.errors import AdapterError, ConfigurationError, RedeliveryError, TransportError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from redelivery.adapter import Adapter
    from redelivery.clock import Clock
    from redelivery.core.commands import AdapterCommand
    from redelivery.drive.channel import Channel
    from redelivery.drive.counting import Counting
    from redelivery.settings import Settings

__all__ = ["Keeper"]

logger = logging.getLogger("redelivery")

POLL = 0.002  # seconds between looks at collected settlements, while there are any
STEADY = 1.0  # seconds that a connection must stand, or the next one has to wait longer
POLLS_IDLE = 25  # looks that find none, before the keeper goes to sleep


class Keeper(Link):
    """One connection over all its reconnects, and the thread that keeps it."""

    def __init__(
        self, settings: Settings, adapter: Adapter, clock: Clock, counting: Counting | None = None
    ) -> None:
        super().__init__(settings, adapter, clock)
        self._counting = counting
        self._proofs = Proofs(self, clock)
        self._addresses = Addresses(settings)
        self._fleeting = 0  # connections in a row that did not stand for long enough
        self._connected_at = 0.0
        self._poked = False
        self._polling = False
        self._thread: threading.Thread | None = None

    # Opening and closing.

    def open(self) -> None:
        """Connect for the first time: each address once; then keep the connection.

        Raises:
            TransportError: no address answered.
            AdapterError: a broker refused the log-in.
            ConfigurationError: a setting cannot work.
            LedgerError: the ledger cannot count.
        """
        if self._counting is not None:
            self._counting.open(self.expect_alarm)
        self._clock.attach()
        try:
            for attempt in starting(self._settings.failover, self._nap):
                with attempt:
                    self._connect_to_any()
        except BaseException:
            self._clock.detach()
            self._adapter.close(0)
            if self._counting is not None:
                self._counting.close()
            raise
        self._connected_at = self._clock.monotonic()
        self._thread = threading.Thread(target=self._keep, name="redelivery-keeper", daemon=True)
        self._thread.start()

    def _connect_to_any(self) -> None:
        failures: list[str] = []
        for endpoint in self._addresses.round():
            if self._closing:
                raise RedeliveryError("closed while it was connecting")
            try:
                return self._connect(endpoint)
            except TransportError as error:
                failures.append(str(error))
        raise TransportError("; ".join(failures))

    def close(self, timeout: float) -> None:
        """Wait for dead letters in doubt, write what is collected, close, end the thread: within `timeout` seconds."""
        deadline = time.monotonic() + timeout  # real time: it is about the wire, not about a schedule
        channels = list(self.channels.values())
        for channel in channels:
            channel.stop()
        for channel in channels:
            channel.wait_answered(deadline)
        with self._lock:
            self._closing = True
            up, self._up = self._up, False
            self._clock.notify(self._turn, MANY)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline - time.monotonic()))  # it writes what is collected
        else:
            self._write_the_rest()
        written = max(deadline, time.monotonic() + IN_HAND)
        for channel in channels:
            channel.forsake(closed())
            channel.wait_written(written)
        self._adapter.close(max(0.0, deadline - time.monotonic()))
        self.browsers.lost(closed())
        self._fail_waiting(closed(), for_good=True)
        if self._counting is not None:
            self._counting.close(settled=up)

    def _write_the_rest(self) -> None:
        for channel in list(self.channels.values()):
            channel.forsake(
                closed()
            )  # what is reported from now on is stale: it could not be written any more
        self.flush()

    def subscribe(self, channel: Channel) -> Future[None]:
        """Start a consumer, as `Link` does; before, what it asks of the broker is proved."""
        return self._proofs.before(channel, super().subscribe)

    # Writing.

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        """Carry commands out on this thread."""
        self._adapter.execute(commands)

    def defer(self, commands: Sequence[AdapterCommand]) -> None:
        """Leave commands to the keeper's thread."""
        with self._lock:
            self._deferred += commands
            self._clock.notify(self._turn)

    def expect(self) -> None:
        """Learn that settlements are being collected: they must not wait long, whatever their handler does."""
        if not self._polling and self.capabilities is not None and self.capabilities.batch:
            with self._lock:
                self._polling = True
                self._clock.notify(self._turn, MANY)

    def expect_alarm(self) -> None:
        """Learn that an engine may want to look at the time earlier than it said."""
        with self._lock:
            self._poked = True
            self._clock.notify(self._turn)

    # The thread.

    def _keep(self) -> None:
        try:
            self._keep_on()
        except Exception as error:
            # A fault of ours or of an adapter's: the consumers must hear of it, or they would wait for ever.
            logger.exception("the connection is given up")
            self._give_up(AdapterError(f"internal error: {error!r}"))

    def _keep_on(self) -> None:
        idle = 0
        try:
            while True:
                until_alarm = (
                    self._until_alarm()
                )  # before the lock: a channel's lock is never taken inside it
                with self._lock:
                    if self._up and not self._deferred and not self._closing and not self._poked:
                        if self._polling:
                            self._turn.wait(POLL)  # real time: it is about the wire, not about a schedule
                        else:
                            self._clock.wait(self._turn, until_alarm)
                    self._poked = False
                    up, closing = self._up, self._closing
                if closing:
                    return self._write_the_rest()
                self._part_with_stopped()
                if not up:
                    self._reconnect()
                    continue
                self._run_deferred()
                for channel in list(self.channels.values()):
                    channel.tick()
                idle = 0 if self._write_collected(self._clock.monotonic()) else idle + 1
                if self._polling and idle > POLLS_IDLE:
                    # First the flag, then the look; who collects does it the other way round, so one sees the other.
                    self._polling = False
                    if any(channel.collecting for channel in list(self.channels.values())):
                        self._polling = True
        finally:
            self._clock.detach()

    def _part_with_stopped(self) -> None:
        """Unsubscribe consumers that have stopped with an error: the broker gives to others what they hold."""
        for channel in list(self.channels.values()):
            if channel.over:
                self.unsubscribe(channel)

    def _until_alarm(self) -> float | None:
        alarms = [a for c in list(self.channels.values()) if (a := c.next_alarm()) is not None]
        return max(0.0, min(alarms) - self._clock.monotonic()) if alarms else None

    def _reconnect(self) -> None:
        if self._settings.failover.max_reconnect_attempts == 0:
            self._give_up(TransportError("the connection was lost, and maxReconnectAttempts is 0"))
            return
        failover, addresses = self._settings.failover, len(self._settings.endpoints)
        # A broker that ends each connection at once must not be connected to in a hot loop.
        stood = self._clock.monotonic() - self._connected_at >= STEADY
        self._fleeting = 0 if stood else self._fleeting + 1
        self._nap(
            delay_after((self._fleeting - 1) * addresses, failover, addresses) if self._fleeting else 0.0
        )
        try:
            for attempt in retrying(failover, addresses, self._nap):
                with attempt:
                    if self._closing:
                        return
                    self._connect(self._addresses.next())
            self._connected_at = self._clock.monotonic()
        except (TransportError, AdapterError, ConfigurationError) as error:
            if self._closing:
                return
            failure = TransportError(f"gave up reconnecting: {error}")
            logger.error("%s", failure)  # noqa: TRY400 - the traceback says nothing more
            self._give_up(failure)

    def _give_up(self, failure: RedeliveryError) -> None:
        self._failure = failure
        with self._lock:
            self._closing = True
            self._up = False
            self._clock.notify(self._turn, MANY)
        for channel in list(self.channels.values()):
            channel.stop(failure)
        self.browsers.lost(failure)
        self._fail_waiting(failure, for_good=True)

    def _nap(self, seconds: float) -> None:
        with self._lock:
            deadline = self._clock.monotonic() + seconds
            while not self._closing and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._turn, left)
