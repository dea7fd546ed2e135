"""Starts consumers, one after the other: checks the dead-letter destination of each, then subscribes it.

When Artemis refuses a frame, it closes the connection, but still carries out the frames after it. A SUBSCRIBE among
them makes a consumer that outlives the connection, and keeps its messages until the broker is restarted (measured:
docs/measured/artemis-stomp-cuts.md, "A consumer outlives its connection").
For that reason, the next consumer's frames are not written before the answer to this one's.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.adapter import Subscribed
from redelivery.adapter_support.sockets import SILENT, ResponseTimeout
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError, retold
from redelivery.log import logger
from redelivery_stomp.byte_windows import ByteWindow, CountedWindow
from redelivery_stomp.frames import frame
from redelivery_stomp.headers import subscribe_headers
from redelivery_stomp.receipts import REQUEST
from redelivery_stomp.transactions import aborted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redelivery.adapter import Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery.errors import RedeliveryError
    from redelivery_stomp.artemis_questions import ArtemisQuestions
    from redelivery_stomp.delivery import StompDelivery, Subscription, UnsettledDeliveries
    from redelivery_stomp.ports import FrameWriter, FurtherIo, SubscribeIo
    from redelivery_stomp.receipts import Answer
    from redelivery_stomp.subscriptions import Subscriptions

__all__ = [
    "SubscribeQueue",
    "begin_further",
    "counted",
    "end_behind",
    "end_idle",
    "give_back",
    "number_of",
    "whole",
]


# ---- Subscribing -----------------------------------------------------------------------------------------


class SubscribeQueue:
    """Consumers of one connection that have not started. Used with the connection's `order` held, or after its end.

    If the broker does not answer for `SILENT` seconds, the connection counts as lost: the others would wait for ever.
    """

    def __init__(self, io: SubscribeIo, subscriptions: Subscriptions) -> None:
        self._io = io
        self._subscriptions = subscriptions
        self._waiting: deque[Subscribing | WindowWidening] = deque()
        self._busy = False
        self._patience = ResponseTimeout(
            lambda: io.lost("the broker has not answered a consumer that starts", by_broker=False),
            silent=SILENT,
        )
        # Destinations on which the broker refuses a consumer's further subscription. The adapter keeps it over all
        # connections.
        self.single: set[str] = set()
        # Dead-letter destinations of consumers that have started once; and those of them that are refused for now: no
        # consumer waits for them. The adapter keeps both.
        self.proven: set[str] = set()
        self.down: set[str] = set()
        # Where the broker's management is asked before a consumer begins. The adapter sets it.
        self.questions: ArtemisQuestions | None = None
        # Consumers that wait for its answers. They have no turn: others begin meanwhile.
        self._asking: list[Subscribing] = []
        # Consumers whose check has an answer that proves nothing, by dead-letter destination.
        self.doubted: dict[str, list[Subscribing]] = {}

    def begin(self, subscription: Subscription, sink: Sink, checked: set[str]) -> None:
        """Start a consumer, now or after those before it. `sink` gets `Subscribed`; `checked`: see `Subscribing`."""
        # Its messages may arrive before its receipt.
        self._subscriptions.begin(subscription.identity, subscription)
        Subscribing(self._io, self, subscription, sink, checked).begin()

    def widen(self, source: Subscription, number: int, command: Subscribe) -> None:
        """Write one more SUBSCRIBE of a consumer that has started. `command` has the window of that subscription."""
        identity = f"{source.identity}.{number}"
        self.add(WindowWidening(self._io, self, self._subscriptions, source, identity, command))

    def wait(self, one: Subscribing) -> None:
        """Keep a consumer that has asked a question."""
        self._asking.append(one)

    def answered(self, one: Subscribing) -> bool:
        """Take a consumer back; False if the loss of the connection has been its answer."""
        try:
            self._asking.remove(one)
        except ValueError:
            return False
        return True

    def add(self, beginning: Subscribing | WindowWidening) -> None:
        self._waiting.append(beginning)
        if not self._busy:
            self.next()

    def next(self) -> None:
        """Start the next consumer, after the answer to the one before."""
        self._busy = False
        while self._waiting and not self._busy:
            self._busy = self._waiting.popleft().ask()
        if self._busy:
            self._patience.asked()
        else:
            self._patience.answered()

    def go_on(self, error: RedeliveryError | None) -> None:
        """Start the next consumer after this answer, unless the broker closes the connection after a refusal."""
        io = self._io
        if not (io.over or (io.profile.closes and isinstance(error, AdapterError))):
            with io.order:
                self.next()

    def heard(self) -> None:
        """Restart the time-out: the broker has answered something."""
        self._patience.heard()

    def quiet(self) -> None:
        """Stop the time-out, and the questions: the connection is being closed."""
        self._patience.end()
        self._asking = []
        if self.questions is not None:
            self.questions.end()

    def end(self, error: RedeliveryError) -> None:
        """Report the loss of the connection to the consumers that have written nothing."""
        asking, self._asking = self._asking, []
        self.quiet()
        # A copy: another thread may add one.
        waiting = list(self._waiting)
        self._waiting.clear()
        while asking:
            waiting.append(asking.pop())
        for each in waiting:
            each.answer(error)


class Subscribing:
    """The start of one consumer. The answers arrive on the reading thread, which writes the next frames: no waiting."""

    def __init__(
        self,
        io: SubscribeIo,
        turns: SubscribeQueue,
        subscription: Subscription,
        sink: Sink,
        checked: set[str],
    ) -> None:
        """`checked`: dead-letter destinations that accept our messages; this consumer's is added when it is checked."""
        self._io, self._turns, self._subscription = io, turns, subscription
        self._command: Subscribe = subscription.command
        self._sink, self._checked = sink, checked
        self._refused = False
        # Its dead-letter destinations, with the broker's own place for it once that is known.
        self._places = self._command.dead_letters
        self._able: Capabilities | None = None
        # Dead-letter destinations that are still to be checked, one after the other.
        self._unchecked: list[str] = []
        # Those whose queues were asked for.
        self._looked_at: set[str] = set()
        # Those whose check proved nothing.
        self._doubtful: list[str] = []

    def begin(self) -> None:
        """Ask for the broker's own place, if that is wanted, and then wait for its turn."""
        questions = self._turns.questions
        if self._command.own_place and questions is not None:
            self._turns.wait(self)
            questions.find(self._command.destination, self._placed, lambda: not self._subscription.ended)
        else:
            self._turns.add(self)

    def _placed(self, able: Capabilities | None, error: RedeliveryError | None) -> None:
        with self._io.order:
            if not self._turns.answered(self):
                return
            if able is not None:
                self._able, own = able, able.dead_letter_destination
                self._places = tuple(dict.fromkeys((*self._places, own)))
                self._turns.add(self)
        if error is not None:
            self._subscription.ended = True
            self._refuse(error)

    def ask(self) -> bool:
        """Write the first frames; return True if the next consumer must wait for an answer."""
        if self._subscription.ended:
            return False
        for destination in self._places:
            if destination in self._turns.down:
                continue
            if destination in self._turns.doubted:
                # Another consumer has checked this destination on this connection.
                self._doubt(destination)
            elif destination not in self._checked:
                self._unchecked.append(destination)
        if self._unchecked:
            self._check(self._unchecked.pop(0))
            return True
        return self._prove()

    def _prove(self) -> bool:
        """Subscribe, if the places keep what they are sent; return True if the next consumer must wait."""
        questions = self._turns.questions
        if questions is not None:
            # Not before the check: it may have made their queues.
            places = [each for each in self._places if not self._own(each)]
            if unknown := [
                each for each in places if each not in self._looked_at and questions.unknown(each)
            ]:
                # Once: an answer may take longer than it counts.
                self._looked_at.update(unknown)
                self._turns.wait(self)
                questions.look(unknown, self._looked)
                return False
            # Copies name the address of the consumed queue.
            source = self._io.profile.address(self._command.destination)
            for place in places:
                if why := questions.dropped(place, source):
                    self._refuse_place(place, AdapterError(why))
                    return False
        self._subscribe()
        return self._io.profile.in_turn

    def _looked(self) -> None:
        with self._io.order:
            if self._turns.answered(self):
                self._turns.add(self)

    def _own(self, place: str) -> str:
        """Return the setting of the broker that has decided this place, or ""."""
        able = self._able
        return able.own_dead_letters if able is not None and place == able.dead_letter_destination else ""

    def _capabilities(self) -> Capabilities | None:
        """Return what the broker can do with the consumed queue; None: what it can do with any."""
        own = self._able or self._io.profile.for_consumer(self._command, self._io.able)
        questions = self._turns.questions
        caution = "" if questions is None else questions.caution(self._places)
        return replace(own or self._io.able, caution=caution) if caution else own

    def _subscribe(self) -> None:
        subscription = self._subscription
        subscription.asked = True
        _write_subscribe(self._io, self._command, subscription.identity, self.answer)

    def answer(self, error: RedeliveryError | None) -> None:
        """Handle the answer to the SUBSCRIBE."""
        if isinstance(error, AdapterError):
            # The broker has no subscription to end.
            self._subscription.ended = True
            self._refuse(retold(error, self._reason(error)))
        elif not self._refused:
            own = None if error is not None else self._capabilities()
            self._sink(Subscribed(self._command.consumer, error, own))
            if error is None:
                self._turns.proven.update(self._places)
                self._share()
                _wake(self._io, self._subscription, self._command)
        if self._io.profile.in_turn:
            self._turns.go_on(error)

    def _share(self) -> None:
        """Start the other subscriptions of a consumer whose window is divided among several."""
        command = self._command
        count = self._io.profile.subscriptions(command)
        if count > 1:
            with self._io.order:
                for number in range(1, count):
                    self._turns.widen(self._subscription, number, command)

    def _reason(self, error: AdapterError) -> str:
        command, profile = self._command, self._io.profile
        refused = f"the broker refused a consumer of {command.destination}"
        if self._doubtful and not profile.names(str(error), profile.pattern(command.destination)):
            # If the check ended RabbitMQ's channel, the text of the first ERROR may be just "Processing error".
            refused += f", or its dead-letter destination {' or '.join(self._doubtful)}"
        return f"{refused}: {error}"

    def _refuse(self, error: RedeliveryError) -> None:
        if not self._refused:
            self._refused = True
            self._sink(Subscribed(self._command.consumer, error))

    # The check of its dead-letter destinations.

    def _check(self, destination: str) -> None:
        """Check if messages may be sent there, without sending one: by a SEND in a transaction that is aborted.

        The brokers check the permission, and create the queue if they may, at the SEND. RabbitMQ answers a SEND in a
        transaction only after its COMMIT, and checks only the right to declare the queue.
        """
        # Receipts arrive in the order of the requests; an ERROR on the SEND answers both.
        io, profile = self._io, self._io.profile
        answered = False

        def checked(error: RedeliveryError | None) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._checked_by(destination, error)

        def sent(error: RedeliveryError | None) -> None:
            if error is not None:
                checked(error)

        own = None if profile.declares else io.receipt(sent)
        receipt = io.receipt(checked, address=profile.address(destination))
        name = f"check{self._subscription.epoch}-{self._command.consumer}-{len(self._unchecked)}"
        io.write(aborted(profile, name, Outgoing(destination, b""), own, receipt))

    def _checked_by(self, destination: str, error: RedeliveryError | None) -> None:
        if isinstance(error, AdapterError):
            self.bad_dead_letters(destination, error)
            self._turns.go_on(error)
        elif error is not None:
            self.answer(error)
        else:
            if self._io.profile.declares:
                # RabbitMQ declares the queue independently of its answers. The ERROR may arrive later, or be lost with
                # the connection: each connection checks again. Until the ERROR the channel delivers no message.
                self._doubt(destination)
            else:
                self._checked.add(destination)
            if self._unchecked and not self._subscription.ended:
                self._check(self._unchecked.pop(0))
            else:
                self._go_on()

    def _doubt(self, destination: str) -> None:
        """Stop this consumer, and all others with this dead-letter destination, if a refusal of it arrives later."""
        self._doubtful.append(destination)
        turns = self._turns
        doubted = [one for one in turns.doubted.get(destination, []) if not one.ended]
        turns.doubted[destination] = [*doubted, self]

        def refused(error: RedeliveryError | None) -> None:
            for one in turns.doubted.pop(destination, []):
                one.bad_dead_letters(destination, error)

        self._io.receipts.doubt(refused, self._io.profile.address(destination))

    @property
    def ended(self) -> bool:
        """True if the consumer has ended."""
        return self._subscription.ended

    def _go_on(self) -> None:
        # The lock keeps the consumer from ending between the check and the SUBSCRIBE.
        with self._io.order:
            if self._subscription.ended or not self._prove():
                self._turns.next()

    def bad_dead_letters(self, destination: str, error: RedeliveryError | None) -> None:
        """Refuse the consumer because of a dead-letter destination of its own."""
        # A place that has served is full, or its node is down: Artemis gives no reason over STOMP.
        refused = isinstance(error, AdapterError) and error.passes is not False
        if refused and destination in self._turns.proven:
            self._turns.down.add(destination)
        self._refuse_place(destination, error)

    def _refuse_place(self, destination: str, error: RedeliveryError | None) -> None:
        if not self._subscription.asked:
            self._subscription.ended = True
        own = self._own(destination)
        whose = f", which is {own}," if own else ""
        cure = "; name another place: redelivery.deadLetterDestination" if own else ""
        text = f"the dead-letter destination {destination}{whose} cannot be used: {error}{cure}"
        self._refuse(retold(error, text) if isinstance(error, AdapterError) else AdapterError(text))


