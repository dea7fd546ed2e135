"""`spark.read`, mode=browse: rows of the messages on a queue, which stay there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from tests.spark.tables import planned, read, rows, source

from redelivery.errors import AdapterError, ConfigurationError, RedeliveryError
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.batch import browse
from redelivery_spark.batch.batch_reader import batch_reader
from redelivery_spark.options.source_options import read_batch_options

if TYPE_CHECKING:
    from redelivery.testing import MemoryBroker

COLUMNS = [
    "message_id", "destination", "body", "properties", "content_type", "correlation_id", "reply_to", "timestamp",
    "redelivered", "delivery_count",
]  # fmt: skip
DEATH = [
    "original_destination", "original_id", "cause", "redelivery_count", "first_failure", "dead_lettered_at", "redrives",
]  # fmt: skip


def test_what_is_on_queues_is_shown_and_stays(redelivery_broker: MemoryBroker) -> None:
    """Each named queue is a partition; the columns are the stream's; a second read shows the same rows."""
    for number in range(3):
        redelivery_broker.send("a", f"a{number}", headers={"n": str(number)}, correlation_id="c")
    redelivery_broker.send("b", b"\xff")
    reader = planned(redelivery_broker, destination="a, queue://b, a")
    assert len(reader.partitions()) == 2
    found = rows(reader)
    assert [row["body"] for row in found] == [b"a0", b"a1", b"a2", b"\xff"]
    assert found == rows(reader)
    assert list(found[0]) == COLUMNS
    assert (found[1]["destination"], found[1]["correlation_id"]) == ("queue://a", "c")
    assert dict(found[1]["properties"])["n"] == "1"
    assert redelivery_broker.depth("a") == 3


def test_dead_letters_tell_of_their_death(redelivery_broker: MemoryBroker) -> None:
    """Without a destination the broker's dead letters are shown, with columns for triage; deadLetters adds them
    elsewhere.
    """
    headers = {
        "redeliveryCause": "ValueError: 7",
        "redeliveryOriginalDestination": "queue://orders",
        "redeliveryOriginalId": "one",
        "redeliveryCount": "3",
        "redeliveryFirstFailure": "2026-11-22T09:00:00.000Z",
        "redeliveryLastFailure": "2026-11-22T10:00:00.000Z",
        "redeliveryRedrives": "2",
    }
    redelivery_broker.send("DLQ", "bad", headers=headers)
    redelivery_broker.send("DLQ", "worse")
    told, untold = read(redelivery_broker)
    assert list(told) == [*COLUMNS, *DEATH]
    assert {name: told[name] for name in DEATH} == {
        "original_destination": "queue://orders",
        "original_id": "one",
        "cause": "ValueError: 7",
        "redelivery_count": 3,
        "first_failure": datetime(2026, 11, 22, 9, tzinfo=UTC),
        "dead_lettered_at": datetime(2026, 11, 22, 10, tzinfo=UTC),
        "redrives": 2,
    }
    assert (untold["cause"], untold["original_destination"]) == ("unknown", None)
    assert list(read(redelivery_broker, deadLetters="false")[0]) == COLUMNS
    assert read(redelivery_broker, destination="DLQ", deadLetters="true") == [told, untold]
    elsewhere = {"redelivery.deadLetterDestination": "graves"}
    assert read(redelivery_broker, **elsewhere) == []


def test_bodies_are_decoded(redelivery_broker: MemoryBroker) -> None:
    """A body that cannot be decoded ends the read with its id, or is shown with its error; the message stays."""
    redelivery_broker.send("a", '{"a": 1}')
    redelivery_broker.send("a", "{secret")
    with pytest.raises(RedeliveryError, match=r"message \S+ cannot be decoded as json.*permissive") as caught:
        read(redelivery_broker, destination="a", decode="json")
    assert "secret" not in str(caught.value)
    good, bad = read(redelivery_broker, destination="a", decode="json", onDecodeError="permissive")
    assert (good["text"], good["_error"]) == ('{"a": 1}', None)
    assert (bad["text"], bad["body"]) == (None, b"{secret")
    assert "JSONDecodeError" in bad["_error"]


def test_a_query_asks_for_columns(redelivery_broker: MemoryBroker) -> None:
    """`.schema(…)` selects these columns only, in its order, also those about a death."""
    redelivery_broker.send("a", "{}", headers={"redeliveryCause": "ValueError: 7"}, correlation_id="c")
    redelivery_broker.send("a", "no json")
    some = StructType([
        StructField("body", BinaryType()), StructField("cause", StringType()), StructField("message_id", StringType())
    ])  # fmt: skip
    made = source(redelivery_broker, destination="a", deadLetters="true")
    one, other = rows(batch_reader(read_batch_options(made.options), some))
    assert list(one) == ["body", "cause", "message_id"]
    assert (one["body"], one["cause"], other["cause"]) == (b"{}", "ValueError: 7", "unknown")
    plain = StructType([StructField("correlation_id", StringType())])
    strict = source(redelivery_broker, destination="a", decode="json")
    with pytest.raises(RedeliveryError, match="cannot be decoded as json"):
        rows(batch_reader(read_batch_options(strict.options), plain))
    with pytest.raises(ConfigurationError, match="unknown column cause; it needs deadLetters=true"):
        batch_reader(read_batch_options(strict.options), some)


