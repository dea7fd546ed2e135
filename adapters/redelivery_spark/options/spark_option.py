"""The options of the data source, and how they are read: which there are, what for, and of what kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from redelivery.errors import ConfigurationError, near_miss
from redelivery.uri.option_table import MAP_PREFIX, OPTIONS, OUR_MAP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["READ", "STREAM", "TABLE", "WRITE", "Given", "SparkOption", "named", "use_told"]

STREAM, READ, WRITE = "readStream", "read", "write"
_ALL = (STREAM, READ, WRITE)


class SparkOption(NamedTuple):
    """One option. Durations are milliseconds, as in the URI; `uses`: where it means something."""

    name: str
    kind: Literal["text", "integer", "choice"]
    default: str
    doc: str
    low: int = 0
    choices: tuple[str, ...] = ()
    uses: tuple[str, ...] = (STREAM,)


TABLE: tuple[SparkOption, ...] = (
    SparkOption("url", "text", "", "Connection URI, with the options of every other consumer. Required.", uses=_ALL),
    SparkOption("destination", "text", "", "What to consume, to look at, or where to send. Required, but to look at "
                "the broker's dead letters, and for rows that have a column `destination`.", uses=_ALL),
    SparkOption("walDir", "text", "", "Where the write-ahead log is: a folder, or an object store's URL, which all "
                "executors share. Required for a stream, and for mode=drain.", uses=(STREAM, READ)),
    SparkOption("ack", "choice", "wal", "When the broker lets go of a message: when it is in the log, or "
                "when its batch is committed.", choices=("wal", "commit")),
    SparkOption("consumers", "choice", "driver", "Who consumes: the driver, or each task of a batch its share.",
                choices=("driver", "executors")),
    SparkOption("partitions", "integer", "the driver's processors, 8 at most", "Slices of a batch; tasks that consume.",
                1),
    SparkOption("maxMessagesPerTrigger", "integer", "10000", "Messages in a batch at most.", 1),
    SparkOption("maxBytesPerTrigger", "integer", "67108864", "Bytes of bodies in a batch, but for one message.", 1),
    SparkOption("maxWait", "integer", "500", "How long a trigger waits for a first message.", 0),
    SparkOption("credentialsFile", "text", "", "TOML file with `user` and `password`: on the driver for readStream, "
                "else on each executor.", uses=_ALL),
    SparkOption("decode", "choice", "none", "What a body must be; a column `text` has it decoded.",
                choices=("none", "text", "json"), uses=(STREAM, READ)),
    SparkOption("onDecodeError", "choice", "poison", "What becomes of one that is not; fail is read's default.",
                choices=("poison", "permissive", "fail"), uses=(STREAM, READ)),
    SparkOption("isolateAfter", "integer", "2", "Failures of a batch without evidence until it is split.", 1),
    SparkOption("isolateFanout", "integer", "8", "Groups that a failed batch is split into.", 2),
    SparkOption("selector", "text", "", "A JMS selector, evaluated by the broker.", uses=(STREAM, READ)),
    SparkOption("subscription", "text", "", "Name of a durable topic subscription; needs jms.clientID."),
    SparkOption("mode", "choice", "browse", "Look at queues, or take what is on them.",
                choices=("browse", "drain"), uses=(READ,)),
    SparkOption("maxMessages", "integer", "all; 1000000 for mode=drain", "Messages of each queue, at most, that are "
                "looked at or taken.", 1, uses=(READ,)),
    SparkOption("idle", "integer", "2000", "Silence after which a queue that is drained is at its end.", 1,
                uses=(READ,)),
    SparkOption("deadLetters", "choice", "true without destination, else false", "Whether there are columns that "
                "tell of a death.", choices=("true", "false"), uses=(READ,)),
    SparkOption("incomplete", "choice", "fail", "What becomes of a read that cannot be whole: a broker shows only so "
                "many, or a body does not arrive whole.", choices=("fail", "accept"), uses=(READ,)),
    SparkOption("pushFilters", "choice", "false", "Whether filters are applied before rows are shipped, where "
                "Spark pushes them down; then each query needs a `load()` of its own.", choices=("true", "false"),
                uses=(READ,)),
    SparkOption("run", "text", "", "Name of a drain, or of a write, so that doing it again is the same one.",
                uses=(READ, WRITE)),
)  # fmt: skip
_BY_NAME = {option.name.lower(): option for option in TABLE}
_URI_NAMES = {name.lower(): name for name in OPTIONS}
# It hands them to the source as well.
_SPARKS_OWN = frozenset({"path", "schema", "checkpointlocation"})


def named(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what is given of the table's options, and of the URI's, each by its own name.

    Raises:
        ConfigurationError: there is no such option.
    """
    ours: dict[str, str] = {}
    uri: dict[str, str] = {}
    for written, value in given.items():
        name = written.lower()
        if name in _BY_NAME:
            ours[_BY_NAME[name].name] = value
        elif name in _URI_NAMES:
            uri[_URI_NAMES[name]] = value
        elif prefix := next(
            (one for one in (MAP_PREFIX, OUR_MAP_PREFIX) if name.startswith(one.lower())), ""
        ):
            raise ConfigurationError(
                f"{prefix}… belongs into the url: Spark forgets the case of option names, and patterns have one",
                option=prefix[:-1],
            )
        elif name not in _SPARKS_OWN:
            known = [*(option.name for option in TABLE), *OPTIONS]
            raise ConfigurationError(f"unknown option {written}{near_miss(written, known)}", option=written)
    return ours, uri