class WindowWidening:
    """A further subscription of a consumer that has started. Its SUBSCRIBE waits like any other."""

    def __init__(
        self,
        io: SubscribeIo,
        turns: SubscribeQueue,
        subscriptions: Subscriptions,
        source: Subscription,
        identity: str,
        command: Subscribe,
    ) -> None:
        self._io, self._turns, self._subscriptions = io, turns, subscriptions
        self._source, self._identity, self._command = source, identity, command

    def ask(self) -> bool:
        """Write the SUBSCRIBE; return True if the next consumer must wait for its answer."""
        if self._source.ended:
            return False
        # Not earlier: the broker has had no subscription with this id to end.
        self._subscriptions.begin(self._identity, self._source)
        _write_subscribe(self._io, self._command, self._identity, self.answer)
        return self._io.profile.in_turn

    def answer(self, error: RedeliveryError | None) -> None:
        """Handle the answer. After a refusal the consumer runs on with a smaller window.

        The next connection begins no further subscription to this destination: the queue may be limited to one
        consumer.
        """
        if isinstance(error, AdapterError):
            self._turns.single.add(self._command.destination)
            logger.warning(
                "%s: the broker refused a second subscription (%s), as if the queue is limited to one consumer; from "
                "the next connection on, one subscription has room for credit + maxParked messages",
                self._command.destination,
                error,
            )
        if error is None:
            with self._io.order:
                if self._source.window is not None:
                    self._source.window.begun(int(self._identity.rpartition(".")[2]))
            _wake(self._io, self._source, self._command)
        if self._io.profile.in_turn:
            self._turns.go_on(error)


