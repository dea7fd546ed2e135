"""Reader of ActiveMQ Classic's XML.

It reads a broker's `activemq.xml`, and a client's Spring, Blueprint or Camel file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from redelivery.core.destination import Destination
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.core.policy.wildcards import check_wildcards
from redelivery.errors import ConfigurationError, near_miss
from redelivery.importers.dead_letter_uri import SOME, Strategy, carried, mapped, refusal
from redelivery.importers.file_syntax import BOOLEANS, settled
from redelivery.importers.imported import ClientSettings, Prefetch, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redelivery.importers.file_syntax import Element
    from redelivery.importers.imported import Notes

__all__ = ["PolicyReader", "dead_letters", "is_classic", "read_classic"]


# ---- Activemq policy -------------------------------------------------------------------------------------
# Reader of redelivery policies and policy maps in beans of ActiveMQ Classic.

_PLACES = ("destination", "queue", "topic", "tempQueue", "tempTopic")
_FLAGS = ("useExponentialBackOff", "useCollisionAvoidance", "preDispatchCheck")
_CHECK = "preDispatchCheck"


@dataclass(slots=True)
class Policies:
    """Policies of one map."""

    line: int
    default: RedeliveryPolicy | None = None
    entries: dict[str, RedeliveryPolicy] = field(default_factory=dict[str, RedeliveryPolicy])

    @property
    def any(self) -> bool:
        """True if there is a policy."""
        return self.default is not None or bool(self.entries)


class PolicyReader:
    """Reader of policy beans. It records which beans it has read."""

    def __init__(self, beans: Beans, notes: Notes) -> None:
        """Read from `beans`, and add notes on settings that are not carried over."""
        self._beans = beans
        self._notes = notes
        self.read: set[int] = set()
        """Ids (`id()`) of the beans that have been read."""
        self._lines: dict[str, int] = {}
        # By `id()` of the bean: several connection factories may share a map.
        self._maps: dict[int, Policies] = {}

    def policy(self, bean: Element) -> RedeliveryPolicy:
        """Return the policy of a bean. Raises ConfigurationError, with the line."""
        self.read.add(id(bean))
        options: dict[str, Value] = {}
        for name, item in self._beans.properties(bean).items():
            value = None if name in _PLACES else settled(name, item.value, self._notes)
            if value is not None:
                options[name] = self._boolean(name, value)
        self._check_supported(options)
        try:
            texts = {name: value.text for name, value in options.items()}
            # Options of the Java client only: the limit of time is an option of this library.
            return RedeliveryPolicy.from_prefixed_options(texts, "")
        except ConfigurationError as error:
            place = options.get(error.option or "")
            raise self._notes.error(place.line if place else bean.line, error) from None

    @staticmethod
    def _boolean(name: str, value: Value) -> Value:
        return Value(BOOLEANS.get(value.text.lower(), value.text), value.line) if name in _FLAGS else value

    def _check_supported(self, options: dict[str, Value]) -> None:
        check = options.get(_CHECK)
        if check is not None and check.text.lower() == "false":
            why = refusal({f"jms.redeliveryPolicy.{_CHECK}": "false"})
            if why is not None:
                self._notes.add(check.line, f"{_CHECK}=false", why)
                del options[_CHECK]

    def map(self, bean: Element) -> Policies:
        """Return the content of a `redeliveryPolicyMap`, as a copy."""
        read = self._maps.get(id(bean))
        if read is None:
            read = self._maps[id(bean)] = self._map(bean)
        return replace(read)

    def _map(self, bean: Element) -> Policies:
        self.read.add(id(bean))
        found = Policies(bean.line)
        for name, item in self._beans.properties(bean).items():
            if name in ("redeliveryPolicyEntries", "entries"):
                for entry in item.beans:
                    self.entry(entry, found)
            elif name == "defaultEntry" and item.beans:
                found.default = self.policy(item.beans[0])
            elif item.text != "":
                self._notes.add(
                    item.line, name, "not known in a redeliveryPolicyMap; left out", left_out=True
                )
        return found

    def entry(self, bean: Element, into: Policies) -> None:
        """Add the policy of a bean under its destination. Raises ConfigurationError if it has none."""
        policy = self.policy(bean)
        place = self.place(bean)
        if place is None:
            raise self._notes.error(
                bean.line, "a redelivery policy entry needs a queue, a topic or another destination"
            )
        if place == "":
            return
        if place in into.entries:
            self._notes.add(
                self._lines[place], place, f"given again on line {bean.line}, which counts; left out"
            )
            # The last entry of a pattern counts, and is last in order.
            del into.entries[place]
        into.entries[place] = policy
        self._lines[place] = bean.line

    def place(self, bean: Element) -> str | None:
        """Return the pattern of an entry; None: it has none; empty: its pattern can match nothing."""
        properties = self._beans.properties(bean)
        for name in _PLACES:
            item = properties.get(name)
            if item is None:
                continue
            written = self._written(name, item)
            if written is None:
                continue
            if not written:
                return ""
            try:
                found = Destination.parse(written)
                check_wildcards(found)
                # The map ignores ?options, as the Java client does.
                return str(Destination(found.kind, found.name))
            except ConfigurationError as error:
                self._notes.add(item.line, written, f"{error}; left out", left_out=True)
                return ""
        return None

    def _written(self, name: str, item: Property) -> str | None:
        if name in ("tempQueue", "tempTopic"):
            flag = settled(name, item.value, self._notes)
            on = flag is not None and BOOLEANS.get(flag.text.lower(), flag.text.lower()) == "true"
            return {"tempQueue": "temp-queue://>", "tempTopic": "temp-topic://>"}[name] if on else None
        if item.beans:
            return self._destination(item.beans[0])
        value = settled(name, item.value, self._notes)
        if value is None:
            return ""
        if name == "destination" or "://" in value.text:
            return value.text
        return f"{name}://{value.text}"

    def _destination(self, bean: Element) -> str | None:
        properties = self._beans.properties(bean)
        kind = self._beans.type_of(bean).lower().removeprefix("activemq")
        name = properties.get("physicalName") or properties.get("brokerURL")  # or its constructor's argument
        kinds = {"queue": "queue", "topic": "topic", "tempqueue": "temp-queue", "temptopic": "temp-topic"}
        if kind not in kinds or name is None or not name.text:
            self._notes.add(bean.line, bean.tag, "not understood as a destination; left out", left_out=True)
            return ""
        return f"{kinds[kind]}://{name.text}"


# ---- Activemq dead letters -------------------------------------------------------------------------------
# Reader of dead-letter strategies of ActiveMQ Classic, and of its plugins for dead letters.

_STRATEGIES = {
    "sharedDeadLetterStrategy": "shared",
    "individualDeadLetterStrategy": "individual",
    "discarding": "discarding",
    "discardingDeadLetterStrategy": "discarding",
}
_RENAMED = {"expiration": "deadLetterExpiration"}
_DEFAULTS = {
    "processExpired": "true", "expiration": "0", "useQueueForQueueMessages": "true",
    "useQueueForTopicMessages": "true", "destinationPerDurableSubscriber": "false",
    "sendToDlqIfMaxRetriesExceeded": "true", "fallbackToDeadLetter": "true", "reportInterval": "1000",
}  # fmt: skip
"""Values that need not be carried over, because they are the default on both sides."""
_TEMPORARY = {"dropTemporaryQueues": "temp-queue://>", "dropTemporaryTopics": "temp-topic://>"}
"""Options of the plugin that are true by default, and here false; and the destinations that they are about."""
_AUDIT = ("enableAudit", "maxProducersToAudit", "maxAuditDepth")
# Each suffix is added before its prefix, which can be empty only where there is a suffix.
_ORDER = ("deadLetterStrategy", "deadLetterDestination", *SOME, "queueSuffix", "topicSuffix")


def dead_letters(root: Element, beans: Beans, reader: PolicyReader, notes: Notes) -> dict[str, str]:
    """Return the URI options that treat dead letters as the broker does; note the rest."""
    found: list[Strategy] = []
    kept = False
    plugins: list[Strategy] = []
    flags: dict[str, Value] = {}
    for element in root.walk():
        kind = beans.type_of(element)
        if kind == "policyEntry":
            item = beans.properties(element).get("deadLetterStrategy")
            if item is not None:
                strategy = _entry(element, item, beans, reader, notes)
                found += [] if strategy is None else [strategy]
                kept = kept or strategy is not None
            elif reader.place(element) != "":
                found.append(_without_strategy(element, reader))
        elif kind == "discardingDLQBrokerPlugin":
            plugin = _discarding_plugin(element, beans, notes)
            plugins += [] if plugin is None else [plugin]
        elif kind == "redeliveryPlugin":
            flags |= _redelivery_plugin(element, beans, notes)
    if not kept:
        found = []
    # A plugin that drops everything precedes all strategies. One that drops some only must not replace a strategy.
    drops_all = [plugin for plugin in plugins if not any(name in plugin.options for name in SOME)]
    if drops_all:
        return carried(flags, notes, mapped(drops_all, notes))
    if found:
        for plugin in plugins:
            found += _beside_strategies(plugin, notes)
    return carried(flags, notes, mapped(found or plugins, notes))


def _beside_strategies(plugin: Strategy, notes: Notes) -> list[Strategy]:
    """Return what can be said of a plugin that drops some dead letters only, where there are strategies, too."""
    if "discard" in plugin.options:
        notes.add(
            plugin.line, "the discardingDLQBrokerPlugin",
            "a strategy cannot both drop the dead letters of some names and have the strategies of this file; left "
            "out: drop them with redelivery.deadLetterMap.<pattern>.deadLetter=discard",
            left_out=True,
        )  # fmt: skip
    return [
        Strategy(pattern, plugin.line, {"deadLetterStrategy": plugin.options["deadLetterStrategy"]})
        for name, pattern in _TEMPORARY.items()
        if name in plugin.options and plugin.options[name].text == "true"
    ]


def _entry(
    entry: Element, item: Property, beans: Beans, reader: PolicyReader, notes: Notes
) -> Strategy | None:
    place = reader.place(entry)
    if place == "":
        notes.add(item.line, "deadLetterStrategy", "its pattern is not understood; left out", left_out=True)
        return None
    options: dict[str, Value] = {}
    strategy = item.beans[0] if item.beans else None
    kind = _STRATEGIES.get(beans.type_of(strategy)) if strategy is not None else None
    if strategy is None or kind is None:
        what = f"deadLetterStrategy of {place or 'all destinations'}"
        notes.add(item.line, what, "a strategy that is not known here; left out", left_out=True)
        return None
    if kind != "shared":
        options["deadLetterStrategy"] = Value(kind, strategy.line)
    for name, held in beans.properties(strategy).items():
        if name == "deadLetterQueue":
            queue = _queue(held, beans, notes)
            if queue is not None:
                options["deadLetterDestination"] = queue
        elif name in _AUDIT:
            notes.add(held.line, f"{name}={held.text}", "a dead letter is not audited for duplicates here")
        elif (value := settled(name, held.value, notes)) is not None:
            _put(options, name, value)
    return Strategy(place, strategy.line, _ordered(options))


def _without_strategy(entry: Element, reader: PolicyReader) -> Strategy:
    """Return the strategy of an entry that has none: the default, also where a wider entry has a strategy."""
    return Strategy(reader.place(entry), entry.line, {})


def _put(options: dict[str, Value], name: str, value: Value) -> None:
    text = (
        BOOLEANS.get(value.text.lower(), value.text)
        if _DEFAULTS.get(name) in ("true", "false")
        else value.text
    )
    if name == "processNonPersistent":
        text = BOOLEANS.get(text.lower(), text)
        if text.lower() == "true":
            # The default here; Classic's is false.
            return
    if text.lower() != _DEFAULTS.get(name):
        options[_RENAMED.get(name, name)] = Value(text, value.line)


def _ordered(options: dict[str, Value]) -> dict[str, Value]:
    first = {name: options[name] for name in _ORDER if name in options}
    return {**first, **options}


def _queue(item: Property, beans: Beans, notes: Notes) -> Value | None:
    """Return the destination that a strategy names; None: it is known only to the broker, which is noted."""
    kind, name = "queue", item
    if item.beans:
        bean = item.beans[0]
        kind = "topic" if "topic" in beans.type_of(bean).lower() else "queue"
        properties = beans.properties(bean)
        name = properties.get("physicalName") or properties.get("brokerURL") or item
    if (name.text or "").startswith("#"):
        notes.add(name.line, f"{item.name}={name.text}", "the file has no such bean; left out", left_out=True)
        return None
    value = settled(item.name, name.value, notes)
    if value is None or "://" in value.text:
        return value
    return Value(f"{kind}://{value.text}", value.line)


def _discarding_plugin(element: Element, beans: Beans, notes: Notes) -> Strategy | None:
    """Return a plugin as a strategy of all destinations; None: it drops nothing, or what it drops is left out."""
    options = {"deadLetterStrategy": Value("discarding", element.line)}
    # All three are true by default (`DiscardingDLQBrokerPlugin`).
    flags: dict[str, Value | None] = dict.fromkeys(("dropAll", *_TEMPORARY), Value("true", element.line))
    for name, item in beans.properties(element).items():
        value = settled(name, item.value, notes)
        if name in flags:
            flags[name] = None if value is None else _flag(value)
        elif name == "dropOnly" and value is not None:
            options["discard"] = value
        elif value is not None:
            _put(options, name, value)
    drops_all = flags.pop("dropAll")
    if drops_all is None:
        # Not known: a note says so, and nothing is dropped.
        return None
    if drops_all.text != "false" and "discard" in options:
        notes.add(
            options["discard"].line, f"dropOnly={options['discard'].text}",
            "has no effect while dropAll is true, its default: Classic drops every dead letter. Left out, and all are "
            'kept: write dropAll="false" to drop these only, or remove dropOnly to drop all',
            left_out=True,
        )  # fmt: skip
        return None
    if drops_all.text == "false":
        options |= {name: flag for name, flag in flags.items() if flag is not None and flag.text != "false"}
        if not any(name in options for name in SOME):
            return None
    return Strategy(None, element.line, _ordered(options))


def _flag(value: Value) -> Value:
    return Value(BOOLEANS.get(value.text.lower(), value.text.lower()), value.line)


def _redelivery_plugin(element: Element, beans: Beans, notes: Notes) -> dict[str, Value]:
    options: dict[str, Value] = {}
    for name, item in beans.properties(element).items():
        if name in ("sendToDlqIfMaxRetriesExceeded", "fallbackToDeadLetter"):
            value = settled(name, item.value, notes)
            if value is not None:
                _put(options, name, value)
    return options


# ---- Client settings -------------------------------------------------------------------------------------
# Settings of connection factories and destinations in a client's XML that are no policies: URLs and prefetch.

CLIENTS = ("connectionfactory", "component", "activemqconfiguration")
"""End of the type of a connection factory's bean, in lower case."""
_READ_ELSEWHERE = frozenset({"id", "name", "brokerURL", "redeliveryPolicy", "redeliveryPolicyMap"})
_PREFETCH = re.compile(
    r"([^\s?{}]{1,200})\?(?:[^\s?]{0,400}&)?(?:destination\.)?consumer\.prefetchSize=([0-9]{1,9})"
)


