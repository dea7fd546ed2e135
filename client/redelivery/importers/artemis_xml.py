"""Reader of Artemis' `broker.xml`: the redelivery and dead-letter options of its address settings.

All settings that cover an address are merged, the most specific first, as in Artemis
(`HierarchicalObjectRepository`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core.policy.artemis_policy import ArtemisRedeliveryPolicy
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.wildcards import AddressMatch, ArtemisWildcards
from redelivery.errors import ConfigurationError, near_miss
from redelivery.importers.dead_letter_uri import Strategy, mapped
from redelivery.importers.file_syntax import settled
from redelivery.importers.imported import Value
from redelivery.importers.uri_writer import MOST, classic_entries, with_overlaps

if TYPE_CHECKING:
    from collections.abc import Collection

    from redelivery.importers.file_syntax import Element
    from redelivery.importers.imported import Notes

__all__ = ["is_artemis", "read_artemis"]

_POLICY = (
    "redelivery-delay", "redelivery-delay-multiplier", "redelivery-collision-avoidance-factor",
    "max-redelivery-delay", "max-delivery-attempts",
)  # fmt: skip
_DEAD = (
    "dead-letter-address", "auto-create-dead-letter-resources", "dead-letter-queue-prefix",
    "dead-letter-queue-suffix",
)  # fmt: skip
_EXPIRY = "expiry-address"
# Its value in the file that each new broker begins with: no operator has chosen it.
_USUAL_EXPIRY = "ExpiryQueue"
_LEFT = {
    "send-to-dla-on-no-route": "the broker does it, for any consumer",
    "no-expiry": "expiry is the broker's",
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNRELATED = _names("""
    address-full-policy auto-create-addresses auto-create-expiry-resources auto-create-jms-queues
    auto-create-jms-topics auto-create-queues auto-delete-addresses auto-delete-addresses-delay
    auto-delete-addresses-skip-usage-check auto-delete-created-queues auto-delete-jms-queues
    auto-delete-jms-topics auto-delete-queues auto-delete-queues-delay auto-delete-queues-message-count
    auto-delete-queues-skip-usage-check config-delete-addresses config-delete-diverts config-delete-queues
    default-address-routing-type default-consumer-window-size default-consumers-before-dispatch
    default-delay-before-dispatch default-exclusive-queue default-group-buckets default-group-first-key
    default-group-rebalance default-group-rebalance-pause-dispatch default-last-value-key
    default-last-value-queue default-max-consumers default-non-destructive default-purge-on-no-consumers
    default-queue-routing-type default-ring-size enable-ingress-timestamp enable-metrics expiry-delay
    expiry-queue-prefix expiry-queue-suffix id-cache-size initial-queue-buffer-size last-value-queue
    management-browse-page-size management-message-attribute-size-limit max-expiry-delay
    max-read-page-bytes max-read-page-messages max-size-bytes max-size-bytes-reject-threshold
    max-size-messages message-counter-history-day-limit min-expiry-delay page-full-policy
    page-limit-bytes page-limit-messages page-max-cache-size page-size-bytes prefetch-page-bytes
    prefetch-page-messages redistribution-delay retroactive-message-count slow-consumer-check-period
    slow-consumer-policy slow-consumer-threshold slow-consumer-threshold-measurement-unit
