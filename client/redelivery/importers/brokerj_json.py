"""Reader of Qpid Broker-J's JSON: configuration files, virtual hosts, answers of its REST interface.

`maximumDeliveryAttempts` counts deliveries; 0 is no limit. The broker redelivers at once. Messages over the
limit go to the queue's `alternateBinding`; without one they are discarded.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from redelivery.core import option_values
from redelivery.core.destination import Destination
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.core.policy.wildcards import check_wildcards
from redelivery.errors import ConfigurationError
from redelivery.importers.dead_letter_uri import Strategy, mapped
from redelivery.importers.file_syntax import settled
from redelivery.importers.imported import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.importers.imported import Notes

__all__ = ["read_brokerj"]


# ---- Json positions --------------------------------------------------------------------------------------
# JSON whose objects have their line numbers.

_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


class JsonArray(list[Any]):
    """JSON array."""

    __slots__ = ()


class JsonObject(dict[str, Any]):
    """JSON object. `line`: where it begins; `lines`: the line of each key."""

    __slots__ = ("line", "lines", "pending")

    def __init__(self, line: int) -> None:
        """Start empty on line `line`."""
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.pending: str | None = None


def parse_json(text: str, file: str, line: int = 0) -> Any:
    """Return the value of a JSON document.

    Args:
        text: The document.
        file: Name of the file, for errors.
        line: Line of the file, if the document is a text inside of another document.

    Raises:
        ConfigurationError: It is not well-formed; the text is `file:line:column: what is wrong`.
    """
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{line}" if line else f"{error.lineno}:{error.colno}"
        raise ConfigurationError(f"{file}:{place}: the JSON is not well-formed: {error.msg}") from None
    # ValueError: a number of more digits than Python reads.
    except (RecursionError, ValueError):
        raise ConfigurationError(f"{file}: the JSON is too deep, or has too long a number") from None
    return _with_lines(text, file, line)


def _value(word: str, file: str, line: int) -> Any:
    """Return a string, a number or a constant. Raises ConfigurationError for half a surrogate pair."""
    value: Any = json.loads(word)
    # JSON's escapes can express it, but no protocol and no file can carry it.
    if isinstance(value, str) and _SURROGATE.search(value):
        raise ConfigurationError(f"{file}:{line}: {word[:40]} has half a surrogate pair, which is not text")
    return value


def _with_lines(text: str, file: str, fixed: int) -> Any:
    """Build a document that is well-formed. Raises ConfigurationError for half a surrogate pair."""
    root = JsonArray()
    stack: list[JsonObject | JsonArray] = [root]
    line, seen = 1, 0
    for token in _TOKEN.finditer(text):
        word = token[0]
        line, seen = line + text.count("\n", seen, token.start()), token.start()
        here, top = fixed or line, stack[-1]
        if word in ("}", "]"):
            stack.pop()
        elif word in (",", ":"):
            continue
        elif isinstance(top, JsonObject) and top.pending is None:
            top.pending = cast("str", _value(word, file, here))
            top.lines[top.pending] = here
        else:
            value: Any = JsonObject(here) if word == "{" else JsonArray() if word == "[" else None
            value = _value(word, file, here) if value is None else value
            if isinstance(top, JsonObject):
                assert top.pending is not None
                top[top.pending] = value
                top.pending = None
            else:
                top.append(value)
            if word in ("{", "["):
                stack.append(value)
    return root[0]


# ---- Brokerj json ----------------------------------------------------------------------------------------

_MAXIMUM, _ALTERNATE, _OLD_ALTERNATE = "maximumDeliveryAttempts", "alternateBinding", "alternateExchange"
_CONTEXT = f"queue.{_MAXIMUM}"
_QUEUE_TYPES = ("standard", "lvq", "priority", "sorted")
_BELOW = ("virtualhostnodes", "virtualhosts", "virtualhost", "virtualHostInitialConfiguration", "queues")
_OURS = frozenset({*_BELOW, "nodeAutoCreationPolicies", "exchanges", "modelVersion", _MAXIMUM, _ALTERNATE})
_LITERAL = re.compile(r"(?:[\w-]|\\\.)+")


class _BrokerJReader:
    """Collector of the queues of a document, at any depth."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.policies: dict[str, RedeliveryPolicy] = {}
        self.default: RedeliveryPolicy | None = None
        self.strategies: list[Strategy] = []
        self.found = 0
        self.names: set[str] = set()
        # Each virtual host has these, and its own.
        self.exchanges = {"amq.direct", "amq.fanout", "amq.match", "amq.topic"}

    def read(self, value: object, context: dict[str, Any], *, queue: bool = False) -> None:
        """Read a virtual host, an object that contains one, a queue, or a list of these.

        `queue`: each object is a queue. Where queues are listed, they need no type: the broker's default is "standard".
        """
        if isinstance(value, JsonArray):
            for item in value:
                self.read(item, context, queue=queue)
        elif isinstance(value, JsonObject):
            own = value.get("context")
            context = {**context, **own} if isinstance(own, JsonObject) else context
            self._note_exchanges(value)
            if queue or _is_queue(value):
                self._queue(value, context)
            for key in _BELOW:
                self._below(value, key, context)
            policies = value.get("nodeAutoCreationPolicies")
            for policy in self._auto_created(
                policies, value.lines.get("nodeAutoCreationPolicies", value.line)
            ):
                self._policy(policy, context)

    def _note_exchanges(self, host: JsonObject) -> None:
        exchanges = host.get("exchanges")
        for each in exchanges if isinstance(exchanges, JsonArray) else ():
            if isinstance(each, JsonObject) and isinstance(each.get("name"), str):
                self.exchanges.add(each["name"])

    def _below(self, value: JsonObject, key: str, context: dict[str, Any]) -> None:
        held = value.get(key)
        if key == "virtualHostInitialConfiguration" and isinstance(held, str):
            if not held.lstrip().startswith("{"):
                if held.strip():
                    self.notes.add(
                        value.lines[key], f"{key}={held[:60]}", "other files are not read", left_out=True
                    )
                return
            held = parse_json(held, self.notes.file, value.lines[key])
        self.read(held, context, queue=key == "queues")

    def _auto_created(self, held: object, line: int) -> Iterator[JsonObject]:
        # It is a text in a context, and in answers of the REST interface.
        if isinstance(held, str):
            held = parse_json(held, self.notes.file, line)
        if isinstance(held, JsonArray):
            yield from (item for item in held if isinstance(item, JsonObject))

    def _queue(self, queue: JsonObject, context: dict[str, Any]) -> None:
        self.found += 1
        name = str(queue.get("name", ""))
        policy = self._limit(queue, context, name)
        if "," in name or "?" in name or any(word in ("*", ">") for word in name.split(".")):
            why = "its name would be a pattern here; left out"
            self.notes.add(queue.line, f"queue {name}", why, left_out=True)
            return
        try:
            place = Destination("queue", name)
            check_wildcards(place)
        except ConfigurationError as error:
            self.notes.add(queue.line, f"queue {name}", f"{error}; left out", left_out=True)
            return
        if str(place) in self.names:
            self.notes.add(queue.line, f"queue {name}", "given again; this one counts")
        self.names.add(str(place))
        if policy is not None:
            self.policies[str(place)] = policy
        self._dead_letters(queue, name, policy, str(place))

    def _policy(self, node: JsonObject, context: dict[str, Any]) -> None:
        attributes = node.get("attributes")
        pattern = str(node.get("pattern", ""))
        # The broker ignores blanks and the case (AbstractVirtualHost, 9.2.0).
        if str(node.get("nodeType", "queue")).strip().lower() != "queue":
            return
        self.found += 1
        held = attributes if isinstance(attributes, JsonObject) else JsonObject(node.line)
        if pattern == ".*":
            self.default = self._limit(held, context, "every other queue")
            self._dead_letters(held, "every other queue", self.default, None)
        elif _LITERAL.fullmatch(pattern):
            named = JsonObject(held.line)
            named.update(held)
            named.lines.update(held.lines)
            named["name"] = pattern.replace("\\.", ".")
            self._queue(named, context)
        elif any(name in held for name in (_MAXIMUM, _ALTERNATE, _OLD_ALTERNATE)):
            self.notes.add(
                node.lines.get("pattern", node.line), f"pattern {pattern}",
                "a regular expression is no pattern of destinations; left out", left_out=True,
            )  # fmt: skip

    def _limit(self, held: JsonObject, context: dict[str, Any], name: str) -> RedeliveryPolicy | None:
        given = held.get(_MAXIMUM, context.get(_CONTEXT))
        line = held.lines.get(_MAXIMUM, held.line)
        if isinstance(given, str):
            value = settled(_MAXIMUM, Value(given, line), self.notes)
            given = None if value is None else value.text
        if given is None:
            self.notes.add(
                line, f"{name}: no {_MAXIMUM}",
                "without limit at Broker-J unless its context has one; the default policy applies here",
            )  # fmt: skip
            return None
        try:
            attempts = option_values.option_whole(given, _MAXIMUM, 0, option_values.MAX_INT)
        except ConfigurationError as error:
            raise self.notes.error(line, error) from None
        if not attempts:
            self.notes.add(
                line,
                f"{name}: {_MAXIMUM}=0",
                "no limit: a message that fails is redelivered for ever, at once",
            )
        return RedeliveryPolicy(
            maximum_redeliveries=attempts - 1, initial_redelivery_delay=0, redelivery_delay=0
        )

    def _dead_letters(
        self, held: JsonObject, name: str, policy: RedeliveryPolicy | None, pattern: str | None
    ) -> None:
        options = self._binding(held, name, policy)
        if options or pattern is not None:
            # A queue without one does not get that of the queues that are made when needed.
            line = held.lines.get(_ALTERNATE, held.line)
            self.strategies.append(Strategy(pattern, line, options))

    def _binding(self, held: JsonObject, name: str, policy: RedeliveryPolicy | None) -> dict[str, Value]:
        """Return the alternate binding of a queue as options; empty: it has none that can be said here."""
        line = held.lines.get(_ALTERNATE, held.line)
        binding = held.get(_ALTERNATE)
        if isinstance(binding, str) and binding.lstrip().startswith("{"):
            # A text, as everything below nodeAutoCreationPolicies can be.
            binding = parse_json(binding, self.notes.file, line)
        if _OLD_ALTERNATE in held:
            self.notes.add(
                held.lines.get(_OLD_ALTERNATE, line), f"{name}: {_OLD_ALTERNATE}={held[_OLD_ALTERNATE]}",
                "an exchange of an old version, whose queues are not in this setting; left out", left_out=True,
            )  # fmt: skip
            return {}
        target = binding.get("destination") if isinstance(binding, JsonObject) else binding
        if isinstance(target, str) and target:
            value = settled(_ALTERNATE, Value(target, line), self.notes)
            if value is not None and value.text in self.exchanges:
                self.notes.add(
                    line, f"{name}: {_ALTERNATE}={value.text}",
                    "an exchange, and which queues it feeds is not in this setting; left out: name the queue "
                    "(redelivery.deadLetterDestination)", left_out=True,
                )  # fmt: skip
                return {}
            return {} if value is None else {"deadLetterDestination": Value(f"queue://{value.text}", line)}
        if policy is not None and policy.maximum_redeliveries >= 0:
            self.notes.add(
                line, f"{name}: no {_ALTERNATE}",
                "Broker-J discards messages over the limit; here they are dead-lettered",
            )  # fmt: skip
        return {}