def client_settings(root: Element, beans: Beans) -> ClientSettings:
    """Return the settings below `root`."""
    urls: dict[Value, None] = {}
    others: tuple[tuple[str, Value], ...] = ()
    for element in root.walk():
        if beans.type_of(element).lower().endswith(CLIENTS):
            properties = beans.properties(element)
            found = properties.get("brokerURL")
            if found is not None and found.text and found.text.strip():
                others = others if urls else tuple(_others(properties, beans))
                urls[Value(found.text.strip(), found.line)] = None
    return ClientSettings(tuple(urls), others, tuple(_prefetches(root)))


def _others(properties: Mapping[str, Property], beans: Beans) -> Iterator[tuple[str, Value]]:
    """Yield the properties of a factory that have a text, and those of its prefetch policy."""
    for name, item in properties.items():
        if name in _READ_ELSEWHERE:
            continue
        if item.text is not None:
            yield name, item.value
        elif name == "prefetchPolicy" and item.beans:
            inner = beans.properties(item.beans[0]).items()
            yield from ((f"{name}.{part}", one.value) for part, one in inner if one.text is not None)


def _prefetches(root: Element) -> Iterator[Prefetch]:
    for element in root.walk():
        for text in (*element.attributes.values(), element.text):
            for found in _PREFETCH.finditer(text):
                yield Prefetch(found[1].rpartition("://")[2].rpartition(":")[2], int(found[2]), element.line)


