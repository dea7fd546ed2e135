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
    _Advice(("ack",), "is no option any more: the broker lets go of a message when the log has it, which was ack=wal; "
           "leave it out"),
    _Advice(("consumers",), "is no option any more: the driver consumes, over as many connections as readers=N says; "
           "leave it out, or use readers"),
    _Advice(("maxWait",), "is no option any more: use maxTriggerDelay, the longest wait for minRowsPerTrigger"),
    _Advice(("isolateFanout",), "is no option any more: isolate=split makes 8 groups or more; leave it out"),
    _Advice(("pushFilters",), "is no option any more: Spark filters the rows itself, and correctly; leave it out"),
)  # fmt: skip
_KAFKAS = (
    _Advice(("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
            "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
           "has no equivalent: a queue has no offsets to begin at, and a stream takes what the broker has; leave it "
           "out"),
    _Advice(("failOnDataLoss",), "has no equivalent: a query always fails when a part of its walDir is missing; leave "
           "it out"),
    _Advice(("subscribe", "topic", "topics", "queue", "queues"), "is called destination here: queue://orders, or "
           "topic://prices"),
    _Advice(("subscribePattern", "assign"), "has no equivalent: name what to consume by destination"),
    _Advice(("bootstrap.servers", "brokers", "broker", "servers", "host", "port", "uri", "brokerUrl"),
           "is a part of the option url here: stomp://broker:61613, or amqp://broker:5672"),
    _Advice(("groupIdPrefix", "group.id", "kafka.group.id"), "has no equivalent: queries on one queue share its "
           "messages, and subscription names a durable topic subscription"),
    _Advice(("maxOffsetsPerTrigger", "maxRecordsPerTrigger", "maxFilesPerTrigger"), "is no option here; did you mean "
           "'maxRowsPerTrigger'?"),
    _Advice(("minOffsetsPerTrigger", "minRecordsPerTrigger"), "is no option here; did you mean 'minRowsPerTrigger'?"),
    _Advice(("minPartitions", "maxPartitions", "numPartitions"), "is no option here; did you mean 'partitions'?"),
    _Advice(("includeHeaders",), "has no equivalent: the column properties is always there; leave it out"),
)  # fmt: skip
_BY_NAME = {name.lower(): (name, group.words) for group in (*_GONE, *_KAFKAS) for name in group.names}
_KAFKA = (
    "kafka.bootstrap.servers",
    "is a part of the option url here: stomp://broker:61613, or amqp://broker:5672",
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
        return written, "is for Kafka's client: options of a connection are part of the url here"
    return found


def login() -> str:
    """Return the advice for credentials."""
    return (
        "is no option: name a file by credentialsFile, or set the variables "
        f"{USER} and {PASSWORD}, where the connection is made"
    )


def without_login(names: Iterable[str]) -> list[str]:
    """Return the names to suggest for a misspelt one, without those of secrets: no secret belongs into an option."""
    return [name for name in names if not name.lower().endswith((".password", ".username"))]
