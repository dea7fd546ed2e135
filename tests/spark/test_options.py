"""The options of a stream: what they make, and the one sentence of each that makes no sense."""

from __future__ import annotations

import pytest

from redelivery.errors import ConfigurationError
from redelivery_spark.options.batch_options import ReadOptions, read_batch_options
from redelivery_spark.options.spark_option import READ, TABLE, Given
from redelivery_spark.options.stream_options import SourceOptions, read_options
from redelivery_spark.options.write_options import read_write_options

COMMON = {"url": "memory://b", "destination": "orders", "walDir": "/wal"}


def stream(**options: str) -> SourceOptions:
    """Read options as Spark hands them over: with names in lower case."""
    return read_options({name.lower(): value for name, value in (COMMON | options).items()})


def drain(**options: str) -> ReadOptions:
    """Read the options of a drain."""
    return read_batch_options(COMMON | {"mode": "drain"} | options)


def test_the_defaults_are_those_of_the_table() -> None:
    """What is not given is as the table says, and is what the class itself begins with."""
    made = stream(partitions="2")
    plain = SourceOptions(made.uri, made.settings, "orders", "/wal")
    assert made == plain
    assert (made.most_rows, made.most_bytes, made.bytes_ahead) == (100_000, 64 * 1024**2, 256 * 1024**2)
    assert (made.least_rows, made.trigger_delay, made.readers) == (None, 0.3, 1)
    assert (made.isolate, made.isolate_after) == ("never", 5)


