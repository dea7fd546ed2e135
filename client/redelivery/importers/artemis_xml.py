"""Reader of Artemis' `broker.xml`: the redelivery and dead-letter options of its address settings.

All settings that cover an address are merged, the most specific first, as in Artemis
(`HierarchicalObjectRepository`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core.policy.artemis_policy import ArtemisRedeliveryPolicy
from redelivery.core.policy.artemis_wildcards import AddressMatch, ArtemisWildcards
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.errors import ConfigurationError, near_miss
from redelivery.importers.dead_letter_uri import Strategy, mapped
from redelivery.importers.imported import Value
from redelivery.importers.overlaps import MOST, with_overlaps
from redelivery.importers.setting_values import settled
from redelivery.importers.uri_writer import classic_entries

if TYPE_CHECKING:
    from collections.abc import Collection

    from redelivery.importers.imported import Notes
    from redelivery.importers.xml_positions import Element

__all__ = ["is_artemis", "read_artemis"]

_POLICY = (
    "redelivery-delay", "redelivery-delay-multiplier", "redelivery-collision-avoidance-factor",
    "max-redelivery-delay", "max-delivery-attempts",
)  # fmt: skip
_DEAD = (
    "dead-letter-address", "auto-create-dead-letter-resources", "dead-letter-queue-prefix",
    "dead-letter-queue-suffix",
)  # fmt: skip
_LEFT = {
    "send-to-dla-on-no-route": "the broker does it, for any consumer",
    "expiry-address": "a message that expires here is dead-lettered, or dropped by redelivery.processExpired=false",
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
        if child.tag in _POLICY or child.tag in _DEAD:
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
    multicast = {
        element.attributes.get("name", "")
        for element in root.walk()
        if element.tag == "address" and element.child("multicast") and not element.child("anycast")
    }
    strategies = {
        text: _strategy(text, merged, multicast, notes)
        for text, merged in _merged(settings, _DEAD, wildcards, notes).items()
    }
    differences: list[str] = []
    default, entries = classic_entries(strategies, {}, wildcards, differences, ("queue", "topic"))
    for each in differences:
        notes.add(1, "dead-letter-address", each, left_out=True)
    dead = [setting for setting in settings.values() if _DEAD[0] in setting.options]
    anywhere = {setting.match.text for setting in dead}
    wild = [setting.match for setting in dead if setting.match.wildcard]
    for setting in settings.values():
        text = setting.match.text
        covered = text in anywhere or any(match.includes(setting.match) for match in wild)
        if not covered and any(name in _POLICY for name in setting.options):
            notes.add(
                setting.line, f"match={setting.match.text}",
                "without a dead-letter-address Artemis drops a poison message; here it is dead-lettered",
            )  # fmt: skip
    found: list[tuple[str | None, dict[str, Value]]] = [(None, default), *entries.items()]
    return mapped([Strategy(pattern, _line(options), options) for pattern, options in found], notes)


def _line(options: dict[str, Value]) -> int:
    return min((value.line for value in options.values()), default=0)


def _strategy(match: str, given: dict[str, Value], multicast: set[str], notes: Notes) -> dict[str, Value]:
    address = given.get("dead-letter-address")
    creates = given.get("auto-create-dead-letter-resources")
    if creates is not None and creates.text.lower() == "true":
        prefix = given.get("dead-letter-queue-prefix", Value("DLQ.", creates.line))
        suffix = given.get("dead-letter-queue-suffix", Value("", creates.line))
        notes.add(
            creates.line, f"{_DEAD[1]}=true of {match}",
            f"a copy goes to an address of that name, not to a queue {prefix.text}… of the dead-letter-address",
        )  # fmt: skip
        options = {"deadLetterStrategy": Value("individual", creates.line)}
        for kind in ("queue", "topic"):
            if suffix.text:
                options[f"{kind}Suffix"] = suffix
            # An empty prefix needs the suffix; it is not the broker's own.
            options[f"{kind}Prefix"] = prefix
        return options
    if address is None or not address.text:
        return {}
    kind = "topic" if address.text in multicast else "queue"
    return {"deadLetterDestination": Value(f"{kind}://{address.text}", address.line)}
