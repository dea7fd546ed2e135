"""What `spark.readStream.format("redelivery").option(…)` takes: one value, or one sentence that says what is wrong."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast
from urllib.parse import quote

from redelivery import parse_uri
from redelivery.errors import ConfigurationError, near_miss
from redelivery.options import MAP_PREFIX, OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.settings import Settings

__all__ = ["TABLE", "SourceOptions", "SparkOption", "read_options"]


class SparkOption(NamedTuple):
    """One option. Durations are milliseconds, as in the URI."""

    name: str
    kind: Literal["text", "integer", "choice"]
    default: str
    doc: str
    low: int = 0
    choices: tuple[str, ...] = ()


TABLE: tuple[SparkOption, ...] = (
    SparkOption("url", "text", "", "Connection URI, with the options of every other consumer. Required."),
    SparkOption("destination", "text", "", "What to consume, as for `connection.consumer`. Required."),
    SparkOption("walDir", "text", "", "Where the write-ahead log is: a folder, or an object store's URL, that all "
                "executors share. Required."),
    SparkOption("ack", "choice", "wal", "When the broker lets go of a message: when it is in the log, or "
                "when its batch is committed.", choices=("wal", "commit")),
    SparkOption("consumers", "choice", "driver", "Who consumes.", choices=("driver", "executors")),
    SparkOption("partitions", "integer", "the driver's processors, 8 at most", "Slices of a batch.", 1),
    SparkOption("maxMessagesPerTrigger", "integer", "10000", "Messages in a batch at most.", 1),
    SparkOption("maxBytesPerTrigger", "integer", "67108864", "Bytes of bodies in a batch, but for one message.", 1),
    SparkOption("maxWait", "integer", "500", "How long a trigger waits for a first message.", 0),
    SparkOption("credentialsFile", "text", "", "TOML file with `user` and `password`, on the driver."),
    SparkOption("decode", "choice", "none", "What a body must be; a column `text` has it decoded.",
                choices=("none", "text", "json")),
    SparkOption("onDecodeError", "choice", "poison", "What becomes of one that is not.",
                choices=("poison", "permissive", "fail")),
    SparkOption("isolateAfter", "integer", "2", "Failures of a batch without evidence until it is split.", 1),
    SparkOption("isolateFanout", "integer", "8", "Groups that a failed batch is split into.", 2),
    SparkOption("selector", "text", "", "A JMS selector, evaluated by the broker."),
    SparkOption("subscription", "text", "", "Name of a durable topic subscription; needs jms.clientID."),
)  # fmt: skip
_BY_NAME = {option.name.lower(): option for option in TABLE}
_URI_NAMES = {name.lower(): name for name in OPTIONS}
_SPARKS_OWN = frozenset({"path", "schema"})
_LONGEST_WAIT = 2000  # a runner whose JVM was killed lives until its call ends
USER, PASSWORD = "REDELIVERY_USER", "REDELIVERY_PASSWORD"


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
        user, password = _credentials(self.credentials_file)
        if user is None or self.settings.user_name is not None:
            return self.uri
        return _with(self.uri, {"jms.userName": user, "jms.password": password or ""})


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source: names in any case, values as text.

    Raises:
        ConfigurationError: an option is missing, unknown, contradictory or senseless.
    """
    ours: dict[str, str] = {}
    uri: dict[str, str] = {}
    for written, value in given.items():
        name = written.lower()
        if name in _BY_NAME:
            ours[_BY_NAME[name].name] = value
        elif name in _URI_NAMES:
            uri[_URI_NAMES[name]] = value
        elif name.startswith(MAP_PREFIX.lower()):
            raise ConfigurationError(
                f"{MAP_PREFIX}… belongs into the url: Spark forgets the case of option names, and patterns have one",
                option=MAP_PREFIX[:-1],
            )
        elif name not in _SPARKS_OWN:
            known = [*(option.name for option in TABLE), *OPTIONS]
            raise ConfigurationError(f"unknown option {written}{near_miss(written, known)}", option=written)
    _required(ours)
    settings = parse_uri(_with(ours["url"], uri))
    _refuse(settings)
    return _built(ours, _with(ours["url"], uri), settings)


