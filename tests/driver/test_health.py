"""`connection.health()`: states, readiness and figures, without waiting."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.gates import PATIENCE, Gate
from tests.driver.twins import eventually

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.adapter import Agreed
from redelivery.core.commands import Subscribe
from redelivery.driver.connection.health_check import HealthCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.testing import ManualClock


@pytest.fixture
def gate(redelivery_clock: ManualClock) -> Iterator[Gate]:
    """Return a gate for handlers; it opens at the end of the test."""
    made = Gate(redelivery_clock)
    yield made
    made.open.set()


def states(connection: Any) -> list[str]:
    return [consumer.state for consumer in connection.health().consumers]


def test_a_connection_from_its_beginning_to_its_end(twin: Twin) -> None:
    """A connection is live from its beginning to its end, and ready while it consumes."""
    connection = twin.make()
    connection.listen("q", twin.handler(lambda _: None))
    before = connection.health()
    assert (before.live, before.ready, before.reasons) == (True, False, ("not connected yet",))
    assert (before.connection.address, before.connection.since_s) == ("", 0)
    assert states(connection) == ["starting"]
    twin.call(connection.__aenter__() if twin.asynchronous else connection.__enter__())
    assert connection.health().reasons == ("queue://q: starting",) or connection.health().reasons == (
        "q: starting",
    )
    twin.call(connection.start())
    assert (connection.health().ready, states(connection)) == (True, ["consuming"])
    twin.call(connection.drain())
    assert (connection.health().reasons, states(connection)) == (("draining",), ["drained"])
    twin.leave(connection)
    after = connection.health()
    assert (after.live, after.ready, after.reasons) == (True, False, ("the connection is closed",))


def test_a_broker_that_is_down_is_no_reason_to_restart(twin: Twin) -> None:
    """A connection without its broker is not ready, but live; reconnects are counted."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    twin.advance(5)
    assert connection.health().connection.since_s == 5
    twin.broker.refuse_connections()
    twin.broker.cut()
    for _ in range(10):
        twin.advance(60)
        health = connection.health()
        assert (health.live, health.ready, health.reasons) == (True, False, ("not connected",))
        assert [consumer.state for consumer in health.consumers] == ["waiting for the broker"]
    twin.broker.accept_connections()
    twin.advance(30)
    eventually(twin, lambda: connection.health().ready)
    assert connection.health().connection.reconnects == 1


def test_the_reason_of_a_refused_dead_letter_is_shown(twin: Twin) -> None:
    """A refused dead letter has its reason in the health until one is confirmed; the consumer stays ready."""

    def fails(message: Message) -> None:
        if message.body != b"good":
            raise redelivery.Poison("bad")

    connection = twin.connect()
    twin.listen(connection, "q", fails)
    twin.broker.refuse_settlements(2)
    twin.broker.send("q", b"bad")
    eventually(twin, lambda: connection.health().consumers[0].unconfirmed_cause is not None)
    (consumer,) = connection.health().consumers
    assert "the broker refused to settle" in str(consumer.unconfirmed_cause)
    assert (consumer.unconfirmed, connection.health().ready) == (1, True)
    twin.broker.send("q", b"good")
    eventually(twin, lambda: connection.report().accepted == 1)
    assert connection.health().consumers[0].unconfirmed_cause is not None
    twin.advance(10)
    eventually(twin, lambda: connection.report().poisoned == 1)
    (consumer,) = connection.health().consumers
    assert (consumer.unconfirmed, consumer.unconfirmed_cause) == (0, None)