def use_told(given: Mapping[str, str]) -> str | None:
    """Return whether options are of a stream that is read, or of a read; None: they may be of either.

    Spark does not tell when it asks for the columns. Raises ConfigurationError: there is no such option.
    """
    ours, _ = named(given)
    uses = [_BY_NAME[name.lower()].uses for name in ours]
    if any(STREAM not in each for each in uses):
        return READ
    return STREAM if "walDir" in ours or any(READ not in each for each in uses) else None


class Given:
    """The options of one use of the source, as they were given."""

    def __init__(self, given: Mapping[str, str], use: str) -> None:
        """Raises ConfigurationError: there is no such option, or not for this."""
        self.ours, self.uri = named(given)
        for name in self.ours:
            uses = _BY_NAME[name.lower()].uses
            if use not in uses:
                where = " and ".join(f"spark.{each}" if each != WRITE else "df.write" for each in uses)
                raise ConfigurationError(f"{name} means nothing here: it is for {where}", option=name)

    def __contains__(self, name: str) -> bool:
        return name in self.ours

    def require(self, *names: str) -> None:
        """Refuse to do without. Raises ConfigurationError."""
        for name in names:
            if not self.ours.get(name, "").strip():
                doc = _BY_NAME[name.lower()].doc
                raise ConfigurationError(f"option {name} is missing: {doc}", option=name)

    def text(self, name: str) -> str | None:
        """Return a text, or None."""
        return self.ours.get(name)

    def whole(self, name: str) -> int:
        """Return a number. Raises ConfigurationError."""
        option = _BY_NAME[name.lower()]
        text = self.ours.get(name, option.default).strip()
        if not re.fullmatch(r"\d{1,15}", text) or int(text) < option.low:
            raise ConfigurationError(f"{name}={text}: a whole number, {option.low} at least", option=name)
        return int(text)

    def choice(self, name: str) -> str:
        """Return one of the option's choices. Raises ConfigurationError."""
        option = _BY_NAME[name.lower()]
        text = self.ours.get(name, option.default)
        if text not in option.choices:
            raise ConfigurationError(
                f"{name}={text}: one of {', '.join(option.choices)}{near_miss(text, option.choices)}",
                option=name,
            )
        return text