def _built(ours: Mapping[str, str], uri: str, settings: Settings) -> SourceOptions:
    wait = _whole(ours, "maxWait")
    if wait > _LONGEST_WAIT:
        raise ConfigurationError(
            f"maxWait={wait}: at most {_LONGEST_WAIT} ms: a runner whose Spark was killed lives for as long",
            option="maxWait",
        )
    options = SourceOptions(
        uri=uri,
        settings=settings,
        destination=ours["destination"],
        wal_dir=ours["walDir"].rstrip("/"),
        ack=cast('Literal["wal", "commit"]', _choice(ours, "ack")),
        consumers=cast('Literal["driver", "executors"]', _choice(ours, "consumers")),
        partitions=_whole(ours, "partitions") if "partitions" in ours else min(os.cpu_count() or 2, 8),
        most_messages=_whole(ours, "maxMessagesPerTrigger"),
        most_bytes=_whole(ours, "maxBytesPerTrigger"),
        wait=wait / 1000,
        credentials_file=ours.get("credentialsFile"),
        decode=cast('Literal["none", "text", "json"]', _choice(ours, "decode")),
        on_decode_error=cast('Literal["poison", "permissive", "fail"]', _choice(ours, "onDecodeError")),
        isolate_after=_whole(ours, "isolateAfter"),
        fanout=_whole(ours, "isolateFanout"),
        selector=ours.get("selector"),
        subscription=ours.get("subscription"),
    )
    if "onDecodeError" in ours and not options.text:
        raise ConfigurationError(
            "onDecodeError means nothing without decode=text or json", option="onDecodeError"
        )
    if options.consumers == "executors":
        raise ConfigurationError("consumers=executors is not supported yet", option="consumers")
    return options


def _required(ours: Mapping[str, str]) -> None:
    for name in ("url", "destination", "walDir"):
        if not ours.get(name, "").strip():
            raise ConfigurationError(f"option {name} is missing: {_BY_NAME[name.lower()].doc}", option=name)


def _refuse(settings: Settings) -> None:
    if settings.ledger is not None:
        raise ConfigurationError(
            "redelivery.ledger has no place here: the counts live in the write-ahead log",
            option="redelivery.ledger",
        )
    if settings.ordering != "non_blocking":
        raise ConfigurationError(
            f"redelivery.ordering={settings.ordering}: a batch has no order that a waiting message could keep; "
            "leave it non_blocking",
            option="redelivery.ordering",
        )


def _whole(ours: Mapping[str, str], name: str) -> int:
    option = _BY_NAME[name.lower()]
    text = ours.get(name, option.default).strip()
    if not re.fullmatch(r"\d{1,15}", text) or int(text) < option.low:
        raise ConfigurationError(f"{name}={text}: a whole number, {option.low} at least", option=name)
    return int(text)


def _choice(ours: Mapping[str, str], name: str) -> str:
    option = _BY_NAME[name.lower()]
    text = ours.get(name, option.default)
    if text not in option.choices:
        raise ConfigurationError(
            f"{name}={text}: one of {', '.join(option.choices)}{near_miss(text, option.choices)}", option=name
        )
    return text


def _with(uri: str, options: Mapping[str, str]) -> str:
    if not options:
        return uri
    written = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
    tail = uri.rpartition(")")[2]  # behind a failover list, whose members may have options too
    return f"{uri}{'&' if '?' in tail else '?'}{written}"


def _credentials(file: str | None) -> tuple[str | None, str | None]:
    if file is None:
        return os.environ.get(USER), os.environ.get(PASSWORD)
    try:
        found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"credentialsFile={file} cannot be read: {error.strerror}", option="credentialsFile"
        ) from None
    except ValueError:  # its words may quote the file
        raise ConfigurationError(
            f"credentialsFile={file} is no TOML file", option="credentialsFile"
        ) from None
    user, password = found.get("user"), found.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise ConfigurationError(
            f'credentialsFile={file}: it needs two lines, user = "…" and password = "…"',
            option="credentialsFile",
        )
    return user, password
