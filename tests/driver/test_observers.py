"""Observers: their events, the order and the thread of calls, and errors that change nothing."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import eventually

import redelivery
from redelivery import ConfigurationError, RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.events import (
    BreakerChanged,
    Connected,
    ConnectionLost,
    ConsumerStarted,
    DeadLettered,
    DrainBegun,
    Drained,
    Event,
    Finished,
    MessageEvent,
    Observer,
    Paused,
    Received,
    Resumed,
    Sent,
    Started,
    WorkerEnded,
)

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from tests.driver.twins import Twin

    from redelivery import Message

ONCE = {"policies": RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=1))}


class Spans(Observer):
    """Observer that keeps runs."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.ended: list[tuple[Any, Finished]] = []
        self.threads: list[tuple[int, int]] = []

    def started(self, message: Message) -> object:
        self.open.append(message.text)
        return message.text, threading.get_ident()

    def finished(self, token: Any, result: Finished) -> None:
        self.ended.append((token, result))
        if token is not None:
            self.threads.append((token[1], threading.get_ident()))


def fails(message: Message) -> None:
    """Fail for "bad"."""
    if message.text == "bad":
        raise ValueError("no stock")


def test_each_delivery_begins_and_ends(twin: Twin) -> None:
    """Each delivery is a run; its result has decision, cause, count and delay."""
    spans = Spans()
    connection = twin.connect(observers=[spans], **ONCE)
    twin.listen(connection, "orders", fails)
    twin.broker.send("orders", "good")
    twin.broker.send("orders", "bad")
    twin.advance(5)
    assert spans.open == ["good", "bad", "bad"]
    assert [
        (token[0], x.outcome, x.verdict, x.delivery_count, x.maximum, x.cause, x.delay, x.next_step)
        for token, x in spans.ended
    ] == [
        ("good", "accepted", "succeeded", 1, None, None, None, "none"),
        ("bad", "redelivered", "failed", 1, 2, "ValueError: no stock", 1.0, "redelivery"),
        ("bad", "poisoned", "failed", 2, 2, "ValueError: no stock", None, "poison acknowledgement"),
    ]
    assert [type(x.error).__name__ for _, x in spans.ended] == ["NoneType", "ValueError", "ValueError"]
    assert [x.cause_type for _, x in spans.ended] == [None, "ValueError", "ValueError"]


def test_a_run_ends_on_its_own_thread(twin: Twin) -> None:
    """`finished` is called on the thread of `started`."""
    spans = Spans()
    connection = twin.connect(observers=[spans])
    twin.listen(connection, "orders", fails, workers=3)
    for _ in range(9):
        twin.broker.send("orders", "good")
    eventually(twin, lambda: len(spans.ended) == 9)
    assert [began for began, ended in spans.threads if began != ended] == []


def test_a_handler_that_settles_itself_ends_once(twin: Twin) -> None:
    """The result of a handler that settles itself is shown when it ends, with the decision at the settlement."""
    spans = Spans()
    settled: list[int] = []

    def handle(message: Message) -> None:
        message.fail("later")
        settled.append(len(spans.ended))

    connection = twin.connect(observers=[spans], **ONCE)
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    twin.advance(5)
    assert settled == [0, 1]
    assert [(x.outcome, x.cause, x.next_step) for _, x in spans.ended] == [
        ("redelivered", "later", "redelivery"),
        ("poisoned", "later", "poison acknowledgement"),
    ]


def test_a_message_that_was_pulled_has_a_result(twin: Twin) -> None:
    """The result of a pulled message has no token and no message."""
    spans = Spans()
    connection = twin.connect(observers=[spans])
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.receive(consumer).accept()
    assert [(token, x.outcome, x.message, x.seconds) for token, x in spans.ended] == [
        (None, "accepted", None, None)
    ]


def test_a_worker_that_ends_has_ended_its_run(twin: Twin) -> None:
    """SystemExit releases the message; observers get the end of the run and of the worker."""
    spans, seen = Spans(), list[Event]()
    connection = twin.connect(observers=[spans, seen.append])

    def leave(_: Message) -> None:
        raise SystemExit(3)

    twin.listen(connection, "orders", leave)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.error)
    eventually(twin, lambda: spans.ended)
    [(_, result)] = spans.ended
    assert (result.outcome, result.verdict, type(result.error)) == ("released", "release", SystemExit)
    assert [type(x.error) for x in seen if isinstance(x, WorkerEnded)] == [SystemExit]


def test_a_function_is_shown_everything(twin: Twin) -> None:
    """A function gets connections, consumers, arrivals, runs, dead letters, pauses, losses and the drain."""
    seen: list[Event] = []
    connection = twin.connect(observers=[seen.append], **ONCE)
    twin.listen(connection, "orders", fails)
    twin.broker.send("orders", "bad")
    twin.advance(5)
    connection.pause("orders")
    connection.resume("orders")
    twin.broker.cut()
    twin.advance(1)
    eventually(twin, lambda: sum(isinstance(each, ConsumerStarted) for each in seen) == 2)
    twin.call(connection.drain())
    kinds = [type(each) for each in seen]
    assert kinds[:11] == [
        Connected, ConsumerStarted, Received, Started, Finished, Started, Finished, DeadLettered, Paused, Resumed,
        ConnectionLost,
    ]  # fmt: skip
    # The broker may confirm the consumer before the connection was shown.
    assert set(kinds[11:13]) == {Connected, ConsumerStarted}
    assert kinds[13:] == [DrainBegun, Drained]
    [dead] = [each for each in seen if isinstance(each, DeadLettered)]
    assert (dead.cause, dead.delivery_count, dead.copied) == ("ValueError: no stock", 2, False)
    assert [each.again for each in seen if isinstance(each, Connected)] == [False, True]


