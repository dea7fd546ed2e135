"""Checks of one destination: the right to consume it, the way of its dead letters, and the delays of its policy.

No message is taken. Over AMQP a consumer begins without credit; over STOMP, where the broker filters, with a selector
that matches no message. RabbitMQ over STOMP can do neither: there the right to consume is not checked.

Without `Visit.create` no queue is made: a broker that makes a missing queue for each question is not asked.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.brokers.rabbitmq import QUORUM_OPTIONS
from redelivery.cli.checks.finding import fail, note, ok, warn
from redelivery.cli.checks.network import NAMES
from redelivery.cli.exit_codes import MISCONFIGURED, UNREACHABLE
from redelivery.cli.formatting import duration
from redelivery.core.dead_lettering.artemis_places import rights
from redelivery.core.policy.policy_guard import elapsed_of, limit_of
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy, bounded
from redelivery.core.policy.wildcards import is_pattern, names_queues
from redelivery.core.shown_values import move_command
from redelivery.driver.port import dead_letters_of, planned, single
from redelivery.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from redelivery.cli.checks.finding import Finding
    from redelivery.cli.checks.visit import Visit
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery.core.destination import Destination
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.errors import RedeliveryError
    from redelivery.settings import Settings

__all__ = ["look_at", "schedule"]


# ---- Own dead letters ------------------------------------------------------------------------------------
# The broker's own settings for dead letters, beside the options: which of the two decides the place, and why.

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
    told, error = _told_by_broker(asked, visit)
    found = told or able
    if isinstance(error, TransportError):
        yield fail("dead letters", f"{error}: run it again, and look at the broker's log", UNREACHABLE)
    elif error is not None:
        yield fail(
            "dead letters", f"poison could not leave; set another redelivery.deadLetterDestination: {error}"
        )
    elif found.caution or (visit.untold and not found.own_dead_letters):
        yield warn("dead letters", found.caution or visit.untold)
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
        reported, _ = _told_by_broker(asked, visit)
        own = "" if reported is None else reported.own_dead_letters
        if reported is not None and own and reported.dead_letter_destination not in targets:
            yield note(
                "dead letters",
                f"the options win; without them they would go to {reported.dead_letter_destination}, by {own}",
            )
        if visit.untold and able.management_address is not None:
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


def _told_by_broker(asked: Subscribe, visit: Visit) -> tuple[Capabilities | None, RedeliveryError | None]:
    """Return what a consumer that asks for the broker's own place gets: its capabilities, or the error."""
    error = visit.subscribe(replace(asked, consumer=ASKING, own_place=True))
    told = visit.of_queue
    visit.unsubscribe(ASKING)
    return told, error


def unasked(targets: tuple[str, ...], able: Capabilities) -> Iterator[Finding]:
    """Yield which settings of the broker a copy goes past, where no client can ask for them."""
    if not able.tells_dead_letters and able.broker in _UNASKED and able.dead_letter_destination in targets:
        yield note("dead letters", _UNASKED[able.broker])


# ---- Schedule --------------------------------------------------------------------------------------------
# Finding on a policy: how long it parks a message, and when the message is dead. No I/O.

# Milliseconds. A database restarts in about a minute: a policy that ends sooner makes dead letters of its messages.
OUTAGE = 60_000


def schedule(policy: Policy, able: Capabilities) -> Finding:
    """Return how long a policy parks a message here, and after how many deliveries the message is dead."""
    maximum, limit = limit_of(policy)[0], elapsed_of(policy)[0]
    worst = bounded(policy.worst_case_ms(), limit)
    if worst is None:
        return note(
            "policy",
            "redelivers for ever: a message that always fails is tried until it expires; give maximumRedeliveries, or "
            "redelivery.policy.maximumElapsed",
        )
    if not maximum:
        return note("policy", "one delivery, and no redelivery: each failure is a dead letter")
    times = f"dead after {duration(worst)}" if maximum < 0 else f"dead after {maximum + 1} deliveries"
    held = f"holds a message for up to {duration(worst)}, {times}"
    if able.most_delay is not None:
        held += f"; {able.broker} lets it be held for {duration(able.most_delay * 1000)}"
    if worst < OUTAGE:
        # No warning: only the program knows whether its classifier names them.
        return note(
            "policy",
            f"{held}: if a service is down for longer, its messages become dead letters, unless the breaker opens, "
            "which takes many of them; name its exceptions by Classifier().trip(), or use back-off "
            "(jms.redeliveryPolicy.useExponentialBackOff=true)",
        )
    return ok("policy", held)


