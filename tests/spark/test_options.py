"""Options of a stream: the values that they make, and the error of each wrong one."""

from __future__ import annotations

import pytest

from redelivery.errors import ConfigurationError
from redelivery_spark.options.source_options import (
    ReadOptions,
    SourceOptions,
    read_batch_options,
    read_options,
    read_write_options,
)
from redelivery_spark.options.spark_option import READ, TABLE, Given

COMMON = {"url": "memory://b", "destination": "orders", "walDir": "/wal"}


def stream(**options: str) -> SourceOptions:
    """Read options as Spark passes them: with names in lower case."""
    return read_options({name.lower(): value for name, value in (COMMON | options).items()})


def drain(**options: str) -> ReadOptions:
    """Read the options of a drain."""
    return read_batch_options(COMMON | {"mode": "drain"} | options)


def test_the_defaults_are_those_of_the_table() -> None:
    """Options that are not given have the defaults of the table, and of the class."""
    made = stream(partitions="2")
    plain = SourceOptions(made.uri, made.settings, "orders", "/wal")
    assert made == plain
    assert (made.most_rows, made.most_bytes, made.bytes_ahead) == (100_000, 64 * 1024**2, 256 * 1024**2)
    assert (made.least_rows, made.trigger_delay, made.readers) == (None, 0.3, 1)
    assert (made.isolate, made.isolate_after) == ("never", 5)


def test_every_option_of_a_stream_arrives() -> None:
    """Each given value is in the source's options."""
    made = stream(
        maxRowsPerTrigger="500",
        maxBytesPerTrigger="1m",
        minRowsPerTrigger="20",
        maxTriggerDelay="1s",
        maxBytesAhead="2m",
        readers="3",
        partitions="7",
        isolate="split",
        isolateAfter="9",
        decode="json",
        onDecodeError="permissive",
        credentialsFile="/c",
        selector="a = 1",
    )
    assert (made.most_rows, made.most_bytes, made.least_rows) == (500, 1024**2, 20)
    assert (made.trigger_delay, made.bytes_ahead, made.readers, made.partitions) == (1.0, 2 * 1024**2, 3, 7)
    assert (made.isolate, made.isolate_after, made.credentials_file) == ("split", 9, "/c")
    assert (made.text, made.error, made.selector) == (True, True, "a = 1")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5), ("2s", 2.0), ("30S", 30.0), ("15m", 900.0), ("2h", 7200.0), ("30d", 2_592_000.0),
        ("700", 0.7), (" 3s ", 3.0),
    ],
)  # fmt: skip
def test_durations_have_units(text: str, seconds: float) -> None:
    """A unit is one of five, in any case; a plain number is milliseconds."""
    assert drain(idle=text).idle == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("64m", 64 << 20), ("1g", 1 << 30), ("512k", 512 << 10), ("64M", 64 << 20), ("1000", 1000)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    """A unit is a power of 1,024, in any case; a plain number is bytes."""
    assert stream(maxBytesAhead="1g", maxBytesPerTrigger=text).most_bytes == size


def test_the_old_name_of_a_batch_is_accepted() -> None:
    """The name `maxMessagesPerTrigger` is accepted, and quoted as written; both names together are refused."""
    assert stream(maxMessagesPerTrigger="7").most_rows == 7
    with pytest.raises(
        ConfigurationError, match=r"^maxMessagesPerTrigger=0: must be a whole number, at least 1$"
    ):
        stream(maxMessagesPerTrigger="0")
    with pytest.raises(
        ConfigurationError,
        match="maxMessagesPerTrigger: the old name of maxRowsPerTrigger, and both are given",
    ):
        stream(maxMessagesPerTrigger="7", maxRowsPerTrigger="7")
    with pytest.raises(ConfigurationError, match="maxMessagesPerTrigger: has no effect here; it is for"):
        Given({"maxMessagesPerTrigger": "7"}, READ).mistakes.check()