def test_a_listener_has_observers_of_its_own(twin: Twin) -> None:
    """A listener's observers get its events after the connection's observers, and no other consumer's."""
    all_of_them, own = list[str](), list[str]()

    def watch(seen: list[str]) -> Any:
        return lambda event: seen.append(event.destination) if isinstance(event, Finished) else None

    connection = twin.connect(observers=[watch(all_of_them)])
    twin.listen(connection, "orders", fails, observers=[watch(own)])
    twin.listen(connection, "others", fails)
    twin.broker.send("orders", "a")
    twin.broker.send("others", "a")
    eventually(twin, lambda: len(all_of_them) == 2)
    assert own == ["queue://orders"]
    assert sorted(all_of_them) == ["queue://orders", "queue://others"]


def test_only_what_is_overridden_is_called(twin: Twin) -> None:
    """An observer of events gets no run, and one of runs no event."""

    class Events(Observer):
        def event(self, event: Event) -> None:
            seen.append(type(event))

    seen: list[type[Event]] = []
    connection = twin.connect(observers=[Events()])
    twin.listen(connection, "orders", fails)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().accepted)
    assert seen == [Connected, ConsumerStarted, Received]


@pytest.mark.parametrize("error", [RuntimeError, UnicodeError])
def test_what_an_observer_raises_changes_nothing(
    twin: Twin, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """An observer's exception is logged once for each type, and the other observers are called."""

    class Broken(Observer):
        def started(self, message: Message) -> object:
            raise error("x")

        def finished(self, token: Any, result: Finished) -> None:
            assert token is None
            raise error("x")

        def sending(self, destination: str, headers: MutableMapping[str, Any]) -> object:
            raise error("x")

        def event(self, event: Event) -> None:
            raise error("x")

    spans = Spans()
    connection = twin.connect(observers=[Broken(), spans])
    twin.listen(connection, "orders", fails)
    for _ in range(3):
        twin.call(connection.send("orders", "a"))
    eventually(twin, lambda: len(spans.ended) == 3)
    assert connection.report().accepted == 3
    assert [x for x in caplog.messages if "the observer failed" in x] == [
        "the observer failed; that has no effect on messages"
    ]


def test_a_header_that_an_observer_adds_is_sent(twin: Twin) -> None:
    """An observer's header is sent with the application's; the end of the send is shown, with its error."""

    class Sends(Observer):
        def sending(self, destination: str, headers: MutableMapping[str, Any]) -> object:
            headers["traceparent"] = f"00-{destination}"
            return destination

        def sent(self, token: Any, result: Sent) -> None:
            ends.append((token, result.destination, result.message_id, result.error))

    ends: list[Any] = []
    connection = twin.connect(observers=[Sends()])
    consumer = twin.call(connection.consumer("orders"))
    name = twin.call(connection.send("orders", "a", headers={"mine": "1"}))
    message = twin.receive(consumer)
    assert (message.headers["traceparent"], message.headers["mine"]) == ("00-queue://orders", "1")
    assert ends == [("queue://orders", "queue://orders", name, None)]


def test_the_breakers_changes_are_shown(twin: Twin) -> None:
    """Each change of a breaker is shown with the cause and the numbers of the log."""
    seen: list[Event] = []
    breaker = redelivery.Breaker(named=2)
    errors = redelivery.Classifier().trip(OSError)
    connection = twin.connect(observers=[seen.append], breaker=breaker, errors=errors)

    def down(_: Message) -> None:
        raise OSError("down")

    twin.listen(connection, "orders", down)
    for _ in range(3):
        twin.broker.send("orders", "a")
    eventually(twin, lambda: any(isinstance(each, BreakerChanged) for each in seen))
    opened = next(each for each in seen if isinstance(each, BreakerChanged))
    assert (opened.old, opened.new, opened.cause, opened.named) == ("closed", "open", "OSError: down", True)


def test_an_event_is_plain_and_bare(twin: Twin) -> None:
    """An event's fields fit into JSON; neither they nor its text have a body or a header."""
    seen: list[Event] = []
    connection = twin.connect(observers=[seen.append], **ONCE)
    twin.listen(connection, "orders", fails)
    twin.call(connection.send("orders", "bad", headers={"secret": "s3cr3t"}))
    twin.advance(5)
    text = json.dumps([each.fields() for each in seen]) + repr(seen)
    assert "s3cr3t" not in text
    assert '"bad"' not in text
    of_messages = [each.fields() for each in seen if isinstance(each, MessageEvent)]
    assert {each["destination"] for each in of_messages} == {"queue://orders"}
    assert all(each["message_id"] for each in of_messages)


@pytest.mark.parametrize(
    ("observers", "text"),
    [
        (Spans(), "observers=Spans: a list is needed; write observers=[...]"),
        ([Spans], "observers: Spans is a class; make an observer of it: Spans()"),
        (
            ["log"],
            "observers: str is no observer; give a redelivery.events.Observer, or a function of one event",
        ),
    ],
)
def test_what_is_no_observer_is_refused(twin: Twin, observers: Any, text: str) -> None:
    """An object that is no observer is refused before any connection, with what to write instead."""
    with pytest.raises(
        ConfigurationError, match=text.replace("(", r"\(").replace(")", r"\)").replace("[", r"\[")
    ):
        twin.make(observers=observers)


def test_a_coroutine_function_is_no_observer(twin: Twin) -> None:
    """A coroutine function is refused as an observer: nothing would await it."""

    async def watch(event: Event) -> None: ...

    with pytest.raises(ConfigurationError, match="is async def, and nothing awaits it"):
        twin.make(observers=[watch])
