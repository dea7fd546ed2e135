"""One STOMP connection of one epoch: opens, logs in, reports deliveries, and reports its end once.

A settlement is written to the connection on which its delivery arrived. A stale one cannot reach a later connection.
`StompConnection` implements the protocols of `ports`, by which its parts use it.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import starmap
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from stomp.exception import StompException
from stomp.listener import ConnectionListener, HeartbeatListener

from redelivery.adapter import Browsed
from redelivery.adapter_support.refusals import passes
from redelivery.adapter_support.sockets import ResponseTimeout
from redelivery.clock import capped
from redelivery.core.events import Arrived, ConnectionLost, QueueFound
from redelivery.errors import AdapterError, ConfigurationError, TransportError, retold
from redelivery_stomp.disconnect_cause import RecentAcknowledgements, StompDisconnectCause, named, said
from redelivery_stomp.frame_scanner import FrameLimits, FrameScanner, ends_browse
from redelivery_stomp.frames import frame
from redelivery_stomp.profiles import profile_for
from redelivery_stomp.receipts import REQUEST, Receipts, every_step
from redelivery_stomp.subscribing import SubscribeQueue, counted
from redelivery_stomp.subscriptions import Subscriptions
from redelivery_stomp.transport import ScanningTransport

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stomp.transport import Transport
    from stomp.utils import Frame

    from redelivery.adapter import Opening, Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.errors import RedeliveryError
    from redelivery.settings import Settings
    from redelivery_stomp.delivery import StompDelivery
    from redelivery_stomp.ports import FrameReceiver
    from redelivery_stomp.profile_base import StompProfile
    from redelivery_stomp.receipts import Answer

__all__ = [
    "PatientHeartbeats",
    "StompConnection",
    "agreed_heartbeats",
    "connect_frame",
    "has_backslash",
    "not_logged_in",
]


# ---- Listener --------------------------------------------------------------------------------------------
# stomp.py's callbacks, passed on to the connection.
#
# None may raise: stomp.py closes the connection after an exception.

# Agreed intervals of silence after which the connection is lost. Classic looks once in each interval, and writes a
# heart-beat only if nothing was written since it looked before: after a frame it is silent for up to two intervals
# (docs/measured/activemq-stomp.md, Connecting). stomp.py's own 1.5 ends every second connection on which the messages
# stop for a while.
SILENT_INTERVALS = 2.5


class PatientHeartbeats(HeartbeatListener):
    """stomp.py's heart-beats, with as much patience as Classic needs."""

    def __init__(self, transport: Transport, seconds: float) -> None:
        milliseconds = int(seconds * 1000)
        super().__init__(transport, (milliseconds, milliseconds), SILENT_INTERVALS)

    def on_connected(self, frame: Frame) -> None:
        super().on_connected(frame)
        if self.running:
            # stomp.py waits twice as long for the first heart-beat: a broker that freezes early is noticed late.
            self.received_heartbeat = time.monotonic()