def _is_queue(value: JsonObject) -> bool:
    if not isinstance(value.get("name"), str) or any(key in value for key in _BELOW):
        return False
    kind = value.get("type")
    return _MAXIMUM in value or (isinstance(kind, str) and kind.lower() in _QUEUE_TYPES)


def read_brokerj(text: str, notes: Notes) -> tuple[RedeliveryPolicyMap, dict[str, str]]:
    """Return a document's policies and dead-letter options. Raises ConfigurationError, with the line."""
    document = parse_json(text, notes.file)
    objects = document if isinstance(document, JsonArray) else JsonArray([document])
    known = any(isinstance(item, JsonObject) and _OURS & item.keys() for item in objects)
    foreign = isinstance(document, JsonObject) and "rabbit_version" in document
    if foreign or not known:
        raise ConfigurationError(
            f"{notes.file}: the JSON is not Broker-J's: neither a configuration, nor its queues"
        )
    reader = _BrokerJReader(notes)
    try:
        reader.read(document, {})
    except RecursionError:
        raise ConfigurationError(f"{notes.file}: the JSON is too deep") from None
    if not reader.found:
        notes.add(1, "queues", "the file has none; the Java client's default policy applies")
    policies = RedeliveryPolicyMap(reader.policies, default=reader.default)
    return policies, mapped(reader.strategies, notes)