def test_a_batch_is_no_larger_than_what_may_wait() -> None:
    """A lower maxBytesAhead lowers the default of maxBytesPerTrigger; a larger given value is refused."""
    assert stream(maxBytesAhead="1m").most_bytes == 1024**2
    with pytest.raises(ConfigurationError, match=r"^maxBytesPerTrigger=2m: more than maxBytesAhead=1m, "):
        stream(maxBytesAhead="1m", maxBytesPerTrigger="2m")
    with pytest.raises(ConfigurationError, match=r"^maxBytesPerTrigger=1g: more than maxBytesAhead=256m, "):
        stream(maxBytesPerTrigger="1g")


GONE = [
    ("ack", "wal", "a message is accepted when the write-ahead log has it, as with ack=wal; remove it"),
    ("ack", "commit", "ack: no longer an option"),
    ("consumers", "executors", r"over readers=N connections"),
    ("consumers", "driver", "consumers: no longer an option"),
    ("pushFilters", "true", "pushFilters: no longer an option: Spark filters the rows itself"),
    ("isolateFanout", "4", "isolateFanout: no longer an option: isolate=split makes at least 8 groups"),
    ("maxWait", "500", "maxWait: no longer an option; use maxTriggerDelay"),
]
FOREIGN = [
    (
        "maxOffsetsPerTrigger",
        "5",
        "^maxOffsetsPerTrigger: not an option here; did you mean 'maxRowsPerTrigger'",
    ),
    ("maxRecordsPerTrigger", "5", "did you mean 'maxRowsPerTrigger'"),
    ("minOffsetsPerTrigger", "5", "did you mean 'minRowsPerTrigger'"),
    ("minPartitions", "5", "did you mean 'partitions'"),
    ("startingOffsets", "earliest", "^startingOffsets: no equivalent here: a queue has no offsets"),
    ("startingTimestamp", "1", "startingTimestamp: no equivalent here"),
    ("failOnDataLoss", "false", "a query always fails when a part of its walDir is missing"),
    ("subscribe", "orders", "subscribe: called destination here"),
    ("topic", "orders", "topic: called destination here"),
    ("subscribePattern", "o.*", "name the queues or topics in destination"),
    ("assign", "{}", "assign: no equivalent here"),
    ("kafka.bootstrap.servers", "b:1", "part of the option url here; use url=stomp://broker:61613"),
    ("host", "b", "host: part of the option url here"),
    ("kafka.group.id", "g", "subscription names a durable topic subscription"),
    ("groupIdPrefix", "g", "groupIdPrefix: no equivalent here"),
    ("kafka.max.poll.records", "5", "an option of Kafka's client"),
    ("includeHeaders", "true", "the column properties is always there"),
    (
        "password",
        "hush",
        "^password: not an option, because Spark may show options; use credentialsFile, or set .* REDELIVERY_USER",
    ),
    ("user", "app", "user: not an option, because"),
    ("userName", "app", "user[nN]ame: not an option, because"),
    ("pasword", "hush", "pasword: not an option, because"),
]
SENSELESS = [
    ("maxRowsPerTriger", "5", "maxrowspertriger: unknown option; did you mean 'maxRowsPerTrigger'"),
    ("maxBytesPerTriger", "5", "did you mean 'maxBytesPerTrigger'"),
    ("mxTriggerDelay", "5", "did you mean 'maxTriggerDelay'"),
    ("quux", "5", "^quux: unknown option$"),
    ("maxRowsPerTrigger", "10k", "^maxRowsPerTrigger=10k: must be a whole number, at least 1"),
    ("readers", "0", "^readers=0: must be a whole number, 1 to 31$"),
    ("readers", "32", "^readers=32: must be a whole number, 1 to 31$"),
    ("maxTriggerDelay", "5 sec", r"^maxTriggerDelay=5 sec: must be a duration such as 500ms, .*; did you mean '5s'\?$"),
    ("maxTriggerDelay", "2 days", r"such as 500ms, 30s, 15m, 2h or 30d, at most 2s; .*; did you mean '2d'\?$"),
    ("maxTriggerDelay", "1d", r"^maxTriggerDelay=1d: at most 2s"),
    ("maxTriggerDelay", "soon", r"at most 2s; a plain number is milliseconds$"),
    ("maxTriggerDelay", "5s", r"^maxTriggerDelay=5s: at most 2s, because the runner of a killed Spark lives"),
    ("maxTriggerDelay", "2001", r"^maxTriggerDelay=2001: at most 2s"),
    ("maxTriggerDelay", "-1", "^maxTriggerDelay=-1: must be a duration"),
    ("maxBytesAhead", "64 MiB", r"^maxBytesAhead=64 MiB: must be a size such as 512k, .*; did you mean '64m'\?$"),
    ("maxBytesAhead", "64q", "at least 1; a plain number is bytes$"),
    ("maxBytesPerTrigger", "0", "maxBytesPerTrigger=0: must be a size"),
    ("minRowsPerTrigger", "adaptive", "minRowsPerTrigger=adaptive: must be a whole number"),
    ("minRowsPerTrigger", "200000", r"^minRowsPerTrigger=200000: more than maxRowsPerTrigger=100000, and no batch"),
    ("isolate", "splitt", "isolate=splitt: must be one of never, split; did you mean 'split'"),
    ("isolateAfter", "3", "^isolateAfter: has no effect without isolate=split"),
    ("onDecodeError", "fail", "onDecodeError: has no effect without decode"),
    ("mode", "drain", "mode: has no effect here; it is for spark.read"),
    ("redelivery.rate", "5", "use maxRowsPerTrigger and the trigger's interval"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "words"), [*GONE, *FOREIGN, *SENSELESS])
