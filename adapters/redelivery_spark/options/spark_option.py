"""Table of the data source's options, and their parsing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from pyspark.sql.pandas.types import from_arrow_schema

from redelivery.errors import ConfigurationError, near_miss
from redelivery.uri.option_table import MAP_PREFIXES, OPTIONS
from redelivery_spark.options.credentials import PASSWORD, USER
from redelivery_spark.options.option_mistakes import OptionMistakes
from redelivery_spark.schema import ERROR, TEXT
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "LONGEST_DELAY",
    "NEEDS",
    "READ",
    "STREAM",
    "TABLE",
    "WRITE",
    "Given",
    "SparkOption",
    "chosen",
    "duration_of",
    "missing",
    "named",
    "refuse_without_decode",
    "shown_duration",
    "use_told",
]


# ---- Quantities ------------------------------------------------------------------------------------------
# Durations and sizes of options: `500ms`, `2s`, `30d`, `64m`; a plain number is milliseconds, or bytes.

DURATIONS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of each unit."""
SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
"""Bytes of each unit, by powers of 1,024 as in Spark's own options."""
_QUANTITY = re.compile(r"(\d{1,15})([a-z]*)", re.IGNORECASE)
# Spellings of units that users bring from elsewhere, by the unit to use here.
_LONG = {
    "ms": re.compile(r"ms(ec)?s?|milli(second)?s?"),
    "s": re.compile(r"s(ec(ond)?)?s?"),
    "m": re.compile(r"m(in(ute)?)?s?"),
    "h": re.compile(r"h(ou)?r?s?"),
    "d": re.compile(r"d(ay)?s?"),
}
_LONG_SIZES = {
    "k": re.compile(r"k(i?b|ilo(byte)?s?)"),
    "m": re.compile(r"m(i?b|ega(byte)?s?)"),
    "g": re.compile(r"g(i?b|iga(byte)?s?)"),
}


def duration_of(text: str) -> int | None:
    """Return the milliseconds of a duration; None if the text is not a duration."""
    return _quantity(text, DURATIONS)


def size_of(text: str) -> int | None:
    """Return the bytes of a size; None if the text is not a size."""
    return _quantity(text, SIZES)


def near_quantity(text: str, *, size: bool) -> str:
    """Return `"; did you mean '5m'?"` for a quantity with another spelling of its unit, or an empty text."""
    found = re.fullmatch(r"(\d{1,15})\s*([a-z]+)", text.strip().lower())
    if found is None:
        return ""
    number, word = found.groups()
    for unit, others in (_LONG_SIZES if size else _LONG).items():
        if others.fullmatch(word):
            return f"; did you mean '{number}{unit}'?"
    return ""


def shown_duration(milliseconds: int) -> str:
    """Return a duration in the largest unit of which it is a whole number."""
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(milliseconds, DURATIONS[unit])
        if count and not rest:
            return f"{count}{unit}"
    return f"{milliseconds}ms"


def _quantity(text: str, units: dict[str, int]) -> int | None:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = found.groups()
    factor = 1 if not unit else units.get(unit.lower())
    return None if factor is None else int(number) * factor


# ---- Foreign names ---------------------------------------------------------------------------------------
# Names that are not options here, with an advice for each: removed ones, Spark's, Kafka's, and those of secrets.

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
_FOREIGN = {name.lower(): (name, group.words) for group in (*_GONE, *_KAFKAS) for name in group.names}
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
    found = _FOREIGN.get(name)
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


# ---- Spark option ----------------------------------------------------------------------------------------

STREAM, READ, WRITE = "readStream", "read", "write"
_ALL = (STREAM, READ, WRITE)
LONGEST_DELAY = 2000
"""Milliseconds of `maxTriggerDelay` at most: the runner of a killed Spark lives until its call ends."""


class SparkOption(NamedTuple):
    """One option. `low` and `high`: limits, of a quantity in milliseconds or bytes. `uses`: where it has a meaning."""

    name: str
    kind: Literal["text", "integer", "choice", "duration", "size"]
    default: str
    doc: str
    low: int = 0
    high: int | None = None
    choices: tuple[str, ...] = ()
    uses: tuple[str, ...] = (STREAM,)