def test_messages_without_an_id_are_numbered(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages without an id are named by their queue and their number on it, over all of its Arrow batches."""
    monkeypatch.setattr(MemoryDelivery, "identity", property(lambda _: None))
    monkeypatch.setattr(browse, "ROWS", 2)
    for number in range(3):
        redelivery_broker.send("a", str(number))
    assert [row["message_id"] for row in read(redelivery_broker, destination="a")] == [
        "queue://a/0", "queue://a/1", "queue://a/2",
    ]  # fmt: skip


def test_a_look_has_a_limit(redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """MaxMessages limits the rows of each queue; a broker that shows no more is an error."""
    for number in range(5):
        redelivery_broker.send("a", str(number))
        redelivery_broker.send("b", str(number))
    found = read(redelivery_broker, destination="a,b", maxMessages=2)
    assert [row["body"] for row in found] == [b"0", b"1"] * 2
    _able(monkeypatch, browse_limit=5)
    with pytest.raises(AdapterError, match=r"no more than 5 .* incomplete=accept"):
        read(redelivery_broker, destination="a")
    assert len(read(redelivery_broker, destination="a", incomplete="accept")) == 5
    assert len(read(redelivery_broker, destination="a", maxMessages=5)) == 5


def test_a_broker_that_takes_what_it_shows(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that takes the messages that it shows is refused, with the mode to use."""
    _able(monkeypatch, browse=False)
    with pytest.raises(ConfigurationError, match=r"memory cannot show a queue .*mode=drain"):
        read(redelivery_broker, destination="a")


def _able(monkeypatch: pytest.MonkeyPatch, **able: Any) -> None:
    from dataclasses import replace  # noqa: PLC0415

    from redelivery_memory import adapter  # noqa: PLC0415

    monkeypatch.setattr(adapter, "CAPABILITIES", replace(adapter.CAPABILITIES, **able))


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"url": ""}, "url: missing"),
    ({"destinaton": "a"}, "destinaton: unknown option; did you mean 'destination'"),
    ({"jms.redeliveryPolicyMap.a.redeliveryDelay": "1"}, "jms.redeliveryPolicyMap.…: Spark changes option names"),
    ({"redelivery.policyMap.a.delays": "1"}, "redelivery.policyMap.…: Spark changes option names"),
    ({"redelivery.policy.delays": "1,x"}, "redelivery.policy.delays must be milliseconds with a comma"),
    ({"destination": "topic://a"}, "a batch read needs queues"),
    ({"mode": "drian", "destination": "a"}, "mode=drian: must be one of browse, drain; did you mean 'drain'"),
    ({"mode": "drain", "destination": "a"}, "walDir: missing"),
    ({"mode": "drain", "walDir": "/w"}, "destination: missing"),
    ({"mode": "drain", "walDir": "w", "destination": "a"}, "relative path"),
    ({"mode": "drain", "walDir": "/w", "destination": "a", "run": "../x"}, "run=../x: must be 1 to 100 letters"),
    ({"mode": "browse", "walDir": "/w"}, "walDir: has no effect without mode=drain"),
    ({"mode": "browse", "readers": "5"}, "readers: has no effect here; it is for spark.readStream"),
    ({"maxMessages": "0"}, "maxMessages=0: must be a whole number, at least 1"),
    ({"mode": "drain", "walDir": "/w", "destination": "a", "idle": "0"}, "idle=0: must be a duration .*, at least 1ms"),
    ({"mode": "drain", "walDir": "/w", "destination": "a", "idle": "2 sec"}, "idle=2 sec: .*did you mean '2s'"),
    ({"onDecodeError": "fail"}, "onDecodeError: has no effect without decode"),
    ({"mode": "browse", "decode": "text", "onDecodeError": "poison"}, "a batch read dead-letters nothing"),
    ({"incomplete": "never"}, "incomplete=never: must be one of fail, accept"),
    ({"redelivery.ledger": "sqlite:///x"}, "redelivery.ledger: not supported here"),
    ({"redelivery.breakerFailures": "2"}, "redelivery.breaker: not supported here"),
    ({"redelivery.rate": "2"}, "redelivery.rate: not supported here"),
    ({"url": "stomp://b:1", "jms.userName": "app", "jms.password": "hush"}, "url: it has credentials"),
    ({"url": "amqp://app:hush@b:1"}, "url: it has credentials, .* credentialsFile, or set REDELIVERY_USER"),
]  # fmt: skip


def test_what_makes_no_sense_is_refused_at_load(redelivery_broker: MemoryBroker) -> None:
    """Wrong options are refused before any I/O, by name, and without the credentials of the url."""
    for given, words in REFUSED:
        with pytest.raises(ConfigurationError, match=words) as caught:
            source(redelivery_broker, **given).schema()
        assert "hush" not in str(caught.value)