# ---- Spring beans ----------------------------------------------------------------------------------------
# Beans of a Spring file, written as `<bean>` with properties or as elements of ActiveMQ's own.
#
# `<redeliveryPolicy queue="A"/>`, `<bean class="org.apache.activemq.RedeliveryPolicy" p:queue="A"/>` and the
# same with `<property name="queue" value="A"/>` are the same bean.

_P = "{http://www.springframework.org/schema/p}"
_LISTS = frozenset({"list", "set", "array", "collection"})
_SPRINGS_OWN = frozenset({"property", "constructor-arg", "description", "meta", "qualifier"})
_TYPES = frozenset({"redeliveryPolicy", "redeliveryPolicyMap"})
"""Beans with the name of a property: `<redeliveryPolicy>` is a bean, or a property that holds one."""


class Property(NamedTuple):
    """Property with its content: a text, or beans."""

    name: str
    line: int
    text: str | None
    beans: tuple[Element, ...] = ()

    @property
    def value(self) -> Value:
        """Text with its line."""
        return Value(self.text or "", self.line)


def _lowered(name: str) -> str:
    return name[:1].lower() + name[1:]


class Beans:
    """All beans of a file, by id."""

    def __init__(self, root: Element) -> None:
        """Find the ids below `root`."""
        self.root = root
        self.referred: set[int] = set()
        """Ids (`id()`) of elements that another element refers to."""
        self._by_id: dict[str, Element] = {}
        for element in root.walk():
            for key in (element.attributes.get("id"), element.attributes.get("name")):
                if key and (element.tag == "bean" or key == element.attributes.get("id")):
                    self._by_id.setdefault(key, element)

    @staticmethod
    def type_of(element: Element) -> str:
        """Return the type of a bean: its class without the package, first letter in lower case."""
        if element.tag != "bean":
            return element.tag
        return _lowered(element.attributes.get("class", "").rpartition(".")[2])

    @staticmethod
    def is_holder(element: Element) -> bool:
        """True if an element with the name of a bean is the property that holds the bean."""
        inner = {child.tag for child in element.children}
        return (
            element.tag in _TYPES
            and not element.attributes
            and bool(inner)
            and inner <= {element.tag, "bean", "ref"}
        )

    def properties(self, bean: Element, depth: int = 0) -> dict[str, Property]:
        """Return the properties of a bean by name; its own replace those of its `parent`."""
        parent = self._by_id.get(bean.attributes.get("parent", ""))
        found = self.properties(parent, depth + 1) if parent is not None and depth < 10 else {}
        for item in (*self._of_attributes(bean), *self._of_children(bean)):
            found[item.name] = item
        return found

    def _of_attributes(self, bean: Element) -> Iterator[Property]:
        for written, text in bean.attributes.items():
            name = written.removeprefix(_P)
            if written.startswith("{") and name == written:
                # Another namespace: xsi:schemaLocation and the like.
                continue
            if name == written and (bean.tag == "bean" or name in ("id", "name")):
                continue  # Spring's own
            if name != written and name.endswith("-ref"):
                yield self._reference(name.removesuffix("-ref"), bean.line, text)
            elif text.startswith("#") and not text.startswith("#{"):
                yield self._reference(name, bean.line, text[1:])
            else:
                yield Property(_lowered(name), bean.line, text)

    def _of_children(self, bean: Element) -> Iterator[Property]:
        for child in bean.children:
            if child.tag in ("property", "constructor-arg"):
                default = "brokerURL" if child.tag == "constructor-arg" else ""
                yield self._of_property(child, _lowered(child.attributes.get("name", default)))
            elif child.tag not in _SPRINGS_OWN and bean.tag != "bean":
                yield self._of_element(child)

    def _of_property(self, item: Element, name: str) -> Property:
        if "ref" in item.attributes:
            return self._reference(name, item.line, item.attributes["ref"])
        text = item.attributes.get("value")
        values = [child for child in item.children if child.tag == "value"]
        if text is None and values:
            return Property(name, values[0].line, values[0].text)
        if text is None and not item.children:
            text = item.text
        return Property(name, item.line, text, tuple(self.flat(item.children)))

    def _of_element(self, item: Element) -> Property:
        if self.is_holder(item) or (item.tag not in _TYPES and item.children):
            return Property(item.tag, item.line, None, tuple(self.flat(item.children)))
        if item.tag in _TYPES or (item.attributes and not item.text):
            return Property(item.tag, item.line, None, (item,))
        return Property(item.tag, item.line, item.text)

    def _reference(self, name: str, line: int, to: str) -> Property:
        target = self._by_id.get(to)
        if target is None:
            return Property(_lowered(name), line, f"#{to}")
        self.referred.add(id(target))
        return Property(_lowered(name), line, None, (target,))

    def flat(self, elements: list[Element]) -> Iterator[Element]:
        """Iterate over the beans of a list, with references resolved."""
        for element in elements:
            if element.tag in _LISTS:
                yield from self.flat(element.children)
            elif element.tag in ("ref", "idref"):
                to = element.attributes.get("bean") or element.attributes.get("local", "")
                yield from self._reference("", element.line, to).beans
            elif element.tag not in _SPRINGS_OWN:
                yield element


