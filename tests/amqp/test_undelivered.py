"""RabbitMQ 4 closes the connection over a message that it cannot deliver: the consumer of its queue stops."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import proton
from tests.amqp.test_declarations import Node
from tests.amqp.test_disconnect_cause import LONG, message, receive_until_it_stops

import redelivery
from redelivery_amqp import disconnect_cause, link_registry
from redelivery_amqp.disconnect_cause import AmqpDisconnectCause
from redelivery_amqp.link_registry import CreditTurns, LinkRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.amqp.peer import Conversation

    Ending = Callable[[Conversation, Any], None]


def closes(conversation: Conversation, _: Any) -> None:
    conversation.refuse("amqp:internal-error")


def ends_session(_: Conversation, link: Any) -> None:
    link.session.condition = proton.Condition(
        "amqp:internal-error", "Session error: function_clause\n[{mc_amqpl"
    )
    link.session.close()


def restarts(conversation: Conversation, _: Any) -> None:
    conversation.refuse("amqp:connection:forced")


def stops(conversation: Conversation, _: Any) -> None:
    text = "Connection forced: \"broker forced connection closure with reason 'shutdown'\""
    conversation.refuse("amqp:internal-error", text)


class Broken(Node):
    """A node that delivers a good message first, and ends `times` connections after the credit for the queue `bad`."""

    def __init__(self, ending: Ending, times: int = 1000) -> None:
        self._ending, self._left = ending, times
        super().__init__(bad={}, good={})

    def _consumed(self, conversation: Conversation, link: Any) -> None:
        super()._consumed(conversation, link)
        address = str(link.source.address)
        if address in ("/queues/bad", "/queues/good"):
            conversation.send(link, message(address))
        if address == "/queues/bad" and self._left > 0:
            self._left -= 1
            self._ending(conversation, link)


@pytest.mark.parametrize("ending", [closes, ends_session])
def test_three_ends_right_after_credit_name_the_queue(ending: Ending) -> None:
    """Three ends right after credit stop the consumer, name its queue and the cure, and accuse no delivered message."""
    with Broken(ending) as peer, redelivery.connect(peer.uri) as connection:
        error = str(receive_until_it_stops(connection.consumer("bad")))
    assert error.startswith(
        "the broker ended the consumer of queue://bad 3 times, each within 60 s of the one before: "
    )
    assert "No message that was delivered is the cause" in error
    assert "over STOMP" in error
    assert "/queues/bad" not in error, "the id of the message that was delivered"
    assert "mc_amqpl" not in error, "the stack trace behind the first line"


def test_error_and_health_say_it() -> None:
    """`run()`, `error` and `health()` of a consumer with a handler name the queue."""
    with Broken(closes) as peer, redelivery.connect(peer.uri) as connection:
        connection.listen("bad", lambda _: None)
        with pytest.raises(redelivery.AdapterError, match="consumer of queue://bad 3 times"):
            connection.run()
        health = connection.health()
        assert "queue://bad 3 times" in str(connection.error)
        assert not health.live
        assert "queue://bad 3 times" in str(health.consumers[0].error)


@pytest.mark.parametrize("ending", [restarts, stops])
def test_a_node_that_restarts_stops_no_consumer(ending: Ending) -> None:
    """Five closings by force right after credit stop nothing: the next message is received."""
    with Broken(ending, times=5) as peer, redelivery.connect(peer.uri) as connection:
        handled: list[str] = []

        def settle(message: redelivery.Message) -> None:
            if peer.connections <= 5:
                raise redelivery.Defer(0.05)
            handled.append(message.text)
            connection.stop()

        connection.listen("bad", settle)
        connection.run()
    assert handled == ["/queues/bad"]


def test_a_node_that_answers_no_attach_convicts_no_queue() -> None:
    """Links that the broker has not attached are not concerned: a sick node that attaches none proves nothing."""
    links: Any = SimpleNamespace(_receivers={1: Link("a")}, _ended=None, _blame=AmqpDisconnectCause)
    links._profile = SimpleNamespace(undelivered="amqp:internal-error", deliver_elsewhere="cure")
    links.undelivered = lambda _: True
    (link,) = links._receivers.values()
    link.credited = time.monotonic()
    for attached in (False, True):
        link.attached = attached
        suspect, _ = LinkRegistry.suspect(links, "refused", "amqp:internal-error")
        assert (suspect is not None) == attached


def test_of_two_consumers_the_one_of_that_queue_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """After such a closing the consumers get credit in turn: the right one stops, the other goes on."""
    now, begin = 100.0, CreditTurns.next

    def a_second_later(turns: CreditTurns) -> None:
        nonlocal now
        now += any(each not in turns._served for each in turns._waiting)
        begin(turns)

    clock = SimpleNamespace(monotonic=lambda: now)
    for module in (link_registry, disconnect_cause):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(link_registry, "AT_ONCE", 0.02)
    monkeypatch.setattr(CreditTurns, "next", a_second_later)
    with Broken(closes) as peer, redelivery.connect(peer.uri) as connection:
        good, bad = connection.consumer("good"), connection.consumer("bad")
        error = receive_until_it_stops(bad)
        assert "consumer of queue://bad 3 times" in str(error)
        received = good.receive(timeout=LONG)
        assert received is not None
        assert received.text == "/queues/good"
        received.accept()


class Wire:
    """Notes the credit that is written."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int]] = []

    def flow(self, link: str, credit: int) -> None:
        """Note it."""
        self.written.append((link, credit))


