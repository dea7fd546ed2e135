"""`StompAdapter`: writes the seam's commands as STOMP frames."""

from __future__ import annotations

import itertools
import time
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never, cast

from redelivery.adapter import Agreed, Sent, Subscribed
from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.core.commands import (
    Accept,
    Commit,
    Credit,
    Forward,
    ForwardAll,
    Hold,
    PoisonAck,
    Release,
    Reschedule,
    Send,
    Subscribe,
    Unsubscribe,
    outdated,
)
from redelivery.core.dead_lettering.dead_letter_headers import DUPLICATE_ID
from redelivery.core.events import Confirmed
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError, RedeliveryError, TransactionRolledBack
from redelivery_stomp.artemis_questions import ArtemisQuestions
from redelivery_stomp.byte_windows import ByteWindow
from redelivery_stomp.connection import StompConnection, agreed_heartbeats, has_backslash
from redelivery_stomp.copy_connection import CopyConnection
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.even_frames import frame_columns, frame_restorer, frame_wire
from redelivery_stomp.frame_limits import FrameTooLarge, LearnedLimits
from redelivery_stomp.frames import frame
from redelivery_stomp.headers import cannot_send, cannot_subscribe, copy_of, send_headers
from redelivery_stomp.subscribing import begin_further, end_behind, end_idle, give_back, number_of, whole
from redelivery_stomp.transactions import Transaction, aborted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redelivery.adapter import Opening, Restore, Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.core.head_columns import ReadColumns
    from redelivery_stomp.receipts import Answer

__all__ = ["StompAdapter"]


