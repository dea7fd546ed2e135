"""Redrive and purge, on memory and in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
import redelivery_memory
from redelivery.core.dead_lettering.redrive import REDRIVE_RUN
from redelivery.dlq.dead_letter import Redriven
from redelivery.dlq.dead_letter_places import Reached
from redelivery.dlq.dlq_connection import DeadLetterConnection, DeadLetterConsumer

if TYPE_CHECKING:
    from redelivery import DeadLetterQueue
    from redelivery.testing import MemoryBroker

DLQ = "queue://DLQ"


def test_back_to_where_they_came_from(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """Dead letters are redriven unchanged, with their first id, and reported; the others stay, uncounted."""
    bury("a", origin="queue://orders", cause="ValueError: 1", first="A", nr=1, redeliveryCount="6")
    own = bury("b", origin="queue://bills", cause="ValueError: 2")
    bury("c", origin="queue://bills", cause="KeyError")
    steps: list[int] = []
    expected = {"queue://orders": 1, "queue://bills": 1}
    planned = tools.redrive(cause="ValueError", dry_run=True)
    assert planned == Redriven(2, expected, skipped=1, dry_run=True)
    assert broker.depth("DLQ") == 3
    assert tools.redrive(cause="ValueError", progress=steps.append) == Redriven(2, expected, skipped=1)
    assert steps[-1] == 2
    (order,), (bill,), (left,) = broker.messages("orders"), broker.messages("bills"), broker.dead_letters()
    run = order.headers[REDRIVE_RUN]
    assert order.headers == {
        "nr": 1,
        "redeliveryOriginalId": "A",
        "redeliveryRedrives": "1",
        REDRIVE_RUN: run,
    }
    assert (order.text, order.persistent, bill.headers["redeliveryOriginalId"]) == ("a", True, own)
    assert left.text == "c"


def test_origins_that_are_reached_elsewhere_or_dropped(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each origin is asked for once; letters go where its queue is, and those that would be dropped stay, with why."""
    asked: list[str] = []
    answers = {
        "queue://moved": Reached("queue://shop.moved"),
        "queue://filter": Reached("queue://filter", "it drops"),
    }

    def reached(_: DeadLetterConnection, destination: str) -> Reached:
        asked.append(destination)
        return answers.get(destination, Reached(destination))

    monkeypatch.setattr(DeadLetterConnection, "reached", reached)
    for name in ("moved", "filter", "here") * 2:
        bury(name, origin=f"queue://{name}")
    for dry_run in (True, False):
        asked.clear()
        done = tools.redrive(dry_run=dry_run)
        assert dict(done.destinations) == {"queue://shop.moved": 2, "queue://here": 2}
        assert (done.incomplete, done.complete) == ("2 dead letters stay: queue://filter: it drops", False)
        assert sorted(asked) == ["queue://filter", "queue://here", "queue://moved"]
    assert (broker.depth("shop.moved"), broker.depth("moved"), broker.depth("DLQ")) == (2, 0, 2)