def _write_subscribe(io: SubscribeIo, command: Subscribe, identity: str, answer: Answer) -> None:
    headers = list(subscribe_headers(io.profile, command, io.wire_id(identity)))
    named = io.wire_id(identity) if io.profile.names_subscriptions else str(dict(headers)["destination"])
    receipt = io.receipt(answer, REQUEST, named)
    io.write(frame(b"SUBSCRIBE", [*headers, receipt]))


def _wake(io: SubscribeIo, source: Subscription, command: Subscribe) -> None:
    """Make the broker look at its queues again, if it may not have sent the stored messages to the new subscription."""
    if not io.profile.sleeps(command):
        return
    with io.order:
        if source.ended:
            return
        # A subscription that matches no message, begun and ended, makes each of the queues look at every consumer of
        # it.
        nothing = replace(command, selector="1=0", window=1, room=0)
        identity = io.wire_id(f"{source.identity}.wake")
        headers = subscribe_headers(io.profile, nothing, identity)
        io.write(frame(b"SUBSCRIBE", headers) + frame(b"UNSUBSCRIBE", [("id", identity)]))


# ---- Further subscriptions -------------------------------------------------------------------------------
# Begins and ends the further subscriptions of a running consumer.


def whole(command: Subscribe) -> Subscribe:
    """Return the command for a consumer whose only subscription must have room for all messages that it may get."""
    wide = max(command.window, command.most) + command.room
    # The kind of subscription that has its whole window from the begin.
    return replace(command, window=wide, room=0, most=0, ordering="per_group")


