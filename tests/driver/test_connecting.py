"""Connecting, giving up, and the end of a connection."""

from __future__ import annotations

import logging
import re
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import body_of

import redelivery
from redelivery import AdapterError, ConfigurationError, TransportError
from redelivery.core.commands import Credit
from redelivery.events import Connected
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.events import Event
    from redelivery.testing import ManualClock


def test_the_first_connect_tries_each_address_once(twin: Twin, redelivery_clock: ManualClock) -> None:
    """The first connect tries each address once, without a delay; TransportError has the error of each."""
    tried = []

    def refuse(name: str) -> Callable[[], TransportError]:
        def refusal() -> TransportError:
            tried.append(name)
            return TransportError(f"{name} is down")

        return refusal

    with MemoryBroker(clock=redelivery_clock) as other:
        twin.broker.refuse_connections(refuse("one"))
        other.refuse_connections(refuse("two"))
        before = redelivery_clock.monotonic()
        with pytest.raises(TransportError, match="one is down; two is down"):
            twin.connect(uri=f"failover:({twin.broker.uri},{other.uri})?randomize=false")
        assert tried == ["one", "two"]
        assert redelivery_clock.monotonic() == before
        other.accept_connections()
        twin.connect(uri=f"failover:({twin.broker.uri},{other.uri})?randomize=false")
        assert (twin.broker.connections, other.connections) == (0, 1)


