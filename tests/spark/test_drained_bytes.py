"""`spark.read`, mode=drain: its segments hold the bytes of messages, and reads make rows of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.spark.tables import bodies, fill, planned, read, rows

from redelivery.errors import ConfigurationError
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.batch import drain as module
from redelivery_spark.batch.batch_reader import batch_reader
from redelivery_spark.batch.drain import DrainedQueue
from redelivery_spark.options.source_options import read_batch_options
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.segment_files import read_table

if TYPE_CHECKING:
    from redelivery.testing import MemoryBroker


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """Options of a drain."""
    return {"mode": "drain", "destination": "orders", "walDir": str(tmp_path / "wal")}


def test_a_drain_of_the_first_design_is_refused(
    redelivery_broker: MemoryBroker, given: dict[str, str]
) -> None:
    """Segments of an old version are refused by the name of the run, with the way out; no message is taken."""
    fill(redelivery_broker, 1)
    folder = Path(given["walDir"]) / "drains" / "drain"
    folder.mkdir(parents=True)
    bound = {"brokers": ["memory://b"], "selector": None}
    (folder / "drain.json").write_text(json.dumps(bound), encoding="utf-8")
    words = r"run=drain: .* begun by another version of this package; read it with that version, or use another run"
    with pytest.raises(ConfigurationError, match=words):
        read(redelivery_broker, **given)
    assert redelivery_broker.depth("orders") == 1
    assert len(read(redelivery_broker, **given, run="other")) == 1


def test_a_segment_holds_what_came(redelivery_broker: MemoryBroker, given: dict[str, str]) -> None:
    """A segment's columns are the bytes of messages, not their parts: each action makes the columns that it shows."""
    redelivery_broker.send("orders", "{}", headers={"n": "1", "redeliveryCause": "crash"}, correlation_id="c")
    reader = planned(redelivery_broker, **given)
    (row,) = rows(reader)
    assert (dict(row["properties"])["n"], row["correlation_id"]) == ("1", "c")
    (segment,) = Path(given["walDir"]).glob("drains/drain/orders-*/000000.arrow")
    table = read_table(Folder(str(segment.parents[1])), f"{segment.parent.name}/{segment.name}")
    assert table.schema.names == ["head", "body"]
    assert table.num_rows == 1
    columns = StructType([StructField("cause", StringType()), StructField("text", StringType())])
    options = read_batch_options(
        given | {"url": redelivery_broker.uri, "decode": "json", "deadLetters": "true"}
    )
    assert rows(batch_reader(options, columns)) == [{"cause": "crash", "text": "{}"}]


def test_messages_without_an_id_are_numbered(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages without an id are named by run, queue, segment and row, the same at each action."""
    monkeypatch.setattr(MemoryDelivery, "identity", property(lambda _: None))
    monkeypatch.setattr(module, "ROWS", 3)
    monkeypatch.setattr(module, "SHOWN", 2)
    fill(redelivery_broker, 4)
    names = [f"drain/queue://orders/{number}" for number in ("0/0", "0/1", "0/2", "1/0")]
    for _ in range(2):
        assert [row["message_id"] for row in read(redelivery_broker, **given)] == names


@pytest.mark.usefixtures("own_ids")
def test_a_cut_costs_no_message_of_other_properties(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a producer sent is compared: the same id, time and body with another property is another message."""
    monkeypatch.setattr(module, "BYTES", 1)
    original = DrainedQueue.publish

    def cutting(self: DrainedQueue, number: int, table: Any) -> bool:
        done = original(self, number, table)
        if number == 1:
            redelivery_broker.cut()
        return done

    monkeypatch.setattr(DrainedQueue, "publish", cutting)
    for number in range(4):
        redelivery_broker.send("orders", "reading", headers={"id": "sensor", "place": str(number)})
    found = read(redelivery_broker, **given)
    assert sorted(dict(row["properties"])["place"] for row in found) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("reconnected", [False, True])
def test_a_connection_lost_before_a_segment_is_published(
    redelivery_broker: MemoryBroker,
    given: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    reconnected: bool,
) -> None:
    """Messages of a lost connection are not published; the broker redelivers them, once."""
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 10)
    original = module._wire_of
    wires: list[Any] = []

    def losing(taker: Any, epoch: int) -> Any:
        if not wires:
            redelivery_broker.cut()
            if reconnected:
                taker.take(60.0)
                assert taker.port.engine.state.epoch > epoch
        wires.append(original(taker, epoch))
        return wires[-1]

    monkeypatch.setattr(module, "_wire_of", losing)
    assert Counter(bodies(read(redelivery_broker, **given))) == Counter(sent)
    assert redelivery_broker.depth("orders") == 0
    assert wires[0] is None
    assert None not in wires[1:]
