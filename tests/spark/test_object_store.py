"""The log in an object store: the required operations, and writes after another start."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.needs import need

need("fsspec")

from tests.spark import sound
from tests.spark.conftest import FAST
from tests.spark.query import Query, readers_of

from redelivery.errors import ConfigurationError
from redelivery_spark.stream.stream_reader import LogInUse
from redelivery_spark.wal.records import Records, Refusal, Verdict, verdict_name
from redelivery_spark.wal.store import LogTaken, prepared, store_at
from redelivery_spark.wal.wal_state import State, States

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from tests.spark.query import Row

    from redelivery.testing import ManualClock, MemoryBroker
    from redelivery_spark.wal.lane import Lane, Segment
    from redelivery_spark.wal.wal_store import WalStore


@pytest.fixture(autouse=True)
def stores() -> Iterator[None]:
    """All stores, empty."""
    sound.register()
    yield
    sound.register()


@pytest.fixture(params=["folder", "sound://bucket/log"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> WalStore:
    """A folder, and an object store."""
    url = str(tmp_path / "log") if request.param == "folder" else request.param
    return prepared(url, "a", "b", "verdicts")


def bad(row: Row) -> None:
    """Refuse bad rows."""
    if row["body"].startswith(b"bad"):
        raise ValueError(row["body"])


def test_a_store_holds_what_was_published_first(store: WalStore) -> None:
    """A name can be created once; it is listed, in order; after its removal it can be created again."""
    assert store.publish("a/2", b"two")
    assert not store.publish("a/2", b"other")
    assert store.publish("a/1", memoryview(b"one"))
    assert (store.read("a/2"), store.read("a/3")) == (b"two", None)
    assert (store.names("a"), store.names("b"), store.names("c")) == (["a/1", "a/2"], [], [])
    store.remove(["a/2", "a/3"])
    store.sweep("a")
    assert store.names("a") == ["a/1"]
    assert store.publish("a/2", b"third")
    unlock = store.lock()
    assert unlock is not None
    assert "process" in store.holder()
    unlock()


def test_what_goes_to_executors_is_a_url(store: WalStore) -> None:
    """A store is pickled as its location, and finds the same objects again."""
    store.publish("a/1", b"one")
    written = pickle.dumps(store)
    assert len(written) < 300
    again: WalStore = pickle.loads(written)
    assert again.read("a/1") == b"one"


def test_a_store_without_exclusive_creation_is_refused() -> None:
    """A store that ignores the condition, checks first, or writes in parts is found out by trying, and refused."""
    for url, said in {
        "deaf://bucket": "walDir=deaf://bucket: cannot hold a log, because a name can be created twice there",
        "looks://bucket": "walDir=looks://bucket: cannot hold a log, because of 8 concurrent creations",
        "plain://bucket": "walDir=plain://bucket: Plain has no conditional put",
        "nowhere://bucket": "walDir=nowhere://bucket: Protocol not known: nowhere",
    }.items():
        with pytest.raises(ConfigurationError, match=said):
            prepared(url)


def test_an_answer_that_was_lost() -> None:
    """A writer that finds its own object instead of an answer was first."""
    store = prepared("forgetful://bucket")
    assert store.publish("a/1", b"mine")
    assert not store.publish("a/1", b"other")


def test_no_secret_in_the_url() -> None:
    """A secret in the URL is refused: plans and logs show it."""
    for url in ("s3://key:hidden@bucket/log", "s3://bucket/log?secret=hidden"):
        with pytest.raises(ConfigurationError, match="must have no password or options") as raised:
            store_at(url)
        assert "hidden" not in str(raised.value)


def test_where_no_name_can_be_created_exclusively() -> None:
    """HDFS is refused: it has no exclusive creation that can be reached from here."""
    with pytest.raises(ConfigurationError, match="walDir=hdfs://…: has no exclusive creation"):
        store_at("hdfs://namenode/log")


def test_a_query_over_an_object_store(redelivery_broker: MemoryBroker) -> None:
    """Each message is processed once, also over starts; dead letters have their counts; old objects are removed."""
    for number in range(30):
        redelivery_broker.send("orders", f"{'bad' if number == 7 else 'good'}-{number}")
    with Query(redelivery_broker, "sound://bucket/log", uri=FAST, maxRowsPerTrigger=5) as query:
        for _ in range(3):
            query.step(bad)
        query.die()
        query.drain(bad)
    assert Counter(query.bodies()) == Counter(f"good-{n}" for n in range(30) if n != 7)
    (dead,) = redelivery_broker.dead_letters()
    assert dead.headers["redeliveryCount"] == "3"
    left = Counter(name.split("/")[-2] for name in sound.Sound.store)
    assert left["state"] <= 2
    assert left["s0"] == 1, left
    assert left["verdicts"] + left["failures"] + left["probe"] + left["rows"] == 0


def both(broker: MemoryBroker, **options: object) -> tuple[Query, Query]:
    """Return the same query twice, in two processes."""
    url = "sound://bucket/log"
    return Query(broker, url, uri=FAST, **options), Query(broker, url, uri=FAST, **options)


def meanwhile(monkeypatch: pytest.MonkeyPatch, lane: Lane, happens: Callable[[], object]) -> None:
    """Call `happens` before a lane's next segment is published: its process stands still."""
    publish = lane.publish

    def late(table: pa.Table) -> Segment:
        happens()
        return publish(table)

    monkeypatch.setattr(lane, "publish", late)


