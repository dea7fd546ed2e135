"""Requirements of the ActiveMQ Java client's tests that no other test here covers; docs/requirements.md lists all."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import redelivery

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def policies(**options: Any) -> redelivery.RedeliveryPolicyMap:
    return redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(**options))


def rolling_back(twin: Twin, bodies: list[str], until: float, **policy: Any) -> dict[str, list[float]]:
    """Make a transacted listener roll back every message; return the times of all deliveries."""
    for body in bodies:
        twin.broker.send("q", body)
    connection: Any = twin.connect(policies=policies(**policy))
    session = connection.session("transacted")
    seen: defaultdict[str, list[float]] = defaultdict(list)
    began = twin.clock.monotonic()

    async def awaited(message: Any) -> None:
        seen[message.text].append(twin.clock.monotonic() - began)
        await session.rollback()

    def plain(message: Any) -> None:
        seen[message.text].append(twin.clock.monotonic() - began)
        session.rollback()

    session.listen("q", awaited if twin.asynchronous else plain)
    twin.call(connection.start())
    twin.advance(until)
    return seen


def test_each_message_waits_by_its_own_schedule(twin: Twin) -> None:
    """5, 35: ten messages, always rolled back, four redeliveries: fifty deliveries, each at its own time."""
    bodies = [str(number) for number in range(10)]
    seen = rolling_back(
        twin, bodies, 60, maximum_redeliveries=4, initial_redelivery_delay=1.0, redelivery_delay=1.0,
        use_exponential_back_off=True, back_off_multiplier=2.0,
    )  # fmt: skip
    assert {body: [round(at, 3) for at in times] for body, times in seen.items()} == {
        body: [0, 1, 3, 7, 15] for body in bodies
    }
    assert Counter(letter.body.decode() for letter in twin.broker.dead_letters()) == Counter(bodies)


def test_a_first_redelivery_at_once_and_later_ones_fixed(twin: Twin) -> None:
    """6, 18, 19: with an initial delay of 0 the first redelivery is at once, each later one after the fixed delay."""
    seen = rolling_back(
        twin, ["1"], 10, maximum_redeliveries=2, initial_redelivery_delay=0.0, redelivery_delay=1.0
    )
    assert [round(at, 3) for at in seen["1"]] == [0, 0, 1]


def test_a_capped_back_off_goes_on_and_on(twin: Twin) -> None:
    """8, 9: without a maximum a message is redelivered for ever, and no delay exceeds the cap."""
    seen = rolling_back(
        twin, ["1"], 20, maximum_redeliveries=-1, initial_redelivery_delay=0.01, redelivery_delay=0.01,
        use_exponential_back_off=True, back_off_multiplier=2.0, maximum_redelivery_delay=1.0,
    )  # fmt: skip
    waits = [after - before for before, after in zip(seen["1"], seen["1"][1:], strict=False)]
    assert len(waits) > 20
    assert max(waits) == pytest.approx(1.0)


def test_a_set_that_is_rolled_back_comes_again_in_order(twin: Twin) -> None:
    """32, 33, 34: a rolled back set is redelivered once, in order, when due; later messages do not wait for it."""
    connection: Any = twin.connect(policies=policies(initial_redelivery_delay=6.0))
    session = connection.session("transacted")
    consumer = twin.call(session.consumer("q"))
    for number in range(20):
        twin.broker.send("q", str(number))
    first = [twin.receive(consumer) for _ in range(20)]
    twin.call(session.rollback())
    for number in range(20, 40):
        twin.broker.send("q", str(number))
    fresh = [twin.receive(consumer) for _ in range(20)]
    assert [message.text for message in fresh] == [str(number) for number in range(20, 40)]
    twin.advance(5.9)
    assert twin.receive(consumer) is None
    twin.advance(0.1)
    again = [twin.receive(consumer) for _ in range(20)]
    assert [message.text for message in again] == [message.text for message in first]
    assert twin.receive(consumer) is None
    twin.call(session.commit())
    assert twin.broker.depth("q") == 0


def test_one_message_is_finished_before_the_next(twin: Twin) -> None:
    """22: in order, a listener of an `auto` session that fails twice gets message 1 three times before message 2."""
    for body in ("1", "2"):
        twin.broker.send("q", body)
    connection: Any = twin.connect(
        "?jms.nonBlockingRedelivery=false", policies=policies(maximum_redeliveries=3)
    )
    seen: list[str] = []

    def handle(message: Any) -> None:
        seen.append(message.text)
        if message.delivery_count < 3:
            raise ValueError("again")

    connection.session("auto").listen("q", twin.handler(handle))
    twin.call(connection.start())
    twin.advance(30)
    assert seen == ["1", "1", "1", "2", "2", "2"]


@pytest.mark.parametrize("source", ["queue://q", "topic://t"])
def test_what_is_unacknowledged_comes_again(twin: Twin, source: str) -> None:
    """26, 28, 30: `recover` redelivers unacknowledged messages in order, with the flag; they can be acknowledged."""
    connection: Any = twin.connect(policies=policies(initial_redelivery_delay=0.0))
    session = connection.session("individual")
    consumer = twin.call(session.consumer(source))
    for body in ("1", "2", "3"):
        twin.broker.send(source, body)
    messages = [twin.receive(consumer) for _ in range(3)]
    messages[1].accept()
    twin.call(session.recover())
    again = [twin.receive(consumer) for _ in range(2)]
    assert [(message.text, message.redelivered) for message in again] == [("1", True), ("3", True)]
    assert all(message.accept() for message in again)
    assert twin.receive(consumer) is None


def test_the_count_of_a_message_grows_with_each_session(twin: Twin) -> None:
    """25, 27: with a new session for each rollback the delivery count is the number of deliveries so far."""
    twin.broker.send("q", "1")
    connection: Any = twin.connect(policies=policies(initial_redelivery_delay=0.0, redelivery_delay=0.0))
    for count in range(1, 6):
        session = connection.session("transacted")
        message = twin.receive(twin.call(session.consumer("q")))
        assert (message.delivery_count, message.redelivered) == (count, count > 1)
        twin.call(session.rollback())
        twin.call(session.close())
