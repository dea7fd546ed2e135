"""Incoming messages in parts: they leave proton as they arrive, and the session's window bounds what is on its way."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.amqp.peer import proton
from tests.amqp.test_credit import Ends

from redelivery.core.commands import Subscribe
from redelivery_amqp.io_thread import ProtonEngine
from redelivery_amqp.profiles import AmqpArtemis
from redelivery_amqp.receiver import FRAME, ReceiverLink

MIB = 1024 * 1024


class Consumer(Ends):
    """A link with credit whose incoming messages are taken by the engine under test."""

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self.begun = bytearray()
        self.wire = ProtonEngine(proton.Connection(), proton.Transport())
        self.sent = 0
        self.flow(1000)
        self.carry()

    def put(self, body: bytes, *, ends: bool = True) -> Any:
        """Send a message, or the first part of one."""
        self.sent += 1
        delivery = self.sender.delivery(f"{self.sent}")
        self.sender.send(body)
        if ends:
            self.sender.advance()
        return delivery

    def take(self) -> list[bytes]:
        found = self.wire.take(self.receiver._impl, self.begun)
        return [data for data, _ in found]

    def waiting(self) -> int:
        """Return the bytes that proton keeps for the consumer."""
        current = self.receiver.current
        return 0 if current is None else int(current.pending)


def test_a_part_leaves_proton_before_the_message_is_complete() -> None:
    """The part of a message that has arrived is taken at once; the message is whole, and so is the next one."""
    link = Consumer(MIB)
    link.put(b"a" * 100_000, ends=False)
    link.carry()
    assert link.take() == []
    assert (link.waiting(), bytes(link.begun)) == (0, b"a" * 100_000)
    link.sender.send(b"b" * 70_000)
    link.sender.advance()
    link.put(b"c")
    link.carry()
    assert link.take() == [b"a" * 100_000 + b"b" * 70_000, b"c"]
    assert link.begun == b""


def test_nothing_is_left_of_a_message_that_the_broker_breaks_off() -> None:
    """An aborted message leaves nothing: the next one begins with its own bytes."""
    link = Consumer(MIB)
    broken = link.put(b"a" * 100_000, ends=False)
    link.carry()
    assert link.take() == []
    broken.abort()
    link.put(b"b")
    link.carry()
    assert link.take() == [b"b"]
    assert link.begun == b""


def test_a_message_larger_than_the_window_arrives() -> None:
    """A message larger than the session's window becomes complete: its parts make room for the next ones."""
    link = Consumer(4 * FRAME)
    link.put(b"x" * 40 * FRAME)
    found: list[bytes] = []
    for _ in range(100):
        link.carry()
        found += link.take()
    assert [len(each) for each in found] == [40 * FRAME]


def test_the_window_bounds_what_is_not_taken() -> None:
    """The broker sends no more than the window while nothing is taken, whatever its credit; then the rest."""
    link, found = Consumer(8 * FRAME), 0
    for _ in range(20):
        link.put(bytes(3 * FRAME))
    link.carry()
    found += len(link.take())
    assert found == 2
    for _ in range(100):
        link.carry()
        found += len(link.take())
    assert found == 20


def test_small_messages_do_not_wait_for_the_window() -> None:
    """Small messages, each of which counts as a frame, all arrive while none is taken."""
    link = Consumer(8 * FRAME)
    for _ in range(100):
        link.put(b"x")
    link.carry()
    assert len(link.take()) == 100


@pytest.mark.parametrize(
    ("window", "most", "expected"),
    [(4, 1000, 2000 * FRAME), (4, 0, 64 * MIB), (20_000, 0, 40_000 * FRAME)],
)
def test_a_session_has_a_window(window: int, most: int, expected: int) -> None:
    """The window is 64 MiB, or twice the credit in frames: small messages never wait for it."""
    expected = max(expected, 64 * MIB)
    command = Subscribe(1, "queue://orders", window, most=most)
    link = ReceiverLink(command, 1, AmqpArtemis(), lambda _: None)
    link.attach(cast("Any", proton.Connection()), "orders")
    assert link.session.incoming_capacity == expected