def begin_further(io: FurtherIo, source: Subscription) -> None:
    """Begin the subscriptions that the consumer's window needs. The caller holds the connection's `order`."""
    if source.window is not None:
        for number, command in source.window.further():
            io.turns.widen(source, number, command)


def end_behind(io: FurtherIo, own: Sequence[StompDelivery]) -> bytes:
    """Return the frames that end a consumer's subscriptions which are not needed after these messages are settled.

    None of them has another unsettled message. A message that the broker sends in answer to the ACK is released by the
    end of its subscription.
    """
    source = own[0].source
    if source.window is None or not source.window.accepted(own):
        return b""
    numbers = () if isinstance(source.window, ByteWindow) else [number_of(io, each) for each in own]
    return end_idle(io, source, numbers)


def end_idle(io: FurtherIo, source: Subscription, numbers: Iterable[int] = ()) -> bytes:
    """Return the frames that end subscriptions without a message. `numbers`: those whose message was settled."""
    window = source.window
    return b"" if window is None else b"".join(_end(io, source, each) for each in window.ending(numbers))


def number_of(io: FurtherIo, delivery: StompDelivery) -> int:
    """Return the number, among its consumer's, of the subscription on which a message arrived."""
    return int(io.subscriptions.name_of(delivery.head).partition(".")[2] or 0)