TABLE: tuple[SparkOption, ...] = (
    SparkOption("url", "text", "", "Connection URI, with the options of every consumer. Required.", uses=_ALL),
    SparkOption("destination", "text", "", "Queue or topic to read or to write. Required, except to browse the "
                "broker's dead letters, and to write rows with a column `destination`.", uses=_ALL),
    SparkOption("walDir", "text", "", "Place of the write-ahead log: a folder or an object store's URL that all "
                "executors share. Required for a stream, and for mode=drain.", uses=(STREAM, READ)),
    SparkOption("maxRowsPerTrigger", "integer", "100000", "Rows of a batch at most; a batch has at least one segment, "
                "which has up to 5,000 rows. The old name `maxMessagesPerTrigger` is accepted for now.", 1),
    SparkOption("maxBytesPerTrigger", "size", "64m", "Bytes of messages of a batch at most; a batch has at least one "
                "segment. By default no more than `maxBytesAhead`.", 1),
    SparkOption("minRowsPerTrigger", "integer", "adaptive", "Rows for which a batch waits, up to `maxTriggerDelay`. "
                "By default as many as the rate of arrival predicts for that time.", 1),
    SparkOption("maxTriggerDelay", "duration", "300ms", "Longest wait for `minRowsPerTrigger`, 2s at most.", 0,
                LONGEST_DELAY),
    SparkOption("maxBytesAhead", "size", "256m", "Bytes of messages in `walDir` that no batch has completed. At this "
                "limit the source stops receiving.", 1),
    SparkOption("readers", "integer", "1", "Connections that consume in parallel. More than 1 are processes, and for "
                "queues only.", 1, 31),
    SparkOption("partitions", "integer", "the Spark driver's processors, 8 at most", "Tasks of a batch.", 1),
    SparkOption("isolate", "choice", "never", "Handling of a batch that fails without evidence against a row: `never` "
                "replays it, `split` splits it into 8 groups or more. Splitting can write rows twice in "
                "some sinks.",
                choices=("never", "split")),
    SparkOption("isolateAfter", "integer", "5", "Failures of a batch until it is split. Only with `isolate=split`.", 1),
    SparkOption("credentialsFile", "text", "", "TOML file with `user` and `password`: on the Spark driver for "
                "readStream, else on each executor.", uses=_ALL),
    SparkOption("decode", "choice", "none", "Format of bodies. A column `text` has the decoded body.",
                choices=("none", "text", "json"), uses=(STREAM, READ)),
    SparkOption("onDecodeError", "choice", "poison", "Handling of a body that cannot be decoded: dead-letter it, show "
                "it with a column `_error`, or fail. Default of read: fail.",
                choices=("poison", "permissive", "fail"), uses=(STREAM, READ)),
    SparkOption("selector", "text", "", "JMS selector, evaluated by the broker.", uses=(STREAM, READ)),
    SparkOption("subscription", "text", "", "Name of a durable topic subscription; needs jms.clientID."),
    SparkOption("mode", "choice", "browse", "Browse queues, or drain them.",
                choices=("browse", "drain"), uses=(READ,)),
    SparkOption("maxMessages", "integer", "all; 1000000 for mode=drain", "Messages of each queue that are browsed or "
                "drained at most.", 1, uses=(READ,)),
    SparkOption("idle", "duration", "2s", "Silence after which a drained queue counts as empty.", 1,
                uses=(READ,)),
    SparkOption("deadLetters", "choice", "true without destination, else false", "True adds columns that say why a "
                "message died.", choices=("true", "false"), uses=(READ,)),
    SparkOption("incomplete", "choice", "fail", "Handling of a read that cannot be complete: the broker shows only a "
                "part of a queue, or a body does not arrive whole.", choices=("fail", "accept"), uses=(READ,)),
    SparkOption("run", "text", "", "Name of a drain or of a write. Done again under the same name, it is the same "
                "one.",
                uses=(READ, WRITE)),
)  # fmt: skip
_BY_NAME = {option.name.lower(): option for option in TABLE}
_OURS = [option.name for option in TABLE]
_URI_NAMES = {name.lower(): name for name in OPTIONS}
_EXAMPLES = {
    "url": "stomp://broker:61613",
    "destination": "queue://orders",
    "walDir": "/shared/orders-wal",
}


