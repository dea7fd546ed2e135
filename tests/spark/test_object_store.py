"""The log in an object store: what one must be able to do, and who may write after another start."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fsspec")

from redelivery_spark.wal.task_parts import FOLDER as PARTS
from redelivery_spark.wal.task_parts import TaskParts
from tests.spark import sound
from tests.spark.conftest import FAST
from tests.spark.query import Query

from redelivery.errors import ConfigurationError
from redelivery_spark.stream.startup import LogInUse
from redelivery_spark.wal.records import Records, Refusal, Verdict, verdict_name
from redelivery_spark.wal.store import LogTaken, prepared, store_at
from redelivery_spark.wal.wal_state import State, States

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.spark.query import Row

    from redelivery.testing import MemoryBroker
    from redelivery_spark.wal.wal_store import WalStore


@pytest.fixture(autouse=True)
def stores() -> Iterator[None]:
    """All stores are there, and empty."""
    sound.register()
    yield
    sound.register()


@pytest.fixture(params=["folder", "sound://bucket/log"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> WalStore:
    """A folder, and an object store."""
    url = str(tmp_path / "log") if request.param == "folder" else request.param
    return prepared(url, "a", "b", "verdicts")


def bad(row: Row) -> None:
    """Refuse what is bad."""
    if row["body"].startswith(b"bad"):
        raise ValueError(row["body"])


def test_a_store_holds_what_was_published_first(store: WalStore) -> None:
    """A name is taken once; it is listed, in order; it can be removed, and then taken again."""
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
    """A store is pickled as where it is, and finds the same things again."""
    store.publish("a/1", b"one")
    written = pickle.dumps(store)
    assert len(written) < 300
    again: WalStore = pickle.loads(written)
    assert again.read("a/1") == b"one"


def test_a_store_without_exclusive_creation_is_refused() -> None:
    """By trying, in one sentence: whether it ignores the condition, looks first, or writes bit by bit."""
    for url, said in {
        "deaf://bucket": "walDir=deaf://bucket cannot hold a log: a name can be taken twice there, so that attempts",
        "looks://bucket": "walDir=looks://bucket cannot hold a log: of 8 who took a name at once . were told",
        "plain://bucket": "walDir=plain://bucket: Plain has no conditional put",
        "nowhere://bucket": "walDir=nowhere://bucket: Protocol not known: nowhere",
    }.items():
        with pytest.raises(ConfigurationError, match=said):
            prepared(url)


def test_an_answer_that_was_lost() -> None:
    """Who finds its own object in place of an answer was first."""
    store = prepared("forgetful://bucket")
    assert store.publish("a/1", b"mine")
    assert not store.publish("a/1", b"other")


def test_no_secret_in_the_url() -> None:
    """Plans and logs show it."""
    for url in ("s3://key:hidden@bucket/log", "s3://bucket/log?secret=hidden"):
        with pytest.raises(ConfigurationError, match="no password or option belongs into it") as raised:
            store_at(url)
        assert "hidden" not in str(raised.value)


def test_where_no_name_can_be_created_exclusively() -> None:
    """HDFS has no such thing that can be reached from here."""
    with pytest.raises(ConfigurationError, match="walDir=hdfs://…: there no name can be created exclusively"):
        store_at("hdfs://namenode/log")


def test_a_row_has_one_copy(store: WalStore) -> None:
    """Of tasks that find it at one time, one may drop a message for it; also where an answer may be lost."""
    store.prepare(PARTS)
    parts = TaskParts(store)
    assert [parts.claim("segments/000000000001.arrow", row) for row in (0, 0, 1)] == [True, False, True]
    assert parts.of(1) == []


def test_a_query_over_an_object_store(redelivery_broker: MemoryBroker) -> None:
    """Everything once, dead letters with their counts; over starts, too; and old objects are removed."""
    for number in range(30):
        redelivery_broker.send("orders", f"{'bad' if number == 7 else 'good'}-{number}")
    with Query(redelivery_broker, "sound://bucket/log", uri=FAST, maxMessagesPerTrigger=5) as query:
        for _ in range(3):
            query.step(bad)
        query.die()
        query.drain(bad)
    assert Counter(query.bodies()) == Counter(f"good-{n}" for n in range(30) if n != 7)
    (dead,) = redelivery_broker.dead_letters()
    assert dead.headers["redeliveryCount"] == "3"
    left = Counter(name.split("/")[3] for name in sound.Sound.store)
    assert left["state"] <= 2
    assert left["segments"] <= 4
    assert left["verdicts"] + left["failures"] + left["probe"] == 0


@pytest.mark.parametrize("point", ["compose", "settle", "settle with refusals"])
def test_a_runner_that_was_given_up_comes_back(redelivery_broker: MemoryBroker, point: str) -> None:
    """Its next publish fails with one sentence, it acknowledges nothing more, and nothing is lost or there twice."""
    names = ["bad-0", *(f"good-{number}" for number in range(1, 12))]
    for name in names:
        redelivery_broker.send("orders", name)
    url = "sound://bucket/log"
    old = Query(redelivery_broker, url, uri=FAST, maxMessagesPerTrigger=4)
    new = Query(redelivery_broker, url, uri=FAST, maxMessagesPerTrigger=4)
    with old, new:
        source = old.start()
        old.planned = source.latest(0, 4)
        if point != "compose":
            old.step(bad if point == "settle with refusals" else lambda _: None)
        new.planned, new.committed, new.output = old.planned, old.committed, dict(old.output)
        new.start()  # the same query, in another process
        if point == "compose":
            old.step(bad)
        with pytest.raises(LogTaken, match="taken over by another start of a query"):
            old.step(bad)
        old.die()
        new.drain(bad)
    expected = names if point == "settle" else names[1:]
    assert Counter(new.bodies()) == Counter(expected)
    assert [dead.body for dead in redelivery_broker.dead_letters()] == (
        [] if point == "settle" else [b"bad-0"]
    )
    assert redelivery_broker.depth("orders") == 0


def test_a_runner_that_stood_still_while_it_published(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that it writes after it was given up does not count: none of its messages is acknowledged."""
    for number in range(3):
        redelivery_broker.send("orders", f"good-{number}")
    url = "sound://bucket/log"
    with Query(redelivery_broker, url) as old, Query(redelivery_broker, url) as new:
        store = old.start()._journal.segments.store
        publish = store.publish

        def late(name: str, content: bytes) -> bool:
            new.start()
            return publish(name, content)

        monkeypatch.setattr(store, "publish", late)
        with pytest.raises(LogTaken):
            old.step()
        assert redelivery_broker.depth("orders") == 3


def test_two_starts_at_once(redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is refused for now, and can try again."""
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
        with pytest.raises(LogInUse, match="is being written by another start of a query"):
            one.start()
        two.die()
        one.start()


def test_two_verdicts_at_once(store: WalStore) -> None:
    """The first counts for both attempts."""
    records = Records(store)
    first = {5: Refusal(1, "fail", "no")}
    name = verdict_name(1, "aa", [5])
    assert records.judge(name, Verdict([5], first), durable=True)
    assert not records.judge(name, Verdict([5]), durable=False)
    earlier = records.of_batch(1, "aa")
    earlier.look(5, 5)
    assert earlier.refused == first