def test_every_option_of_a_stream_arrives() -> None:
    """Each given value is in the options that the source is made with."""
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
    [("500ms", 0.5), ("2s", 2.0), ("2S", 2.0), ("5m", 300.0), ("1h", 3600.0), ("700", 0.7), (" 3s ", 3.0)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    """A unit is one of four, in any case; a plain number is milliseconds."""
    assert drain(idle=text).idle == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("64m", 64 << 20), ("1g", 1 << 30), ("512k", 512 << 10), ("64M", 64 << 20), ("1000", 1000)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    """A unit is a power of 1,024, in any case; a plain number is bytes."""
    assert stream(maxBytesAhead="1g", maxBytesPerTrigger=text).most_bytes == size


def test_the_old_name_of_a_batch_is_accepted() -> None:
    """The name `maxMessagesPerTrigger` is accepted, and is quoted as it was written; both names are refused."""
    assert stream(maxMessagesPerTrigger="7").most_rows == 7
    with pytest.raises(ConfigurationError, match=r"^maxMessagesPerTrigger=0: a whole number, 1 at least$"):
        stream(maxMessagesPerTrigger="0")
    with pytest.raises(ConfigurationError, match="is the old name of maxRowsPerTrigger, and both are given"):
        stream(maxMessagesPerTrigger="7", maxRowsPerTrigger="7")
    with pytest.raises(ConfigurationError, match="maxMessagesPerTrigger means nothing here: it is for"):
        Given({"maxMessagesPerTrigger": "7"}, READ)


def test_a_batch_is_no_larger_than_what_may_wait() -> None:
    """With less bytes ahead the default of a batch falls with it; a larger batch that is asked for is refused."""
    assert stream(maxBytesAhead="1m").most_bytes == 1024**2
    with pytest.raises(ConfigurationError, match=r"^maxBytesPerTrigger=2m is more than maxBytesAhead=1m: "):
        stream(maxBytesAhead="1m", maxBytesPerTrigger="2m")
    with pytest.raises(ConfigurationError, match=r"^maxBytesPerTrigger=1g is more than maxBytesAhead=256m: "):
        stream(maxBytesPerTrigger="1g")


GONE = [
    ("ack", "wal", "the broker lets go of a message when the log has it, which was ack=wal; leave it out"),
    ("ack", "commit", "ack is no option any more"),
    ("consumers", "executors", r"as many connections as readers=N says"),
    ("consumers", "driver", "consumers is no option any more"),
    ("pushFilters", "true", "pushFilters is no option any more: Spark filters the rows itself"),
    ("isolateFanout", "4", "isolateFanout is no option any more: isolate=split makes 8 groups"),
    ("maxWait", "500", "maxWait is no option any more: use maxTriggerDelay"),
]
FOREIGN = [
    (
        "maxOffsetsPerTrigger",
        "5",
        "^maxOffsetsPerTrigger is no option here; did you mean 'maxRowsPerTrigger'",
    ),
    ("maxRecordsPerTrigger", "5", "did you mean 'maxRowsPerTrigger'"),
    ("minOffsetsPerTrigger", "5", "did you mean 'minRowsPerTrigger'"),
    ("minPartitions", "5", "did you mean 'partitions'"),
    ("startingOffsets", "earliest", "^startingOffsets has no equivalent: a queue has no offsets"),
    ("startingTimestamp", "1", "startingTimestamp has no equivalent"),
    ("failOnDataLoss", "false", "a query always fails when a part of its walDir is missing"),
    ("subscribe", "orders", "subscribe is called destination here"),
    ("topic", "orders", "topic is called destination here"),
    ("subscribePattern", "o.*", "name what to consume by destination"),
    ("assign", "{}", "assign has no equivalent"),
    ("kafka.bootstrap.servers", "b:1", "is a part of the option url here: stomp://broker:61613"),
    ("host", "b", "host is a part of the option url here"),
    ("kafka.group.id", "g", "subscription names a durable topic subscription"),
    ("groupIdPrefix", "g", "groupIdPrefix has no equivalent"),
    ("kafka.max.poll.records", "5", "is for Kafka's client"),
    ("includeHeaders", "true", "the column properties is always there"),
    (
        "password",
        "hush",
        "^password is no option: name a file by credentialsFile, or set the variables REDELIVERY_USER",
    ),
    ("user", "app", "user is no option: name a file by credentialsFile"),
    ("userName", "app", "is no option: name a file by credentialsFile"),
    ("pasword", "hush", "pasword is no option: name a file by credentialsFile"),
]
SENSELESS = [
    ("maxRowsPerTriger", "5", "unknown option maxrowspertriger; did you mean 'maxRowsPerTrigger'"),
    ("maxBytesPerTriger", "5", "did you mean 'maxBytesPerTrigger'"),
    ("mxTriggerDelay", "5", "did you mean 'maxTriggerDelay'"),
    ("quux", "5", "^unknown option quux$"),
    ("maxRowsPerTrigger", "10k", "^maxRowsPerTrigger=10k: a whole number, 1 at least"),
    ("readers", "0", "^readers=0: a whole number, 1 to 31$"),
    ("readers", "32", "^readers=32: a whole number, 1 to 31$"),
    ("maxTriggerDelay", "5 sec", r"^maxTriggerDelay=5 sec: a duration such as 500ms, .*; did you mean '5s'\?$"),
    ("maxTriggerDelay", "soon", r"a plain number is milliseconds, 2s at most$"),
    ("maxTriggerDelay", "5s", r"^maxTriggerDelay=5s: 2s at most, because the runner of a killed Spark lives"),
    ("maxTriggerDelay", "2001", r"^maxTriggerDelay=2001: 2s at most"),
    ("maxTriggerDelay", "-1", "^maxTriggerDelay=-1: a duration"),
    ("maxBytesAhead", "64 MiB", r"^maxBytesAhead=64 MiB: a size such as 512k, .*; did you mean '64m'\?$"),
    ("maxBytesAhead", "64q", "a plain number is bytes, 1 at least$"),
    ("maxBytesPerTrigger", "0", "maxBytesPerTrigger=0: a size"),
    ("minRowsPerTrigger", "adaptive", "minRowsPerTrigger=adaptive: a whole number"),
    ("minRowsPerTrigger", "200000", r"^minRowsPerTrigger=200000 is more than maxRowsPerTrigger=100000: no batch"),
    ("isolate", "splitt", "isolate=splitt: one of never, split; did you mean 'split'"),
    ("isolateAfter", "3", "^isolateAfter means nothing without isolate=split"),
    ("onDecodeError", "fail", "onDecodeError means nothing without decode"),
    ("mode", "drain", "mode means nothing here: it is for spark.read"),
    ("redelivery.rate", "5", "use maxRowsPerTrigger and the trigger's interval"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "words"), [*GONE, *FOREIGN, *SENSELESS])
def test_what_makes_no_sense_is_one_sentence(name: str, value: str, words: str) -> None:
    """It names the option as the table spells it, says what is right, and never offers an option for a secret."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        stream(**{name: value})
    sentence = str(caught.value)
    assert "jms.password" not in sentence
    assert "hush" not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(("name", "value", "words"), [*GONE, *FOREIGN])
def test_other_uses_refuse_the_same_names(name: str, value: str, words: str) -> None:
    """A batch read and a writer know what a name stands for, too."""
    for made in (read_batch_options, read_write_options):
        with pytest.raises(ConfigurationError, match=words):
            made({"url": "memory://b", "destination": "a", name: value})


def test_options_that_contradict_each_other() -> None:
    """A minimum needs a wait, and several connections need a queue and no client id."""
    with pytest.raises(ConfigurationError, match=r"^minRowsPerTrigger=5 is more than maxRowsPerTrigger=4"):
        stream(minRowsPerTrigger="5", maxRowsPerTrigger="4")
    with pytest.raises(
        ConfigurationError, match=r"^minRowsPerTrigger=5 means nothing with maxTriggerDelay=0"
    ):
        stream(minRowsPerTrigger="5", maxTriggerDelay="0")
    for more in ({"destination": "topic://a"}, {"subscription": "s", "jms.clientID": "me"}):
        with pytest.raises(ConfigurationError, match=r"^readers=2: each of several consumers of a topic"):
            stream(readers="2", **more)
    with pytest.raises(ConfigurationError, match=r"^jms.clientID is of one connection, and readers=2 makes"):
        stream(readers="2", **{"jms.clientID": "me"})
    assert stream(readers="1", destination="topic://a", **{"jms.clientID": "me"}).readers == 1


def test_several_connections_may_log_in_by_the_url() -> None:
    """Credentials in the url are no reason against more than one reader."""
    made = stream(readers="2", url="stomp://app:hush@b:1")
    assert made.readers == 2
    assert "hush" not in repr(made)


def test_spark_has_options_of_its_own() -> None:
    """The source is handed them as well, and leaves them alone."""
    assert stream(path="/x", schema="a int", checkpointLocation="/c").destination == "orders"


def test_a_default_is_a_value() -> None:
    """What the table names as a default can be written, but for words that stand for a rule."""
    rules = {"", "adaptive", "the driver's processors, 8 at most"}
    for option in TABLE:
        if (
            option.default not in rules
            and "readStream" in option.uses
            and option.name not in ("isolateAfter", "onDecodeError")
        ):
            assert stream(**{option.name: option.default, "partitions": "2"}) == stream(partitions="2")