# ---- Destination check -----------------------------------------------------------------------------------

# A selector that matches no message.
NOTHING = "1=0"
# Seconds in which RabbitMQ (STOMP) refuses a dead-letter queue after it has confirmed the consumer.
LATE = 0.5
# Number of the consumer that looks at a dead-letter queue: none that asks for a place has it.
LOOKING = 10**6
OWN_QUEUE = "queue://redelivery.doctor"
# Brokers that let any user open a link to an existing queue, and refuse the message (integration/test_doctor.py).
UNCHECKED = frozenset({"qpid-broker-j", "rabbitmq"})
# Brokers that make a missing queue for each client that asks about it (integration/test_doctor_create.py).
MAKE_QUEUES = frozenset({"activemq", "artemis"})
# RabbitMQ over AMQP, of a queue that it does not have: this library's own words on 4.x, the broker's on 3.x.
_ABSENT = re.compile("the broker has no queue|NOT_FOUND - no queue")
_POLICY = "jms.redeliveryPolicy"


def look_at(destination: str, settings: Settings, able: Capabilities, visit: Visit) -> Iterator[Finding]:
    """Yield the findings on a destination; the broker is asked when the caller takes the next one."""
    try:
        parsed = single(destination)
    except ConfigurationError as error:
        yield fail("destination", str(error), MISCONFIGURED)
        return
    found: list[Finding] = []
    subscribe = _planned(parsed, settings, able, found)
    yield from found
    if subscribe is None:
        return
    refused = yield from _consume(subscribe, able, visit)
    if subscribe.ordering == "per_group" and not able.binds_groups:
        yield note(
            "ordering",
            f"per_group keeps order within one process: {NAMES.get(able.broker, able.broker)} sends the messages of a "
            "group to all consumers of a queue; let one process consume it",
        )
    if able.unsettleable and parsed.kind == "queue":
        yield note(
            "STOMP",
            f"a JMS text with a NUL stops each consumer of {parsed}, and a message with an AMQP producer's id is set "
            f"aside; over AMQP neither is, and it can be moved: {move_command(str(parsed), None)}",
        )
    yield from _dead_letters(parsed, subscribe, settings, able, visit, refused=refused)
    if not any(finding.subject == "policy" for finding in found) and settings.scheduler == "client":
        yield schedule(settings.policies.policy_for(parsed), able)


def _planned(
    destination: Destination, settings: Settings, able: Capabilities, found: list[Finding]
) -> Subscribe | None:
    """Return how a consumer would subscribe; None: it would be refused, for the reasons added to `found`."""
    try:
        return planned(1, destination, {}, settings, able, workers=1)[0]
    except ConfigurationError as error:
        if error.option != _POLICY:
            found.append(fail(str(destination), str(error), MISCONFIGURED))
            return None
        cure = "shorten it, give redelivery.policy.maximumElapsed, or let the broker hold (redelivery.scheduler=broker)"
        found.append(fail("policy", f"{error}: {cure}", MISCONFIGURED))
    # The other checks go on with a policy without delays.
    brief = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))
    try:
        return planned(1, destination, {}, replace(settings, policies=brief), able, workers=1)[0]
    except ConfigurationError as error:
        found.append(fail(str(destination), str(error), MISCONFIGURED))
        return None


def _without_taking(subscribe: Subscribe, able: Capabilities) -> Subscribe | None:
    """Return a subscription that gets no message, and leaves nothing; None: there is none over this protocol."""
    if _copies(subscribe, able):
        return None
    if able.flow:
        return replace(subscribe, window=0, room=0, most=0, dead_letters=(), own_place=False)
    if able.selectors:
        asked = replace(subscribe, window=1, room=0, most=0, dead_letters=(), own_place=False)
        return replace(asked, selector=NOTHING)
    return None


def _copies(subscribe: Subscribe, able: Capabilities) -> bool:
    """True if a consumer that begins has a queue made, which the broker fills from then on."""
    return able.copies_by_wildcard and names_queues(single(subscribe.destination), able)


def _window(subscribe: Subscribe, able: Capabilities) -> str:
    about = "about " if able.window_in_bytes else ""
    room = "" if able.flow or able.grows else f", and {subscribe.room} parked ones"
    if subscribe.most:
        return f"credit: auto, begins with {about}{subscribe.window} (one worker), at most {subscribe.most:,}"
    return f"window: {about}{subscribe.window} messages{room}"


