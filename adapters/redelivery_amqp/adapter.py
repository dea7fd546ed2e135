"""`AmqpAdapter`: carries out the commands of the seam over AMQP 1.0."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never, cast

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
from redelivery.core.dead_lettering.artemis_management import after_all
from redelivery.core.events import Confirmed
from redelivery.errors import AdapterError, TransactionRolledBack
from redelivery_amqp.connection import AmqpConnection
from redelivery_amqp.consumer_start import ConsumerStart, cannot_subscribe
from redelivery_amqp.delivery import AmqpDelivery
from redelivery_amqp.io_thread import ACCEPTED, RELEASED
from redelivery_amqp.message_copies import copied
from redelivery_amqp.message_encoding import encoded
from redelivery_amqp.notes import notes_of
from redelivery_amqp.sender import Transfer, judged, unheard
from redelivery_amqp.stored_sections import section_restorer, section_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redelivery.adapter import Opening, Restore, Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.sender import Outcome, SenderLink

__all__ = ["AmqpAdapter"]


class AmqpAdapter:
    """Adapter for any of the four brokers; it has one connection at a time."""

    def __init__(self) -> None:
        self._link: AmqpConnection | None = None
        # Dead-letter destinations that took messages once.
        self._proven: set[str] = set()
        self._sink: Sink

    def open(self, opening: Opening, sink: Sink) -> Capabilities:
        """Connect to one address; see `redelivery.adapter.Adapter.open`."""
        old, self._link = self._link, None
        if old is not None:
            old.abandon()
        self._sink = sink
        link = AmqpConnection(opening, sink, apart=old is not None and old.undelivered)
        link.open()
        link.links.proven = self._proven
        self._link = link
        return replace(link.profile.capabilities, version=link.version)

    def agreed(self) -> Agreed | None:
        """Return the protocol and heart-beats of the open connection; see `redelivery.adapter.Agreeing`."""
        link = self._link
        return None if link is None else Agreed("AMQP 1.0", *link.heartbeats)

    def silence(self) -> float | None:
        """Return the seconds since a byte arrived from the broker; see `redelivery.adapter.Hearing`."""
        link = self._link
        return None if link is None else link.silence()

    def wire(self, destination: str) -> Mapping[str, str] | None:
        """Return what `restorer` needs for messages of the open connection; see `redelivery.adapter.Restoring`."""
        link = self._link
        return (
            None
            if link is None
            else section_wire(link.profile.capabilities.broker, link.version, destination)
        )

    def restorer(self, wire: Mapping[str, str], /) -> Restore:
        """Return a function that restores deliveries; see `redelivery.adapter.Restoring.restorer`."""
        return section_restorer(wire)

    def execute(self, commands: Sequence[AdapterCommand]) -> None:
        """Carry out commands in order, and write their frames at once."""
        link = self._link
        if link is None or outdated(commands, link.epoch):
            return
        # Ctrl-C between two calls of proton would leave a delivery settled whose handle is kept.
        with Uninterrupted(), link.wire.lock:
            if link.over:
                return
            for command in commands:
                self._carry_out(link, command)
            link.flush()

    def close(self, timeout: float) -> bool:
        """Detach the links and close the connection; see `redelivery.adapter.Adapter.close`."""
        link, self._link = self._link, None
        return link is not None and link.close(timeout)

    def _carry_out(  # noqa: C901, PLR0912 - it is the table of commands
        self, link: AmqpConnection, command: AdapterCommand
    ) -> None:
        match command:
            case Accept():
                link.links.settlements.settle(cast("Sequence[AmqpDelivery]", command.deliveries), ACCEPTED)
            case Release():
                link.links.settlements.settle(cast("Sequence[AmqpDelivery]", command.deliveries), RELEASED)
            case Reschedule():
                link.links.settlements.reschedule(
                    cast("AmqpDelivery", command.delivery), command.due, command.notes
                )
            case Credit():
                link.links.flow(command.consumer, command.messages)
            case PoisonAck():
                self._poison(link, command)
            case Forward():
                self._forward(link, command)
            case ForwardAll():
                self._forward_all(link, command.forwards)
            case Send():
                self._send(link, command)
            case Commit():
                self._commit(link, command)
            case Subscribe():
                self._subscribe(link, command)
            case Unsubscribe():
                link.links.detach(command.consumer)
            case Hold():
                # Nothing to do: credit counts messages, as the engine does, and there is no window in bytes.
                pass
            case _:
                assert_never(command)

    def _poison(self, link: AmqpConnection, command: PoisonAck) -> None:
        delivery = _own(link, command.delivery)
        if delivery is None:
            return
        link.links.reject(delivery, notes_of(command), self._confirmation(link, delivery))

    def _forward(self, link: AmqpConnection, command: Forward) -> None:
        if command.atomic(link.profile.capabilities):
            self._forward_all(link, (command,))
            return
        delivery = _own(link, command.delivery)
        if delivery is None:
            return
        answer = self._confirmation(link, delivery)
        copy = copied(command, delivery, link.profile, link.wall_clock())
        beside = delivery.source.command
        sender = link.links.senders.to(_target(link, command), dead=not command.back, beside=beside)

        def send(error: RedeliveryError | None) -> None:
            if error is None:
                sender.send(copy, lambda outcome: answer(judged(outcome, sender.where, link.wire.masked)))
            else:
                answer(error)

        link.links.when_settled(delivery.source, send)

    def _forward_all(self, link: AmqpConnection, commands: Sequence[Forward]) -> None:
        """Send copies in one transaction, once the queues of their places are known where the broker lists them."""
        questions, unknown = link.links.questions, list[str]()
        if link.links.asks:
            named = dict.fromkeys(each.copy.destination for each in commands if not each.back)
            now = time.monotonic()
            unknown = [place for place in named if questions.known.unknown(place, now)]
        if not unknown:
            self._transact(link, commands)
            return

        def looked(error: RedeliveryError | None) -> None:
            if error is None:
                self._transact(link, commands)

        # A queue may have got a filter by now: Artemis confirms what it then drops.
        each_looked = after_all(len(unknown), looked)
        for place in unknown:
            questions.look(place, each_looked)

    def _transact(self, link: AmqpConnection, commands: Sequence[Forward]) -> None:
        own: dict[AmqpDelivery, Forward] = {}
        for each in commands:
            if (found := _own(link, each.delivery)) is None:
                continue
            if why := _drops(link, each, found):
                self._confirmation(link, found)(AdapterError(why))
            else:
                own[found] = each
        if not own:
            return
        answers, now = [self._confirmation(link, delivery) for delivery in own], link.wall_clock()

        def answer(error: RedeliveryError | None) -> None:
            for each in answers:
                each(error)

        copies = [
            (link.links.senders.to(_target(link, each)), copied(each, delivery, link.profile, now))
            for delivery, each in own.items()
        ]
        _transfer(link, copies, list(own), answer)

    def _confirmation(
        self, link: AmqpConnection, delivery: AmqpDelivery
    ) -> Callable[[RedeliveryError | None], None]:
        sink = self._sink
        return lambda error: link.later(lambda: sink(Confirmed(delivery, error)))

    def _commit(self, link: AmqpConnection, command: Commit) -> None:
        sink, token = self._sink, command.token

        def answer(error: RedeliveryError | None) -> None:
            link.later(lambda: sink(Sent(token, error)))

        own = [found for each in command.deliveries if (found := _own(link, each)) is not None]
        if len(own) < len(command.deliveries):
            answer(
                TransactionRolledBack(
                    "the transaction was rolled back: the connection of one of its messages is gone"
                )
            )
            return
        wrong = next((wrong for each in command.messages if (wrong := _cannot_send(link, each))), None)
        if wrong is not None:
            answer(AdapterError(wrong))
            return
        now = link.wall_clock()
        messages = [
            (link.links.senders.to(each.destination), encoded(each, link.profile, now))
            for each in command.messages
        ]
        _transfer(link, messages, own, answer)

    def _send(self, link: AmqpConnection, command: Send) -> None:
        sink, message, token = self._sink, command.message, command.token
        wrong = _cannot_send(link, message)
        if wrong is not None:
            link.later(lambda: sink(Sent(token, AdapterError(wrong))))
            return
        sender = link.links.senders.to(message.destination)

        def outcome(delivery: Outcome) -> None:
            # Read the outcome here: proton drops it after this call.
            dropped = link.profile.declares and unheard(delivery, message.destination)
            error = None if dropped else judged(delivery, sender.where, link.wire.masked)
            link.later(lambda: sink(Sent(token, error)))

        sender.send(encoded(message, link.profile, link.wall_clock()), outcome)

    def _subscribe(self, link: AmqpConnection, command: Subscribe) -> None:
        sink, consumer = self._sink, command.consumer
        if link.links.knows(consumer):
            # A second link would stay attached after the consumer's end.
            return

        def answer(error: RedeliveryError | None) -> None:
            able = None if error is not None else link.links.capabilities_of(consumer)
            if (
                error is None
                and link.links.asks
                and (said := link.links.questions.known.caution(command.dead_letters))
            ):
                able = replace(able or link.profile.capabilities, caution=said)
            able = None if able is None else replace(able, version=link.version)
            link.later(lambda: sink(Subscribed(consumer, error, able)))

        wrong = cannot_subscribe(command, link.profile)
        if wrong is not None:
            answer(AdapterError(wrong))
        else:
            ConsumerStart(link.links, link.links.add(command, answer)).begin()


def _target(link: AmqpConnection, command: Forward) -> str:
    """Return the destination of the link for a copy."""
    place = command.copy.destination
    return place if command.back else link.links.alone_name(place)


def _drops(link: AmqpConnection, command: Forward, delivery: AmqpDelivery) -> str:
    """Return why the place of a copy would drop it; empty: it does not, or this is not known."""
    if not link.links.asks:
        return ""
    source = link.profile.address(delivery.destination)
    return link.links.questions.known.drops(command, source, refused=True)


def _cannot_send(link: AmqpConnection, message: Outgoing) -> str | None:
    """Return why the broker cannot take a message; None: it can."""
    if message.delay is not None and link.profile.delay is None:
        return f"{link.profile.capabilities.broker} has no delayed messages over AMQP 1.0"
    if message.reply_to is not None and (wrong := link.profile.problem(message.reply_to)) is not None:
        return wrong
    return link.profile.problem(message.destination)


def _transfer(
    link: AmqpConnection,
    messages: Sequence[tuple[SenderLink, bytes]],
    deliveries: Sequence[AmqpDelivery],
    answer: Callable[[RedeliveryError | None], None],
) -> None:
    Transfer(link.wire, link.links.senders.to(None), messages, deliveries, answer, link.give_up).begin()


def _own(link: AmqpConnection, delivery: Delivery) -> AmqpDelivery | None:
    """Return the delivery if it came on this connection and can still be settled."""
    if delivery.epoch != link.epoch or not isinstance(delivery, AmqpDelivery):
        return None
    return None if delivery.handle is None or delivery.source.ended else delivery
