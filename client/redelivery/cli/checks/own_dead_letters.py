"""The broker's own settings for dead letters, beside the options: which of the two decides the place, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.cli.checks.finding import fail, note, ok, warn
from redelivery.cli.exit_codes import UNREACHABLE
from redelivery.core.artemis_management import rights
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.cli.checks.finding import Finding
    from redelivery.cli.checks.visit import Visit
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery.errors import RedeliveryError

__all__ = ["beside", "followed", "unasked"]

# Number of the consumer that asks for the broker's own place.
ASKING = 10**6 + 1
_CONVERT = "`redelivery policy convert` makes options of that file"
# Settings of a broker for its own dead-lettering, which it does not report: a copy goes where the URI says.
_UNASKED = {
    "activemq": "a copy goes past the broker's own dead-letter strategies and plugins (activemq.xml), for which no "
    f"client can ask; {_CONVERT}; redelivery.deadLetter=ack leaves the place to the broker",
    "qpid-broker-j": f"the broker does not report this queue's alternateBinding, and a copy goes past it; {_CONVERT}",
}
_UNJUDGED = (
    "Artemis confirms a dead letter that no queue there takes, for example by its filter, and drops it; whether one "
    "takes each"
)


def followed(asked: Subscribe, able: Capabilities, visit: Visit) -> Iterator[Finding]:
    """Yield where the broker's own settings put the dead letters of a queue, and whether they can go there."""
    told, error = _told(asked, visit)
    found = told or able
    if isinstance(error, TransportError):
        yield fail("dead letters", f"{error}: run it again, and look at the broker's log", UNREACHABLE)
    elif error is not None:
        yield fail(
            "dead letters", f"poison could not leave; set another redelivery.deadLetterDestination: {error}"
        )
    elif found.caution:
        yield warn("dead letters", found.caution)
    elif found.own_dead_letters:
        yield ok(
            "dead letters",
            f"go to {found.dead_letter_destination}, by {found.own_dead_letters}; it takes messages of this user",
        )
    else:
        place = found.dead_letter_destination
        yield note(
            "dead letters", f"go to {place}: this queue has no dead-letter-address; its own would be dropped"
        )


def beside(
    asked: Subscribe,
    targets: tuple[str, ...],
    reported: Capabilities | None,
    able: Capabilities,
    visit: Visit,
) -> Iterator[Finding]:
    """Yield what the broker's own settings say, where the options decide; `reported`: by the broker, of the queue."""
    if able.tells_dead_letters:
        reported, _ = _told(asked, visit)
        own = "" if reported is None else reported.own_dead_letters
        if reported is not None and own and reported.dead_letter_destination not in targets:
            yield note(
                "dead letters",
                f"the options win; without them they would go to {reported.dead_letter_destination}, by {own}",
            )
        if reported is not None and reported.caution and able.management_address is not None:
            needs = rights(able.management_address)
            yield note("dead letters", f"{_UNJUDGED} is asked only if this user has {needs}")
    elif reported is not None and reported.own_dead_letters:
        poison = "a copy wins, for it carries the cause"
        if reported.poison_persistent:
            poison = "poison goes there too, unless an option names a place"
        yield note(
            "dead letters", f"{reported.own_dead_letters} gets what the broker itself gives up; {poison}"
        )
    elif reported is None:
        yield from unasked(targets, able)


def _told(asked: Subscribe, visit: Visit) -> tuple[Capabilities | None, RedeliveryError | None]:
    """Return what a consumer that asks for the broker's own place gets: its capabilities, or the error."""
    error = visit.subscribe(replace(asked, consumer=ASKING, own_place=True))
    told = visit.of_queue
    visit.unsubscribe(ASKING)
    return told, error


def unasked(targets: tuple[str, ...], able: Capabilities) -> Iterator[Finding]:
    """Yield which settings of the broker a copy goes past, where no client can ask for them."""
    if not able.tells_dead_letters and able.broker in _UNASKED and able.dead_letter_destination in targets:
        yield note("dead letters", _UNASKED[able.broker])
