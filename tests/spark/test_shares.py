"""A query whose tasks consume for themselves: what is redelivered, dead-lettered, repeated and never lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import AT_ONCE, FAST, HOURS
from tests.spark.query import KillsQuery

from redelivery.errors import ConfigurationError
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.options.stream_options import read_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Query, Row

    from redelivery.testing import MemoryBroker


@pytest.fixture
def shared(make_query: Callable[..., Query]) -> Callable[..., Query]:
    """Make queries with two tasks that consume."""
    return lambda **options: make_query(consumers="executors", **options)


def put(broker: MemoryBroker, *bodies: str) -> None:
    """Send messages."""
    for body in bodies:
        broker.send("orders", body)


def refuses(*kinds: str) -> Callable[[Row], None]:
    """Return a handler that fails for bodies that begin so; `flaky` ones at their first two deliveries."""

    def handle(row: Row) -> None:
        body = row["body"].decode()
        if body.startswith(kinds) and not (body.startswith("flaky") and row["delivery_count"] == 3):
            raise ValueError(body)

    return handle


def test_each_message_comes_once(redelivery_broker: MemoryBroker, shared: Callable[..., Query]) -> None:
    """The driver finds the first one, and then the tasks take theirs until there are no more."""
    names = [f"good-{n}" for n in range(100)]
    put(redelivery_broker, *names)
    query = shared(maxMessagesPerTrigger=20)
    query.drain()
    assert sorted(query.bodies()) == sorted(names)
    assert redelivery_broker.depth("orders") == 0
    put(redelivery_broker, "late")
    query.drain()
    assert query.bodies()[-1] == "late"


@pytest.mark.parametrize("limit", [{"maxMessagesPerTrigger": 3}, {"maxBytesPerTrigger": 300}])
def test_tasks_share_the_limits_of_a_batch(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query], limit: dict[str, int]
) -> None:
    """However many tasks there are, a batch has no more messages than it may; in bytes, but for each task's last."""
    names = [f"{n:0100}" for n in range(20)]
    put(redelivery_broker, *names)
    query = shared(partitions=4, **limit)
    query.drain()
    assert sorted(query.bodies()) == names
    most = 3 if "maxMessagesPerTrigger" in limit else 1 + 4
    assert max(len(rows) for rows in query.output.values()) <= most


def test_nothing_to_do_is_no_batch(redelivery_broker: MemoryBroker, shared: Callable[..., Query]) -> None:
    """After the last messages there is one batch without any, and then none."""
    put(redelivery_broker, "a")
    query = shared()
    assert query.step() != []
    assert [query.step() for _ in range(4)].count([]) <= 1
    assert query.step() is None


def test_a_failed_row_comes_again_and_in_the_end_dies(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query]
) -> None:
    """Whoever took it from the broker, the driver counts, waits, and dead-letters it."""
    put(redelivery_broker, *(f"good-{n}" for n in range(10)), "bad", "flaky")
    query = shared()
    query.drain(refuses("bad", "flaky"))
    assert Counter(query.bodies()) == Counter({f"good-{n}": 1 for n in range(10)} | {"flaky": 1})
    (letter,) = redelivery_broker.dead_letters()
    assert (letter.body, letter.headers["redeliveryCount"]) == (b"bad", "3")


def test_what_cannot_be_decoded_is_dead_lettered_by_its_task(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query]
) -> None:
    """No row is made of it, and progress counts it."""
    put(redelivery_broker, "1")
    redelivery_broker.send("orders", b"\xff" * 3)
    redelivery_broker.send("orders", b"\xfe" * 3)
    put(redelivery_broker, *"23456")
    query = shared(decode="json", maxMessagesPerTrigger=2)
    query.drain()
    assert sorted(query.bodies()) == list("123456")
    assert len(redelivery_broker.dead_letters()) == 2
    assert query.source is not None
    assert (query.source.report() or {})["undecodable"] == 2


def test_a_message_that_kills_the_query_is_found(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query]
) -> None:
    """It is isolated from those that came in the same batch, whichever task took it."""
    put(redelivery_broker, *(f"good-{n}" for n in range(9)), "killer", *(f"good-{n}" for n in range(9, 12)))

    def handle(row: Row) -> None:
        if row["body"] == b"killer":
            raise KillsQuery("killer")

    query = shared(**{"redelivery.maximumDeferrals": 3})
    query.drain(handle, evidence=True)
    assert Counter(query.bodies()) == Counter(f"good-{n}" for n in range(12))
    assert [letter.body for letter in redelivery_broker.dead_letters()] == [b"killer"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_task_that_dies_is_tried_again(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query], when: str
) -> None:
    """Before it has published, its messages come again; after it, the next attempt reads them, and copies are known."""
    names = [f"good-{n}" for n in range(10)]
    put(redelivery_broker, *names)
    query = shared()
    query.start()
    query.task_dies = when
    query.drain()
    assert sorted(query.bodies()) == sorted(names)
    assert redelivery_broker.depth("orders") == 0


def test_a_batch_that_was_on_its_way_is_the_same_after_a_restart(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query]
) -> None:
    """What tasks took before the driver died is in their parts; what they did not, they take then."""
    names = [f"good-{n}" for n in range(10)]
    put(redelivery_broker, *names)
    query = shared()
    source = query.start()
    query.planned = source.latest(0, 100)
    source.slices(query.planned)
    first = query._shared(source.shares(query.planned)[0])
    query.die()
    rows = query.step()
    assert rows is not None
    assert [row["body"] for row in first] == [row["body"] for row in rows if row in first]
    query.drain()
    assert sorted(query.bodies()) == sorted(names)