class StompAdapter:
    """One connection at a time to ActiveMQ Classic, Artemis or RabbitMQ. Acknowledgement is always individual."""

    def __init__(self) -> None:
        self._link: StompConnection | None = None
        # Made by the first `open`: what was made before a fork would be every child's.
        self._name = ""
        self._sink: Sink
        self._transactions = itertools.count(1)
        # Dead-letter destinations that accept our messages.
        self._checked: set[str] = set()
        # Destinations on which the broker has refused a consumer's further subscription.
        self._single: set[str] = set()
        # Dead-letter destinations: `SubscribeQueue` says of which.
        self._proven: set[str] = set()
        self._down: set[str] = set()
        self._frames = LearnedLimits()
        # Places of copies of which the last one was not confirmed, and the connection for the next ones.
        self._doubtful: set[str] = set()
        self._apart: CopyConnection[StompConnection] | None = None
        self._questions: ArtemisQuestions | None = None
        # The spelling of backslashes in CONNECT that this broker took last.
        self._doubled = False

    def open(self, opening: Opening, sink: Sink) -> Capabilities:
        """Connect to one address; see `redelivery.adapter.Adapter.open`."""
        old, self._link = self._link, None
        if old is not None:
            old.abandon()
        self._end_apart()
        self._sink = sink
        self._name = self._name or uuid.uuid4().hex
        link = self._link = self._logged_in(opening, sink)
        self._apart = CopyConnection(opening, self._logged_in)
        if link.able.tells_dead_letters:
            self._questions = link.turns.questions = ArtemisQuestions(opening, self._logged_in, link.able)
            # The check makes missing queues: their lists are read after it.
            self._checked.clear()
        return link.able

    def _end_apart(self) -> None:
        """End the connections beside the consumers' one."""
        questions, self._questions = self._questions, None
        if questions is not None:
            questions.end()
        if self._apart is not None:
            self._apart.end()

    def _logged_in(self, opening: Opening, sink: Sink) -> StompConnection:
        """Return a connection. A log-in with a backslash that the broker turns away is tried in the other spelling."""
        again = has_backslash(opening.settings)
        while True:
            link = StompConnection(opening, sink)
            link.turns.single, link.turns.proven, link.turns.down = self._single, self._proven, self._down
            try:
                link.open(doubled=self._doubled)
            except RedeliveryError:
                if not again or not link.turned_away:
                    raise
            else:
                return link
            again, self._doubled = False, not self._doubled

    def agreed(self) -> Agreed | None:
        """Return the protocol version and heart-beats of the open connection; see `redelivery.adapter.Agreeing`."""
        link = self._link
        return (
            None
            if link is None
            else Agreed(f"STOMP {link.version}", *agreed_heartbeats(link.transport.heartbeats))
        )

    def silence(self) -> float | None:
        """Return the seconds since a byte arrived from the broker; see `redelivery.adapter.Hearing`."""
        link = self._link
        return None if link is None else time.monotonic() - link.transport.heard

    def wire(self, destination: str) -> Mapping[str, str] | None:
        """Return how a MESSAGE of the open connection is read; see `redelivery.adapter.Restoring`."""
        link = self._link
        return (
            None if link is None else frame_wire(link.profile.capabilities.broker, link.version, destination)
        )

    def restorer(self, wire: Mapping[str, str], /) -> Restore:
        """Return the function that makes deliveries; see `redelivery.adapter.Restoring.restorer`."""
        return frame_restorer(wire)

    def column_reader(self, wire: Mapping[str, str], /) -> ReadColumns:
        """Return the function that reads header blocks at once; see `redelivery.core.head_columns.ColumnReading`."""
        return frame_columns(wire)

    def execute(self, commands: Sequence[AdapterCommand]) -> None:
        """Write commands as frames. One write carries all frames of a call that need no answer."""
        link = self._link
        if link is not None and not outdated(commands, link.epoch):
            # Ctrl-C behind a partial write would leave half a frame: the next one would be read as its body.
            with Uninterrupted(), link.order:
                self._execute(link, commands)

    def _execute(  # noqa: C901, PLR0912 - the table of commands
        self, link: StompConnection, commands: Sequence[AdapterCommand]
    ) -> None:
        frames: list[bytes] = []
        for command in commands:
            match command:
                case Accept():
                    self._accept(link, command.deliveries, frames)
                case PoisonAck():
                    self._poison(link, command)
                case Forward():
                    self._forward(link, command)
                case Reschedule():
                    raise AssertionError("no profile here holds a message back itself")
                case ForwardAll():
                    raise AssertionError("no profile here forwards atomically")
                case Send():
                    self._send(link, command)
                case Commit():
                    self._commit(link, command)
                case Subscribe():
                    self._subscribe(link, command)
                case Hold():
                    self._hold(link, command)
                case Unsubscribe():
                    self._unsubscribe(link, command, frames)
                case Release():
                    self._release(link, command, frames)
                case Credit():
                    self._grow(link, command, frames)
                case _:
                    assert_never(command)
        if data := b"".join(frames):
            link.write(data)

    def close(self, timeout: float) -> bool:
        """Disconnect and close; see `redelivery.adapter.Adapter.close`."""
        self._end_apart()
        link, self._link = self._link, None
        return link is not None and link.close(timeout)

    def _accept(self, link: StompConnection, deliveries: Sequence[Delivery], frames: list[bytes]) -> None:
        epoch = link.epoch
        own = [
            d for d in cast("Sequence[StompDelivery]", deliveries) if d.epoch == epoch and not d.source.ended
        ]
        link.accepted(own)
        _settled(own)
        if own:
            frames += [_acknowledgements(link, own), end_behind(link, own)]

    def _release(self, link: StompConnection, command: Release, frames: list[bytes]) -> None:
        own = [own for each in command.deliveries if (own := _own(link, each)) is not None]
        _settled(own)
        frames += [each.returned() for each in own]

    def _unsubscribe(self, link: StompConnection, command: Unsubscribe, frames: list[bytes]) -> None:
        ended = link.subscriptions.end(command.consumer)
        identities = [link.wire_id(name) for name in ended]
        unsettled = next((each.unsettled for each in ended.values()), None)
        if unsettled is None:
            frames += [frame(b"UNSUBSCRIBE", [("id", identity)]) for identity in identities]
        else:
            give_back(link, identities, unsettled, partial(link.subscriptions.forget, list(ended)))

    def _poison(self, link: StompConnection, command: PoisonAck) -> None:
        delivery = _own(link, command.delivery)
        if delivery is None:
            return
        _settled((delivery,))
        _, receipt = link.receipt(self._confirmation(link, delivery))
        data = b"%breceipt:%b\n\n\0" % (delivery.poisoned(), receipt.encode())
        link.write(data + end_behind(link, [delivery]))

    def _forward(self, link: StompConnection, command: Forward) -> None:
        delivery = _own(link, command.delivery)
        if delivery is None:
            return
        questions, place = self._questions, command.copy.destination
        if questions is None or command.back or not questions.unknown(place):
            self._copy(link, command, delivery)
            return

        def looked(*, tried: bool) -> None:
            with link.order:
                if _own(link, delivery) is None:
                    return
                if tried or self._apart is None or not self._drops(link, command, delivery):
                    self._copy(link, command, delivery)
                else:
                    self._apart.send(partial(self._try_out, place), made)

        def made(error: RedeliveryError | None) -> None:
            if error is None:
                questions.look((place,), partial(looked, tried=True), again=True)
            else:
                self._confirmed(delivery, error)

        # A queue may be gone, or have a filter by now: over STOMP Artemis confirms what it then drops.
        questions.look((place,), partial(looked, tried=False))

    def _try_out(self, place: str, link: StompConnection, answer: Answer) -> None:
        """Ask if a message may be sent to a place, by a SEND that is aborted: the broker may make a queue for it."""
        empty = Outgoing(place, b"")
        receipt = link.receipt(answer, address=link.profile.target(empty))
        link.write(aborted(link.profile, self._transaction(link), empty, receipt, None))

    def _copy(self, link: StompConnection, command: Forward, delivery: StompDelivery) -> None:
        if why := self._drops(link, command, delivery):
            self._confirmed(delivery, AdapterError(why))
            return
        copy = self._addressed(copy_of(link.profile, command), command)
        headers = list(send_headers(link.profile, copy, dead_letter=not command.back))
        place, doubtful = link.profile.target(copy), self._doubtful
        if command.copy.destination in self._down:
            doubtful.add(place)

        def answer(error: RedeliveryError | None) -> None:
            (doubtful.discard if error is None else doubtful.add)(place)
            if error is None:
                self._down.discard(command.copy.destination)
            # A refusal is about the copy's destination: the engine sends it again, later each time; no consumer stops.
            self._confirmed(delivery, error)

        # One that was not confirmed may be the cause itself: too large, or one that its place refuses.
        tried = delivery.record is not None and delivery.record.tries > 1
        if self._apart is not None and link.profile.closes and (tried or place in doubtful):
            self._apart.send(lambda other, done: self._write_copy(other, copy, headers, done), answer)
        else:
            self._write_copy(link, copy, headers, answer)

    def _drops(self, link: StompConnection, command: Forward, delivery: StompDelivery) -> str:
        """Return why the place of a copy would drop it; empty: it does not, or this is not known."""
        if self._questions is None:
            return ""
        return self._questions.drops(command, link.profile.address(delivery.destination))

    def _write_copy(
        self, link: StompConnection, copy: Outgoing, headers: list[tuple[str, object]], answer: Answer
    ) -> None:
        """Write a copy; if it has an id, behind a SEND without one that is aborted.

        Artemis (2.40.0) keeps the id of a message that it refuses because its queue is not there, and would confirm and
        drop the next one with that id. The SEND before it is refused instead, and ends the connection.
        """
        if not any(name == DUPLICATE_ID for name, _ in headers):
            self._write_send(link, copy, headers, answer)
            return
        answered = False

        def once(error: RedeliveryError | None) -> None:
            nonlocal answered
            if not answered:
                answered = True
                answer(error)

        def tried(error: RedeliveryError | None) -> None:
            if error is not None:
                once(error)

        self._try_out(copy.destination, link, tried)
        self._write_send(link, copy, headers, once)

    def _addressed(self, copy: Outgoing, command: Forward) -> Outgoing:
        """Return a copy with the name that reaches its place alone, where the address of the place has more queues."""
        if command.back or self._questions is None:
            return copy
        return replace(copy, destination=self._questions.alone(copy.destination))

    def _write_send(
        self, link: StompConnection, message: Outgoing, headers: Iterable[tuple[str, object]], answer: Answer
    ) -> None:
        receipt = link.receipt(answer, address=link.profile.target(message))
        data = frame(b"SEND", [*headers, receipt], message.body)
        wrong = self._frames.check(link, receipt, data)
        if wrong is None:
            link.write(data)
        elif link.receipts.take(receipt[1]) is not None:
            # If the receipt is gone, the connection was lost meanwhile, and the loss was the answer.
            answer(wrong)

    def _transaction(self, link: StompConnection) -> str:
        return f"t{link.epoch}-{next(self._transactions)}"

    def _confirmation(self, link: StompConnection, delivery: StompDelivery) -> Any:
        def answer(error: RedeliveryError | None) -> None:
            if isinstance(error, AdapterError):
                # The broker refused the acknowledgement; a lost connection accuses no message.
                link.disconnect_cause.refused(delivery, takes_back=link.profile.takes_back)
            self._confirmed(delivery, error)

        return answer

    def _confirmed(self, delivery: StompDelivery, error: RedeliveryError | None) -> None:
        self._sink(Confirmed(delivery, error, final=isinstance(error, FrameTooLarge)))

    def _send(self, link: StompConnection, command: Send) -> None:
        message = command.message
        wrong = cannot_send(link.profile, message)
        if wrong is not None:
            self._sink(Sent(command.token, AdapterError(wrong)))
            return
        headers = send_headers(link.profile, message)
        self._write_send(link, message, headers, lambda error: self._sink(Sent(command.token, error)))

    def _commit(self, link: StompConnection, command: Commit) -> None:
        own = [found for each in command.deliveries if (found := _own(link, each)) is not None]
        wrong = next((wrong for each in command.messages if (wrong := cannot_send(link.profile, each))), None)
        error: RedeliveryError | None = None if wrong is None else AdapterError(wrong)
        if len(own) < len(command.deliveries):
            error = TransactionRolledBack(
                "the transaction was rolled back: the connection of one of its messages is gone"
            )
        if error is not None:
            self._sink(Sent(command.token, error))
            return

        def answer(error: RedeliveryError | None) -> None:
            if error is None:
                _settled(own)
                _end_behind(link, own)
            self._sink(Sent(command.token, error))

        link.accepted(own)
        Transaction(link, self._transaction(link), answer).begin(command.messages, own, self._frames)

    def _subscribe(self, link: StompConnection, command: Subscribe) -> None:
        known = link.subscriptions.of_consumer(command.consumer)
        if known is not None and not known.ended:
            # A second subscription with the same id would stay after the UNSUBSCRIBE of the first. One that was refused
            # is asked for again.
            return
        if (wrong := cannot_subscribe(link.profile, command)) is not None:
            self._sink(Subscribed(command.consumer, AdapterError(wrong)))
        else:
            single = command.destination in self._single
            asked = whole(command) if single else command
            subscription = Subscription(asked, link.epoch, link.profile, link.version, self._name)
            if single:
                subscription.window = None
            link.proof.browses |= command.browse
            link.turns.begin(subscription, self._sink, self._checked)

    def _hold(self, link: StompConnection, command: Hold) -> None:
        delivery = _own(link, command.delivery)
        if delivery is None:
            return
        source = delivery.source
        if isinstance(source.window, ByteWindow):
            source.window.parks(delivery, number_of(link, delivery))
            begin_further(link, source)

    def _grow(self, link: StompConnection, command: Credit, frames: list[bytes]) -> None:
        source = link.subscriptions.of_consumer(command.consumer)
        if source is not None and source.window is not None and link.profile.grows(source.command):
            grow = source.window.grow_for_good if command.widens else source.window.grow
            grow(command.messages)
            begin_further(link, source)
            frames.append(end_idle(link, source))