def named(given: Mapping[str, str], mistakes: OptionMistakes) -> tuple[dict[str, str], dict[str, str]]:
    """Return the given options of the table, and those of the URI, each by its own name; note unknown ones."""
    ours: dict[str, str] = {}
    uri: dict[str, str] = {}
    for written, value in given.items():
        name = written.lower()
        if name in _BY_NAME:
            ours[_BY_NAME[name].name] = value
        elif name in _URI_NAMES:
            uri[_URI_NAMES[name]] = value
        elif name not in SPARKS_OWN and name not in OLD_NAMES:
            error, meant = _unknown(written)
            mistakes.add(error, about=meant)
    for old, successor in OLD_NAMES.values():
        found = _value_of(given, old)
        if found is None:
            continue
        if successor in ours:
            text = f"{old}: the old name of {successor}, and both are given; remove {old}"
            mistakes.add(ConfigurationError(text, option=old))
        ours[successor] = found
    return ours, uri


def _value_of(given: Mapping[str, str], name: str) -> str | None:
    return next((value for written, value in given.items() if written.lower() == name.lower()), None)


def _unknown(written: str) -> tuple[ConfigurationError, list[str]]:
    """Return the error of an option that does not exist, and the options of the table that its name may stand for."""
    found = foreign(written)
    if found is not None:
        name, words = found
        return ConfigurationError(f"{name}: {words}", option=name), []
    lowered = written.lower()
    for prefix in MAP_PREFIXES:
        if lowered.startswith(prefix.lower()):
            text = f"{prefix}…: Spark changes option names to lower case, and patterns have a case; use it in the url"
            return ConfigurationError(text, option=prefix[:-1]), []
    hint = near_miss(written, [*without_login([*_OURS, *OPTIONS]), *LOGIN])
    if hint.endswith(tuple(f"{name!r}?" for name in LOGIN)):
        return ConfigurationError(f"{written}: {login()}", option=written), []
    meant = [name for name in _OURS if hint.endswith(f"{name!r}?")]
    return ConfigurationError(f"{written}: unknown option{hint}", option=written), meant


def missing(name: str) -> str:
    """Return the text over an option that is required and missing."""
    return f'{name}: missing; for instance .option("{name}", "{_EXAMPLES[name]}")'


def use_told(given: Mapping[str, str]) -> str | None:
    """Return `readStream` or `read` if only that use has all these options; None if both have.

    Spark does not report the use when it asks for the columns. Unknown options are ignored.
    """
    ours, _ = named(given, OptionMistakes())
    uses = [_BY_NAME[name.lower()].uses for name in ours]
    if any(STREAM not in each for each in uses):
        return READ
    return STREAM if "walDir" in ours or any(READ not in each for each in uses) else None