def test_queues_that_a_pattern_passes_over_are_told(
    tools: DeadLetterQueue, bury: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues of subscribers that a pattern means, too, are named; they need not have dead letters."""
    plain = DeadLetterConnection.queues

    def queues(my: DeadLetterConnection, name: str) -> Any:
        my.passed_over.append("native://audit::DLQ.all")
        return plain(my, name)

    monkeypatch.setattr(DeadLetterConnection, "queues", queues)
    bury("a", origin="queue://orders")
    assert tools.redrive().complete
    assert tools.limit == "native://audit::DLQ.all: of a subscriber, not looked at; name the queue"


def test_dead_again(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """A message that dies again keeps its first id and number of redrives; in quarantine also cause and origin."""
    policies = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
    identity = broker.send("orders", "bad")
    with redelivery.connect(broker.uri, policies=policies) as connection:
        consumer = connection.consumer("orders")
        for times in range(3):
            message = consumer.receive(timeout=5)
            assert message is not None
            message.fail("no")
            (letter,) = tools
            assert (letter.original_id, letter.redrives) == (identity, times)
            done = tools.redrive(quarantine="quarantine", maximum_redrives=2)
            assert (done.redriven, done.quarantined) == (1, times == 2)
    (held,) = broker.messages("quarantine")
    assert held.headers["redeliveryOriginalId"] == identity
    with redelivery.dead_letters(broker.uri, "quarantine") as quarantine:
        (letter,) = quarantine
        assert (letter.cause, letter.original_destination, letter.redrives) == ("no", "queue://orders", 3)
        assert quarantine.redrive().destinations == {"queue://orders": 1}


def test_a_consumer_that_fails_at_once_does_not_make_it_circle(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any
) -> None:
    """A message that dies again during the redrive is left for the next one."""
    policies = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
    bury(origin="queue://orders")
    with redelivery.connect(broker.uri, policies=policies) as connection:

        @connection.listen("orders")
        def handle(message: redelivery.Message) -> None:
            raise ValueError("never")

        connection.start()
        done = tools.redrive()
    assert (done.redriven, done.again, done.complete) == (1, 1, True)
    assert broker.depth("DLQ") == 1


def test_what_is_left(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """Dead letters without an origin, from a topic, or from this queue itself stay unless an option sends them."""
    bury("nowhere")
    bury("topic", origin="topic://prices")
    bury("circle", origin=DLQ)
    done = tools.redrive()
    assert (done.redriven, done.without_origin, done.topics, done.complete) == (0, 2, 1, False)
    assert tools.redrive(topics=True).destinations == {"topic://prices": 1}
    assert tools.redrive(to="other").destinations == {"queue://other": 2}
    assert broker.depth("DLQ") == 0


def test_never_back_to_itself(tools: DeadLetterQueue) -> None:
    """Neither `to` nor the quarantine may be the dead-letter queue; other senseless arguments are refused, too."""
    wrong: Any
    for wrong, text in (
        ({"to": "DLQ"}, "to=DLQ is the dead-letter queue itself"),
        ({"quarantine": "queue://DLQ"}, "quarantine=queue://DLQ is the dead-letter queue itself"),
        ({"rate": 0}, "rate must be more than 0"),
        ({"maximum_redrives": 0}, "maximum_redrives must be 1 or more"),
    ):
        with pytest.raises(redelivery.ConfigurationError, match=text):
            tools.redrive(**wrong)


def test_the_rate(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """At 5 a second, ten dead letters take 1.8 s, and the end 2 s of silence."""
    for _ in range(10):
        bury(origin="queue://orders")
    began = broker._server.clock.monotonic()
    assert tools.redrive(rate=5).redriven == 10
    assert broker._server.clock.monotonic() - began == pytest.approx(3.8, abs=0.01)


def test_a_refused_copy(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """A copy that is refused three times ends the redrive with the broker's words; nothing is lost."""
    bury(origin="queue://orders")
    broker.refuse_settlements(lambda _: True)
    with pytest.raises(
        redelivery.AdapterError, match=r"cannot be sent to queue://orders: the broker refused to settle"
    ):
        tools.redrive()
    assert broker.depth("DLQ") == 1


def test_one_refusal_among_many(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """The other messages of a transaction with a refused copy are sent one by one; only that one stays."""
    for _ in range(100):
        bury(origin="queue://orders")
    refused = bury("bad", origin="queue://orders")
    broker.refuse_settlements(lambda message: message.body == b"bad")
    steps: list[int] = []
    with pytest.raises(redelivery.AdapterError, match=f"{refused} cannot be sent to"):
        tools.redrive(progress=steps.append)
    assert (broker.depth("orders"), broker.depth("DLQ")) == (100, 1)
    assert max(steps) <= 100, "only what is confirmed is reported"


def test_many_share_a_transaction(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """A transaction has 64 copies, fewer if they are large, and at a rate a tenth of a second's worth."""
    batches: list[int] = []
    send = DeadLetterConsumer.send_on

    def counted(taker: DeadLetterConsumer, deliveries: Any, *, together: bool) -> Any:
        batches.append(len(deliveries))
        return send(taker, deliveries, together=together)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadLetterConsumer, "send_on", counted)
        for body, count, rate, expected in (
            ("x", 150, None, [64, 64, 22]),
            ("x" * 600_000, 5, None, [2, 2, 1]),
            ("x", 25, 100.0, [10, 10, 5]),
        ):
            for _ in range(count):
                bury(body, origin="queue://orders")
            batches.clear()
            assert tools.redrive(rate=rate).redriven == count
            assert batches == expected


def test_a_lost_connection(broker: MemoryBroker, bury: Any) -> None:
    """A redrive goes on over the next connection: nothing is missing, nothing is there twice."""
    for number in range(50):
        bury(str(number), origin="queue://orders")
    cuts = iter([10, 25, 40])
    at = next(cuts)

    def steps(done: int) -> None:
        nonlocal at
        if done >= at >= 0:
            broker.cut()
            at = next(cuts, -1)

    with redelivery.dead_letters(broker.uri) as tools:
        assert tools.redrive(progress=steps).redriven == 50, "what came again is counted once"
    assert sorted(int(held.text) for held in broker.messages("orders")) == list(range(50))
    assert broker.depth("DLQ") == 0


@pytest.mark.parametrize("take", [False, True])
def test_a_broker_that_is_slow_to_hand_out(broker: MemoryBroker, bury: Any, *, take: bool) -> None:
    """Silence alone is no end: looks and redrives go on once the queue has been shown, or asked about, again."""
    for number in range(5):
        bury(str(number), origin="queue://orders")
    silences, real = [True, True], DeadLetterConsumer.take

    def slow(taker: DeadLetterConsumer, *arguments: Any) -> Any:
        return None if silences and silences.pop() else real(taker, *arguments)

    with redelivery.dead_letters(broker.uri, take=take) as tools, pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadLetterConsumer, "take", slow)
        silences[:] = [True]
        assert len(list(tools)) == 5
        silences[:] = [True]
        done = tools.redrive()
    assert (done.redriven, done.complete, broker.depth("DLQ")) == (5, True, 0)


def test_what_does_not_come(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """A dead letter that is shown and never delivered makes the report incomplete, of a redrive and of a purge."""
    bury(origin="queue://orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadLetterConsumer, "take", lambda *_: None)
        for done in (tools.redrive(), tools.purge()):
            assert not done.complete
            assert "1 dead letters that match are still there" in str(done.incomplete)
    assert broker.depth("DLQ") == 1


def test_purge(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """Dead letters that match are gone, the others are there."""
    bury(cause="ValueError")
    bury(cause="KeyError")
    assert (tools.purge(cause="KeyError", dry_run=True).purged, broker.depth("DLQ")) == (1, 2)
    done = tools.purge(cause="KeyError")
    assert (done.purged, done.skipped, done.complete) == (1, 1, True)
    assert [held.cause for held in broker.dead_letters()] == ["ValueError"]
    assert tools.purge().purged == 1


def test_a_broker_that_hands_out_pages(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, bury: Any
) -> None:
    """A broker that sends pages gets no selector, and is asked for the next; the report says what it cannot show."""
    able = replace(redelivery_memory.CAPABILITIES, browse_limit=2, max_unacknowledged=2)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    for number in range(9):
        bury(str(number), origin="queue://orders", cause="KeyError" if number in (0, 8) else "OSError")
    selectors: list[str | None] = []
    page, asked = 2, []
    real_taker, real_take, ask = DeadLetterConnection.taker, DeadLetterConsumer.take, DeadLetterConnection.ask

    def taker(
        reading: DeadLetterConnection, queue: str, redrive: Any, selector: str | None = None, **more: Any
    ) -> Any:
        selectors.append(selector)
        return real_taker(reading, queue, redrive, selector, **more)

    def take(dispatcher: DeadLetterConsumer, *arguments: Any) -> Any:
        nonlocal page
        page -= 1
        return None if page < 0 else real_take(dispatcher, *arguments)

    def next_page(reading: DeadLetterConnection, queue: str) -> None:
        nonlocal page
        page = 2
        asked.append(queue)
        ask(reading, queue)

    monkeypatch.setattr(DeadLetterConnection, "taker", taker)
    monkeypatch.setattr(DeadLetterConsumer, "take", take)
    monkeypatch.setattr(DeadLetterConnection, "ask", next_page)
    with redelivery.dead_letters(broker.uri) as tools:
        done = tools.redrive(cause="KeyError")
    assert (done.redriven, done.skipped, broker.depth("DLQ")) == (2, 7, 7)
    assert set(selectors) == {None}
    assert len(asked) >= 4
    assert "shows the first 2 dead letters only" in str(done.incomplete)
