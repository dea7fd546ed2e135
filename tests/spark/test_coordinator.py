"""Batches, verdicts, replays and deaths of a query, in virtual time."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import FAST
from tests.spark.query import Killed, KillsQuery, Query, Row, fails_bad

from redelivery.errors import ConfigurationError, RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redelivery.testing import ManualClock, MemoryBroker

MakeQuery = "Callable[..., Query]"


def fill(broker: MemoryBroker, count: int, **bad: int) -> None:
    """Send numbered messages; `bad` maps a prefix to the number of the message that has it."""
    at = {number: prefix for prefix, number in bad.items()}
    for number in range(count):
        broker.send("orders", f"{at.get(number, 'good')}-{number}")


def test_all_messages_come_in_batches(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Each message is in one batch, no batch is larger than the limit, and none is empty."""
    fill(redelivery_broker, 25)
    query = make_query(maxMessagesPerTrigger=10)
    query.drain()
    assert [len(rows) for rows in query.output.values()] == [10, 10, 5]
    assert Counter(query.bodies()) == Counter(f"good-{n}" for n in range(25))
    assert redelivery_broker.depth("orders") == 0


def test_a_batch_ends_at_its_bytes(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """MaxBytesPerTrigger bounds a batch, but for the message that passes it."""
    for _ in range(6):
        redelivery_broker.send("orders", "x" * 100)
    query = make_query(maxBytesPerTrigger=250)
    query.drain()
    assert [len(rows) for rows in query.output.values()] == [3, 3]


def test_failing_rows_are_redelivered_and_poisoned(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A row that fails comes again after its delay; past its redeliveries it is a dead letter with its cause."""
    fill(redelivery_broker, 30, bad=7, flaky=9)
    query = make_query(maxMessagesPerTrigger=10)
    seen: list[tuple[str, int, float]] = []

    def handler(row: Row) -> None:
        if not row["body"].startswith(b"good"):
            seen.append((row["body"].decode(), row["delivery_count"], redelivery_clock.monotonic()))
        fails_bad(row)

    query.drain(handler)
    assert Counter(query.bodies()) == Counter(
        f"{'flaky' if n == 9 else 'good'}-{n}" for n in range(30) if n != 7
    )
    (dead,) = redelivery_broker.dead_letters()
    assert (dead.body, dead.headers["redeliveryCount"], dead.headers["redeliveryCause"]) == (
        b"bad-7", "3", "ValueError('bad-7')",
    )  # fmt: skip
    for name in ("bad-7", "flaky-9"):
        times = [at for body, _, at in seen if body == name]
        assert [count for body, count, _ in seen if body == name] == [1, 2, 3]
        assert times[1] - times[0] >= 1.0
        assert times[2] - times[1] >= 2.0


def test_a_restart_keeps_counts_and_times(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """Killed while rows wait, the query goes on with their counts, and not before their time."""
    fill(redelivery_broker, 3, bad=1)
    query = make_query()
    at: list[float] = []

    def handler(row: Row) -> None:
        if row["body"].startswith(b"bad"):
            at.append(redelivery_clock.monotonic())
        fails_bad(row)

    for _ in range(40):
        query.step(handler)
        query.step(handler)
        query.die()
        if redelivery_broker.dead_letters():
            break
    assert len(at) == 3
    assert at[1] - at[0] >= 1.0
    assert at[2] - at[1] >= 2.0
    assert redelivery_broker.dead_letters()[0].headers["redeliveryCount"] == "3"


@pytest.mark.parametrize("evidence", [True, False])
def test_a_message_that_kills_the_query(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], *, evidence: bool
) -> None:
    """It is found in smaller and smaller batches, charged alone, and dead-lettered; all others pass once, uncharged."""
    fill(redelivery_broker, 100, killer=42)
    query = make_query(maxMessagesPerTrigger=100, uri=f"{FAST}&redelivery.maximumDeferrals=3")
    deliveries: Counter[str] = Counter()

    def handler(row: Row) -> None:
        deliveries[row["body"].decode()] = max(deliveries[row["body"].decode()], row["delivery_count"])
        fails_bad(row)

    query.drain(handler, evidence=evidence)
    assert Counter(query.bodies()) == Counter(f"good-{n}" for n in range(100) if n != 42)
    (dead,) = redelivery_broker.dead_letters()
    assert (dead.body, dead.headers["redeliveryCount"]) == (b"killer-42", "3")
    assert {body for body, count in deliveries.items() if count > 1} == {"killer-42"}
    # A batch, its groups, three spared failures, three charged ones.
    assert query.starts <= 2 * (1 + 3 + 3 + 3) + 1


def test_a_broken_sink_poisons_nobody(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """While every batch fails, whatever is in it, next to nobody is charged; when the sink is back all pass."""
    fill(redelivery_broker, 12)
    query = make_query(maxMessagesPerTrigger=12)
    broken = [True]

    def handler(row: Row) -> None:
        if broken[0]:
            raise KillsQuery("no space left")

    for _ in range(40):
        with contextlib.suppress(KillsQuery):
            query.step(handler, evidence=True)
    broken[0] = False
    query.drain(handler)
    assert not redelivery_broker.dead_letters()
    assert Counter(query.bodies()) == Counter(f"good-{n}" for n in range(12))


@pytest.mark.parametrize("ack", ["wal", "commit"])
@pytest.mark.parametrize("point", ["publish", "settle", "planned", "committed"])
def test_a_death_loses_nothing(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    *,
    ack: str,
    point: str,
) -> None:
    """Killed before or after the log is written, before or after Spark knows of the batch: each message passes once."""
    fill(redelivery_broker, 20, bad=3)
    query = make_query(maxMessagesPerTrigger=5, ack=ack)
    query.step(fails_bad)
    source = query.start()

    def killed(*_: object) -> None:
        raise Killed

    if point in ("publish", "settle"):
        target = source._journal.segments if point == "publish" else source._intake
        with monkeypatch.context() as patch:
            patch.setattr(target, point, killed)
            with pytest.raises(Killed):
                query.step(fails_bad)
    elif point == "planned":
        source.latest(query.committed, 5)
    else:
        query.step(fails_bad)
    query.die()
    query.drain(fails_bad)
    assert Counter(query.bodies()) == Counter(f"good-{n}" for n in range(20) if n != 3)
    assert [dead.body for dead in redelivery_broker.dead_letters()] == [b"bad-3"]
    assert redelivery_broker.depth("orders") == 0


def test_with_ack_commit_the_broker_keeps_what_is_not_committed(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A message leaves the broker when Spark has committed its batch, not before."""
    fill(redelivery_broker, 4)
    query = make_query(ack="commit")
    query.step()
    assert redelivery_broker.depth("orders") == 4
    query.step()
    assert redelivery_broker.depth("orders") == 0


def test_what_cannot_be_decoded_is_poisoned(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """decode=json dead-letters what is no JSON, with the place of the fault and nothing of the body."""
    redelivery_broker.send("orders", '{"a": 1}')
    redelivery_broker.send("orders", '{"secret": ')
    query = make_query(decode="json")
    query.drain()
    assert [row["text"] for rows in query.output.values() for row in rows] == ['{"a": 1}']
    (dead,) = redelivery_broker.dead_letters()
    assert "JSONDecodeError: Expecting value at character 11" in dead.headers["redeliveryCause"]


def test_permissive_shows_what_is_wrong(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """onDecodeError=permissive hands the row on, with the error in its column."""
    redelivery_broker.send("orders", b"\xff")
    query = make_query(decode="text", onDecodeError="permissive")
    query.drain()
    (row,) = query.output[1]
    assert (row["body"], row["text"]) == (b"\xff", None)
    assert "UnicodeDecodeError" in row["_error"]


def test_fail_ends_the_query(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """onDecodeError=fail ends the query with the message's id, and the message stays at the broker."""
    redelivery_broker.send("orders", b"\xff")
    query = make_query(decode="text", onDecodeError="fail")
    with pytest.raises(RedeliveryError, match="cannot be decoded as text"):
        query.step()
    query.die()
    assert redelivery_broker.depth("orders") == 1


def test_two_queries_on_one_log(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is refused with one sentence."""
    del redelivery_broker
    monkeypatch.setattr("redelivery_spark.stream.startup.PATIENCE", 0.0)
    make_query().start()
    with pytest.raises(RedeliveryError, match="in use by another query"):
        make_query().start()


def test_a_log_without_its_checkpoint(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A new checkpoint over an old log is refused, and so is an old checkpoint."""
    fill(redelivery_broker, 6)
    query = make_query(maxMessagesPerTrigger=1)
    for _ in range(4):
        query.step()
    query.die()
    with pytest.raises(ConfigurationError, match="begins with a new checkpoint"):
        (other := make_query()).start().check_new()
    other.die()
    query.committed = query.planned = 1
    with pytest.raises(RedeliveryError, match="the checkpoint is older than the log"):
        query.step()


def test_an_unwritable_folder(redelivery_broker: MemoryBroker, tmp_path: Path) -> None:
    """It is refused with one sentence that names it."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigurationError, match=f"walDir={file}/wal cannot be written: Not a directory"):
        Query(redelivery_broker, file / "wal").start()