# ---- Activemq xml ----------------------------------------------------------------------------------------

_OURS = frozenset({
    "redeliveryPolicy", "redeliveryPolicyMap", "redeliveryPolicyEntries", "redeliveryPlugin", "broker",
    "destinationPolicy", "policyMap", "policyEntries", "policyEntry", "deadLetterStrategy", "plugins",
    "connectionFactory", "discardingDLQBrokerPlugin",
})  # fmt: skip
_SPRING = ("http://www.springframework.org/schema/beans", "http://www.osgi.org/xmlns/blueprint/")
_PLUGIN = ("fallbackToDeadLetter", "sendToDlqIfMaxRetriesExceeded")
_CAMEL = "camel.apache.org"
_ACTIVEMQ = ("activemq.apache.org", "activemq.org")


def is_classic(root: Element) -> bool:
    """True if this looks like a file for ActiveMQ Classic, or for its client."""
    return any(
        element.tag in _OURS
        or element.namespace.startswith(_SPRING)
        or any(host in element.namespace for host in _ACTIVEMQ)
        or (element.tag in ("beans", "bean") and not element.namespace)
        for element in root.walk()
        if "artemis" not in element.namespace
    )


def read_classic(root: Element, notes: Notes) -> tuple[RedeliveryPolicyMap, dict[str, str], ClientSettings]:
    """Return the policies of a file, its dead-letter options, and its clients' settings.

    Raises ConfigurationError, with the line.
    """
    beans = Beans(root)
    reader = PolicyReader(beans, notes)
    clients: list[Policies] = []
    plugins: list[Policies] = []
    for element in root.walk():
        kind = beans.type_of(element)
        if _CAMEL in element.namespace:
            _camel(element, notes)
        elif kind == "redeliveryPlugin":
            plugins.append(_plugin(element, beans, reader, notes))
        elif kind.lower().endswith(CLIENTS):
            clients.append(_client(element, beans, reader, notes))
        elif element.tag == "import":
            resource = element.attributes.get("resource", "")
            # Each distribution of Classic imports its web console.
            console = resource.rpartition("/")[2] == "jetty.xml"
            notes.add(element.line, f"import {resource}", "other files are not read", left_out=not console)
    clients += _loose(root, beans, reader)
    chosen = _chosen([found for found in clients if found.any], plugins, notes)
    policies = RedeliveryPolicyMap(chosen.entries, default=chosen.default)
    return policies, dead_letters(root, beans, reader, notes), client_settings(root, beans)