""")
"""Address settings of Artemis 2.40 without relation to redelivery or dead letters."""
_OLD = ("jms.queue.", "jms.topic.")


@dataclass(slots=True)
class _Setting:
    """One address setting; `options` of both kinds, by element name."""

    match: AddressMatch
    line: int
    options: dict[str, Value]


def is_artemis(root: Element) -> bool:
    """True if this is a `broker.xml`, or a part of one."""
    return any(
        element.tag in ("address-setting", "address-settings")
        or (element.tag in ("configuration", "core") and element.namespace.startswith("urn:activemq"))
        for element in root.walk()
    )


def read_artemis(root: Element, notes: Notes) -> tuple[RedeliveryPolicyMap, dict[str, str]]:
    """Return a file's policies and dead-letter options. Raises ConfigurationError, with the line."""
    wildcards = _wildcards(root, notes)
    settings: dict[str, _Setting] = {}
    literal = next((e.text for e in root.walk() if e.tag == "literal-match-markers"), "")
    for element in root.walk():
        if element.tag == "address-setting":
            setting = _setting(element, wildcards, literal, notes)
            if setting is not None:
                _register(setting, settings, notes)
        elif element.tag == "persist-delivery-count-before-delivery" and element.text == "true":
            notes.add(
                element.line, f"{element.tag}=true",
                "a hint: Artemis counts a delivery before the consumer gets it, which also counts a message that "
                "kills its consumer; here a ledger does that (redelivery.ledger)",
            )  # fmt: skip
        elif element.tag == "include" and "XInclude" in element.namespace:
            href = element.attributes.get("href", "")
            notes.add(element.line, f"include {href}", "other files are not read", left_out=True)
    _also_without_prefix(settings, notes)
    return _policies(settings, wildcards, notes), _dead_letters(root, settings, wildcards, notes)


def _wildcards(root: Element, notes: Notes) -> ArtemisWildcards:
    names = {"delimiter": "delimiter", "single-word": "single_word", "any-words": "any_words"}
    given: dict[str, str] = {}
    line = 0
    for element in root.walk():
        if element.tag in ("wildcard-addresses", "wildcard-settings"):
            for child in element.children:
                if child.tag in names and child.text:
                    given[names[child.tag]] = child.text
                    line = child.line
    wildcards = ArtemisWildcards(**given)
    try:
        wildcards.check()
    except ConfigurationError as error:
        raise notes.error(line, error) from None
    return wildcards


def _setting(element: Element, wildcards: ArtemisWildcards, literal: str, notes: Notes) -> _Setting | None:
    text = element.attributes.get("match", "").strip()
    if not text:
        raise notes.error(element.line, "an address-setting needs a match")
    many, delimiter = wildcards.any_words, wildcards.delimiter
    if len(literal) == 2 and text.startswith(literal[0]) and text.endswith(literal[1]):
        text = text[1:-1]
        if wildcards.single_word in text or many in text:
            notes.add(
                element.line,
                f"match={text}",
                "a literal match with wildcard characters; left out",
                left_out=True,
            )
            return None
    if text.endswith(many) and text[:-1] and not text.endswith(delimiter + many):
        # Artemis treats `a#` as `a.#`.
        text = text[:-1] + delimiter + many
    try:
        match = AddressMatch(text, wildcards=wildcards)
    except ConfigurationError as error:
        notes.add(element.line, f"match={text}", f"{error}; left out", left_out=True)
        return None
    return _Setting(match, element.line, _options(element, notes))


def _options(element: Element, notes: Notes) -> dict[str, Value]:
    found: dict[str, Value] = {}
    where = f"of {element.attributes.get('match', '')}"
    for child in element.children:
        if child.tag in (*_POLICY, *_DEAD, _EXPIRY):
            value = settled(child.tag, Value(child.text, child.line), notes)
            if child.tag in found:
                notes.add(child.line, f"{child.tag} {where}", "given again; this one counts")
            if value is not None:
                found[child.tag] = value
        elif child.tag in _LEFT:
            notes.add(child.line, f"{child.tag}={child.text} {where}", _LEFT[child.tag])
        elif child.tag not in _UNRELATED:
            hint = near_miss(child.tag, (*_POLICY, *_DEAD))
            notes.add(child.line, f"{child.tag} {where}", f"not known here; left out{hint}", left_out=True)
    return found


def _register(setting: _Setting, settings: dict[str, _Setting], notes: Notes) -> None:
    earlier = settings.pop(setting.match.text, None)
    if earlier is not None:
        notes.add(
            earlier.line, f"match={setting.match.text}",
            f"given again on line {setting.line}, which counts; left out",
        )  # fmt: skip
    settings[setting.match.text] = setting


