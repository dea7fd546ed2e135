"""Options of `spark.readStream.format("redelivery")`, checked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from redelivery.errors import ConfigurationError
from redelivery_spark.options.credentials import connectable, logged_in
from redelivery_spark.options.quantities import duration_of, shown_duration
from redelivery_spark.options.spark_option import LONGEST_DELAY, STREAM, Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.settings import Settings

__all__ = ["SourceOptions", "options_of", "read_options"]

# Messages. The default of `redelivery.maximumSetAside`.
UNSAID = 100


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a stream. Durations are in seconds. The repr shows no credentials."""

    uri: str = field(repr=False)
    settings: Settings
    destination: str
    wal_dir: str
    partitions: int = 2
    most_rows: int = 100_000
    most_bytes: int = 64 << 20
    least_rows: int | None = None
    """Rows that a batch waits for; None: as many as the rate of arrival predicts."""
    trigger_delay: float = 0.3
    bytes_ahead: int = 256 << 20
    readers: int = 1
    credentials_file: str | None = None
    decode: Literal["none", "text", "json"] = "none"
    on_decode_error: Literal["poison", "permissive", "fail"] = "poison"
    isolate: Literal["never", "split"] = "never"
    isolate_after: int = 5
    selector: str | None = None
    subscription: str | None = None

    @property
    def text(self) -> bool:
        """True if there is a column with the decoded body."""
        return self.decode != "none"

    @property
    def error(self) -> bool:
        """True if there is a column with decoding errors."""
        return self.text and self.on_decode_error == "permissive"

    def connection_uri(self) -> str:
        """Return the URI to connect with, with the credentials of the file or of the environment, if there are any.

        Raises ConfigurationError. Call it only where the connection is made.
        """
        return logged_in(self.uri, self.settings, self.credentials_file)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a source. Names are in any case, values are text.

    Raises:
        ConfigurationError: An option is missing, unknown, contradictory or out of its range.
    """
    found = Given(given, STREAM)
    found.require("url", "destination", "walDir")
    uri, settings = connectable(found.ours["url"], found.uri)
    _refuse(settings)
    options = SourceOptions(
        uri=uri,
        settings=settings,
        destination=found.ours["destination"],
        wal_dir=found.ours["walDir"].rstrip("/"),
        partitions=found.whole("partitions") if "partitions" in found else min(os.cpu_count() or 2, 8),
        most_rows=found.whole("maxRowsPerTrigger"),
        most_bytes=_most_bytes(found),
        least_rows=found.whole("minRowsPerTrigger") if "minRowsPerTrigger" in found else None,
        trigger_delay=_trigger_delay(found),
        bytes_ahead=found.size("maxBytesAhead"),
        readers=found.whole("readers"),
        credentials_file=found.text("credentialsFile"),
        decode=cast('Literal["none", "text", "json"]', found.choice("decode")),
        on_decode_error=cast('Literal["poison", "permissive", "fail"]', found.choice("onDecodeError")),
        isolate=cast('Literal["never", "split"]', found.choice("isolate")),
        isolate_after=found.whole("isolateAfter"),
        selector=found.text("selector"),
        subscription=found.text("subscription"),
    )
    _refuse_contradictions(found, options)
    if options.readers > 1:
        _refuse_readers(found, options)
    return options


def options_of(fields: Mapping[str, Any]) -> SourceOptions:
    """Return options made of their fields, without `settings`, which are read from the URI."""
    _, settings = connectable(fields["uri"], {})
    return SourceOptions(**fields, settings=settings)


def _most_bytes(found: Given) -> int:
    """Return the bytes of a batch: at most `maxBytesAhead`. More is refused if given, and lowered if the default."""
    most, ahead = found.size("maxBytesPerTrigger"), found.size("maxBytesAhead")
    if most <= ahead:
        return most
    if "maxBytesPerTrigger" not in found:
        return ahead
    raise ConfigurationError(
        f"{found.shown('maxBytesPerTrigger')}: more than {found.shown('maxBytesAhead')}, and no batch could become so "
        "large; raise maxBytesAhead, or lower maxBytesPerTrigger",
        option="maxBytesPerTrigger",
    )


def _trigger_delay(found: Given) -> float:
    try:
        return found.duration("maxTriggerDelay")
    except ConfigurationError as error:
        if (duration_of(found.ours["maxTriggerDelay"]) or 0) <= LONGEST_DELAY:
            raise
        raise ConfigurationError(
            f"{found.shown('maxTriggerDelay')}: at most {shown_duration(LONGEST_DELAY)}, because the runner of a "
            f"killed Spark lives for as long; use {shown_duration(LONGEST_DELAY)}",
            option=error.option,
        ) from None


def _refuse_contradictions(found: Given, options: SourceOptions) -> None:
    """Refuse options that contradict each other."""
    least = options.least_rows
    if least is not None and least > options.most_rows:
        raise ConfigurationError(
            f"{found.shown('minRowsPerTrigger')}: more than {found.shown('maxRowsPerTrigger')}, and no batch could "
            "become so large; lower minRowsPerTrigger",
            option="minRowsPerTrigger",
        )
    if least is not None and not options.trigger_delay:
        raise ConfigurationError(
            f"{found.shown('minRowsPerTrigger')}: has no effect with maxTriggerDelay=0, because no batch waits; raise "
            "maxTriggerDelay, or remove minRowsPerTrigger",
            option="minRowsPerTrigger",
        )
    if "isolateAfter" in found and options.isolate == "never":
        raise ConfigurationError(
            "isolateAfter: has no effect without isolate=split; add isolate=split, or remove it",
            option="isolateAfter",
        )
    if "onDecodeError" in found and not options.text:
        raise ConfigurationError(
            "onDecodeError: has no effect without decode; add decode=text or decode=json, or remove it",
            option="onDecodeError",
        )


def _refuse_readers(found: Given, options: SourceOptions) -> None:
    """Refuse more than one connection where only one can consume."""
    kind = options.destination.partition("://")[0]
    if options.subscription is not None or kind in ("topic", "temp-topic"):
        raise ConfigurationError(
            f"{found.shown('readers')}: each of several consumers of a topic gets every message; use a queue, or "
            "remove readers",
            option="readers",
        )
    if options.settings.client_id is not None:
        raise ConfigurationError(
            f"jms.clientID: only one connection can use it, and {found.shown('readers')} makes several; remove one of "
            "them",
            option="jms.clientID",
        )


def _refuse(settings: Settings) -> None:
    if settings.ledger is not None:
        raise ConfigurationError(
            "redelivery.ledger: not supported here, because the counts are in the write-ahead log; remove it",
            option="redelivery.ledger",
        )
    if settings.ordering != "non_blocking":
        raise ConfigurationError(
            f"redelivery.ordering={settings.ordering}: not supported here, because a batch has no order that a parked "
            "message could keep; use non_blocking",
            option="redelivery.ordering",
        )