class Given:
    """Given options of one use of the source. A wrong value is added to the mistakes, and its default returned."""

    def __init__(self, given: Mapping[str, str], use: str) -> None:
        """Note options that do not exist, or not for this use."""
        self.mistakes = OptionMistakes()
        self.ours, self.uri = named(given, self.mistakes)
        self._spelt = {new: old for old, new in OLD_NAMES.values() if _value_of(given, old) is not None}
        for name in list(self.ours):
            uses = _BY_NAME[name.lower()].uses
            if use not in uses:
                where = " and ".join(f"spark.{each}" if each != WRITE else "df.write" for each in uses)
                self.refuse(name, f"{self.spelt(name)}: has no effect here; it is for {where}, remove it")
                del self.ours[name]

    def __contains__(self, name: str) -> bool:
        return name in self.ours

    def refuse(self, option: str, text: str, *, about: Iterable[str] = ()) -> None:
        """Note a mistake over an option; `about`: more options that are wrong by it."""
        self.mistakes.add(ConfigurationError(text, option=option), about=about)

    def spelt(self, name: str) -> str:
        """Return the name under which an option was given: its old one, or its own."""
        return self._spelt.get(name, name)

    def shown(self, name: str) -> str:
        """Return an option with its value, for an error about it: `maxBytesAhead=1g`."""
        return f"{self.spelt(name)}={self.ours.get(name, _BY_NAME[name.lower()].default).strip()}"

    def require(self, *names: str) -> None:
        """Note which of these options are missing, but for those that a misspelt option is taken for."""
        for name in names:
            if not self.ours.get(name, "").strip() and not self.mistakes.concern(name):
                self.refuse(name, missing(name))

    def text(self, name: str) -> str | None:
        """Return a text, or None."""
        return self.ours.get(name)

    def folder(self, name: str) -> str:
        """Return the place of a log, without a slash at its end; empty if it is missing."""
        path = self.ours.get(name, "").rstrip("/")
        if path:
            self.mistakes.attempt(lambda: store_at(path), None)
        return path

    def whole(self, name: str) -> int:
        """Return a number."""
        option = _BY_NAME[name.lower()]
        text = self.ours.get(name, option.default).strip()
        if not re.fullmatch(r"\d{1,15}", text) or _beyond(option, int(text)):
            bounds = f"at least {option.low}" if option.high is None else f"{option.low} to {option.high}"
            self.refuse(name, f"{self.shown(name)}: must be a whole number, {bounds}")
            return option.low
        return int(text)

    def duration(self, name: str) -> float:
        """Return the seconds of a duration."""
        option = _BY_NAME[name.lower()]
        text = self.ours.get(name, option.default)
        found = duration_of(text)
        if found is None or _beyond(option, found):
            bounds = "" if option.high is None else f", at most {shown_duration(option.high)}"
            if found is not None and found < option.low:
                bounds = f", at least {shown_duration(option.low)}"
            near = near_quantity(text, size=False)
            words = f"must be a duration such as 500ms, 30s, 15m, 2h or 30d{bounds}; a plain number is milliseconds"
            self.refuse(name, f"{self.shown(name)}: {words}{near}")
            return option.low / 1000
        return found / 1000

    def size(self, name: str) -> int:
        """Return the bytes of a size."""
        option = _BY_NAME[name.lower()]
        text = self.ours.get(name, option.default)
        found = size_of(text)
        if found is None or _beyond(option, found):
            near = near_quantity(text, size=True)
            words = f"must be a size such as 512k, 64m or 1g, at least {option.low}; a plain number is bytes"
            self.refuse(name, f"{self.shown(name)}: {words}{near}")
            return option.low
        return found

    def choice(self, name: str) -> str:
        """Return one of the option's choices."""
        option = _BY_NAME[name.lower()]
        text = self.ours.get(name, option.default)
        if text not in option.choices:
            near = near_miss(text, option.choices)
            self.refuse(name, f"{name}={text}: must be one of {', '.join(option.choices)}{near}")
            return option.choices[0]
        return text


def refuse_without_decode(found: Given) -> None:
    """Note `onDecodeError` if bodies are not decoded."""
    if "onDecodeError" in found and found.choice("decode") == "none" and not found.mistakes.concern("decode"):
        found.refuse(
            "onDecodeError",
            "onDecodeError: has no effect without decode; add decode=text or decode=json, or remove it",
        )


def _beyond(option: SparkOption, value: int) -> bool:
    return value < option.low or (option.high is not None and value > option.high)


# ---- Column choice ---------------------------------------------------------------------------------------
# Columns that a query asks for: `.schema("message_id string, body binary")` before `load()`.

NEEDS = {TEXT: "decode=text or decode=json", ERROR: "decode and onDecodeError=permissive"}
"""Columns that exist with other options only, and those options."""


def chosen(schema: StructType, available: pa.Schema, needs: Mapping[str, str] = NEEDS) -> list[str]:
    """Return the names of the columns that a schema asks for, in its order.

    Args:
        schema: The schema that Spark hands to `reader` and `streamReader`: the query's own, or all columns.
        available: Columns that exist with the given options.
        needs: For columns of other options: the options that they need.

    Raises:
        ConfigurationError: Columns are unknown, of another type, or named twice; or there is none. It lists all.
    """
    there = {field.name: field.dataType for field in from_arrow_schema(available)}
    mistakes, found = OptionMistakes(), list[str]()
    for field in schema.fields:
        name, kind = field.name, field.dataType.simpleString()
        if name not in there:
            hint = f"; it needs {needs[name]}" if name in needs else near_miss(name, there)
            hint = hint or "; there are " + ", ".join(there)
            mistakes.refuse("schema", f"schema: unknown column {name}{hint}")
        elif kind != (right := there[name].simpleString()):
            mistakes.refuse(
                "schema", f"schema: column {name} {kind}: its type is {right}; use '{name} {right}'"
            )
        elif name in found:
            mistakes.refuse("schema", f"schema: column {name} is named twice; name it once")
        else:
            found.append(name)
    if not schema.fields:
        mistakes.refuse("schema", "schema: no column is named; name at least one")
    mistakes.check("the schema")
    return found
