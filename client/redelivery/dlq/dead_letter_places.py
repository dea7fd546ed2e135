"""Places of the dead letters of a connection: where its settings let them go on this broker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.dead_letter_strategy import follows_broker
from redelivery.core.destination import Destination
from redelivery.core.policy.classic_wildcards import check_wildcards, covers, is_pattern
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterStrategy
    from redelivery.settings import Settings

__all__ = ["DeadLetterPlaces", "dead_letter_places"]


@dataclass(frozen=True, slots=True)
class DeadLetterPlaces:
    """Queues in which dead letters can be.

    Args:
        queues: Names, qualified; patterns, where the broker can show the queues of one.
        unknown: Why there may be others, and what to do.
        shared: Those of `queues` with dead letters of other settings, too: only named ones are removed from there.
        own: The broker's own settings decide a place, too, and it can be asked for them.
        assumed: The default place, if only these settings can name it, and all that are looked for are named.
    """

    queues: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    own: bool = False
    assumed: str = ""
    shared: tuple[str, ...] = ()

    def and_own(self, queues: Sequence[str], unknown: str) -> DeadLetterPlaces:
        """Return these places, and those that the broker's own settings decide; they take the place of `assumed`."""
        more = (*self.unknown, unknown) if unknown else self.unknown
        kept = [each for each in self.queues if not queues or each != self.assumed]
        shared = (*self.shared, *(each for each in queues if each not in self.queues))
        return replace(self, queues=tuple(dict.fromkeys((*queues, *kept))), unknown=more, shared=shared)

    def unshared(self) -> DeadLetterPlaces:
        """Return the places without those that have other dead letters, too; the reason is one of `unknown`."""
        if not self.shared:
            return self
        why = f"{', '.join(self.shared)}: not touched; name the queue, or the origin (--destination)"
        kept = tuple(each for each in self.queues if each not in self.shared)
        return replace(self, queues=kept, shared=(), unknown=(*self.unknown, why))


def dead_letter_places(
    settings: Settings, able: Capabilities, origins: Sequence[str] = ()
) -> DeadLetterPlaces:
    """Return the places where the dead letters of these settings go on this broker.

    A place that a listener (`dead_letter=`) or an exception (`poison(…, to=)`) names is not in the settings.

    Args:
        settings: Settings of the connection.
        able: Capabilities of the broker.
        origins: Original destinations, qualified, without wildcards: only their places. Empty: all.

    Raises:
        ConfigurationError: No place is known, and the text says why.
    """
    queues: dict[str, None] = {}
    unknown: dict[str, None] = {}
    usual, beside = able.dead_letter_destination, False
    own, named = False, not origins
    for source, strategy in _sources(settings, origins):
        if strategy.keeps_nothing:
            continue
        follows = follows_broker(strategy, able)
        own = own or follows
        beside = beside or _moved_beside(source, strategy, able)
        if strategy.individual:
            place = strategy.individual_place(source, able, None)
        else:
            place = Destination.parse(strategy.destination or able.dead_letter_destination)
        if place.is_topic:
            unknown[f"dead letters of {source} go to {place}, which keeps none of them"] = None
        elif not strategy.individual or (_can_be_shown(place, able) and not _by_subscriber(source, strategy)):
            queues[str(place)] = None
            named = named or (not follows and str(place) == usual)
        else:
            unknown[_unlisted(source, strategy, place, able)] = None
    if not queues:
        raise ConfigurationError("; ".join(unknown) or _NOTHING, option="queue")
    found = {name: Destination.parse(name) for name in queues}
    once = [
        name
        for name, place in found.items()
        # A pattern shows it already.
        if not any(other != name and covers(wide, place) for other, wide in found.items() if is_pattern(wide))
    ]
    shared = (usual,) if beside and usual not in queues else ()
    assumed = usual if own and not named else ""
    return DeadLetterPlaces((*once, *shared), tuple(unknown), own, assumed, shared)


def _moved_beside(source: Destination, strategy: DeadLetterStrategy, able: Capabilities) -> bool:
    """Return True if the broker's own acknowledgement, which knows no place, keeps what cannot be copied to one."""
    return able.own_poison == "last" and strategy.dead_letter == "auto" and not source.is_topic


_NOTHING = "the URI lets no dead letter be kept (redelivery.deadLetter=discard): name a dead-letter queue"
_ALL = (Destination("queue", ">"), Destination("topic", ">"))


def _sources(settings: Settings, origins: Sequence[str]) -> Iterator[tuple[Destination, DeadLetterStrategy]]:
    """Yield destinations, or patterns of them, with the strategy that serves them."""
    strategies = settings.dead_letters
    if origins:
        for origin in origins:
            yield Destination.parse(origin), strategies.strategy_for(origin)
        return
    for pattern, strategy in strategies.entries:
        for member in Destination.parse(pattern).members:
            yield member, strategy
    for each in _ALL:
        yield each, strategies.default


def _can_be_shown(place: Destination, able: Capabilities) -> bool:
    """True for one queue, and for a pattern that this broker can show."""
    if not is_pattern(place):
        return True
    try:
        check_wildcards(place)
    except ConfigurationError:
        return False
    return able.queue_wildcards


def _by_subscriber(source: Destination, strategy: DeadLetterStrategy) -> bool:
    """True if the place also depends on the durable subscription, whose name the settings do not have."""
    return source.is_topic and strategy.destination_per_durable_subscriber and not is_pattern(source)


def _unlisted(
    source: Destination, strategy: DeadLetterStrategy, place: Destination, able: Capabilities
) -> str:
    if _by_subscriber(source, strategy):
        return (
            f"dead letters of {source} have a place for each durable subscription, which no setting names: name the "
            f"dead-letter queue ({strategy.individual_place(source, able, 'clientID:subscription')})"
        )
    each = "each topic" if source.is_topic else "each queue"
    why = f"{able.broker} does not list queues over this protocol"
    if able.queue_wildcards:
        why = "no pattern stands for these names"
    return (
        f"dead letters of {source} have a place for {each} ({place}), and {why}: name the dead-letter queue, or the "
        "origin (--destination)"
    )
