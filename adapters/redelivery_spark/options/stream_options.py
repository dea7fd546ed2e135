"""What `spark.readStream.format("redelivery")` is told: one value, or one sentence that says what is wrong."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from redelivery.errors import ConfigurationError
from redelivery_spark.options.credentials import connectable, logged_in, refuse_shipped
from redelivery_spark.options.spark_option import STREAM, Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.settings import Settings

__all__ = ["SourceOptions", "read_options"]

# A runner whose JVM was killed lives until its call ends.
# What `redelivery.maximumSetAside` is where nobody has set it.
UNSAID = 100
_LONGEST_WAIT = 2000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything that a source is told. Durations are seconds. Its repr shows no credentials."""

    uri: str = field(repr=False)
    settings: Settings
    destination: str
    wal_dir: str
    ack: Literal["wal", "commit"] = "wal"
    consumers: Literal["driver", "executors"] = "driver"
    partitions: int = 2
    most_messages: int = 10_000
    most_bytes: int = 64 << 20
    wait: float = 0.5
    credentials_file: str | None = None
    decode: Literal["none", "text", "json"] = "none"
    on_decode_error: Literal["poison", "permissive", "fail"] = "poison"
    isolate_after: int = 2
    fanout: int = 8
    selector: str | None = None
    subscription: str | None = None

    @property
    def shares(self) -> bool:
        """Whether tasks consume, each its share of a batch."""
        return self.consumers == "executors"

    @property
    def text(self) -> bool:
        """Whether there is a column with the decoded body."""
        return self.decode != "none"

    @property
    def error(self) -> bool:
        """Whether there is a column with decoding errors."""
        return self.text and self.on_decode_error == "permissive"

    def connection_uri(self) -> str:
        """Return the URI to connect with: with the credentials of the file, or of the environment, if any.

        Raises ConfigurationError. To be called where the connection is made, and nowhere else.
        """
        return logged_in(self.uri, self.settings, self.credentials_file)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source: names in any case, values as text.

    Raises:
        ConfigurationError: an option is missing, unknown, contradictory or senseless.
    """
    told = Given(given, STREAM)
    told.require("url", "destination", "walDir")
    uri, settings = connectable(told.ours["url"], told.uri)
    _refuse(settings)
    return _built(told, uri, settings)


def _built(told: Given, uri: str, settings: Settings) -> SourceOptions:
    wait = told.whole("maxWait")
    if wait > _LONGEST_WAIT:
        raise ConfigurationError(
            f"maxWait={wait}: at most {_LONGEST_WAIT} ms: a runner whose Spark was killed lives for as long",
            option="maxWait",
        )
    options = SourceOptions(
        uri=uri,
        settings=settings,
        destination=told.ours["destination"],
        wal_dir=told.ours["walDir"].rstrip("/"),
        ack=cast('Literal["wal", "commit"]', told.choice("ack")),
        consumers=cast('Literal["driver", "executors"]', told.choice("consumers")),
        partitions=told.whole("partitions") if "partitions" in told else min(os.cpu_count() or 2, 8),
        most_messages=told.whole("maxMessagesPerTrigger"),
        most_bytes=told.whole("maxBytesPerTrigger"),
        wait=wait / 1000,
        credentials_file=told.text("credentialsFile"),
        decode=cast('Literal["none", "text", "json"]', told.choice("decode")),
        on_decode_error=cast('Literal["poison", "permissive", "fail"]', told.choice("onDecodeError")),
        isolate_after=told.whole("isolateAfter"),
        fanout=told.whole("isolateFanout"),
        selector=told.text("selector"),
        subscription=told.text("subscription"),
    )
    if "onDecodeError" in told and not options.text:
        raise ConfigurationError(
            "onDecodeError means nothing without decode=text or json", option="onDecodeError"
        )
    if options.shares:
        _refuse_shares(options)
    return options


def _refuse_shares(options: SourceOptions) -> None:
    """Refuse what tasks that consume for themselves cannot do."""
    if options.ack == "commit":
        raise ConfigurationError(
            "ack=commit needs one connection that lives as long as the query, and consumers=executors has none: "
            "leave ack=wal",
            option="ack",
        )
    kind = options.destination.partition("://")[0]
    if options.subscription is not None or kind in ("topic", "temp-topic"):
        raise ConfigurationError(
            "consumers=executors: each of several consumers of a topic would get every message; name a queue, or leave "
            "consumers=driver",
            option="consumers",
        )
    if options.settings.client_id is not None:
        raise ConfigurationError(
            "jms.clientID means one connection, and consumers=executors has one for each task: leave it out",
            option="jms.clientID",
        )
    refuse_shipped(options.settings)


def _refuse(settings: Settings) -> None:
    if settings.ledger is not None:
        raise ConfigurationError(
            "redelivery.ledger has no place here: the counts live in the write-ahead log",
            option="redelivery.ledger",
        )
    if settings.maximum_set_aside not in (0, UNSAID):
        raise ConfigurationError(
            "redelivery.maximumSetAside has no place here: a row that is poison must leave the write-ahead log, so the "
            "query ends at the first that cannot be dead-lettered; leave it out",
            option="redelivery.maximumSetAside",
        )
    if settings.ordering != "non_blocking":
        raise ConfigurationError(
            f"redelivery.ordering={settings.ordering}: a batch has no order that a waiting message could keep; "
            "leave it non_blocking",
            option="redelivery.ordering",
        )
