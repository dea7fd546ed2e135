"""Options of the source: of streams, of batches and of writes, checked."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from redelivery import parse_uri
from redelivery.core.destination import Destination
from redelivery.driver.port import single
from redelivery_spark.options.credentials import checked_url, connectable, logged_in, refuse_shipped
from redelivery_spark.options.spark_option import (
    LONGEST_DELAY,
    READ,
    STREAM,
    WRITE,
    Given,
    duration_of,
    refuse_without_decode,
    shown_duration,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.settings import Settings

__all__ = [
    "ReadOptions",
    "SourceOptions",
    "WriteOptions",
    "options_of",
    "read_batch_options",
    "read_options",
    "read_write_options",
]


# ---- Stream options --------------------------------------------------------------------------------------
# Options of `spark.readStream.format("redelivery")`, checked.

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
        ConfigurationError: Options are missing, unknown, contradictory or out of their ranges; it lists all of them.
    """
    found = Given(given, STREAM)
    found.require("url", "destination", "walDir")
    uri, settings = checked_url(found.text("url"), found.uri, found.mistakes)
    if settings is not None:
        _refuse(found, settings)
    options = SourceOptions(
        uri=uri,
        # None: it has mistakes, and the options are not returned.
        settings=cast("Settings", settings),
        destination=found.text("destination") or "",
        wal_dir=found.folder("walDir"),
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
        _refuse_readers(found, options, settings)
    found.mistakes.check()
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
    if "maxBytesPerTrigger" in found and not found.mistakes.concern("maxBytesPerTrigger", "maxBytesAhead"):
        found.refuse(
            "maxBytesPerTrigger",
            f"{found.shown('maxBytesPerTrigger')}: more than {found.shown('maxBytesAhead')}, and no batch could become "
            "so large; raise maxBytesAhead, or lower maxBytesPerTrigger",
        )
    return ahead


def _trigger_delay(found: Given) -> float:
    given = duration_of(found.text("maxTriggerDelay") or "")
    if given is None or given <= LONGEST_DELAY:
        return found.duration("maxTriggerDelay")
    longest = shown_duration(LONGEST_DELAY)
    found.refuse(
        "maxTriggerDelay",
        f"{found.shown('maxTriggerDelay')}: at most {longest}, because the runner of a killed Spark lives for as long; "
        f"use {longest}",
    )
    return LONGEST_DELAY / 1000


def _refuse_contradictions(found: Given, options: SourceOptions) -> None:
    """Note options that contradict each other, unless one of them is wrong by itself."""
    least, wrong = options.least_rows, found.mistakes.concern
    if (
        least is not None
        and least > options.most_rows
        and not wrong("minRowsPerTrigger", "maxRowsPerTrigger")
    ):
        found.refuse(
            "minRowsPerTrigger",
            f"{found.shown('minRowsPerTrigger')}: more than {found.shown('maxRowsPerTrigger')}, and no batch could "
            "become so large; lower minRowsPerTrigger",
        )
    if least is not None and not options.trigger_delay and not wrong("minRowsPerTrigger", "maxTriggerDelay"):
        found.refuse(
            "minRowsPerTrigger",
            f"{found.shown('minRowsPerTrigger')}: has no effect with maxTriggerDelay=0, because no batch waits; raise "
            "maxTriggerDelay, or remove minRowsPerTrigger",
        )
    if "isolateAfter" in found and options.isolate == "never" and not wrong("isolate"):
        found.refuse(
            "isolateAfter",
            "isolateAfter: has no effect without isolate=split; add isolate=split, or remove it",
        )
    refuse_without_decode(found)


def _refuse_readers(found: Given, options: SourceOptions, settings: Settings | None) -> None:
    """Note more than one connection where only one can consume."""
    kind = options.destination.partition("://")[0]
    if options.subscription is not None or kind in ("topic", "temp-topic"):
        found.refuse(
            "readers",
            f"{found.shown('readers')}: each of several consumers of a topic gets every message; use a queue, or "
            "remove readers",
        )
    elif settings is not None and settings.client_id is not None:
        found.refuse(
            "jms.clientID",
            f"jms.clientID: only one connection can use it, and {found.shown('readers')} makes several; remove one of "
            "them",
        )


def _refuse(found: Given, settings: Settings) -> None:
    if settings.ledger is not None:
        found.refuse(
            "redelivery.ledger",
            "redelivery.ledger: not supported here, because the counts are in the write-ahead log; remove it",
        )
    if settings.ordering != "non_blocking":
        found.refuse(
            "redelivery.ordering",
            f"redelivery.ordering={settings.ordering}: not supported here, because a batch has no order that a parked "
            "message could keep; use non_blocking",
        )


# ---- Batch options ---------------------------------------------------------------------------------------
# Options of `spark.read.format("redelivery")`, checked.

# Messages. Limit of a drain whose producers are faster: it must end.
MOST_DRAINED = 1_000_000
_RUN = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a batch read. They are sent to executors: nothing in them is secret. Durations are in seconds.

    `queues`: one partition for each; None: the broker's own dead-letter queue. `most`: messages of each queue at most.
    """

    uri: str = field(repr=False)
    queues: tuple[str | None, ...]
    mode: Literal["browse", "drain"] = "browse"
    wal_dir: str | None = None
    run: str = "drain"
    most: int | None = None
    idle: float = 2.0
    credentials_file: str | None = None
    decode: Literal["none", "text", "json"] = "none"
    on_decode_error: Literal["permissive", "fail"] = "fail"
    dead_letters: bool = False
    accepts_less: bool = False
    selector: str | None = None

    @property
    def text(self) -> bool:
        """True if there is a column with the decoded body."""
        return self.decode != "none"

    @property
    def error(self) -> bool:
        """True if there is a column with decoding errors."""
        return self.text and self.on_decode_error == "permissive"

    def connection_uri(self) -> str:
        """Return the URI to connect with, in an executor. Raises ConfigurationError."""
        return logged_in(self.uri, parse_uri(self.uri), self.credentials_file)


def read_batch_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a batch read. Names are in any case, values are text.

    Raises:
        ConfigurationError: Options are missing, unknown, contradictory or out of their ranges; it lists all of them.
    """
    found = Given(given, READ)
    found.require("url")
    uri, settings = checked_url(found.text("url"), found.uri, found.mistakes)
    if settings is not None:
        found.mistakes.attempt(lambda: refuse_shipped(settings), None)
    mode = found.choice("mode")
    _refuse_of_mode(found, mode)
    queues = _queues(found)
    most = found.whole("maxMessages") if "maxMessages" in found else None
    options = ReadOptions(
        uri=uri,
        queues=queues,
        mode=cast('Literal["browse", "drain"]', mode),
        wal_dir=found.folder("walDir") if mode == "drain" else None,
        run=checked_run(found, "drain"),
        most=MOST_DRAINED if most is None and mode == "drain" else most,
        idle=found.duration("idle"),
        credentials_file=found.text("credentialsFile"),
        decode=cast('Literal["none", "text", "json"]', found.choice("decode")),
        on_decode_error=_on_decode_error(found),
        dead_letters=found.choice("deadLetters") == "true" if "deadLetters" in found else queues == (None,),
        accepts_less=found.choice("incomplete") == "accept",
        selector=found.text("selector"),
    )
    found.mistakes.check()
    return options


def checked_run(found: Given, default: str) -> str:
    """Return the name of a run, which is also the name of a folder."""
    run = found.text("run")
    if run is not None and not _RUN.fullmatch(run):
        found.refuse(
            "run", f"run={run}: must be 1 to 100 letters, digits, '_', '-' or '.', the first no '-' or '.'"
        )
    return default if run is None else run


def _on_decode_error(found: Given) -> Literal["permissive", "fail"]:
    refuse_without_decode(found)
    chosen = found.choice("onDecodeError") if "onDecodeError" in found else "fail"
    if chosen == "poison" and not found.mistakes.concern("onDecodeError"):
        found.refuse(
            "onDecodeError",
            "onDecodeError=poison: a batch read dead-letters nothing; use permissive or fail",
        )
    return cast('Literal["permissive", "fail"]', chosen)


def _refuse_of_mode(found: Given, mode: str) -> None:
    if mode == "drain":
        found.require("destination", "walDir")
    elif not found.mistakes.concern("mode"):
        for name in ("walDir", "run", "idle", "selector"):
            if name in found:
                found.refuse(name, f"{name}: has no effect without mode=drain; add mode=drain, or remove it")


def _queues(found: Given) -> tuple[str | None, ...]:
    """Return the queues of a comma-separated list, each once."""
    text = found.text("destination")
    if text is None:
        return (None,)
    none: list[Destination] = []
    members = found.mistakes.attempt(
        lambda: [single(str(each)) for each in Destination.parse(text).members], none
    )
    for each in members:
        if each.is_topic or each.is_temporary:
            found.refuse(
                "destination",
                f"destination={each}: a batch read needs queues, which keep their messages; use spark.readStream",
            )
    return tuple(dict.fromkeys(str(each) for each in members))


# ---- Write options ---------------------------------------------------------------------------------------
# Options of `df.write.format("redelivery")`, checked.


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a writer. They are sent to executors: nothing in them is secret."""

    uri: str = field(repr=False)
    destination: str | None = None
    run: str | None = None
    credentials_file: str | None = None

    def connection_uri(self) -> str:
        """Return the URI to connect with, in an executor. Raises ConfigurationError."""
        return logged_in(self.uri, parse_uri(self.uri), self.credentials_file)


def read_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a writer. Names are in any case, values are text.

    Raises:
        ConfigurationError: Options are missing, unknown, contradictory or out of their ranges; it lists all of them.
    """
    found = Given(given, WRITE)
    found.require("url")
    uri, settings = checked_url(found.text("url"), found.uri, found.mistakes)
    if settings is not None:
        found.mistakes.attempt(lambda: refuse_shipped(settings), None)
    destination = found.text("destination")
    options = WriteOptions(
        uri=uri,
        destination=None
        if destination is None
        else found.mistakes.attempt(lambda: str(single(destination)), None),
        run=checked_run(found, "") or None,
        credentials_file=found.text("credentialsFile"),
    )
    found.mistakes.check()
    return options