def test_what_makes_no_sense_is_one_sentence(name: str, value: str, words: str) -> None:
    """An error names the option as the table spells it, says what is right, and suggests no option for a secret."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        stream(**{name: value})
    sentence = str(caught.value)
    assert "jms.password" not in sentence
    assert "hush" not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(("name", "value", "words"), [*GONE, *FOREIGN])
def test_other_uses_refuse_the_same_names(name: str, value: str, words: str) -> None:
    """A batch read and a writer refuse the same names with the same texts."""
    for made in (read_batch_options, read_write_options):
        with pytest.raises(ConfigurationError, match=words):
            made({"url": "memory://b", "destination": "a", name: value})


def test_options_that_contradict_each_other() -> None:
    """A minimum needs a wait, and several connections need a queue and no client id."""
    with pytest.raises(ConfigurationError, match=r"^minRowsPerTrigger=5: more than maxRowsPerTrigger=4"):
        stream(minRowsPerTrigger="5", maxRowsPerTrigger="4")
    with pytest.raises(
        ConfigurationError, match=r"^minRowsPerTrigger=5: has no effect with maxTriggerDelay=0"
    ):
        stream(minRowsPerTrigger="5", maxTriggerDelay="0")
    for more in ({"destination": "topic://a"}, {"subscription": "s", "jms.clientID": "me"}):
        with pytest.raises(ConfigurationError, match=r"^readers=2: each of several consumers of a topic"):
            stream(readers="2", **more)
    with pytest.raises(
        ConfigurationError, match=r"^jms.clientID: only one connection can use it, and readers=2 makes"
    ):
        stream(readers="2", **{"jms.clientID": "me"})
    assert stream(readers="1", destination="topic://a", **{"jms.clientID": "me"}).readers == 1


def test_several_connections_may_log_in_by_the_url() -> None:
    """Credentials in the url are allowed with more than one reader."""
    made = stream(readers="2", url="stomp://app:hush@b:1")
    assert made.readers == 2
    assert "hush" not in repr(made)


def test_spark_has_options_of_its_own() -> None:
    """Spark's own options reach the source as well, and are ignored."""
    assert stream(path="/x", schema="a int", checkpointLocation="/c").destination == "orders"


def test_a_default_is_a_value() -> None:
    """A default in the table can be written as a value, except words that stand for a rule."""
    rules = {"", "adaptive", "the driver's processors, 8 at most"}
    for option in TABLE:
        if (
            option.default not in rules
            and "readStream" in option.uses
            and option.name not in ("isolateAfter", "onDecodeError")
        ):
            assert stream(**{option.name: option.default, "partitions": "2"}) == stream(partitions="2")