def _camel(element: Element, notes: Notes) -> None:
    if element.tag in ("redeliveryPolicy", "redeliveryPolicyProfile"):
        notes.add(element.line, element.tag, "Camel's own redelivery of exchanges, not of messages; left out")


def _plugin(element: Element, beans: Beans, reader: PolicyReader, notes: Notes) -> Policies:
    found = Policies(element.line)
    for name, item in beans.properties(element).items():
        if name == "redeliveryPolicyMap" and item.beans:
            found = reader.map(item.beans[0])
        elif name in _PLUGIN:
            continue  # read as dead-letter options
        else:
            hint = near_miss(name, _PLUGIN)
            notes.add(item.line, name, f"not known in a redeliveryPlugin; left out{hint}", left_out=True)
    found.line = element.line
    return found


def _client(element: Element, beans: Beans, reader: PolicyReader, notes: Notes) -> Policies:
    """Return the policies of a connection factory."""
    properties = beans.properties(element)
    found, url = Policies(element.line), properties.get("brokerURL")
    of_url = found.default = _from_uri(url.value, notes) if url is not None and url.text else None
    mapped = properties.get("redeliveryPolicyMap")
    if mapped is not None and _there(mapped, notes):
        found = reader.map(mapped.beans[0])
        found.default = found.default or of_url
    single = properties.get("redeliveryPolicy")
    if single is not None and _there(single, notes):
        policy = reader.policy(single.beans[0])
        if mapped is not None and found.default not in (None, policy):
            notes.add(found.line, "defaultEntry", f"the redeliveryPolicy on line {single.line} is taken")
        found.default = policy
    if url is not None and of_url not in (None, found.default):
        notes.add(url.line, "brokerURL", "the policy of the factory is taken; that of the URL is left out")
    found.line = element.line
    return found


