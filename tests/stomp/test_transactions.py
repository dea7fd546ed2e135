"""A transaction whose consumer ends before the last answer, or of which a part is refused."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery.core.commands import Subscribe
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError, RedeliveryError
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.disconnect_cause import StompDisconnectCause
from redelivery_stomp.frame_limits import LearnedLimits
from redelivery_stomp.profiles import StompClassic
from redelivery_stomp.receipts import Receipts
from redelivery_stomp.transactions import Transaction

if TYPE_CHECKING:
    from redelivery_stomp.profile_base import StompProfile
    from redelivery_stomp.receipts import Answer


class FakeIo:
    """A `StompIo` that keeps the written bytes and the callbacks of the receipts."""

    def __init__(self) -> None:
        self.profile: StompProfile = StompClassic(None)
        self.order = threading.Lock()
        self.written: list[bytes] = []
        self.waiting: list[Answer] = []
        self.losses: list[str] = []
        self.epoch = 1
        self.receipts = Receipts("TOKEN")
        self.disconnect_cause = StompDisconnectCause()

    def write(self, data: bytes) -> None:
        self.written += [each.split(b"\n")[0] for each in data.split(b"\0") if each.strip()]

    def receipt(self, answer: Answer, kind: str = "r", address: str = "") -> tuple[str, str]:
        self.waiting.append(answer)
        return "receipt", str(len(self.waiting))

    def lost(self, reason: str, *, by_broker: bool = True) -> None:
        assert not by_broker
        self.losses.append(reason)

    def answer_all(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each(None)


def test_nothing_is_committed_for_a_consumer_that_has_ended() -> None:
    """No COMMIT follows the end of the consumer: its messages are released, and would be handled twice."""
    for ended, last in ((False, b"COMMIT"), (True, b"ABORT")):
        io = FakeIo()
        answers: list[RedeliveryError | None] = []
        source = Subscription(Subscribe(1, "queue://q", 10), 1, io.profile, "1.2")
        delivery = StompDelivery(source, b"MESSAGE\nmessage-id:1\nack:1", b"")
        Transaction(io, "t", answers.append).begin(
            [Outgoing("queue://out", b"")], [delivery], LearnedLimits()
        )
        assert io.written == [b"BEGIN", b"SEND", b"ACK"]
        source.ended = ended
        io.answer_all()
        assert io.written[-1] == last
        assert answers == []
        io.answer_all()
        assert [type(each) for each in answers] == [AdapterError if ended else type(None)]
        assert io.losses == []


def test_nothing_is_committed_after_a_refusal() -> None:
    """A transaction with a refused frame is aborted; its result, after that answer, is the first error."""
    for refused in (0, 1):
        io = FakeIo()
        answers: list[RedeliveryError | None] = []
        error = AdapterError("the queue is full")
        Transaction(io, "t", answers.append).begin(
            [Outgoing("queue://out", b""), Outgoing("queue://out", b"")], [], LearnedLimits()
        )
        waiting, io.waiting = io.waiting, []
        for number, answer in enumerate(waiting):
            answer(error if number == refused else None)
        assert io.written == [b"BEGIN", b"SEND", b"SEND", b"ABORT"]
        assert answers == []
        io.answer_all()
        assert answers == [error]
