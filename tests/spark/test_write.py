"""`df.write` and `df.writeStream`: rows become messages that the broker has confirmed, or the task fails."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from tests.spark.tables import read, source, write

from redelivery.errors import AdapterError, ConfigurationError, TransportError
from redelivery_spark.writing import writer
from redelivery_spark.writing import writer as identity
from redelivery_spark.writing import writer as sending_connection
from redelivery_spark.writing.writer import Identities, messages_of

if TYPE_CHECKING:
    import random

    from redelivery.testing import ManualClock, MemoryBroker

PROPERTIES = pa.map_(pa.string(), pa.string())


def test_rows_become_messages(redelivery_clock: ManualClock) -> None:
    """Every column is the argument of `send` of its name; null is not given."""
    table = pa.table({
        "body": pa.array([b"one", b"two"]),
        "destination": pa.array(["topic://t", None]),
        "properties": pa.array([None, [("a", "1"), ("gone", None)]], PROPERTIES),
        "content_type": ["text/plain", None],
        "correlation_id": ["c", None],
        "reply_to": ["answers", None],
        "group": ["g", None],
        "priority": pa.array([7, None], pa.int32()),
        "persistent": [False, None],
        "ttl": pa.array([Decimal("1.5"), None], pa.decimal128(4, 1)),
        "delay": pa.array([None, timedelta(seconds=2)], pa.duration("us")),
    })  # fmt: skip
    batch = table.to_batches()[0]
    made = messages_of(batch, "queue://orders", redelivery_clock, 0)
    (_, one), (_, two) = made
    assert (one.destination, one.body, one.content_type, one.correlation_id) == (
        "topic://t",
        b"one",
        "text/plain",
        "c",
    )
    assert (one.reply_to, one.group, one.priority, one.persistent) == ("queue://answers", "g", 7, False)
    assert one.expires_at == redelivery_clock.time() + 1.5
    assert (two.destination, two.priority, two.persistent, two.delay) == ("queue://orders", 4, True, 2.0)
    assert (two.reply_to, two.expires_at, one.delay) == (None, None, None)
    assert {name: value for name, value in two.headers.items() if name != "redeliveryId"} == {"a": "1"}


def test_text_is_text_and_bytes_are_bytes(redelivery_broker: MemoryBroker) -> None:
    """A string column arrives as text, a binary one as bytes, as with `send`."""
    write(redelivery_broker, [{"body": "é"}], destination="a")
    write(redelivery_broker, [{"body": b"\xff"}], destination="a")
    assert [row["body"] for row in read(redelivery_broker, destination="a")] == ["é".encode(), b"\xff"]


def test_what_was_read_can_be_written(redelivery_broker: MemoryBroker) -> None:
    """The columns that a read has in common with `send` can be written unchanged."""
    redelivery_broker.send("a", "body", headers={"k": "v"}, correlation_id="c")
    common = ["body", "properties", "content_type", "correlation_id", "reply_to"]
    from redelivery_spark.schema import stream_schema  # noqa: PLC0415

    rows = [{name: row[name] for name in common} for row in read(redelivery_broker, destination="a")]
    table = pa.Table.from_pylist(
        rows, pa.schema([stream_schema(text=False, error=False).field(name) for name in common])
    )
    write(redelivery_broker, table, destination="b")
    (row,) = read(redelivery_broker, destination="b")
    assert (row["body"], row["correlation_id"], dict(row["properties"])["k"]) == (b"body", "c", "v")


COLUMNS: list[tuple[dict[str, pa.DataType], str]] = [
    ({"bdy": pa.binary()}, "column bdy: unknown; did you mean 'body'"),
    ({}, "column body: missing"),
    ({"body": pa.int32()}, "column body: is int, and must be binary or string"),
    ({"body": pa.binary(), "message_id": pa.string()}, "column message_id: set by the broker"),
    ({"body": pa.binary(), "text": pa.string()}, "column text: not sent, the column body is"),
    ({"body": pa.binary(), "priority": pa.string()}, "column priority: is string, and must be a whole number"),
    ({"body": pa.binary(), "persistent": pa.int32()}, "column persistent: is int, and must be boolean"),
    ({"body": pa.binary(), "delay": pa.string()}, "column delay: is string, and must be a number of seconds"),
    ({"body": pa.binary(), "properties": pa.map_(pa.string(), pa.binary())}, "column properties: is map<string,bin"),
    ({"body": pa.binary(), "properties": pa.map_(pa.int32(), pa.string())}, "column properties: is map<int,string>"),
]  # fmt: skip


def test_columns_are_refused_before_anything_is_sent(redelivery_broker: MemoryBroker) -> None:
    """Unknown, mistyped and missing columns, no destination, and overwriting are refused on the Spark driver."""
    for columns, words in COLUMNS:
        schema = from_arrow_schema(pa.schema(columns))
        for make in ("writer", "streamWriter"):
            with pytest.raises(ConfigurationError, match=words):
                getattr(source(redelivery_broker, destination="a"), make)(schema, False)
    body = from_arrow_schema(pa.schema({"body": pa.binary()}))
    with pytest.raises(ConfigurationError, match=r"redelivery\.ledger: not supported here"):
        source(redelivery_broker, **{"redelivery.ledger": "sqlite:///x"}).writer(body, False)
    with pytest.raises(ConfigurationError, match="destination: missing"):
        source(redelivery_broker).writer(body, False)
    with pytest.raises(ConfigurationError, match="mode=overwrite: messages on a queue cannot be replaced"):
        source(redelivery_broker, destination="a").writer(body, True)
    with pytest.raises(
        ConfigurationError, match="outputMode=complete: messages on a queue cannot be replaced"
    ):
        source(redelivery_broker, destination="a").streamWriter(body, True)
    with pytest.raises(ConfigurationError, match=r"run: has no effect for df\.writeStream"):
        source(redelivery_broker, destination="a", run="x").streamWriter(body, False)
    with pytest.raises(ConfigurationError, match=r"readers: has no effect here; it is for spark\.readStream"):
        source(redelivery_broker, destination="a", readers=5).writer(body, False)


def test_one_error_lists_all_columns_that_cannot_be_sent(redelivery_broker: MemoryBroker) -> None:
    """An error has each wrong column on a line of its own, and what is missing."""
    columns: dict[str, pa.DataType] = {"subject": pa.string(), "priority": pa.string(), "text": pa.string()}
    with pytest.raises(ConfigurationError) as caught:
        source(redelivery_broker).writer(from_arrow_schema(pa.schema(columns)), False)
    said = [text.partition(";")[0] for text in caught.value.errors]
    assert said == [
        "column subject: unknown",
        "column priority: is string, and must be a whole number",
        "column text: not sent, the column body is",
        "column body: missing",
        "destination: missing",
    ]
    assert str(caught.value).startswith("5 mistakes in the columns:\n")


ROWS: list[tuple[dict[str, Any], str]] = [
    ({"body": None}, "its body is null"),
    ({"destination": None}, "its destination is null"),
    ({"destination": "a\n"}, "control character"),
    ({"priority": 11}, "priority"),
    ({"delay": -1.0}, "delay"),
    ({"properties": [("a:b", "c")]}, "characters that no broker can carry"),
]


def test_a_row_that_is_no_message(redelivery_broker: MemoryBroker) -> None:
    """A row that is no message fails the task by its number, and nothing of its Arrow batch is sent."""
    good = {"body": b"x", "destination": "a", "priority": 4, "delay": 0.0, "properties": [("a", "b")]}
    schema = pa.schema({
        "body": pa.binary(), "destination": pa.string(), "priority": pa.int32(), "delay": pa.float64(),
        "properties": PROPERTIES,
    })  # fmt: skip
    for bad, words in ROWS:
        table = pa.Table.from_pylist([good, good, good | bad], schema)
        with pytest.raises(ConfigurationError, match=f"^row 2 of its partition was not sent: .*{words}"):
            write(redelivery_broker, table)
        assert redelivery_broker.depth("a") == 0, bad


def test_what_the_broker_does_not_confirm_fails_the_task(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A refusal, and a confirmation that does not arrive, fail the task with one sentence."""
    rows = [{"body": str(number)} for number in range(5)]
    redelivery_broker.refuse_sends()
    with pytest.raises(AdapterError):
        write(redelivery_broker, rows, destination="a")
    redelivery_broker.stall_confirmations()
    with pytest.raises(TransportError, match="did not confirm a message to queue://a within 30 s"):
        write(redelivery_broker, rows, destination="a")
    redelivery_broker.resume_confirmations()
    redelivery_broker.refuse_connections()
    with pytest.raises(TransportError):
        write(redelivery_broker, rows, destination="a")