def _there(item: Property, notes: Notes) -> bool:
    if not item.beans:
        notes.add(
            item.line, f"{item.name}={item.text}", "refers to a bean that is not in this file; left out",
            left_out=True,
        )  # fmt: skip
    return bool(item.beans)


def _from_uri(value: Value, notes: Notes) -> RedeliveryPolicy | None:
    """Return the policy that a `brokerURL` sets. The addresses have no effect here, and are not shown."""
    from redelivery.uri.parser import parse_uri  # noqa: PLC0415

    query = value.text.rpartition("?")[2] if "?" in value.text else ""
    prefix = "jms.redeliverypolicy."
    options = [
        f"{name}={known.text}"
        for name, _, text in (item.partition("=") for item in query.split("&"))
        if name.lower().startswith(prefix)
        and (known := settled(name, Value(text, value.line), notes)) is not None
    ]
    if not options:
        return None
    # Qpid JMS has options that ActiveMQ's client refuses.
    scheme = "amqp" if "amqp://" in value.text or "amqps://" in value.text else "tcp"
    try:
        policy = parse_uri(f"{scheme}://x?{'&'.join(options)}").policies.default
    except ConfigurationError as error:
        raise notes.error(value.line, error) from None
    assert isinstance(policy, RedeliveryPolicy)
    return policy