class Link:
    """A consumer's link."""

    def __init__(self, name: str) -> None:
        self.handle, self.destination, self.consumer = name, f"queue://{name}", ord(name)
        self.credited = float("-inf")


def turns(*, apart: bool) -> tuple[Any, Wire]:
    """Return the credit of a connection whose timer never fires by itself."""
    wire: Any = Wire()
    made: Any = CreditTurns(wire, lambda: None, apart=apart)
    made._timer.end()
    return made, wire


def test_usually_all_get_their_credit_at_once() -> None:
    """Without an earlier closing over an undelivered message, credit is written when it is given."""
    made, wire = turns(apart=False)
    made.flow(Link("a"), 4)
    made.flow(Link("b"), 4)
    assert wire.written == [("a", 4), ("b", 4)]


def test_one_consumer_at_a_time_gets_its_first_credit() -> None:
    """Each consumer has one turn; what is given or taken back meanwhile counts at its turn, or after the last one."""
    made, wire = turns(apart=True)
    a, b, c = map(Link, "abc")
    for link in (a, b, c):
        made.flow(link, 4)
    made.flow(a, 2)
    made.flow(b, 1)
    made.flow(b, -2)
    assert wire.written == [("a", 4)]
    made.forget(c)
    made.next()
    assert wire.written[1:] == [("b", 3)]
    made.next()
    assert wire.written[2:] == [("a", 2)], "all turns are over"
    made.flow(c, 4)
    made.flow(b, -1)
    assert wire.written[3:] == [("c", 4), ("b", -1)]


@pytest.mark.parametrize(
    ("since", "named"), [((0.0,), True), ((0.9, 1.1), True), ((0.9, 0.1), False), ((1.0,), False)]
)
def test_only_the_one_queue_with_fresh_credit_is_named(
    monkeypatch: pytest.MonkeyPatch, since: tuple[float, ...], named: bool
) -> None:
    """The queue is known if it alone got credit within the last second."""
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr("redelivery_amqp.disconnect_cause.time", clock)
    links: Any = [Link(name) for name in "ab"[: len(since)]]
    for link, ago in zip(links, since, strict=True):
        link.credited = 100.0 - ago
    suspect, consumer = AmqpDisconnectCause.undelivered(links, "cure")
    assert (suspect is not None, consumer) == ((True, ord("a")) if named else (False, None))
