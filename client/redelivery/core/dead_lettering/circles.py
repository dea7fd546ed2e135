"""Circles of dead letters: those of one consumer go to another, whose own come back, and a message circulates."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.policy.wildcards import is_pattern, overlap
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.routing import Way
    from redelivery.core.destination import Destination

__all__ = ["Circling", "refuse_circle"]


class Circling(NamedTuple):
    """A consumer as a part of circles: its route, and what the broker can do for it.

    `told`: the adapter has found the broker's own place of its dead letters, or need not look for it.
    """

    route: DeadLetterRouting
    able: Capabilities
    told: bool = True

    def takes(self, place: Destination) -> bool:
        """Return True if it gets what is sent to a place, or, of a pattern, to one of its names."""
        source = self.route.source
        if source is not None and is_pattern(place):
            return overlap(source, place)
        return self.route.consumes(place)

    def ways(self, arrived: Destination | None = None) -> Iterator[Way]:
        """Yield the ways of its dead letters; `arrived`: of those that came to this destination. None: of all."""
        return self.route.ways(self.able, arrived, told=self.told)


def refuse_circle(new: Circling, others: Iterable[Circling]) -> None:
    """Refuse a consumer whose dead letters come back to it by way of other consumers, or of places in the map.

    A consumer of another connection has options of its own: behind a place without a consumer here only the map counts.

    Raises:
        ConfigurationError: They come back; the text names each step.
    """
    path = _back(new, [new, *others])
    if path is None:
        return
    froms = [new.route.source, *(way.place for way in path)]
    told = ", ".join(
        f"those of {each} to {way.place} ({way.by})" for each, way in zip(froms, path, strict=False)
    )
    raise ConfigurationError(
        f"dead letters would go in a circle, and a message that fails would circulate for ever: {told}; name another "
        "place in one of these options",
        option="redelivery.deadLetterDestination",
    )


def _back(new: Circling, consumers: Sequence[Circling]) -> tuple[Way, ...] | None:
    """Return the shortest way by which a consumer's dead letters come back to it; None: there is none."""
    # The shortest passes each consumer, and each entry of the map, once at most.
    longest = len(consumers) + len(new.route.strategies.entries)
    seen: set[Destination] = set()
    paths: deque[tuple[Way, ...]] = deque((way,) for way in new.ways())
    while paths:
        path = paths.popleft()
        place = path[-1].place
        if new.takes(place):
            return path
        if place not in seen and len(path) <= longest:
            seen.add(place)
            paths += ((*path, way) for way in _onward(new, place, consumers))
    return None


def _onward(new: Circling, place: Destination, consumers: Sequence[Circling]) -> Iterator[Way]:
    """Yield where the dead letters of a place go: by its consumers, without any by the map."""
    here = [each for each in consumers if each.takes(place)]
    for each in here:
        yield from each.ways(place)
    if not here and new.route.strategies.pattern_for(place) is not None:
        mapped = DeadLetterRouting(strategies=new.route.strategies, source=place)
        yield from mapped.ways(new.able, place, told=new.told)