def _loose(root: Element, beans: Beans, reader: PolicyReader) -> list[Policies]:
    """Return the policies that nothing in the file refers to: a program uses them."""
    found: list[Policies] = []
    loose = Policies(0)
    for element in root.walk():
        kind = beans.type_of(element)
        if id(element) in reader.read or beans.is_holder(element) or _CAMEL in element.namespace:
            continue
        if kind == "redeliveryPolicyMap":
            found.append(reader.map(element))
        elif kind == "redeliveryPolicy" and element.attributes.get("abstract") != "true":
            loose.line = loose.line or element.line
            if reader.place(element) is not None:
                reader.entry(element, loose)
            elif loose.default is None:
                loose.default = reader.policy(element)
            else:
                found.append(Policies(element.line, reader.policy(element)))
    return [loose, *found]


def _chosen(clients: list[Policies], plugins: list[Policies], notes: Notes) -> Policies:
    """Return the policies to use: the first client's, unless that client leaves redelivery to the plugin."""
    plugin = next((found for found in plugins if found.any), None)
    client = clients[0] if clients else None
    left_to_plugin = client is not None and (
        not client.entries and client.default is not None and client.default.maximum_redeliveries == 0
    )
    chosen = plugin if plugin is not None and (client is None or left_to_plugin) else client
    for found in (*clients, *plugins):
        if found is not chosen and found.any:
            assert chosen is not None
            why = f"the policies on line {chosen.line} are taken; these are left out"
            notes.add(found.line, "redelivery policies", why)
    if plugin is not None:
        notes.add(
            plugin.line, "redeliveryPlugin",
            "while the broker has it, it redelivers a message after a poison acknowledgement instead of "
            "dead-lettering it; use redelivery.deadLetter=forward, or remove the plugin",
        )  # fmt: skip
    if chosen is None:
        notes.add(1, "redelivery policies", "the file has none; the Java client's default applies")
        return Policies(0)
    return chosen
