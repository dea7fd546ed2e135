"""One AMQP connection of one epoch: it is opened, logged in, and lost once.

The connection's thread handles proton's events under the wire's lock. It runs the resulting actions without that lock,
because a sink takes the library's own locks.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import proton

from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.adapter_support.refusals import passes
from redelivery.adapter_support.sockets import connected
from redelivery.clock import capped
from redelivery.core.events import ConnectionLost
from redelivery.errors import AdapterError, ConfigurationError, RedeliveryError, TransportError
from redelivery_amqp.disconnect_cause import end_of
from redelivery_amqp.io_thread import IoThread, ProtonEngine
from redelivery_amqp.link_registry import LinkRegistry
from redelivery_amqp.profiles import profile_for

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from redelivery.adapter import Opening, Sink
    from redelivery_amqp.disconnect_cause import End
    from redelivery_amqp.profile_base import AmqpProfile

    Action = Callable[[], None]

__all__ = ["AmqpConnection"]

# Conditions of a permanent refusal: the same log-in would be refused again.
REFUSED = frozenset({"amqp:unauthorized-access", "amqp:not-found", "amqp:not-allowed"})
# Seconds. Half of it is announced, and Broker-J takes no less than a second.
SHORTEST = 2.0
# Proton's condition where what arrives is no AMQP, or nothing arrives.
FRAMING = "amqp:connection:framing-error"
# Qpid Broker-J 9.2.0, of heart-beats of less than a second.
_TOO_OFTEN = re.compile("idle timeout of [0-9]+ is too low")
E = proton.Event


class AmqpConnection:
    """Connection to one address."""

    def __init__(self, opening: Opening, sink: Sink, *, apart: bool = False) -> None:
        """Prepare it. `apart`: its consumers get their first credit one after another."""
        self.epoch = opening.epoch
        self.version = ""
        self.profile: AmqpProfile
        self.links: LinkRegistry
        # True: nothing more is written or reported.
        self.over = False
        # True if the broker has ended it over a message that it could not deliver.
        self.undelivered = False
        self._opening = opening
        self._sink = sink
        self._apart = apart
        self._container = opening.settings.client_id or f"redelivery-{uuid.uuid4()}"
        self._actions: list[Action] = []
        # Set when the broker has opened, refused or closed the connection.
        self._answered = threading.Event()
        # Set when the broker has answered the close, or the socket has ended.
        self._closed = threading.Event()
        # True if the broker has closed too, without an error.
        self._parted = False
        self._opened = False
        # True after the log-in: a loss is reported to the sink. Before, it is raised.
        self._standing = False
        # Condition with which the connection ended: (name, text).
        self._error: tuple[str, str] | None = None
        self._reason = ""  # why the socket ended
        self._end: End = "cut"

    # Opening and closing.

    def open(self) -> None:
        """Connect and log in within the connect timeout. Raises as `Adapter.open` does."""
        settings, endpoint = self._opening.settings, self._opening.endpoint
        deadline = time.monotonic() + settings.connect_timeout
        sock = connected(endpoint, settings.tls, deadline)
        self.wire = ProtonEngine(*self._hello(), settings.masked)
        self._stream = IoThread(sock, self.wire, self._arrived, self._ended)
        with self.wire.lock:
            self.wire.connection.open()
        self._stream.start()
        try:
            self._answered.wait(capped(max(0.0, deadline - time.monotonic())))
            with self.wire.lock:
                if self._opened and self._error is None and not self.over:
                    self._welcome()
                    return
        # Also for Ctrl-C: the thread and its socket would stay open.
        except BaseException:
            self.abandon()
            raise
        self.abandon()
        raise self._refusal()

    def _hello(self) -> tuple[proton.Connection, proton.Transport]:
        settings, endpoint = self._opening.settings, self._opening.endpoint
        connection, transport = proton.Connection(), proton.Transport()
        connection.container = self._container
        connection.hostname = settings.virtual_host or endpoint.host
        connection.properties = {proton.symbol("product"): "redelivery"}
        self._sasl = sasl = transport.sasl()
        if settings.user_name is not None:
            connection.user = settings.user_name
            connection.password = "" if settings.password is None else settings.password.reveal()
            sasl.allowed_mechs("PLAIN")
        else:
            sasl.allowed_mechs("EXTERNAL" if settings.tls.cert_file else "ANONYMOUS")
        # proton does not see the TLS of the socket. Without TLS the user has chosen amqp:// explicitly.
        sasl.allow_insecure_mechs = True
        # proton announces half of it, and looks once in each: it notices a silent broker after one to two of them, that
        # is after two heart-beats at most, as over STOMP (measured: docs/measured/amqp.md, "Heart-beats").
        transport.idle_timeout = min(2 * settings.heartbeat, max(settings.heartbeat, SHORTEST))
        return connection, transport

    def _welcome(self) -> None:
        properties = {str(k): v for k, v in (self.wire.connection.remote_properties or {}).items()}
        self.version = str(properties.get("version", ""))
        try:
            self.profile = profile_for(properties, self._opening.settings.broker, self._opening.settings)
        except ConfigurationError:
            self.over = True
            raise
        self.links = LinkRegistry(
            self.wire,
            self.profile,
            self._container,
            self.epoch,
            self._sink,
            self.later,
            self._broken,
            self.flush,
            apart=self._apart,
        )
        self._standing = True

    def _refusal(self) -> RedeliveryError:
        endpoint, seconds = self._opening.endpoint, self._opening.settings.connect_timeout
        if self._error is None:
            why = self._reason or f"no answer within {seconds:g} s"
            return TransportError(f"{endpoint}: {why}; is this the port of another protocol, or of TLS?")
        name, text = self._error
        if _TOO_OFTEN.search(text):
            option = "redelivery.heartbeat"
            return ConfigurationError(f"{endpoint}: {text}: give {option}=1000 or more", option=option)
        if name in REFUSED:
            return AdapterError(
                f"{endpoint}: the broker refused the log-in: {text}", passes=passes(text, name)
            )
        asks = "; is this the port of another protocol, or of TLS?" if name == FRAMING else ""
        return TransportError(f"{endpoint}: {text}{asks}")

    @property
    def heartbeats(self) -> tuple[float | None, float | None]:
        """Seconds between heart-beats, as (sent, received); None: no heart-beats.

        The broker ends the connection when the second of the sent ones is missing.
        """
        with self.wire.lock:
            patience = self.wire.transport.remote_idle_timeout
        # proton sends a heart-beat after half of the broker's timeout.
        return patience / 2 or None, self._opening.settings.heartbeat

    def silence(self) -> float:
        """Return the seconds since bytes arrived from the broker."""
        return time.monotonic() - self._stream.heard

    def abandon(self) -> None:
        """End the connection without a close frame; report nothing."""
        self.over = True
        self._stream.stop(1.0)

    def close(self, timeout: float) -> bool:
        """Detach the links, close, and wait up to `timeout` seconds; return True if the broker has answered."""
        try:
            return self._close(timeout)
        # After Ctrl-C in a wait the connection ends at once.
        except BaseException:
            self.abandon()
            raise

    def _close(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        with Uninterrupted(), self.wire.lock:
            stands = not self.over
            if self.over:
                self._closed.set()
            else:
                self.links.end()
                self._stream.flush()
        if not self.over:
            # RabbitMQ answers the close at once, and releases messages later.
            self.links.detaches.wait(capped(timeout))
        with Uninterrupted(), self.wire.lock:
            self.over = True
            self.wire.connection.close()
            self._stream.flush()
        self._closed.wait(capped(max(0.0, deadline - time.monotonic())))
        self._stream.stop(capped(max(0.1, deadline - time.monotonic())))
        return stands and self._parted

    # Called by the adapter and the links, with the wire's lock held.

    def flush(self) -> None:
        """Write the pending output of proton."""
        self._stream.flush()

    def later(self, action: Action) -> None:
        """Run an action on the connection's thread, without the lock."""
        self._actions.append(action)
        # The connection's own thread runs the actions at the end of its turn.
        if not self._stream.own:
            self._stream.wake()

    def give_up(self, error: RedeliveryError) -> None:
        """End the connection, for a reconnect; no message is the cause."""
        self._broken(error, "cut")

    def wall_clock(self) -> float:
        """Return the wall-clock time in seconds since the Unix epoch."""
        return self._opening.clock.time()

    def _broken(self, error: RedeliveryError, end: End, condition: str | None = None) -> None:
        if self._error is None:
            self._error, self._end = (condition or "", str(error)), end
        self._stream.end()

    # Events of proton, with the wire's lock held.

    def _arrived(self) -> list[Action]:
        readable: set[Any] = set()
        for event in self.wire.events(readable):
            own = _OWN.get(event.type)
            if own is not None:
                own(self, event)
            elif self._standing and not self.over:
                theirs = _LINKS.get(event.type)
                if theirs is not None:
                    theirs(self.links, event)
        if not self._standing and self._sasl.outcome not in (None, proton.SASL.OK):
            # If more bytes follow the refusal, as they sometimes do from Artemis, proton reports no error.
            self._error = self._error or ("amqp:unauthorized-access", "wrong user name or password")
            self._stream.end()
        if readable and self._standing and not self.over:
            self.links.take(readable, self.wall_clock())
        if self._standing and not self.over:
            self.links.browse_on()
            self.links.taken_back()
            self.links.detaches.free_ended()
        actions, self._actions = self._actions, []
        return actions

    def on_opened(self, event: proton.Event) -> None:
        """Handle the broker's open frame."""
        self._opened = True
        properties = event.connection.remote_properties or {}
        # Classic refuses a log-in with an open frame that announces the failure, and then a close frame.
        if not any(str(name) == "amqp:connection-establishment-failed" for name in properties):
            self._answered.set()

    def on_closed(self, event: proton.Event) -> None:
        """Handle the broker's close frame."""
        condition = event.connection.remote_condition
        self._parted = condition is None
        end = "cut" if condition is None else end_of(condition.name, condition.description)
        self._note(condition, end)

    def on_transport_closed(self, event: proton.Event) -> None:
        """Handle the end of the transport: end of the socket, undecodable bytes, or missing heart-beats."""
        condition = event.transport.condition
        cut = self.wire.ended or condition is None or end_of(condition.name) == "cut"
        self._note(condition, "cut" if cut else "garbled")

    def _note(self, condition: proton.Condition | None, end: End) -> None:
        if condition is not None and self._error is None:
            self._error, self._end = (
                (condition.name, self.wire.masked(condition.description or condition.name)),
                end,
            )
        self._closed.set()
        self._stream.end()

    def _ended(self, reason: str) -> None:
        """Report the loss; the last action of the connection's thread."""
        with self.wire.lock:
            silent, self.over = self.over or not self._standing, True
            self._reason = reason
            text = reason if self._error is None else self._error[1]
            error = TransportError(f"{self._opening.endpoint}: {text}")
            suspect: tuple[Hashable | None, int | None] = (None, None)
            if self._standing:
                condition = None if self._error is None or self._end == "cut" else self._error[0]
                self.undelivered = self.links.undelivered(condition)
                suspect = self.links.suspect("garbled" if self._stream.faulty else self._end, condition)
                self.links.fail(error)
            actions, self._actions = self._actions, []
        self._closed.set()
        self._answered.set()
        if not silent:
            # Report the loss first: a caller that retries after a failed action must not use this connection again.
            self._sink(ConnectionLost(self.epoch, error, *suspect))
            for action in actions:
                action()


_OWN: dict[proton.EventType, Callable[[AmqpConnection, proton.Event], None]] = {
    E.CONNECTION_REMOTE_OPEN: AmqpConnection.on_opened,
    E.CONNECTION_REMOTE_CLOSE: AmqpConnection.on_closed,
    E.TRANSPORT_ERROR: AmqpConnection.on_transport_closed,
    E.TRANSPORT_CLOSED: AmqpConnection.on_transport_closed,
}
_LINKS: dict[proton.EventType, Callable[[LinkRegistry, proton.Event], None]] = {
    E.SESSION_REMOTE_CLOSE: LinkRegistry.on_session_closed,
    E.LINK_REMOTE_OPEN: LinkRegistry.on_opened,
    E.LINK_REMOTE_CLOSE: LinkRegistry.on_closed,
    E.LINK_REMOTE_DETACH: LinkRegistry.on_closed,
    E.LINK_FLOW: LinkRegistry.on_flow,
    E.DELIVERY: LinkRegistry.on_delivery,
}