@pytest.mark.usefixtures("own_ids")
def test_messages_of_one_id_in_several_tasks(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query]
) -> None:
    """Tasks do not know of each other's: those that fail die, each by itself, and those that pass are not lost."""
    for n in range(12):
        redelivery_broker.send("orders", f"{'bad' if n % 3 else 'good'}-{n}", headers={"id": "X"})
    query = shared(maxMessagesPerTrigger=6)
    query.drain(refuses("bad"))
    assert set(query.bodies()) == {f"good-{n}" for n in range(0, 12, 3)}
    assert {letter.body.decode() for letter in redelivery_broker.dead_letters()} == {
        f"bad-{n}" for n in range(12) if n % 3
    }


@pytest.mark.usefixtures("own_ids")
@pytest.mark.parametrize("uri", [AT_ONCE, FAST])
def test_a_dead_letter_that_is_put_back(
    redelivery_broker: MemoryBroker,
    shared: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    uri: str,
) -> None:
    """It is handled again, with its id and its body, and marked as redelivered, as what a task did not take is."""
    query = shared(uri=uri)
    for body in ("good", "bad", "good"):
        redelivery_broker.send("orders", body, headers={"id": body})
    query.drain(refuses("bad"))
    assert len(redelivery_broker.dead_letters()) == 1
    monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))
    for body in ("good-2", "good-3", "good-4", "bad"):
        redelivery_broker.send("orders", body, headers={"id": body})
    query.drain()
    assert query.bodies()[-4:].count("bad") == 1


def test_available_now_ends_when_all_of_it_was_taken(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query]
) -> None:
    """Not at the first batch in which a task has got nothing."""
    names = [f"good-{n}" for n in range(50)]
    put(redelivery_broker, *names)
    query = shared(maxMessagesPerTrigger=8)
    query.start().available_now()
    while query.step() is not None:
        pass
    assert sorted(query.bodies()) == sorted(names)


@pytest.mark.parametrize("ack", ["wal", "commit"])
def test_a_log_goes_on_with_other_consumers(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], shared: Callable[..., Query], ack: str
) -> None:
    """A query may be started with consumers=driver after one with consumers=executors: its batch is complete."""
    put(redelivery_broker, *(f"good-{n}" for n in range(10)))
    query = shared()
    source = query.start()
    query.planned = source.latest(0, 100)
    source.slices(query.planned)
    query._shared(source.shares(query.planned)[0])
    query.options = make_query(ack=ack, maxMessagesPerTrigger=2, **{"redelivery.maxParked": 1}).options
    query.die()
    put(redelivery_broker, *(f"good-{n}" for n in range(10, 50)))  # more than the driver's window
    query.drain()
    assert sorted(query.bodies()) == sorted(f"good-{n}" for n in range(50))
    assert redelivery_broker.dead_letters() == []


def test_no_task_consumes_for_a_query_whose_driver_does(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], shared: Callable[..., Query]
) -> None:
    """Its url may have credentials, which no executor gets; the places of a batch that is on its way are taken."""
    put(redelivery_broker, *"abcdef")
    query = shared(partitions=3)
    source = query.start()
    number = query.planned = source.latest(0, 100)
    source.slices(number)
    query._shared(source.shares(number)[1])
    query.die()
    query.options = make_query().options
    source = query.start()
    slices = source.slices(number)
    assert source.shares(number) == []
    assert [end > begin for name, begin, end in slices if name.startswith("parts/")] == [False, True, False]


def test_what_the_broker_keeps_is_not_left_to_tasks(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], shared: Callable[..., Query]
) -> None:
    """They would take it for their own; so the driver goes on alone until it is done with."""
    put(redelivery_broker, "bad")
    query = make_query(ack="commit")
    query.step(refuses("bad"))
    query.step(refuses("bad"))
    query.die()
    query.options = shared().options
    with pytest.raises(ConfigurationError, match="1 rows wait in the log whose messages"):
        query.start()
    query.options = make_query().options
    query.drain(refuses("bad"))
    query.die()
    query.options = shared().options
    put(redelivery_broker, "good")
    query.drain()
    assert query.bodies() == ["good"]


def test_bodies_that_did_not_arrive_whole_do_not_stop_the_driver(
    redelivery_broker: MemoryBroker, shared: Callable[..., Query]
) -> None:
    """It may have two messages at once, and dead-letters those that would have to stay, as tasks do."""
    for n in range(3):
        redelivery_broker.send("orders", f"bad-{n}".encode(), body_kind="partial")
    query = shared(uri=HOURS)
    for _ in range(3):
        query.step(refuses("bad"))
    assert len(redelivery_broker.dead_letters()) == 3
    assert query.bodies() == []
    put(redelivery_broker, "good")
    query.step()
    query.step()
    assert query.bodies() == ["good"]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("ack", "commit", "ack=commit needs one connection"),
        ("destination", "topic://news", "each of several consumers of a topic"),
        ("url", "stomp://b:1?jms.clientID=me", "jms.clientID means one connection"),
        ("subscription", "mine", "each of several consumers of a topic"),
        ("url", "stomp://b:1?jms.userName=me&jms.password=hush", "would be shipped to every executor"),
    ],
)
def test_what_tasks_cannot_do_is_refused(option: str, value: str, said: str) -> None:
    """At load, in one sentence."""
    given = {"url": "stomp://b:1", "destination": "orders", "walDir": "/log", "consumers": "executors"}
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_options(given | {option: value})
    assert "hush" not in str(caught.value)