class StompListener(ConnectionListener):
    """Passes on the frames and the ends that a connection needs."""

    def __init__(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver

    def on_connected(self, frame: Frame) -> None:
        self._receiver.on_connected(frame)

    def on_receipt(self, frame: Frame) -> None:
        self._receiver.on_receipt(frame)

    def on_error(self, frame: Frame) -> None:
        self._receiver.on_error(frame)

    def on_heartbeat_timeout(self) -> None:
        self._receiver.lost("the broker's heart-beats stopped", by_broker=False)

    def on_disconnected(self) -> None:
        self._receiver.lost("the connection was closed by the other side")


# ---- Connect frame ---------------------------------------------------------------------------------------
# The CONNECT frame, and the errors of a failed log-in.


def connect_frame(settings: Settings, heartbeats: tuple[int, int], *, doubled: bool = False) -> bytes:
    """Return the CONNECT frame. It is not built by stomp.py, which would log the password at DEBUG.

    `doubled`: each backslash is written twice. RabbitMQ 3.10.8 and 4.3.6 read escapes in CONNECT, too, and end the
    connection, without an ERROR, over one that they do not know.
    """
    headers = {
        "accept-version": "1.1,1.2",
        # The virtual host on RabbitMQ, whose default is "/". The others accept any name.
        "host": settings.virtual_host or "/",
        "heart-beat": "{},{}".format(*heartbeats),
        "client-id": settings.client_id,
        "login": settings.user_name,
        "passcode": None if settings.password is None else settings.password.reveal(),
    }
    options = {"client-id": "jms.clientID", "login": "jms.userName", "passcode": "jms.password"}
    # CONNECT is the only frame whose headers are not escaped (STOMP 1.2: for brokers of 1.0).
    lines = [f"{n}:{_plain(options.get(n, n), v)}\n" for n, v in headers.items() if v is not None]
    text = "".join(lines)
    return f"CONNECT\n{_doubled(text) if doubled else text}\n\0".encode()


def has_backslash(settings: Settings) -> bool:
    """True if the CONNECT frame has a backslash: how the broker reads it is unknown before its answer."""
    return connect_frame(settings, (0, 0), doubled=True) != connect_frame(settings, (0, 0))


def _doubled(text: str) -> str:
    return text.replace("\\", "\\\\")


def agreed_heartbeats(listener: HeartbeatListener) -> tuple[float | None, float | None]:
    """Return the agreed seconds between two heart-beats: those sent here, and the broker's. None: no heart-beats."""
    sends, expects = listener.heartbeats if listener.running else (0, 0)
    return sends / 1000 or None, expects / 1000 or None


def _plain(option: str, text: str) -> str:
    if any(c in text for c in "\r\n\0"):
        raise ConfigurationError(
            f"{option} contains a line break or NUL, which STOMP cannot carry", option=option
        )
    return text


def not_logged_in(
    opening: Opening, error: AdapterError | None, *, garbled: bool, lost: bool
) -> RedeliveryError:
    """Return the error of a failed log-in: refused, not STOMP, closed, or no answer in time."""
    endpoint = opening.endpoint
    if error is not None:
        return retold(error, f"{endpoint}: the broker refused the log-in: {error}")
    if garbled:
        return TransportError(f"{endpoint}: the answer is not STOMP; is this another protocol's port?")
    if lost:
        return TransportError(
            f"{endpoint}: the connection was closed before the broker answered; is this the port of another "
            "protocol, or of TLS?"
        )
    return TransportError(
        f"{endpoint}: no answer within {opening.settings.connect_timeout:g} s; is this the port of another protocol, "
        "or of TLS?"
    )


# ---- Connection ------------------------------------------------------------------------------------------

# Errors of a write to a lost connection.
BROKEN = (OSError, StompException, AttributeError, ValueError)
# Seconds that an ERROR without a reason waits for the ERROR with the reason. It must be shorter than the time for which
# an ERROR counts as the cause (`disconnect_cause.AT_ONCE`).
REASON = 0.5
NAMELESS = "a message arrived without a usable header to acknowledge it by"


class StompConnection:
    """One connection to one address."""

    def __init__(self, opening: Opening, sink: Sink) -> None:
        self.epoch = opening.epoch
        self.profile: StompProfile
        # Part of all ids. A producer who knew it could write frames that count as the broker's: each connection has a
        # new one.
        token = secrets.token_hex(8)
        self.subscriptions = Subscriptions(token)
        self._opening, self._sink = opening, sink
        self.receipts = Receipts(token)
        self._lock = threading.Lock()
        # Keeps the order of an ACK and the UNSUBSCRIBE of its subscription.
        self.order = threading.RLock()
        self.turns: SubscribeQueue = SubscribeQueue(self, self.subscriptions)
        self._connected = threading.Event()
        # Reason of a failed log-in.
        self._refused: AdapterError | None = None
        # True when nothing more is reported.
        self._over = False
        self._goodbye_answered = SimpleQueue[bool]()
        self._lost = self._opened = False
        self._version, self._server = "1.2", ""
        self._last_arrived: StompDelivery | None = None
        # The last acknowledgements. The broker does not confirm them.
        self._accepted = RecentAcknowledgements()
        self.disconnect_cause = StompDisconnectCause()
        # An ERROR that gives no reason, until the ERROR with the reason arrives.
        self._vague: Frame | None = None
        self._unwritable = ""
        # A delivery that no frame can name.
        self._nameless: StompDelivery | None = None
        self._reason = ResponseTimeout(lambda: self.lost("the broker closed the connection"), REASON)
        settings = opening.settings
        scanner = FrameScanner(token, FrameLimits.of(settings))
        self.proof = scanner.proof
        self.transport = ScanningTransport(
            opening.endpoint, settings.tls, settings.connect_timeout, scanner, self._messages
        )
        self._heartbeats = PatientHeartbeats(self.transport, settings.heartbeat)
        self.transport.set_listener("heart-beats", self._heartbeats)
        self.transport.set_listener("redelivery", StompListener(self))
        self.transport.heartbeats = self._heartbeats

    # Opening and closing.

    def open(self, *, doubled: bool = False) -> None:
        """Connect and log in, within the connect time-out. Raises as `Adapter.open` does.

        `doubled`: see `connect_frame`.
        """
        try:
            self._log_in(doubled=doubled)
        # Also for Ctrl-C in a wait: the reading thread and its socket would stay open.
        except BaseException:
            self.abandon()
            raise

    def _log_in(self, *, doubled: bool) -> None:
        settings, endpoint = self._opening.settings, self._opening.endpoint
        hello = connect_frame(settings, self._heartbeats.heartbeats, doubled=doubled)
        self.transport.start()
        try:
            self.transport.write(hello)
        except BROKEN as error:
            # The reading thread has read the reason.
            if self.transport.garbled or self._lost:
                raise self._refusal() from error
            reason = str(error) or type(error).__name__
            raise TransportError(f"{endpoint}: the connection broke at once: {reason}") from error
        if not self._connected.wait(self.transport.left()) or self._lost or self._refused is not None:
            raise self._refusal()
        profile = profile_for(self._server, settings.broker, settings)
        with self._lock:
            self.profile = profile
            # No message arrives before a SUBSCRIBE.
            self.proof.handle = profile.handle if profile.forgeable else b""
            # A loss before this is raised; a later one is reported.
            self._opened = not self._lost
        if not self._opened:
            raise self._refusal()

    def _refusal(self) -> RedeliveryError:
        return not_logged_in(self._opening, self._refused, garbled=self.transport.garbled, lost=self._lost)

    @property
    def turned_away(self) -> bool:
        """True if the broker has refused the log-in, or closed the connection instead of an answer."""
        return self._refused is not None or (self._lost and not self.transport.garbled)

    def abandon(self) -> None:
        """Close at once, and report nothing."""
        self._over = True
        self._reason.end()
        self.turns.quiet()
        self.transport.set_connected(False)
        self.transport.disconnect_socket()

    def close(self, timeout: float) -> bool:
        """Write DISCONNECT, wait for its receipt, and close, within `timeout` seconds; True if the receipt arrived."""
        with self._lock:
            if self._over:
                return False
            # The end of the connection after this is not reported as a loss.
            self._over = True
        try:
            with suppress(*BROKEN, Empty):
                receipt = self.receipt(lambda error: self._goodbye_answered.put(item=error is None), REQUEST)
                self.transport.write(frame(b"DISCONNECT", [receipt]))
                return self._goodbye_answered.get(timeout=capped(max(0.0, timeout)))
            return False
        # Also after Ctrl-C in the wait: no later call would end the connection.
        finally:
            self.abandon()

    # Writing.

    def write(self, data: bytes) -> None:
        """Write whole frames, without waiting for the broker. A failure is reported as a lost connection.

        The report waits `REASON` seconds: the reading thread may still read the broker's last ERROR.
        """
        try:
            self.transport.write(data)
        except BROKEN as error:
            if not self._over:
                self._unwritable = f"cannot write: {error or type(error).__name__}"
                self._reason.asked()

    def receipt(self, answer: Answer, kind: str = "r", address: str = "") -> tuple[str, str]:
        """Return a `receipt` header; see `Receipts.expect`. `address`: the request's `destination` header."""
        return self.receipts.expect(answer, kind, address)

    @property
    def over(self) -> bool:
        """True if nothing more can be written."""
        return self._over

    def wire_id(self, name: str) -> str:
        """Return the id that a subscription has at the broker."""
        return self.subscriptions.wire_id(name)

    def give_up(self, delivery: StompDelivery) -> None:
        """End the connection over a message that no ACK or NACK can name. The reading thread reports the end."""
        self._nameless = delivery
        self.transport.disconnect_socket()

    def accepted(self, deliveries: list[StompDelivery]) -> None:
        """Keep these deliveries, in case the broker closes the connection because of an acknowledgement."""
        if deliveries:
            self._accepted.add(deliveries)

    @property
    def able(self) -> Capabilities:
        """Capabilities of the broker, by its version."""
        return self.profile.able(self.server.partition("/")[2].partition(" ")[0])

    @property
    def version(self) -> str:
        """The protocol version that the broker chose."""
        return self._version

    @property
    def server(self) -> str:
        """The broker's name and version, as it sends them."""
        return self._server

    # Reading, on the reading thread.

    def _messages(self, frames: list[tuple[bytes, bytes]]) -> None:
        only = self.subscriptions.of_all(frames)
        if only is not None and not only.command.browse:
            self._arrived([*starmap(partial(only.make, only), frames)])
            return
        by_subscription: dict[str, list[StompDelivery]] = {}
        ended: list[int] = []
        for head, body in frames:
            subscription = self.subscriptions.of(head)
            if subscription is not None and subscription.command.browse and ends_browse(head, body):
                ended.append(subscription.consumer)
            elif subscription is not None:
                delivery = subscription.make(subscription, head, body)
                by_subscription.setdefault(subscription.identity, []).append(delivery)
        self.subscriptions.expect(frames[-1][0])
        for deliveries in by_subscription.values():
            self._arrived(deliveries)
        for consumer in ended:
            self._sink(Browsed(consumer))

    def _arrived(self, deliveries: list[StompDelivery]) -> None:
        # Not found by subscription, which may have ended in between.
        unsettled = deliveries[0].source.unsettled
        if unsettled is not None and not unsettled.take(deliveries):
            return
        self._last_arrived = deliveries[-1]
        if deliveries[0].source.mark:
            self._look_for_mark(deliveries)
        if kept := counted(self, deliveries):
            self._sink(Arrived(kept[0].consumer, kept))

    def _look_for_mark(self, deliveries: list[StompDelivery]) -> None:
        source = deliveries[0].source
        mark = source.mark
        if not any(mark in each.head for each in deliveries):
            return
        source.mark = b""
        if (found := self.profile.for_marked(source.command, self.able)) is not None:
            self._sink(QueueFound(source.consumer, found))

    def on_connected(self, received: Frame) -> None:
        """Handle CONNECTED: the log-in has succeeded."""
        self._version = received.headers.get("version", "1.0")
        self._server = received.headers.get("server", "")
        self._connected.set()

    def on_receipt(self, received: Frame) -> None:
        """Call the callback of the request."""
        self.turns.heard()
        answer = self.receipts.take(received.headers.get("receipt-id", ""))
        if answer is not None:
            answer(None)

    def on_error(self, received: Frame) -> None:
        """Call the callback of the refused request. Without one, keep the ERROR as the reason of the next loss."""
        words = said(received.headers, received.body or b"")
        if self._opened and words == self.profile.vague:
            self._vague = received
            self._reason.asked()
            return
        self._vague = None
        self._find_refused(received, words)
        if self._opened and self.profile.closes:
            # At once: the connection would count as open until the end of its stream is read.
            self.lost("the broker closed the connection")

    def _passes(self, received: Frame, words: str) -> bool | None:
        found = passes(words)
        if found is None and self._opened and self.profile.vague:
            # Of a channel that has died, RabbitMQ says why behind the first line (docs/measured/refusals.md).
            return passes((received.body or b"").decode("utf-8", "replace")) or None
        return found

    def _find_refused(self, received: Frame, words: str) -> None:
        error = AdapterError(self._opening.settings.masked(words), passes=self._passes(received, words))
        self.disconnect_cause.hear(error)
        if not self._opened:
            self._refused = error
        answer = self.receipts.take(received.headers.get("receipt-id", ""))
        if answer is None and self._opened:
            answer = self.receipts.named(words, self.profile.names)
        if not self._connected.is_set():
            self._connected.set()
        elif answer is not None:
            answer(error)
        else:
            self._find_suspect(words)

    def _find_suspect(self, words: str) -> None:
        cause, profile = self.disconnect_cause, self.profile if self._opened else None
        ended = profile.ended_consumer.search(words) if profile and profile.ended_consumer else None
        if profile is not None and ended is not None:
            address = ended["address"]
            names = {address, f"{address}::{ended['queue']}"}
            found = self.subscriptions.first(lambda destination: profile.pattern(destination) in names)
            if found is not None:
                cause.undelivered(found)
            return
        cause.unclaimed(
            self._accepted.all(),
            self._last_arrived,
            profile.no_refusal if profile else None,
            refuses=not (profile and profile.names_requests),
            takes_back=bool(profile and profile.takes_back),
        )

    def lost(self, reason: str, *, by_broker: bool = True) -> None:
        """Report the end of the connection, once, even if finding its reason raises."""
        with self._lock:
            if self._over:
                self._goodbye_answered.put(item=False)
                return
            self._over = self._lost = True
            opened = self._opened
        self._reason.end()
        error = TransportError(f"{self._opening.endpoint}: {reason}")
        refusal: AdapterError | None = None
        suspect: tuple[Hashable, int] | tuple[None, None] = None, None

        def explain() -> None:
            nonlocal error, refusal, suspect
            self.disconnect_cause.by_broker = by_broker
            error, refusal = self._explained(reason)
            suspect = self.disconnect_cause.suspect

        def refuse() -> None:
            if refusal is not None and (claim := self.receipts.first_request()) is not None:
                # Artemis closes the connection when it refuses a SUBSCRIBE, and does not name it. It handles them in
                # order. The receipt of an earlier SEND may arrive later, when its message is stored.
                claim(refusal)

        def report() -> None:
            if opened:
                self._sink(ConnectionLost(self.epoch, error, *suspect))

        every_step((explain, self._connected.set, refuse, report))
        # After the loss is reported: a request that is tried again must not find this connection.
        every_step([partial(answer, error) for answer in self.receipts.all()])
        every_step((partial(self.turns.end, error), partial(self.transport.set_connected, connected=False)))
        self.transport.disconnect_socket()

    def _explained(self, reason: str) -> tuple[TransportError, AdapterError | None]:
        """Return the error of the loss, and the refusal of the oldest request if the ERROR may be about that."""
        vague, self._vague = self._vague, None
        if vague is not None:
            self._find_refused(vague, self.profile.vague)
        cause, fault = self.disconnect_cause, self.transport.fault
        because, refusal = cause.error, cause.refusal
        if self._nameless is not None:
            reason = NAMELESS
            cause.accuse(self._nameless)
        elif fault and self._connected.is_set():
            reason = fault
            if self.transport.garbled:
                # The last ERROR may be a part of the garbled data.
                because = refusal = None
                # None if its consumer has ended: no other message is accused.
                culprit = self.subscriptions.delivery(self.transport.culprit)
                cause.accuse(culprit)
                reason += named(culprit)
        elif because is None and self._unwritable:
            reason = self._unwritable
        told = f" ({because})" if because is not None else ""
        return TransportError(f"{self._opening.endpoint}: {reason}{told}"), refusal