def test_a_subscription_without_an_answer_is_not_ready(twin: Twin) -> None:
    """A consumer whose subscription is not confirmed after a reconnect is not ready."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    execute = connection._driver._adapter.execute

    def silent(commands: Any) -> None:
        execute([command for command in commands if not isinstance(command, Subscribe)])

    connection._driver._adapter.execute = silent
    twin.broker.cut()
    eventually(twin, lambda: connection.health().connection.reconnects)
    eventually(twin, lambda: connection.connected)
    assert connection.health().reasons == ("queue://q: waiting for the broker",)


def test_what_waits_is_no_reason_to_restart(twin: Twin) -> None:
    """Full parking and dead letters are shown in figures; the connection stays live and ready."""

    def fails(message: Message) -> None:
        raise ValueError(message.text)

    policies = RedeliveryPolicyMap(
        default=RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=60)
    )
    connection = twin.connect("?redelivery.maxParked=2", policies=policies)
    twin.listen(connection, "q", fails)
    for number in range(5):
        twin.broker.send("q", str(number))
    eventually(twin, lambda: connection.health().consumers[0].parked == 2)
    health = connection.health()
    assert (health.live, health.ready, health.totals.redelivered) == (True, True, 2)
    twin.advance(61)
    eventually(twin, lambda: connection.report().poisoned)
    assert connection.health().live


def test_each_consumer_has_its_figures(twin: Twin, gate: Gate) -> None:
    """The figures of listeners are in their order, then those of pulled consumers."""
    connection = twin.connect()
    connection.listen("q", gate, workers=3)
    twin.call(connection.start())
    twin.broker.send("q", "a")
    twin.advance(0)
    assert gate.entered()
    pulled = twin.call(connection.consumer("r"))
    twin.broker.send("r", "b")
    assert twin.receive(pulled) is not None
    twin.advance(7)
    first, second = connection.health().consumers
    assert (first.destination, first.workers, first.workers_alive, first.running) == ("queue://q", 3, 3, 1)
    assert (first.oldest_running_s, first.last_dispatch_s) == (7, 7)
    assert (second.destination, second.workers, second.running, second.state) == (
        "queue://r",
        0,
        1,
        "consuming",
    )
    assert (second.oldest_running_s, second.last_dispatch_s) == (0, None)
    gate.open.set()


def test_it_is_json(twin: Twin) -> None:
    """The health is JSON, as dictionaries and as text, with the names of the documentation."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    twin.broker.send("q", "a")
    eventually(twin, lambda: connection.report().accepted)
    found = json.loads(connection.health().as_json())
    assert found == connection.health().as_dict()
    assert list(found) == ["live", "ready", "reasons", "connection", "consumers", "totals", "unaccounted"]
    assert found["connection"]["address"] == twin.broker.uri
    assert (found["consumers"][0]["breaker"], found["totals"]["accepted"]) == ("closed", 1)


def test_no_credentials_are_in_it() -> None:
    """No credentials are in the health, nor in the address of a connection that was never open."""
    connection = redelivery.connect("stomp://someone:secret@127.0.0.1:1")
    assert "secret" not in connection.health().as_json()
    assert "someone" not in connection.health().as_json()


def test_a_pause_and_a_breaker_leave_a_web_application_ready() -> None:
    """With `ready_when="connected"` a pause or an open breaker leaves it ready; other reasons count."""
    connection = redelivery.connect("memory://x")
    with pytest.raises(redelivery.ConfigurationError, match="did you mean 'connected'"):
        connection.health("conected")  # type: ignore[arg-type]
    with connection:
        connection.consumer("q")
        check = HealthCheck(connection._driver, [], now=0.0, entered=True, drained=False, closed=False)
        for name, value in (("state", "paused"), ("breaker", "open"), ("breaker", "probing")):
            (consumer,) = connection.health().consumers
            changed = {each: getattr(consumer, each) for each in consumer.__slots__} | {name: value}
            consumers = [type(consumer)(**changed)]
            assert check._unready(consumers, "consuming") == [
                "queue://q: " + ("breaker open for 0 s (None)" if name == "breaker" else value)
            ]
            assert check._unready(consumers, "connected") == []


def test_it_answers_while_a_lock_is_held(twin: Twin) -> None:
    """A probe is answered while a thread hangs with the lock of a consumer, or of the driver."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    (dispatcher,) = connection._dispatchers
    found: list[Any] = []
    for lock in (dispatcher._lock, connection._driver._lock, connection._driver._writing):
        with lock:
            thread = threading.Thread(target=lambda: found.append(connection.health()))
            thread.start()
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert [health.live for health in found] == [True] * 3


def test_a_worker_that_ended_without_a_word_is_seen(twin: Twin) -> None:
    """A worker that has ended without an error and without a request is not live."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None, workers=2)
    workers = connection._listeners[0].runners

    class Ended:
        alive = False
        run = workers[0].run

    kept, workers[0] = workers[0], Ended()
    assert connection.health().reasons == ("queue://q: 1 of 2 workers have ended",)
    assert not connection.health().live
    workers[0] = kept


def test_a_session_that_is_closed_leaves_nothing(twin: Twin) -> None:
    """The listener of a closed session is not shown in the health."""
    connection = twin.connect()
    session = connection.session()
    session.listen("q", twin.handler(lambda _: None))
    twin.call(connection.start())
    assert states(connection) == ["consuming"]
    twin.call(session.close())
    eventually(twin, lambda: states(connection) == [])
    assert connection.health().live


def test_a_silent_broker_is_not_ready(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has sent nothing for two heart-beats, as a frozen one, is shown, and is not ready."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    assert connection.health().connection.silent_s is None, "the embedded broker has no heart-beats"
    monkeypatch.setattr(connection._driver._adapter, "silence", lambda: 99.0, raising=False)
    assert connection.health().ready, "a broker that sends no heart-beats may be silent"
    connection._driver._agreed = Agreed("x", 10.0, 10.0)
    for silence, ready in ((19.0, True), (21.0, False)):
        monkeypatch.setattr(connection._driver._adapter, "silence", lambda s=silence: s, raising=False)
        health = connection.health()
        assert (health.connection.silent_s, health.live, health.ready) == (silence, True, ready)
    assert health.reasons == ("nothing was heard from the broker for 21 s",)