def _also_without_prefix(settings: dict[str, _Setting], notes: Notes) -> None:
    """Add each setting for `jms.queue.orders`, an address of Artemis 1, for `orders`, too."""
    for text, setting in list(settings.items()):
        prefix = next((prefix for prefix in _OLD if text.startswith(prefix)), None)
        if prefix is None:
            continue
        plain = text.removeprefix(prefix)
        why = "an address as Artemis 1 writes it"
        if plain in settings:
            notes.add(setting.line, f"match={text}", f"{why}; for {plain} line {settings[plain].line} counts")
        else:
            settings[plain] = _Setting(
                AddressMatch(plain, wildcards=setting.match.wildcards), setting.line, setting.options
            )
            notes.add(setting.line, f"match={text}", f"{why}; taken for {plain}, too")


def _policies(
    settings: dict[str, _Setting], wildcards: ArtemisWildcards, notes: Notes
) -> RedeliveryPolicyMap:
    """Return a map in which each entry has what Artemis would merge for the addresses of its match."""
    policies = {
        text: _policy(merged, notes) for text, merged in _merged(settings, _POLICY, wildcards, notes).items()
    }
    return RedeliveryPolicyMap.from_artemis_settings(policies, ArtemisRedeliveryPolicy(), wildcards)


def _merged(
    settings: dict[str, _Setting], names: Collection[str], wildcards: ArtemisWildcards, notes: Notes
) -> dict[str, dict[str, Value]]:
    """Return, by match, those of these options that Artemis would merge for its addresses; overlaps have their own."""
    ranked = [
        _Setting(AddressMatch(setting.match.text, place, wildcards), setting.line, setting.options)
        for place, setting in enumerate(settings.values())
        if any(name in names for name in setting.options)
    ]
    ranked.sort(key=lambda setting: setting.match.rank, reverse=True)
    matches, complete = with_overlaps([setting.match.text for setting in ranked], wildcards)
    if not complete:
        notes.add(
            1, "address-settings",
            f"their matches overlap in more than {MOST} ways; an address that two of them cover may get the settings "
            "of one only",
            left_out=True,
        )  # fmt: skip
    wild = [setting for setting in ranked if setting.match.wildcard]
    plain = {setting.match.text: [setting] for setting in ranked if not setting.match.wildcard}
    found: dict[str, dict[str, Value]] = {}
    for match in matches:
        merged: dict[str, Value] = {}
        for setting in plain.get(match.text, []) + wild:
            if setting.match.includes(match):
                merged = {**{name: v for name, v in setting.options.items() if name in names}, **merged}
        found[match.text] = merged
    return found


def _policy(merged: dict[str, Value], notes: Notes) -> ArtemisRedeliveryPolicy:
    try:
        return ArtemisRedeliveryPolicy.from_options({name: value.text for name, value in merged.items()})
    except ConfigurationError as error:
        place = merged.get(error.option or "")
        raise notes.error(place.line if place else 0, error) from None


def _dead_letters(
    root: Element, settings: dict[str, _Setting], wildcards: ArtemisWildcards, notes: Notes
) -> dict[str, str]:
    merged = _merged(settings, _DEAD, wildcards, notes)
    places = _places(root, {given[_DEAD[0]].text for given in merged.values() if _DEAD[0] in given}, notes)
    strategies = {
        text: _strategy(AddressMatch(text, wildcards=wildcards), given, places, notes)
        for text, given in merged.items()
    }
    unsaid: dict[str, str] = {}
    default, entries = classic_entries(strategies, {}, wildcards, unsaid, ("queue", "topic"))
    for match, why in unsaid.items():
        given = merged[match]
        line = given[_DEAD[0]].line if _DEAD[0] in given else _line(given)
        notes.add(line, _DEAD[0], f"{match}: {why}", left_out=True)
    wide = [one for one in settings.values() if _DEAD[0] in one.options and one.match.wildcard]
    for setting in settings.values():
        address = _address_of(setting, wide)
        if not address and any(name in (*_POLICY, *_DEAD) for name in setting.options):
            notes.add(
                setting.line, f"match={setting.match.text}",
                "without a dead-letter-address Artemis drops a poison message; here it is dead-lettered",
            )  # fmt: skip
        if _EXPIRY in setting.options:
            _expiry(setting, address, notes)
    found: list[tuple[str | None, dict[str, Value]]] = [(None, default), *entries.items()]
    return mapped([Strategy(pattern, _line(options), options) for pattern, options in found], notes)


