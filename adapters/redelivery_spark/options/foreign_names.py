"""Names that are not options here, with an advice for each: removed ones, Spark's, Kafka's, and those of secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redelivery_spark.options.credentials import PASSWORD, USER

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LOGIN", "OLD_NAMES", "SPARKS_OWN", "foreign", "login", "without_login"]

SPARKS_OWN = frozenset({"path", "schema", "checkpointlocation"})
"""Spark hands these to the source as well."""
OLD_NAMES = {"maxmessagespertrigger": ("maxMessagesPerTrigger", "maxRowsPerTrigger")}
"""Old names that are still accepted: by the name in lower case, its spelling and its successor."""
LOGIN = ("password", "user", "username", "userName", "passwd", "pwd")
"""Names under which users look for an option of credentials."""


class _Advice(NamedTuple):
    """Names with the same advice."""

    names: tuple[str, ...]
    words: str


_GONE = (
    _Advice(("ack",), "no longer an option: a message is accepted when the write-ahead log has it, as with ack=wal; "
           "remove it"),
    _Advice(("consumers",), "no longer an option: the Spark driver consumes, over readers=N connections; remove it, or "
           "use readers"),
    _Advice(("maxWait",), "no longer an option; use maxTriggerDelay, the longest wait for minRowsPerTrigger"),
    _Advice(("isolateFanout",), "no longer an option: isolate=split makes at least 8 groups; remove it"),
    _Advice(("pushFilters",), "no longer an option: Spark filters the rows itself; remove it"),
)  # fmt: skip
_KAFKAS = (
    _Advice(("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
            "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
           "no equivalent here: a queue has no offsets, and a stream takes all messages that the broker has; remove "
           "it"),
    _Advice(("failOnDataLoss",), "no equivalent here: a query always fails when a part of its walDir is missing; "
           "remove it"),
    _Advice(("subscribe", "topic", "topics", "queue", "queues"), "called destination here; use "
           "destination=queue://orders or destination=topic://prices"),
    _Advice(("subscribePattern", "assign"), "no equivalent here; name the queues or topics in destination"),
    _Advice(("bootstrap.servers", "brokers", "broker", "servers", "host", "port", "uri", "brokerUrl"),
           "part of the option url here; use url=stomp://broker:61613 or url=amqp://broker:5672"),
    _Advice(("groupIdPrefix", "group.id", "kafka.group.id"), "no equivalent here: queries on one queue share "
           "its messages; subscription names a durable topic subscription"),
    _Advice(("maxOffsetsPerTrigger", "maxRecordsPerTrigger", "maxFilesPerTrigger"), "not an option here; did you mean "
           "'maxRowsPerTrigger'?"),
    _Advice(("minOffsetsPerTrigger", "minRecordsPerTrigger"), "not an option here; did you mean 'minRowsPerTrigger'?"),
    _Advice(("minPartitions", "maxPartitions", "numPartitions"), "not an option here; did you mean 'partitions'?"),
    _Advice(("includeHeaders",), "no equivalent here: the column properties is always there; remove it"),
)  # fmt: skip
_BY_NAME = {name.lower(): (name, group.words) for group in (*_GONE, *_KAFKAS) for name in group.names}
_KAFKA = (
    "kafka.bootstrap.servers",
    "part of the option url here; use url=stomp://broker:61613 or url=amqp://broker:5672",
)


def foreign(written: str) -> tuple[str, str] | None:
    """Return the spelling of a name that is known but not an option, and the advice that follows it; or None."""
    name = written.lower()
    if name in map(str.lower, LOGIN):
        return written, login()
    if name == _KAFKA[0]:
        return _KAFKA
    found = _BY_NAME.get(name)
    if found is None and name.startswith("kafka."):
        return written, "an option of Kafka's client; here, options of the connection are part of the url"
    return found


def login() -> str:
    """Return the advice for credentials."""
    return (
        "not an option, because Spark may show options; use credentialsFile, or set the variables "
        f"{USER} and {PASSWORD} where the connection is made"
    )


def without_login(names: Iterable[str]) -> list[str]:
    """Return the names to suggest for a misspelt one, without those of secrets: no secret belongs into an option."""
    return [name for name in names if not name.lower().endswith((".password", ".username"))]
