"""A message over which each connection ends stops its consumer and is named in the error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import ScriptedPeer, proton

import redelivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.amqp.peer import Conversation

    Ending = Callable[[Conversation], None]

LONG = 30.0  # seconds until a message must have arrived


def message(name: str) -> bytes:
    """Return a message with an id, which the broker has delivered before."""
    return bytes(proton.Message(name, id=name, creation_time=1.0, durable=True, delivery_count=1).encode())


def breaking(ending: Ending, times: int = 1000) -> Callable[[Conversation, Any], None]:
    """Return a script that sends each queue one message, and ends `times` connections after the one for `bad`."""
    left = [times]

    def script(conversation: Conversation, link: Any) -> None:
        name = str(link.source.address)
        conversation.send(link, message(name))
        if name == "bad" and left[0] > 0:
            left[0] -= 1
            ending(conversation)

    return script


def refused(conversation: Conversation) -> None:
    conversation.refuse("amqp:internal-error")


def garbled(conversation: Conversation) -> None:
    conversation.raw(b"\x7f\0\0\0\2\0\0\0a frame larger than we have said that we take")


def receive_until_it_stops(consumer: redelivery.Consumer) -> redelivery.AdapterError:
    """Receive messages, unsettled, until the consumer ends."""
    try:
        while consumer.receive(timeout=LONG) is not None:
            pass
    except redelivery.AdapterError as error:
        return error
    raise AssertionError("it did not stop")


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (refused, ("3 times", "(queue://bad: bad: 1000)", "says the broker")),
        (garbled, ("3 times", "cannot be decoded, from queue://bad")),
    ],
)
def test_three_ends_over_one_message_stop_its_consumer(ending: Ending, words: tuple[str, ...]) -> None:
    """Three ends right after one message, by an error or undecodable bytes, stop its consumer."""
    with ScriptedPeer(breaking(ending)) as peer, redelivery.connect(peer.uri) as connection:
        error = receive_until_it_stops(connection.consumer("bad"))
    for word in words:
        assert word in str(error)


def test_only_the_consumer_of_that_message_stops() -> None:
    """Only the consumer of that message stops; another one on the same connection goes on."""
    with ScriptedPeer(breaking(refused)) as peer, redelivery.connect(peer.uri) as connection:
        bad = connection.consumer("bad")
        error = receive_until_it_stops(bad)
        assert "(queue://bad: bad: 1000)" in str(error)
        good = connection.consumer("good").receive(timeout=LONG)
        assert good is not None
        assert good.text == "good"


@pytest.mark.parametrize(
    "ending",
    [
        lambda conversation: conversation.cut(),
        lambda conversation: conversation.refuse("amqp:connection:forced"),
    ],
    ids=["cut", "forced"],
)
def test_a_link_that_is_cut_or_a_broker_that_stops_accuses_no_message(ending: Ending) -> None:
    """A cut link, or a broker that stops, names no message: after five ends it is received and accepted."""
    with ScriptedPeer(breaking(ending, times=5)) as peer, redelivery.connect(peer.uri) as connection:
        handled: list[str] = []

        def settle(message: redelivery.Message) -> None:
            if peer.connections > 5:
                handled.append(message.text)
                connection.stop()
            else:
                raise redelivery.Defer(0.05)

        connection.listen("bad", settle)
        connection.run()
        assert handled == ["bad"]


def test_messages_without_an_id_are_told_apart() -> None:
    """Messages without an id have different names in errors if their bodies differ."""
    from redelivery_amqp.disconnect_cause import _digest  # noqa: PLC0415 - only where proton is installed

    assert _digest(b"a") == _digest(b"a") != _digest(b"b")