def _line(options: dict[str, Value]) -> int:
    return min((value.line for value in options.values()), default=0)


def _address_of(setting: _Setting, wide: Collection[_Setting]) -> str:
    """Return the dead-letter address of a setting, or of the nearest of those of many addresses; empty: none."""
    nearest: _Setting | None = setting
    if _DEAD[0] not in setting.options:
        wider = [one for one in wide if one.match.includes(setting.match)]
        nearest = max(wider, key=lambda one: one.match.rank, default=None)
    return "" if nearest is None else nearest.options[_DEAD[0]].text


def _expiry(setting: _Setting, dead_letter_address: str, notes: Notes) -> None:
    """Note an expiry address: it decides the place of messages that expire at a client, too, and here it does not."""
    value = setting.options[_EXPIRY]
    other = value.text not in ("", dead_letter_address)
    left_out = other and value.text != _USUAL_EXPIRY
    notes.add(
        value.line, f"{_EXPIRY}={value.text} of {setting.match.text}",
        "the broker follows it in its queues; a message that expires while a client holds it is dead-lettered here"
        + (", to another place than this address" if other else "")
        + ", or dropped by redelivery.processExpired=false" + ("; left out" if left_out else ""),
        left_out=left_out,
    )  # fmt: skip


def _places(root: Element, addresses: Collection[str], notes: Notes) -> dict[str, str]:
    """Return the destinations of those of these addresses that the file makes multicast, by address.

    One whose only queue keeps each message is that queue: a tool finds letters in queues, and not in a topic.
    """
    found: dict[str, str] = {}
    for element in root.walk():
        multicast, name = element.child("multicast"), element.attributes.get("name", "").strip()
        if (
            element.tag != "address"
            or name not in addresses
            or multicast is None
            or element.child("anycast") is not None
        ):
            continue
        names = [queue.attributes.get("name", "").strip() for queue in multicast.children if _keeps(queue)]
        if len(names) == 1 and names[0]:
            found[name] = f"native://{name}::{names[0]}"
            continue
        found[name] = f"topic://{name}"
        each = ", ".join(f"native://{name}::{queue}" for queue in names)
        notes.add(
            element.line, f"address {name}",
            "multicast: each of its queues and subscribers gets a dead letter; look at them as " + each if each else
            "multicast, and no queue of this file keeps each of its messages: only its subscribers get a dead letter",
        )  # fmt: skip
    return found


def _keeps(queue: Element) -> bool:
    """Return True if an element is a queue that keeps each message until somebody consumes it."""
    durable, given = queue.child("durable"), queue.attributes
    return (
        queue.tag == "queue"
        and (durable is None or durable.text.lower() != "false")
        and queue.child("filter") is None
        and given.get("enabled", "true").lower() != "false"
        and given.get("purge-on-no-consumers", "false").lower() != "true"
        and given.get("last-value", "false").lower() != "true"
        and not {"ring-size", "last-value-key"} & given.keys()
    )


def _strategy(
    match: AddressMatch, given: dict[str, Value], places: dict[str, str], notes: Notes
) -> dict[str, Value]:
    address = given.get(_DEAD[0])
    creates = given.get(_DEAD[1])
    if address is None or not address.text:
        return {}
    # Artemis makes no queue for the letters of the dead-letter address itself.
    if creates is None or creates.text.lower() != "true" or match.text == address.text:
        return {
            "deadLetterDestination": Value(places.get(address.text, f"queue://{address.text}"), address.line)
        }
    prefix = given.get(_DEAD[2], Value("DLQ.", creates.line)).text
    suffix = given.get(_DEAD[3], Value("", creates.line)).text
    if match.wildcard:
        notes.add(
            creates.line, f"{_DEAD[1]}=true of {match.text}",
            f"a queue {prefix}ADDRESS{suffix} for each of many addresses cannot be said here; left out. Where no place "
            "is named, a client that may ask the broker for its own settings follows them; else name the place of an "
            f"address as native://{address.text}::{prefix}ADDRESS{suffix}",
            left_out=True,
        )  # fmt: skip
        return {}
    return {
        "deadLetterDestination": Value(f"native://{address.text}::{prefix}{match.text}{suffix}", address.line)
    }