def follow(new: Query, old: Query) -> None:
    """Continue from the offsets that the old process's Spark has written."""
    new.planned, new.committed, new.batch, new.output = (
        old.planned,
        old.committed,
        old.batch,
        dict(old.output),
    )


def _go_on(old: Query) -> None:
    """Run batches of this Spark. Only one of the two can commit a batch: those of this one do not count."""
    for _ in range(9):
        old.step(bad)


@pytest.mark.parametrize("point", ["planned", "read", "committed", "settled", "settled with refusals"])
def test_a_runner_that_was_given_up_comes_back(redelivery_broker: MemoryBroker, point: str) -> None:
    """A replaced runner ends with one sentence before it settles, and no message is lost or duplicated."""
    names = ["bad-0", *(f"good-{number}" for number in range(1, 12))]
    for name in names:
        redelivery_broker.send("orders", name)
    old, new = both(redelivery_broker)
    refuses = bad if point != "settled" else lambda _: None
    with old, new:
        old.plan()
        if point == "read":
            old.read()
        elif point != "planned":
            old.step(refuses)
        if point.startswith("settled"):
            redelivery_broker.send("orders", "more")
            old.plan()
        follow(new, old)
        new.start()
        for number in range(4):
            redelivery_broker.send("orders", f"late-{number}")
        with pytest.raises(LogTaken, match="taken over by another start of a query"):
            _go_on(old)
        old.die()
        new.drain(bad)
    expected = [*names[point != "settled" :], *(f"late-{number}" for number in range(4))]
    assert Counter(new.bodies()) == Counter([*expected, *["more"] * point.startswith("settled")])
    assert [dead.body for dead in redelivery_broker.dead_letters()] == (
        [] if point == "settled" else [b"bad-0"]
    )
    assert redelivery_broker.depth("orders") == 0


def test_a_runner_that_stood_still_while_it_published(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment of a replaced runner is part of the log, or its messages stay on the broker: each is processed once."""
    for number in range(3):
        redelivery_broker.send("orders", f"good-{number}")
    old, new = both(redelivery_broker)
    with old, new:
        lane = old.start()._journal.lanes[1]

        def happens() -> None:
            new.start()
            redelivery_clock.advance(5)

        meanwhile(monkeypatch, lane, happens)
        with pytest.raises(LogTaken):
            old.step()
        assert redelivery_broker.depth("orders") == 3
        old.die()
        new.drain()
    assert sorted(new.bodies()) == [f"good-{number}" for number in range(3)]
    assert redelivery_broker.depth("orders") == 0


def test_what_an_old_runner_has_appended_and_accepted_is_read(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A segment of a runner that does not know yet that it was replaced is read without any further message."""
    old, new = both(redelivery_broker)
    with old, new:
        old.start()
        old.read_ahead()
        new.start()
        new.read_ahead()
        readers_of(new.start()).source.close()
        redelivery_broker.send("orders", "good")
        lane_reader = readers_of(old.start()).reader
        lane_reader._check = lambda: None
        old.read_ahead()
        assert redelivery_broker.depth("orders") == 0
        old.die()
        new.die()
        new.drain()
        assert new.bodies() == ["good"]
        new.die()
    del redelivery_clock


def test_rows_that_an_old_runner_delivers_again_come_once(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A row that waits in both runners is redelivered by one of them only, and passes once."""
    redelivery_broker.send("orders", "late")

    def handler(row: Row) -> None:
        if row["delivery_count"] == 1:
            raise ValueError

    old, new = both(redelivery_broker)
    with old, new:
        old.step(handler)
        old.step(handler)
        follow(new, old)
        new.start().begin(new.committed)
        redelivery_clock.advance(3)
        readers_of(old.start()).reader._check = lambda: None
        with pytest.raises(LogTaken):
            old.plan()
        old.die()
        new.drain(handler)
    assert new.bodies() == ["late"]
    assert new.output[max(new.output)][0]["delivery_count"] == 2


def test_two_starts_at_once(redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two concurrent starts is refused for now, and can try again."""
    load = States.load
    with (
        Query(redelivery_broker, "sound://bucket/log") as one,
        Query(redelivery_broker, "sound://bucket/log") as two,
    ):

        def late(states: States) -> State | None:
            found = load(states)
            monkeypatch.undo()
            two.start()
            return found

        monkeypatch.setattr(States, "load", late)
        with pytest.raises(LogInUse, match="being written by another start of a query"):
            one.start()
        two.die()
        one.start()


def test_two_verdicts_at_once(store: WalStore) -> None:
    """The first of two concurrent verdicts counts for both attempts."""
    records = Records(store)
    first = Verdict([1, 2], {1: Refusal(1, "fail", "no")})
    name = verdict_name(1, "m", [1, 2])
    assert records.judge(name, first, durable=True)
    assert not records.judge(name, Verdict([1, 2]), durable=True)
    found = records.of_batch(1, "m")
    found.look(1, 2)
    assert found.refused == first.refused
