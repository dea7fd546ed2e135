"""Choice of the observers and methods that are called, and handling of their exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import eventually

from redelivery import ConfigurationError, Defer
from redelivery.core.outgoing import Outgoing
from redelivery.driver.connection.sends import observed_send
from redelivery.driver.consumer.consumer_events import Drops
from redelivery.driver.observers import Observers
from redelivery.events import (
    Connected,
    ConnectionLost,
    ConsumerStarted,
    Event,
    Finished,
    ManyDropped,
    Observer,
    Received,
    Sent,
)
from redelivery.testing import ManualClock

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message


def handle(_: Message) -> None:
    """Succeed."""


def test_one_observer_of_arrivals_is_enough(twin: Twin) -> None:
    """An observer of arrivals gets them next to one that wants other events, which gets only those."""

    class Few(Observer):
        event_types = (ConsumerStarted,)

        def event(self, event: Event) -> None:
            few.append(type(event))

    few, seen = list[type[Event]](), list[type[Event]]()
    connection = twin.connect(observers=[Few(), lambda event: seen.append(type(event))])
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: Finished in seen)
    assert few == [ConsumerStarted]
    assert seen[:3] == [Connected, ConsumerStarted, Received]


def test_an_observer_of_beginnings_alone_is_called(twin: Twin) -> None:
    """An observer that overrides only `started` is called."""

    class Begins(Observer):
        def started(self, message: Message) -> object:
            begun.append(message.text)
            return None

    begun: list[str] = []
    connection = twin.connect(observers=[Begins()])
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().accepted)
    assert begun == ["a"]


def test_each_type_of_error_is_logged_once(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """Each type of an observer's error is logged once."""

    class Broken(Observer):
        def event(self, event: Event) -> None:
            raise (KeyError if isinstance(event, Connected) else ValueError)("x")

    connection = twin.connect(observers=[Broken()])
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().accepted)
    failed = [each for each in caplog.records if "the observer failed" in each.getMessage()]
    assert [each.exc_info[0] for each in failed if each.exc_info] == [KeyError, ValueError]


def test_what_is_no_exception_is_returned_to_be_ended_over() -> None:
    """An observer's BaseException is returned to its caller; all other observers have had the event before."""

    def leave(_: Event) -> None:
        raise SystemExit(3)

    seen: list[Event] = []
    lost = ConnectionLost(0.0, OSError("cut"))
    assert isinstance(Observers([leave, seen.append]).emit([lost]), SystemExit)
    assert seen == [lost]
    assert Observers([seen.append]).emit([lost]) is None


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_send_is_none_the_worse_for_its_observer(
    twin: Twin, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """An observer that raises after a send changes nothing: `send` returns the id."""

    class Broken(Observer):
        def sent(self, token: Any, result: Sent) -> None:
            raise error("x")

    connection = twin.connect(observers=[Broken()])
    assert twin.call(connection.send("orders", "a"))
    assert twin.broker.depth("orders") == 1
    assert [each for each in caplog.messages if "the observer failed" in each] != []


def test_a_header_that_no_broker_can_carry_is_left_out(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """An observer's header that no broker can carry is logged and left out; the application's are not replaced."""

    class Adds(Observer):
        def sending(self, destination: str, headers: Any) -> object:
            headers |= {"odd": object(), "fine": "1", "mine": "theirs"}
            return None

    connection = twin.connect(observers=[Adds()])
    consumer = twin.call(connection.consumer("orders"))
    twin.call(connection.send("orders", "a", headers={"mine": "0"}))
    headers = twin.receive(consumer).headers
    assert (headers["fine"], headers["mine"], "odd" in headers) == ("1", "0", False)
    assert [each for each in caplog.messages if "an observer's header is left out" in each] != []


def test_a_send_that_fails_is_shown_with_its_error() -> None:
    """A failed send is shown with its error, which the application gets, too."""
    ends: list[Any] = []
    sending = observed_send(Observers([ends.append]), Outgoing("queue://orders", b"a"), "ID:1", ManualClock())
    error = OSError("cut")
    with pytest.raises(OSError, match="cut"), sending:
        raise error
    assert [(each.name, each.message_id, each.error) for each in ends] == [("sent", "ID:1", error)]


def test_an_asynchronous_call_is_no_observer(twin: Twin) -> None:
    """An async function, or an object with an async call, is refused as an observer."""

    class Watch:
        async def __call__(self, event: Event) -> None: ...

    with pytest.raises(ConfigurationError, match="is async def, and nothing awaits it"):
        twin.make(observers=[Watch()])


def test_what_is_raised_after_an_accept_is_shown(twin: Twin) -> None:
    """An exception after an accept is shown, and the message stays accepted."""
    results: list[Any] = []

    def accepts(message: Message) -> None:
        message.accept()
        raise ValueError("too late")

    connection = twin.connect(observers=[lambda x: results.append(x) if isinstance(x, Finished) else None])
    twin.listen(connection, "orders", accepts)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: results)
    assert [(x.outcome, type(x.error)) for x in results] == [("accepted", ValueError)]


def test_a_deferral_that_is_charged_is_the_delivery_that_it_was(twin: Twin) -> None:
    """A deferral has the delivery count of its delivery, whether charged or not."""
    results: list[Any] = []

    def defers(_: Message) -> None:
        raise Defer(1, "not yet")

    connection = twin.connect(
        "?redelivery.maximumDeferrals=1",
        observers=[lambda x: results.append(x) if isinstance(x, Finished) else None],
    )
    twin.listen(connection, "orders", defers)
    twin.broker.send("orders", "a")
    twin.advance(3)
    eventually(twin, lambda: len(results) >= 3)
    assert [(x.outcome, x.delivery_count) for x in results[:3]] == [
        ("deferred", 1),
        ("redelivered", 1),
        ("redelivered", 2),
    ]


def test_a_dead_letter_is_shown_once(twin: Twin) -> None:
    """A dead letter is shown once, after the run that led to it."""
    seen: list[str] = []
    connection = twin.connect(
        "?jms.redeliveryPolicy.maximumRedeliveries=0", observers=[lambda event: seen.append(event.name)]
    )

    def fails(message: Message) -> None:
        if message.text == "bad":
            raise ValueError("x")

    twin.listen(connection, "orders", fails)
    for body in ("bad", "bad", "good"):
        twin.broker.send("orders", body)
        eventually(twin, lambda: connection.health().consumers[0].unconfirmed == 0)
    eventually(twin, lambda: connection.report().accepted and seen.count("finished") == 3)
    assert seen.count("dead-lettered") == 2


def test_a_count_of_drops_is_what_was_dropped() -> None:
    """Every second drop is reported with the number of all drops."""
    drops = Drops(2)
    assert [drops.count() for _ in range(4)] == [None, 2, None, 4]
    assert Drops(0).count() is None
    assert ManyDropped(0.0, 4).fields()["dropped"] == 4