def test_confirmations_are_in_flight(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many messages are sent before the first confirmation, up to a limit in number and in bytes."""
    monkeypatch.setattr(sending_connection, "MOST", 50)
    flying: list[tuple[int, int]] = []
    original = sending_connection.SendingConnection._await_first

    def counting(self: sending_connection.SendingConnection) -> None:
        flying.append((len(self._pending), self._bytes))
        original(self)

    monkeypatch.setattr(sending_connection.SendingConnection, "_await_first", counting)
    rows = [{"body": b"x" * 10} for _ in range(200)]
    assert write(redelivery_broker, rows, destination="a") == 200
    assert max(flying) == (50, 500)
    monkeypatch.setattr(sending_connection, "MOST_BYTES", 100)
    flying.clear()
    write(redelivery_broker, rows, destination="a")
    assert max(flying) == (10, 100)


def test_nothing_to_write_needs_no_broker(redelivery_broker: MemoryBroker) -> None:
    """An empty partition makes no connection."""
    redelivery_broker.refuse_connections()
    table = pa.table({"body": pa.array([], pa.binary())})
    assert write(redelivery_broker, table, destination="a") == 0


def test_driver_side_of_a_write(redelivery_broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Commit and abort log the number of sent messages, also if a task has reported nothing."""
    caplog.set_level("INFO", "redelivery.spark")
    schema = from_arrow_schema(pa.schema({"body": pa.binary()}))
    made = source(redelivery_broker, destination="a")
    told = [writer.Written(3), None, writer.Written(4)]
    made.writer(schema, False).commit(told)
    made.writer(schema, False).abort(told)
    made.streamWriter(schema, False).commit(told, 5)
    made.streamWriter(schema, False).abort(told, 6)
    lines = [record.getMessage() for record in caplog.records if record.name == "redelivery.spark"]
    assert ["7 messages" in line for line in lines] == [True] * 4
    assert ["batch" in line for line in lines] == [False, False, True, True]


def test_ids_of_a_write(redelivery_broker: MemoryBroker) -> None:
    """Attempts of one write, and writes of one run, give a row one id; another write gives it another."""
    made = source(redelivery_broker, destination="a")
    schema = from_arrow_schema(pa.schema({"body": pa.binary()}))
    batch = pa.RecordBatch.from_pydict({"body": [b"x", b"x", b"y"]})
    first = made.writer(schema, False)
    for _ in range(2):
        first.write(iter([batch]))
    write(redelivery_broker, [{"body": b"x"}], destination="a", run="r")
    write(redelivery_broker, [{"body": b"x"}], destination="a", run="r")
    write(redelivery_broker, [{"body": b"x"}], destination="a")
    ids = [message.headers["redeliveryId"] for message in redelivery_broker.messages("a")]
    assert ids[:3] == ids[3:6]
    assert ids[6] == ids[7]
    assert len(set(ids)) == 5


@drawn(st.lists(st.tuples(st.binary(max_size=2), st.integers(0, 2))), st.randoms(use_true_random=False))
def test_equal_ids_mean_equal_content(rows: list[tuple[bytes, int]], order: random.Random) -> None:
    """Within an attempt no two ids are equal; one in another order has the same ids, each for the same content."""
    first, second, elsewhere = Identities("w", 0), Identities("w", 0), Identities("w", 1)
    known = {first.of(row): row for row in rows}
    assert len(known) == len(rows)
    shuffled = rows.copy()
    order.shuffle(shuffled)
    assert {second.of(row): row for row in shuffled} == known
    assert not {elsewhere.of(row) for row in rows} & set(known)


def test_what_is_remembered_of_ids_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a block of rows equal ones are numbered anew, under other ids."""
    monkeypatch.setattr(identity, "BLOCK", 10)
    ids = Identities("w", 0)
    assert len({ids.of((b"same",)) for _ in range(35)}) == 35
    assert sum(ids._equal.values()) == 5
    assert Counter(ids._equal.keys()).total() == 1