def counted(io: FurtherIo, deliveries: list[StompDelivery]) -> list[StompDelivery]:
    """Count the messages of one consumer against its window; return those of subscriptions that have not ended.

    Runs on the reading thread. If a further subscription is needed, its SUBSCRIBE is written here: no write waits for
    the broker.
    """
    source = deliveries[0].source
    window = source.window
    if not isinstance(window, ByteWindow):
        return deliveries
    window.sampled(deliveries[-1])
    if not window.watches and window.usual <= window.limit:
        return deliveries
    with io.order:
        if source.ended:
            return deliveries
        if window.watches:
            _let_groups_go(io, window, deliveries)
            subscriptions = io.subscriptions
            # The broker redelivers the messages of an ended subscription on another.
            deliveries = [each for each in deliveries if subscriptions.name_of(each.head) in subscriptions]
            for each in deliveries:
                window.came(each, number_of(io, each))
            window.checked()
        begin_further(io, source)
    return deliveries


def _let_groups_go(io: FurtherIo, window: ByteWindow, deliveries: Sequence[StompDelivery]) -> None:
    """Move message groups to one wide subscription, which is begun for the first grouped message.

    A narrow subscription without other unsettled messages is ended. Its messages are released: their delivery count and
    redelivered flag do not change (measured: docs/measured/artemis-stomp-windows.md), and the wide one gets them. Other
    narrow subscriptions end when none of their messages is unsettled.
    """
    if not (isinstance(window, CountedWindow) and window.group):
        return
    grouped = [each for each in deliveries if window.group in each.head]
    if not grouped:
        return
    source = grouped[0].source
    if (wide := window.widen()) is not None:
        command = source.command
        logger.info(
            "%s: messages with a group arrived, and Artemis binds each group to one subscription; this consumer "
            "may get credit + maxParked messages (%d)",
            command.destination,
            command.window + command.room,
        )
        io.turns.widen(source, *wide)
    numbers = {number_of(io, each) for each in grouped}
    if data := b"".join(_end(io, source, each) for each in numbers if window.came_alone(each)):
        io.write(data)


