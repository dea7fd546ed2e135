"""Conversion of segments to columns: the same values as those of the message, for any columns, row by row."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.frames import in_batch
from tests.spark.segments import (
    ALL,
    ARTEMIS,
    AT,
    CLASSIC,
    COUNTED,
    PLAIN,
    Stored,
    again,
    head,
    plain,
    publish,
    read,
)

from redelivery.driver.port import restorer
from redelivery.errors import RedeliveryError
from redelivery_spark.executors.segment_reader import DECODE_MARK, SegmentPart, SegmentSlice, decoded, rows_of
from redelivery_spark.wal.places import place, tag_of
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.segment_files import (
    SegmentFacts,
    facts_of,
    read_table,
    stored_table,
    written,
)
from redelivery_spark.wal.store import store_at
from redelivery_stomp import even_frames

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery_spark.wal.wal_store import WalStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WalStore:
    """A log, in batch 3."""
    in_batch(monkeypatch, 3)
    found = store_at(str(tmp_path))
    found.prepare("s0", "s1", "verdicts")
    return found


def test_the_columns_of_a_message(store: WalStore) -> None:
    """Headers of the protocol have columns, others are properties; a message without an id is named by its place."""
    tag = tag_of(store.url)
    shown = {
        "content_type": "text/plain",
        "correlation_id": "c\\c1",
        "reply_to": "answers",
        "redelivered": "true",
    }
    part = publish(
        store, 7, [(head(**shown, colour="red"), b"1"), (head(message_id="", timestamp="0"), b"\xff")]
    )
    first, second = read(store, part)
    assert first == {
        "message_id": "17", "destination": "queue://orders", "body": b"1", "properties": [("colour", "red")],
        "content_type": "text/plain", "correlation_id": "c:1", "reply_to": "queue://answers",
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC), "delivered_at": datetime.fromtimestamp(AT, UTC),
        "redelivered": True, "delivery_count": 1, "_place": place(1, tag, 7, 0),
    }  # fmt: skip
    assert second["message_id"] == f"abababab/{place(1, tag, 7, 1)}"
    assert (second["timestamp"], second["redelivered"], second["properties"]) == (None, False, [])


def test_a_redelivered_row(store: WalStore) -> None:
    """A redelivered row has the log's count and the wire of its arrival; without an id it keeps its first name."""
    origin = place(1, tag_of(store.url), 7, 4)
    part = again(
        store, 2, [(head(), b"1"), (head(message_id="", destination="/queue/old"), b"2")], [0, 1], [1, origin]
    )
    first, second = read(store, part)
    assert (first["delivery_count"], first["redelivered"], first["message_id"]) == (COUNTED, True, "17")
    assert (second["destination"], second["message_id"]) == ("queue://old", f"abababab/{origin}")
    assert first["_place"] == place(0, tag_of(store.url), 2, 0)