def test_a_first_connection_is_none_made_again(
    twin: Twin, redelivery_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The first connection is reported as the first, also if another address did not answer before; INFO names that."""
    caplog.set_level(logging.INFO, "redelivery")
    seen: list[Event] = []
    with MemoryBroker(clock=redelivery_clock) as other:
        twin.broker.refuse_connections()
        twin.connect(uri=f"failover:({twin.broker.uri},{other.uri})?randomize=false", observers=[seen.append])
        assert [each.again for each in seen if isinstance(each, Connected)] == [False]
    first, second = [record.getMessage() for record in caplog.records if record.levelname == "INFO"][:2]
    assert first.endswith(f"; trying {other.uri}")
    assert second.startswith(f"connected to {other.uri} ")


def test_the_traceback_of_a_failed_connect_is_short(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A failed connect has a short traceback from the public call; the inner one is logged at DEBUG."""
    caplog.set_level(logging.DEBUG, "redelivery")
    twin.broker.refuse_connections()
    ours = str(Path(redelivery.__file__).parent)
    for act in (twin.connect, lambda: twin.make("?nonsense=1")):
        with pytest.raises(redelivery.RedeliveryError) as caught:
            act()
        frames = traceback.extract_tb(caught.value.__traceback__)
        inside = [frame for frame in frames if frame.filename.startswith(ours)]
        assert len(inside) == 1, inside
        assert caught.value.__suppress_context__
        assert caught.value.__cause__ is None
        assert caplog.records[-1].exc_info is not None


def test_the_traceback_of_a_refused_consumer_is_short(twin: Twin) -> None:
    """A consumer that is refused has a short traceback from `start()` and `consumer()`."""
    connection = twin.connect("?redelivery.deadLetterStrategy=individual")
    ours = str(Path(redelivery.__file__).parent)

    def start() -> None:
        twin.listen(connection, "queue://>", lambda _: None)
        twin.call(connection.start())

    for act in (lambda: twin.call(connection.consumer("queue://>")), start):
        with pytest.raises(ConfigurationError, match="its own dead-letter destinations") as caught:
            act()
        frames = traceback.extract_tb(caught.value.__traceback__)
        inside = [frame for frame in frames if frame.filename.startswith(ours)]
        assert len(inside) <= 2, inside
        assert caught.value.__suppress_context__


def test_wrong_credentials_fail_at_once(twin: Twin) -> None:
    """A refused log-in at the first connect is not tried again."""
    twin.broker.refuse_connections(lambda: AdapterError("wrong password"))
    with pytest.raises(AdapterError, match="wrong password"):
        twin.connect(uri=f"failover:({twin.broker.uri})?startupMaxReconnectAttempts=5")


def test_more_rounds_at_the_start(twin: Twin) -> None:
    """`startupMaxReconnectAttempts` rounds are tried, with back-off between them."""
    tried: list[float] = []

    def refuse() -> TransportError:
        tried.append(round(twin.clock.monotonic() - 1000, 6))
        return TransportError("down")

    twin.broker.refuse_connections(refuse)
    options = "?startupMaxReconnectAttempts=4&initialReconnectDelay=1000"
    with pytest.raises(TransportError, match="down"):
        twin.connect(uri=f"failover:({twin.broker.uri}){options}")
    assert tried == [0, 1, 3, 7]


def test_pauses_between_attempts_grow(twin: Twin) -> None:
    """Reconnecting starts at once, then waits longer each time, up to the maximum."""
    connection = twin.connect(
        uri=f"failover:({twin.broker.uri})?initialReconnectDelay=1000&maxReconnectDelay=4000"
    )
    consumer = twin.call(connection.consumer("orders"))
    tried: list[float] = []

    def refuse() -> TransportError:
        tried.append(round(twin.clock.monotonic() - 1000, 6))
        return TransportError("down")

    twin.broker.refuse_connections(refuse)
    twin.broker.cut()
    twin.advance(13)
    assert tried == [0, 1, 3, 7, 11]
    twin.broker.accept_connections()
    twin.broker.send("orders", "a")
    assert body_of(twin.receive(consumer, 4)) == "a"


@pytest.mark.parametrize(
    ("attempts", "text"), [(2, "gave up reconnecting"), (0, "maxReconnectAttempts is 0")]
)
def test_giving_up_is_raised_where_the_application_waits(twin: Twin, attempts: int, text: str) -> None:
    """`receive`, `send` and `consumer` raise TransportError once reconnecting is given up."""
    connection = twin.connect(uri=f"failover:({twin.broker.uri})?maxReconnectAttempts={attempts}")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.refuse_connections()
    twin.broker.cut()
    with pytest.raises(TransportError, match=text):
        twin.receive(consumer, 60)
    with pytest.raises(TransportError, match=text):
        twin.call(connection.send("orders", "x"))
    with pytest.raises(TransportError, match=text):
        twin.call(connection.consumer("orders"))


def test_giving_up_ends_run(twin: Twin) -> None:
    """`run` drains what it can and raises TransportError."""
    connection = twin.connect(uri=f"failover:({twin.broker.uri})?maxReconnectAttempts=1")

    def handle(message: Message) -> None:
        twin.broker.refuse_connections()
        twin.broker.cut()

    connection.listen("orders", twin.handler(handle))
    twin.broker.send("orders", "a")
    with pytest.raises(TransportError, match="gave up"):
        twin.run(connection)
    assert connection.report().stale == 1


def test_closing_while_reconnecting(twin: Twin) -> None:
    """Closing ends the delay of a reconnect at once."""
    connection = twin.connect()
    twin.call(connection.consumer("orders"))
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.advance(60)
    twin.leave(connection)
    assert twin.broker.connections == 0


def test_closing_ends_all_that_wait_for_the_connection(twin: Twin) -> None:
    """A send and a new consumer that wait for the next connection get an error when it is closed."""
    connection = twin.connect()
    waiting = twin.call(connection.consumer("orders"))._dispatcher
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.advance(1)
    waits = [connection._driver.standing(), connection._driver.subscribe(waiting)]
    twin.leave(connection)
    assert [str(wait.exception(5)) for wait in waits] == ["the connection was closed"] * 2


def test_closing_does_not_wait_for_a_connection_that_is_being_made(twin: Twin) -> None:
    """`close` keeps its deadline while the driver's thread hangs in connecting."""
    connection = twin.connect()
    began, let, ended = threading.Event(), threading.Event(), list[bool]()

    def hang() -> TransportError:
        began.set()
        ended.append(let.wait(60))
        return TransportError("too late")

    twin.broker.refuse_connections(hang)
    twin.broker.cut()
    assert began.wait(60)
    twin.call(connection.close(timeout=0.05))
    assert ended == []
    let.set()


def test_a_connection_that_is_lost_at_once_is_made_again(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is lost during its opening is made again, and the consumer goes on there."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    adapter = connection._driver._adapter
    opened, tries = adapter.open, list[object]()

    def open_and_lose(*arguments: Any) -> Any:
        able = opened(*arguments)
        tries.append(arguments)
        if len(tries) == 1:
            twin.broker.cut()
        return able

    monkeypatch.setattr(adapter, "open", open_and_lose)
    twin.broker.cut()
    twin.advance(1)
    twin.broker.send("orders", "a")
    assert body_of(twin.receive(consumer, 5)) == "a"
    assert len(tries) == 2


def test_nothing_of_a_lost_connection_is_written_on_the_next(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that the driver's thread was to write on a lost connection are not written on the next one."""
    connection = twin.connect()
    driver, written = connection._driver, list[object]()
    twin.broker.refuse_connections()
    twin.broker.cut()
    monkeypatch.setattr(driver._adapter, "execute", written.extend)
    driver.defer([Credit(1, 10)])
    twin.broker.accept_connections()
    twin.advance(60)
    assert connection.connected
    assert written == []


def test_draining_while_reconnecting(twin: Twin) -> None:
    """During a drain without a connection handlers finish; the reconnect dispatches nothing."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b")
    twin.receive(consumer).fail()
    message = twin.receive(consumer)
    twin.broker.refuse_connections()
    twin.broker.cut()
    report = twin.call(connection.drain(timeout=5))
    assert report == redelivery.Report(redelivered=1, running=1)
    twin.broker.accept_connections()
    twin.advance(60)
    assert message.accept() is False
    assert [held.delivered for held in twin.broker.messages("orders")] == [False, False]


def test_used_outside_of_with(twin: Twin) -> None:
    """A connection that is used before or after its `with` says that it must be used inside, and how it is made."""
    connection = twin.make()
    block = "`async with redelivery.connect_async" if twin.asynchronous else "`with redelivery.connect"
    for state in ("not open yet", "closed"):
        with pytest.raises(ConfigurationError, match=re.escape(f"{state}; use it inside {block}(...)`")):
            twin.call(connection.consumer("orders"))
        with pytest.raises(ConfigurationError, match=state):
            twin.call(connection.send("orders", "x"))
        connection.listen("orders", twin.handler(lambda _: None))
        with pytest.raises(ConfigurationError, match=state):
            twin.run(connection)
        if state == "not open yet":
            twin.call(connection.__aenter__() if twin.asynchronous else connection.__enter__())
            twin.leave(connection)
            twin.leave(connection)
    with pytest.raises(ConfigurationError, match="entered once"):
        twin.call(connection.__aenter__() if twin.asynchronous else connection.__enter__())


def test_who_waits_for_a_consumer_that_is_drained_meanwhile_hears_of_it(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A `consumer` call that waits during a drain gets an error that does not name the broker as the cause."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        redelivery_broker.refuse_connections()
        redelivery_broker.cut()
        asked = connection._driver.subscribe(connection._dispatcher("orders", {}))
        connection.drain(0)
        assert not asked.done()
        redelivery_broker.accept_connections()
        redelivery_clock.advance(5)
        with pytest.raises(TransportError, match="closed before it was subscribed"):
            asked.result(0)
