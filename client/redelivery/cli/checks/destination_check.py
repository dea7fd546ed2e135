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

from redelivery.cli.checks.finding import fail, note, ok, warn
from redelivery.cli.checks.log_in import NAMES
from redelivery.cli.checks.own_dead_letters import beside, followed, unasked
from redelivery.cli.checks.schedule import schedule
from redelivery.cli.exit_codes import MISCONFIGURED, UNREACHABLE
from redelivery.core.policy.classic_wildcards import is_pattern
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.core.printable import move_command
from redelivery.core.queue_wildcards import names_queues
from redelivery.core.quorum_options import QUORUM_OPTIONS
from redelivery.driver.port import dead_letters_of, planned, single
from redelivery.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from redelivery.cli.checks.finding import Finding
    from redelivery.cli.checks.visit import Visit
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery.core.destination import Destination
    from redelivery.errors import RedeliveryError
    from redelivery.settings import Settings

__all__ = ["look_at"]

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
