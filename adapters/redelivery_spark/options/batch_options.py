"""Options of `spark.read.format("redelivery")`, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from redelivery import parse_uri
from redelivery.core.destination import Destination
from redelivery.driver.port import single
from redelivery.errors import ConfigurationError
from redelivery_spark.options.credentials import connectable, logged_in, refuse_shipped
from redelivery_spark.options.spark_option import READ, Given
from redelivery_spark.wal.store import store_at

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
        ConfigurationError: An option is missing, unknown, contradictory or out of its range.
    """
    found = Given(given, READ)
    found.require("url")
    uri, settings = connectable(found.ours["url"], found.uri)
    refuse_shipped(settings)
    mode = found.choice("mode")
    _refuse_of_mode(found, mode)
    decode = found.choice("decode")
    if "onDecodeError" in found and decode == "none":
        raise ConfigurationError(
            "onDecodeError: has no effect without decode; add decode=text or decode=json, or remove it",
            option="onDecodeError",
        )
    on_error = found.choice("onDecodeError") if "onDecodeError" in found else "fail"
    if on_error == "poison":
        raise ConfigurationError(
            "onDecodeError=poison: a batch read dead-letters nothing; use permissive or fail",
            option="onDecodeError",
        )
    queues = _queues(found)
    most = found.whole("maxMessages") if "maxMessages" in found else None
    return ReadOptions(
        uri=uri,
        queues=queues,
        mode=cast('Literal["browse", "drain"]', mode),
        wal_dir=_wal_dir(found, mode),
        run=checked_run(found, "drain"),
        most=MOST_DRAINED if most is None and mode == "drain" else most,
        idle=found.duration("idle"),
        credentials_file=found.text("credentialsFile"),
        decode=cast('Literal["none", "text", "json"]', decode),
        on_decode_error=cast('Literal["permissive", "fail"]', on_error),
        dead_letters=found.choice("deadLetters") == "true" if "deadLetters" in found else queues == (None,),
        accepts_less=found.choice("incomplete") == "accept",
        selector=found.text("selector"),
    )


def checked_run(found: Given, default: str) -> str:
    """Return the name of a run, which is also the name of a folder. Raises ConfigurationError."""
    run = found.text("run")
    if run is None:
        return default
    if not _RUN.fullmatch(run):
        raise ConfigurationError(
            f"run={run}: must be 1 to 100 letters, digits, '_', '-' or '.', the first no '-' or '.'",
            option="run",
        )
    return run


def _refuse_of_mode(found: Given, mode: str) -> None:
    if mode == "drain":
        return found.require("destination", "walDir")
    for name in ("walDir", "run", "idle", "selector"):
        if name in found:
            raise ConfigurationError(
                f"{name}: has no effect without mode=drain; add mode=drain, or remove it", option=name
            )
    return None


def _wal_dir(found: Given, mode: str) -> str | None:
    if mode != "drain":
        return None
    path = found.ours["walDir"].rstrip("/")
    store_at(path)
    return path


def _queues(found: Given) -> tuple[str | None, ...]:
    """Return the queues of a comma-separated list, each once."""
    text = found.text("destination")
    if text is None:
        return (None,)
    members = [single(str(each)) for each in Destination.parse(text).members]
    for each in members:
        if each.is_topic or each.is_temporary:
            raise ConfigurationError(
                f"destination={each}: a batch read needs queues, which keep their messages; use spark.readStream",
                option="destination",
            )
    return tuple(dict.fromkeys(str(each) for each in members))