def _end(io: FurtherIo, source: Subscription, number: int) -> bytes:
    """Return the frame that ends a subscription; empty if it has not begun, or has ended."""
    subscriptions, window = io.subscriptions, source.window
    name = f"{source.identity}.{number}" if number else source.identity
    if name not in subscriptions or window is None:
        return b""
    subscriptions.end_further(name)
    window.ended(number)
    return frame(b"UNSUBSCRIBE", [("id", io.wire_id(name)), io.receipt(_no_answer)])


def _no_answer(error: object) -> None:
    """Ignore the answer to an UNSUBSCRIBE. Messages may still arrive: see `Subscriptions.end_further`."""
    del error


# ---- Rabbitmq requeue ------------------------------------------------------------------------------------
# Releases messages on RabbitMQ after UNSUBSCRIBE.
#
# RabbitMQ redelivers no unsettled message before the connection ends. A message of an ended subscription can be
# neither acknowledged nor released, and one that is on the wire is never delivered. For that reason the same id is
# subscribed again, to a topic without producers: unsettled messages can be released under that id, and late ones
# arrive. The second subscription ends when no more of them can arrive (measured on RabbitMQ 3.10.8:
# docs/measured/rabbitmq-stomp.md, "Messages of an ended subscription").

NOWHERE = f"/topic/redelivery.nowhere.{uuid.uuid4().hex}"


def give_back(
    io: FrameWriter, identities: Sequence[str], unsettled: UnsettledDeliveries, forget: Callable[[], None]
) -> None:
    """End the subscriptions of a consumer; release its unsettled messages, and those that still arrive.

    `forget` is called when no more messages of them can arrive.
    """
    ended = b"".join(frame(b"UNSUBSCRIBE", [("id", identity)]) for identity in identities)

    # An error means that the connection ended, which releases all messages.
    def nowhere(error: RedeliveryError | None) -> None:
        if error is None:
            # The broker answers in order: after the next answer, no message of the ended subscription can arrive.
            within = [("transaction", f"nothing-{identities[0]}")]
            asked = frame(b"ABORT", [*within, io.receipt(empty)])
            io.write(_released(unsettled) + frame(b"BEGIN", within) + asked)

    def empty(error: RedeliveryError | None) -> None:
        if error is None:
            forget()
            io.write(_released(unsettled) + ended)

    # All subscriptions end before the first release: RabbitMQ would redeliver the message to one that has not ended.
    again = [
        [("id", identity), ("destination", NOWHERE), ("ack", "client-individual")] for identity in identities
    ]
    again[-1].append(io.receipt(nowhere, address=NOWHERE))
    io.write(ended + b"".join(frame(b"SUBSCRIBE", each) for each in again) + _released(unsettled))


def _released(unsettled: UnsettledDeliveries) -> bytes:
    return b"".join(each.returned() for each in unsettled.end())