def _end_behind(link: StompConnection, own: Iterable[StompDelivery]) -> None:
    """End the subscriptions that are not needed after these messages were settled. Takes `order`."""
    sources: dict[Subscription, list[StompDelivery]] = {}
    for delivery in own:
        sources.setdefault(delivery.source, []).append(delivery)
    with link.order:
        live = [each for source, each in sources.items() if not source.ended]
        if data := b"".join([end_behind(link, each) for each in live]):
            link.write(data)


def _own(link: StompConnection, delivery: Delivery) -> StompDelivery | None:
    """Return the delivery if it can be settled: it arrived on this connection, and its consumer has not ended.

    A delivery that no frame can name ends the connection.
    """
    if delivery.epoch != link.epoch or not isinstance(delivery, StompDelivery) or delivery.source.ended:
        return None
    return delivery if _named(link, delivery) else None


def _acknowledgements(link: StompConnection, own: Sequence[StompDelivery]) -> bytes:
    """Return an ACK for each delivery. A delivery that no frame can name ends the connection."""
    if link.version == "1.2":
        # The hot path, written inline: `StompDelivery.settlement` returns the same for one delivery.
        handle = link.profile.handle
        skip = len(handle)
        acks: list[bytes] = []
        for delivery in own:
            head = delivery.head
            at = head.find(handle)
            if at < 0:
                break
            end = head.find(b"\n", at + skip)
            acks.append(b"ACK\nid:%b\n\n\0" % (head[at + skip : end] if end >= 0 else head[at + skip :]))
        frames = b"".join(acks)
        if len(acks) == len(own) == frames.count(b"\0") and b"\r" not in frames and b"\nid:\n" not in frames:
            return frames
    named = [delivery for delivery in own if _named(link, delivery)]
    return b"".join([b"%b\n\0" % delivery.settlement(b"ACK") for delivery in named])


def _named(link: StompConnection, delivery: StompDelivery) -> bool:
    if delivery.nameable:
        return True
    link.give_up(delivery)
    return False


def _settled(deliveries: Sequence[StompDelivery]) -> None:
    """Remove these from the unsettled deliveries, on a broker that needs them for a release."""
    unsettled = deliveries[0].source.unsettled if deliveries else None
    if unsettled is not None:
        unsettled.settled(deliveries)