def _consume(subscribe: Subscribe, able: Capabilities, visit: Visit) -> Generator[Finding, None, bool]:
    """Yield whether the destination may be consumed; return True if the broker refuses."""
    asked = _without_taking(subscribe, able)
    name = subscribe.destination
    if _copies(subscribe, able):
        yield note(
            name,
            "not asked whether it may be consumed: the first consumer makes its queue, which gets copies of later "
            f"messages from then on. {_window(subscribe, able)}",
        )
        return False
    if asked is None:
        yield note(
            name,
            f"not asked whether it may be consumed: over STOMP {NAMES.get(able.broker, able.broker)} hands out a "
            f"message to each consumer that begins; amqp:// can be asked without. {_window(subscribe, able)}",
        )
        return False
    if _makes(able, visit):
        yield note(
            name,
            f"not asked whether it may be consumed: {NAMES[able.broker]} makes a missing queue for each question; "
            f"--create asks. {_window(subscribe, able)}",
        )
        return False
    error = visit.subscribe(replace(asked, existing=not visit.create))
    of_queue = visit.of_queue
    visit.unsubscribe(asked.consumer)
    if _is_absent(error, able):
        yield _not_there(name, able)
    elif error is None:
        yield ok(name, f"may be consumed; {_window(subscribe, able)}")
        if subscribe.caution:
            yield warn(name, subscribe.caution)
        if of_queue is not None and of_queue.caution:
            yield warn(name, of_queue.caution)
        if of_queue is not None and of_queue.advice:
            yield note(name, of_queue.advice)
    else:
        yield _refused(name, error, f"let this user consume from {name}, or make the queue")
    return error is not None


def _makes(able: Capabilities, visit: Visit) -> bool:
    """True if a question would make a queue, and may not."""
    return not visit.create and able.broker in MAKE_QUEUES


def _is_absent(error: RedeliveryError | None, able: Capabilities) -> bool:
    """True if the broker was asked without making the queue, and has none of that name."""
    return able.broker == "rabbitmq" and error is not None and _ABSENT.search(str(error)) is not None


def _not_there(queue: str, able: Capabilities) -> Finding:
    """Return that the first consumer makes a queue, and on RabbitMQ 4.3 how to have it made a quorum queue."""
    text = f"{queue} is not there yet: the first consumer makes it; --create makes it now"
    if able.reschedule == "native":
        text += f", and the broker can hold parked messages if both are made with {QUORUM_OPTIONS}"
    return note(queue, text)


def _refused(subject: str, error: RedeliveryError, cure: str) -> Finding:
    if isinstance(error, TransportError):
        return fail(subject, f"{error}: run it again, and look at the broker's log", UNREACHABLE)
    return fail(subject, f"{error}: {cure}")


def _dead_letters(
    destination: Destination,
    subscribe: Subscribe,
    settings: Settings,
    able: Capabilities,
    visit: Visit,
    *,
    refused: bool,
) -> Iterator[Finding]:
    """Yield where dead letters go, and whether this user may send them there, as a starting consumer checks it."""
    targets = subscribe.dead_letters
    asked = _without_taking(subscribe, able)
    if (targets or subscribe.own_place) and (_makes(able, visit) or (asked is None and not visit.create)):
        yield _unasked(_named(targets, destination, settings, able))
        yield from unasked(targets, able)
        return
    if subscribe.own_place and asked is not None and not refused:
        yield from followed(asked, able, visit)
    if not targets:
        if not subscribe.own_place:
            yield _without_copy(destination, settings, able)
        return
    if asked is None:
        # A queue of its own, which the broker deletes when it is idle.
        asked = replace(
            subscribe,
            destination=f"{OWN_QUEUE}.{uuid.uuid4().hex}",
            window=1,
            room=0,
            private=True,
            dead_letters=(),
        )
        if (error := visit.subscribe(replace(asked, consumer=2))) is not None:
            yield note(
                "dead letters", f"{', '.join(targets)}: not asked, for that takes a queue of its own: {error}"
            )
            return
        visit.unsubscribe(2)
    elif refused:
        yield note("dead letters", f"{', '.join(targets)}: not asked, for no consumer could begin")
        return
    reported = yield from _sent_to(_named(targets, destination, settings, able), asked, able, visit)
    if not subscribe.own_place:
        yield from beside(asked, targets, reported, able, visit)


def _named(
    targets: tuple[str, ...], destination: Destination, settings: Settings, able: Capabilities
) -> dict[str, str]:
    """Return the option that names each place, or ""."""
    ways = list(dead_letters_of(settings, destination).ways(able, told=False))
    found = {str(way.place): way.by for way in ways if way.by.startswith("redelivery.")}
    return {target: found.get(target, "") for target in targets}


