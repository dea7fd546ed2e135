"""Reader of dead-letter strategies of ActiveMQ Classic, and of its plugins for dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.importers.dead_letter_uri import SOME, Strategy, carried, mapped
from redelivery.importers.imported import Value
from redelivery.importers.setting_values import BOOLEANS, settled

if TYPE_CHECKING:
    from redelivery.importers.activemq_policy import PolicyReader
    from redelivery.importers.imported import Notes
    from redelivery.importers.spring_beans import Beans, Property
    from redelivery.importers.xml_positions import Element

__all__ = ["dead_letters"]

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
