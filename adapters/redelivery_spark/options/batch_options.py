"""Options of `spark.read.format("redelivery")`, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from redelivery import parse_uri
from redelivery.core.destination import Destination
from redelivery.driver.port import single
from redelivery_spark.options.credentials import checked_url, logged_in, refuse_shipped
from redelivery_spark.options.spark_option import READ, Given, refuse_without_decode

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ReadOptions", "checked_run", "read_batch_options"]

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