def _told(target: str, named: str) -> str:
    return f"{target} (by {named})" if named else target


def _sent_to(
    targets: dict[str, str], asked: Subscribe, able: Capabilities, visit: Visit
) -> Generator[Finding, None, Capabilities | None]:
    """Yield whether dead letters can go to these places; return what the broker reports of the consumed queue.

    `targets`: with the option that names each.
    """
    reported = None
    for number, (target, named) in enumerate(targets.items(), 3):
        if not visit.create and _is_absent(_looked(target, asked, visit), able):
            yield _not_there(target, able)
            continue
        error = visit.subscribe(
            replace(asked, consumer=number, dead_letters=(target,)), 0.0 if able.flow else LATE
        )
        visit.unsubscribe(number)
        if error is None:
            reported = visit.of_queue
            yield _taken(_told(target, named), able)
            yield from _kept(target, asked, able, visit)
        else:
            other = f"change {named}" if named else "set another redelivery.deadLetterDestination"
            cure = f"poison could not leave; make {target}, let this user send to it, or {other}"
            yield _refused("dead letters", error, cure)
    return reported


def _kept(target: str, asked: Subscribe, able: Capabilities, visit: Visit) -> Iterator[Finding]:
    """Yield how the broker may drop dead letters that are there, where it reports that for a queue."""
    if not target.startswith("queue://"):
        return
    if not able.flow:
        if able.release_limit is not None:
            name = f"{NAMES.get(able.broker, able.broker)} {able.version}"
            yield note(
                "dead letters",
                f"{target}: over STOMP {name} does not report whether it is a quorum queue, which drops a message "
                f"after {able.release_limit} looks; amqp:// can be asked",
            )
        return
    reported = visit.of_queue
    if reported is None:
        # The broker reports nothing of a queue.
        return
    error, of_queue = _looked(target, asked, visit), visit.of_queue
    # Without the right to consume it this user looks at no dead letters.
    if error is None and of_queue is not None and of_queue.caution:
        cure = of_queue.caution.replace("redelivery.queueArguments", "redelivery.deadLetterArguments")
        if cure != of_queue.caution:
            cure += "; a queue that exists keeps its arguments"
        yield warn("dead letters", f"{target}: {cure}")
    # The management node reports both queues.
    if of_queue is not None and reported.replicated and not of_queue.replicated:
        yield note(
            "dead letters",
            f"{target} is a classic queue, on one node of a cluster, and {asked.destination} is a quorum queue; a new "
            "one is replicated too with redelivery.deadLetterArguments=x-queue-type:quorum",
        )


def _looked(target: str, asked: Subscribe, visit: Visit) -> RedeliveryError | None:
    """Return why a queue that may be missing cannot be consumed, or None; `Visit.of_queue` has what it is."""
    error = visit.subscribe(
        replace(
            asked, consumer=LOOKING, destination=target, dead_letters=(), existing=True, rescheduled=False
        )
    )
    visit.unsubscribe(LOOKING)
    return error


def _unasked(targets: dict[str, str]) -> Finding:
    place = (
        f"to {', '.join(_told(target, named) for target, named in targets.items())}"
        if targets
        else "where the broker's own settings put them, or to its default"
    )
    return note("dead letters", f"go {place}; not asked, for a question makes a missing queue: --create asks")


def _taken(target: str, able: Capabilities) -> Finding:
    """Return where dead letters go, after the adapter refused nothing."""
    if able.broker in UNCHECKED:
        which = f"which is there; {NAMES[able.broker]} looks at the right to send to it with the first message only"
        return note("dead letters", f"go to {target}, {which}")
    if able.broker not in (*NAMES, "memory"):
        # An adapter of another project: it may look at `Subscribe.dead_letters`, and need not.
        return note(
            "dead letters", f"go to {target}, unless the broker refuses this user's first message to it"
        )
    return ok("dead letters", f"go to {target}, which takes messages of this user")


def _without_copy(destination: Destination, settings: Settings, able: Capabilities) -> Finding:
    serving = dead_letters_of(settings, destination).serving()
    if all(each.keeps_nothing for each in serving):
        return note("dead letters", "dropped, as the URI says: what fails too often is lost")
    if any(each.individual for each in serving) or is_pattern(destination):
        return note("dead letters", "go to a destination of each queue: asked when the first one goes there")
    own = serving[0].destination or able.dead_letter_destination
    # Not known there: the consumer's caution says what the broker may lose.
    told = note if able.ack_caution else ok
    return told(
        "dead letters",
        f"the broker moves them itself (poison acknowledgement), to {own} if nothing else is set",
    )