def test_what_needs_no_message_to_be_restored(store: WalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query for bodies and the log's own columns reads no header."""
    monkeypatch.setattr("redelivery_spark.executors.segment_reader.restorer", None)
    cheap = ("body", "_place", "delivered_at", "delivery_count")
    assert read(store, publish(store, 1, [(b"", b"1")]), columns=cheap)[0]["body"] == b"1"
    assert read(store, again(store, 1, [(b"", b"2")], [0], [5]), columns=(*cheap, "redelivered"))[0][
        "redelivered"
    ]


def test_parts_of_segments(store: WalStore) -> None:
    """Only the rows of a part are read, in the order of the parts."""
    one = publish(store, 1, [(head(), b"%d" % row) for row in range(9)])
    two = publish(store, 2, [(head(), b"2.%d" % row) for row in range(3)])
    parts = [SegmentPart(1, 2, 1, 3), SegmentPart(1, 1, 1, 7)]
    assert [row["body"] for row in read(store, *parts)] == [
        b"2.1", b"2.2", b"1", b"2", b"3", b"4", b"5", b"6",
    ]  # fmt: skip
    assert len(read(store, one, two)) == 12
    assert read(store, SegmentPart(1, 1, 2, 2)) == []
    with pytest.raises(RedeliveryError, match=r"s1/000000000003\.arrow is missing"):
        read(store, SegmentPart(1, 3, 0, 1))


def test_no_arrow_batch_is_large(store: WalStore) -> None:
    """An Arrow batch has at most 10,000 rows, as Spark's own."""
    part = publish(store, 1, [(b"", b"")] * 12_000)
    batches = list(rows_of(SegmentSlice(store.url, (part,), ("body",))))
    assert [batch.num_rows for batch in batches] == [10_000, 2_000]


@pytest.mark.parametrize(
    ("decode", "wrong"),
    [("text", "UnicodeDecodeError: invalid start byte at byte 0"), ("json", "JSONDecodeError: ")],
)
def test_bodies_that_cannot_be_decoded(store: WalStore, decode: str, wrong: str) -> None:
    """Bodies that cannot be decoded are refused before the others pass, shown, or end the query, as the option says."""
    good = b'{"n": 1}'
    part = publish(
        store, 1, [(head(), good), (head(), b"\xff" if decode == "text" else b"{"), (head(), good)]
    )
    shown = read(store, part, columns=ALL, decode=decode, on_decode_error="permissive")
    assert [row["text"] for row in shown] == [good.decode(), None, good.decode()]
    assert shown[1]["_error"].startswith(f"cannot be decoded as {decode}: {wrong}")
    with pytest.raises(RedeliveryError, match=f"queue://orders: message 17 cannot be decoded as {decode}: "):
        read(store, part, columns=("body",), decode=decode, on_decode_error="fail")
    assert store.names("verdicts") == []
    for columns in ((*PLAIN, "text"), ("body", "delivery_count")):
        assert [row["body"] for row in read(store, part, columns=columns, decode=decode)] == [good, good]
        names = store.names("verdicts")
        assert len(names) == 2
        assert all(name.startswith(f"verdicts/000000000003-{DECODE_MARK}-") for name in names)
        _, refused = Records(store).settled_by({}, {1: 1})
        (at, refusal) = next(iter(refused.items()))
        assert at == place(1, tag_of(store.url), 1, 1)
        assert (refusal.kind, refusal.count, refusal.cause) == ("poison", 1, shown[1]["_error"])


def test_nothing_is_dropped_outside_of_a_query(store: WalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that cannot be refused, because no batch is known, is an error, and not left out."""
    in_batch(monkeypatch, None)
    part = publish(store, 1, [(head(), b"\xff")])
    with pytest.raises(RedeliveryError, match="only in a batch of its query"):
        read(store, part, decode="text")


def test_what_a_body_is_decoded_to() -> None:
    """Text is UTF-8; JSON is checked and stays text; an error quotes nothing of the body."""
    assert decoded("ü".encode(), "text") == ("ü", None)
    assert decoded(b" [1] ", "json") == (" [1] ", None)
    assert decoded(b"secret", "json") == (
        None, "cannot be decoded as json: JSONDecodeError: Expecting value at character 0",
    )  # fmt: skip
    assert "nested too deeply" in str(decoded(b"[" * 100_000, "json")[1])
    assert "it has no meaning" in str(decoded(b"1" * 10_000, "json")[1])


def test_facts_of_a_segment(store: WalStore) -> None:
    """All facts of a segment are read back; another file is refused in one sentence."""
    facts = SegmentFacts(0.1 + 0.2, "cd" * 16, (ARTEMIS, CLASSIC), True, "broker-ü")
    store.publish("s1/x.arrow", *written(stored_table([b"h"], [None], facts)))
    assert facts_of(read_table(store, "s1/x.arrow").schema) == facts
    for wrong in ({}, {"at": "x", "log": "", "wires": "[]"}, {"at": "1", "log": "", "wires": "{"}):
        with pytest.raises(RedeliveryError, match="not a segment of the write-ahead log"):
            facts_of(pa.schema([]).with_metadata(wrong))


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r:\\\0"), max_size=8)
NAMES = st.sampled_from(
    [
        "message-id",
        "destination",
        "timestamp",
        "redelivered",
        "content-type",
        "correlation-id",
        "reply-to",
        "kind",
        "x-n",
    ]
)
VALUES = TEXT | st.sampled_from(
    ["true", "0", "1700000000123", "99999999999999999", "/queue/a", "a\\cb", "\\n"]
)
HEADS = st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
    lambda found: "".join(f"\n{name}:{value}" for name, value in found).encode() + b"\n"
)
EVEN = st.lists(NAMES, min_size=1, max_size=6).flatmap(
    lambda names: st.lists(
        st.lists(VALUES, min_size=len(names), max_size=len(names)).map(
            lambda values: (
                "".join(f"\n{n}:{v}" for n, v in zip(names, values, strict=True)).encode() + b"\n", b"x", 0,
            )
        ), min_size=1, max_size=6,
    )
)  # fmt: skip
ROWS = st.lists(st.tuples(HEADS, st.binary(max_size=4), st.integers(0, 1)), min_size=1, max_size=6)


MIXED = st.lists(EVEN | ROWS, min_size=2, max_size=4).flatmap(lambda each: st.permutations([*chain(*each)]))


@given(
    ROWS | EVEN | MIXED,
    st.booleans(),
    st.sets(st.sampled_from(PLAIN), min_size=1),
    st.sampled_from((1, 2, 8)),
)
def test_columns_are_what_the_messages_say(
    tmp_path_factory: pytest.TempPathFactory,
    given_rows: list[tuple[bytes, bytes, int]],
    lane: bool,
    asked: set[str],
    few: int,
) -> None:
    """For any headers, of one shape or several, and any columns, values are those of each message restored alone."""
    store = store_at(str(tmp_path_factory.mktemp("wal")))
    store.prepare("s0", "s1")
    rows: list[Stored] = [(stored, body) for stored, body, _ in given_rows]
    wires = [wire for _, _, wire in given_rows]
    part = publish(store, 1, rows) if lane else again(store, 1, rows, wires, [9] * len(rows))
    restores = [restorer(ARTEMIS), restorer(ARTEMIS if lane else CLASSIC)]
    wanted = []
    for row, (stored, body, wire) in enumerate(given_rows):
        at = place(int(lane), tag_of(store.url), 1, row)
        message = restores[wire](stored, body, AT)
        wanted.append(plain(message, at, int(lane), at if lane else 9))
    columns = [name for name in PLAIN if name in asked]
    with patch.object(even_frames, "FEW", few):
        found = read(store, part, columns=columns)
    assert found == [{name: row[name] for name in columns} for row in wanted]


def test_a_segment_of_rabbitmq_is_read_shape_by_shape(store: WalStore) -> None:
    """Rows of a RabbitMQ segment keep their order, and those of odd shape are read one by one."""
    wire = {**ARTEMIS, "broker": "rabbitmq"}
    kinds = (
        {"amqp_message_id": "a"},
        {"amqp_message_id": "b", "colour": "red"},
        {"amqp_message_id": "c\\cd"},
    )
    rows: list[Stored] = [(head(message_id=f"T_{row}", **kinds[row % 3]), b"%d" % row) for row in range(60)]
    rows[30] = (head(amqp_message_id="odd") + b"timestamp:1700000000\n", b"30")
    part = publish(store, 1, rows, wire)
    restore, tag = restorer(wire), tag_of(store.url)
    wanted = [plain(restore(*each, AT), place(1, tag, 1, row), 1, 0) for row, each in enumerate(rows)]
    assert read(store, part) == [{name: each[name] for name in PLAIN} for each in wanted]
    assert [each["message_id"] for each in wanted[28:32]] == ["b", "c:d", "odd", "b"]
