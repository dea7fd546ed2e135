"""Reader of dead-letter strategies of ActiveMQ Classic, and of its plugins for dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.importers.dead_letter_uri import Strategy, carried, one_for_all
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
    "sendToDlqIfMaxRetriesExceeded": "true", "fallbackToDeadLetter": "true",
    "dropTemporaryTopics": "true", "dropTemporaryQueues": "true", "reportInterval": "1000",
}  # fmt: skip
"""Values that need not be carried over, because they are the default on both sides."""
_EVERYWHERE = "all destinations"
_AUDIT = ("enableAudit", "maxProducersToAudit", "maxAuditDepth")
# Each suffix is added before its prefix, which can be empty only where there is a suffix.
_ORDER = ("deadLetterStrategy", "deadLetterDestination", "discard", "queueSuffix", "topicSuffix")


def dead_letters(root: Element, beans: Beans, reader: PolicyReader, notes: Notes) -> dict[str, str]:
    """Return the URI options that treat dead letters as the broker does; note the rest."""
    found: list[Strategy] = []
    without: list[Element] = []
    plugins: list[Strategy] = []
    flags: dict[str, Value] = {}
    for element in root.walk():
        kind = beans.type_of(element)
        if kind == "policyEntry":
            item = beans.properties(element).get("deadLetterStrategy")
            if item is not None:
                found.append(_entry(element, item, beans, reader, notes))
            else:
                without.append(element)
        elif kind == "discardingDLQBrokerPlugin":
            plugins.append(_discarding_plugin(element, beans, notes))
        elif kind == "redeliveryPlugin":
            flags |= _redelivery_plugin(element, beans, notes)
    if found:
        found = _by_rank([*found, *(_without_strategy(element, reader) for element in without)])
    # A plugin that drops everything precedes all strategies. One that drops some only must not replace a strategy.
    drops_all = [plugin for plugin in plugins if "discard" not in plugin.options]
    drops_some = [plugin for plugin in plugins if "discard" in plugin.options]
    return carried(flags, notes, one_for_all([*drops_all, *found, *drops_some], notes))


def _entry(entry: Element, item: Property, beans: Beans, reader: PolicyReader, notes: Notes) -> Strategy:
    place = reader.place(entry)
    everything = place in (None, "queue://>")
    pattern = _EVERYWHERE if place is None else place or "a pattern that is not understood"
    options: dict[str, Value] = {}
    strategy = item.beans[0] if item.beans else None
    kind = _STRATEGIES.get(beans.type_of(strategy)) if strategy is not None else None
    if strategy is None or kind is None:
        what = f"deadLetterStrategy of {pattern}"
        notes.add(item.line, what, "a strategy that is not known here; left out", left_out=True)
        return Strategy(pattern, False, item.line, options)  # noqa: FBT003
    if kind != "shared":
        options["deadLetterStrategy"] = Value(kind, strategy.line)
    for name, held in beans.properties(strategy).items():
        if name == "deadLetterQueue":
            queue = _queue(held, beans)
            options["deadLetterDestination"] = Value(queue, held.line)
        elif name in _AUDIT:
            notes.add(held.line, f"{name}={held.text}", "a dead letter is not audited for duplicates here")
        elif (value := settled(name, held.value, notes)) is not None:
            _put(options, name, value)
    return Strategy(pattern, everything, strategy.line, _ordered(options))


def _without_strategy(entry: Element, reader: PolicyReader) -> Strategy:
    """Return the strategy of an entry that has none: the default, also where a wider entry has a strategy."""
    place = reader.place(entry)
    return Strategy(place or _EVERYWHERE, place in (None, "queue://>"), entry.line, {})


def _by_rank(strategies: list[Strategy]) -> list[Strategy]:
    """Return strategies, the default entry last: an entry of queues precedes it in Classic."""
    return sorted(strategies, key=lambda strategy: strategy.pattern == _EVERYWHERE)


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


def _queue(item: Property, beans: Beans) -> str:
    if not item.beans:
        text = (item.text or "").strip()
        return text if "://" in text else f"queue://{text}"
    bean = item.beans[0]
    properties = beans.properties(bean)
    name = properties.get("physicalName") or properties.get("brokerURL")
    kind = "topic" if "topic" in beans.type_of(bean).lower() else "queue"
    return f"{kind}://{name.text if name is not None else ''}"


def _discarding_plugin(element: Element, beans: Beans, notes: Notes) -> Strategy:
    options = {"deadLetterStrategy": Value("discarding", element.line)}
    drops_all = True
    for name, item in beans.properties(element).items():
        value = settled(name, item.value, notes)
        if value is None:
            continue
        if name == "dropAll":
            drops_all = BOOLEANS.get(value.text.lower(), value.text.lower()) != "false"
        elif name == "dropOnly":
            options["discard"] = value
        else:
            _put(options, name, value)
    if drops_all:
        options.pop("discard", None)
    # For all destinations: its patterns select the dropped ones.
    everything = drops_all or "discard" in options
    return Strategy("the discardingDLQBrokerPlugin", everything, element.line, _ordered(options))


def _redelivery_plugin(element: Element, beans: Beans, notes: Notes) -> dict[str, Value]:
    options: dict[str, Value] = {}
    for name, item in beans.properties(element).items():
        if name in ("sendToDlqIfMaxRetriesExceeded", "fallbackToDeadLetter"):
            value = settled(name, item.value, notes)
            if value is not None:
                _put(options, name, value)
    return options
