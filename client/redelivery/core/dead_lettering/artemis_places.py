"""Dead-letter places on ActiveMQ Artemis, asked of its management: what is there, and its own place of dead letters."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from redelivery.core.destination import Destination
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.errors import RedeliveryError

__all__ = [
    "ANSWERS",
    "ORIGIN",
    "PAGE",
    "REPEATS",
    "UNTOLD",
    "DeadLetterSettings",
    "OwnPlace",
    "Question",
    "alone_at",
    "answer_of",
    "answered",
    "answers_to",
    "dropped_at",
    "elsewhere",
    "own_place",
    "own_place_error",
    "qualified_queue",
    "queues_at",
    "repeated",
    "rights",
    "settings_of",
    "unusable",
    "where",
    "with_own_place",
    "without_answer",
]


# ---- Artemis management ----------------------------------------------------------------------------------
# Requests to the management address of ActiveMQ Artemis, and its answers: messages with JSON, over any protocol.

Found = TypeVar("Found")

# The answers. A plain subscriber's queue ends with it; of a queue of our own, the default configuration keeps it.
ANSWERS = "redelivery.management"
CREATE = "createQueue"
# Beginning of the caution that only the first consumer of a connection has.
UNTOLD = "the broker does not tell"
# Queues in one answer, in which each has about 1 kB. Queues that end between two answers would move others out of both.
PAGE = 10_000
# In its answer, a list over which Artemis 2.40.0 has stumbled: a queue has ended while the list was made.
_STUMBLED = "Cannot invoke "
REPEATS = 9


@dataclass(frozen=True, slots=True)
class Question:
    """One request: an operation of the broker's management, and its arguments."""

    operation: str
    arguments: tuple[Any, ...]

    @property
    def changes(self) -> bool:
        """True if it changes something at the broker."""
        return self.operation == CREATE

    def message(self, address: str, mark: str) -> Outgoing:
        """Return the message to the management address; `mark` comes back with the answer, as its correlation id."""
        return Outgoing(
            f"native://{address}", json.dumps(self.arguments).encode(), body_kind="text",
            reply_to=f"native://{ANSWERS}", correlation_id=mark, persistent=False,
            headers={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": self.operation},
        )  # fmt: skip


def answers_to(marks: str) -> str:
    """Return the selector for the answers to requests whose marks begin so: others have theirs on the same topic."""
    return f"JMSCorrelationID LIKE '{marks}%'"


def answer_of(body: str | bytes, headers: Mapping[str, Any]) -> Any:
    """Return the value in an answer. Raises AdapterError if the broker has refused, or answers with no JSON.

    It passes if the same request can succeed the next time.
    """
    try:
        value = json.loads(body)[0]
    except (ValueError, LookupError, TypeError):
        raise AdapterError("the answer of the broker's management is not in Artemis' format") from None
    if str(headers.get("_AMQ_OperationSucceeded")).lower() != "true":
        raise AdapterError(str(value), passes=True if str(value).startswith(_STUMBLED) else None)
    return value


def repeated(ask: Callable[[Question], Any], question: Question) -> Any:
    """Return the answer to a question; one that can succeed the next time is asked again. Raises as `ask` does."""
    for _ in range(REPEATS):
        try:
            return ask(question)
        except AdapterError as error:
            if not error.passes:
                raise
    return ask(question)


def answered(
    asking: Generator[tuple[Question, ...], Sequence[Any], Found], ask: Callable[[Question], Any]
) -> Found:
    """Return what a rule finds that yields its questions. Raises as `ask` does, and what the rule raises."""
    replies: list[Any] | None = None
    while True:
        try:
            questions = next(asking) if replies is None else asking.send(replies)
        except StopIteration as end:
            found: Found = end.value
            return found
        replies = [ask(each) for each in questions]


def where(field: str = "", value: str = "") -> str:
    """Return the filter of a list: entries whose field has this value; none: all.

    Artemis 2.31.2 refuses an empty text, and one without these fields.
    """
    return json.dumps({"field": field, "operation": "EQUALS" if field else "", "value": value})


def rights(address: str) -> str:
    """Return the rights that requests need, for an error message."""
    return f"the right to manage and to send to {address}, and to subscribe to topic://{ANSWERS}"


# ---- Artemis queues --------------------------------------------------------------------------------------
# Queues of ActiveMQ Artemis as its management lists them, and why one may not keep each dead letter.
#
# Artemis confirms a message that no queue takes, and drops it (docs/measured/artemis-dead-letter-address.md).

if TYPE_CHECKING:
    Queue = Mapping[str, str]


# The property that the filter of Artemis' own dead-letter queues compares; its value is the address of the message's
# queue.
ORIGIN = "_AMQ_ORIG_ADDRESS"


def listing(field: str, value: str) -> Question:
    """Return the question for the queues whose `name` or `address` this is; `queues_in` reads the answer."""
    return Question("listQueues", (where(field.upper(), value), 1, PAGE))


def queues_in(told: str, field: str, value: str) -> list[Queue]:
    """Return the queues of an answer, whatever a version makes of the filter in the question."""
    return [one for one in json.loads(told)["data"] if one[field] == value]


def qualified_queue(queue: Queue) -> str:
    """Return the qualified name of a queue."""
    name, address = queue["name"], queue["address"]
    plain = name == address and queue["routingType"] == "ANYCAST" and not {",", "?"} & set(name)
    return f"queue://{name}" if plain else f"native://{address}::{name}"


def origin_filter(address: str) -> str:
    """Return the filter of the queue that Artemis makes for the dead letters of an address."""
    return "{} = '{}'".format(ORIGIN, address.replace("'", "''"))


def loses(queue: Queue) -> str:
    """Return why a queue loses messages that it has taken; empty: it keeps them."""
    if queue.get("enabled") == "false":
        return "is disabled"
    if queue.get("purgeOnNoConsumers") == "true":
        return "drops its messages while it has no consumer (purge-on-no-consumers)"
    if queue.get("ringSize", "-1") != "-1":
        return f"keeps the last {queue['ringSize']} messages only (ring-size)"
    if key := queue.get("lastValueKey"):
        return f"keeps the last message of each {key} only (last-value)"
    if queue.get("temporary") == "true" or queue.get("durable") == "false":
        return "does not outlive the broker (it is not durable)"
    return ""


def takes_only(queue: Queue, origin: str) -> str:
    """Return the filter that a queue has, and that dead letters of the address `origin` may not match; empty: none.

    It is not evaluated: no one can know which messages will fail.
    """
    condition = queue.get("filter", "")
    return "" if condition == origin_filter(origin) else condition


# ---- Artemis named place ---------------------------------------------------------------------------------
# Dead-letter places that ActiveMQ Artemis would drop dead letters at, by its list of queues.

if TYPE_CHECKING:
    Asking = Generator[tuple[Question, ...], Sequence[Any], Sequence[Queue]]


_DROPS = "Artemis would confirm dead letters and drop them"
_CURE = "name a queue that keeps all (redelivery.deadLetterDestination, deadLetterMap, dead_letter=, poison(to=), --to)"


def queues_at(place: Destination) -> Asking:
    """Yield the questions for the queues of a place, and return them: those of its name, and those of its address.

    The caller sends the values of the answers in, or throws the error with which the broker has refused one.

    Raises:
        AdapterError: The broker refuses an answer, or gives another than expected.
    """
    address, _, name = place.name.partition("::")
    asked = [("name", name)] if name else [("address", address)]
    if place.kind == "queue" and not name:
        # A queue of this name can belong to another address; Artemis then confirms and drops what is sent to the name.
        asked.append(("name", address))
    answers = yield tuple(listing(*each) for each in asked)
    try:
        # `dropped_at` needs both.
        found = [
            queue
            for each, told in zip(asked, answers, strict=True)
            for queue in queues_in(told, *each)
            if queue["address"] and queue["name"]
        ]
        return list({_told(each): each for each in found}.values())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise AdapterError(
            f"the broker's management answered something else than expected: {error!r}"
        ) from None


def dropped_at(place: Destination, queues: Sequence[Queue], origin: str, *, refused: bool = True) -> str:
    """Return why dead letters of the address `origin` may be dropped at a place with these queues; empty: none is.

    The place was asked before: where Artemis makes missing queues, that has made one. `refused`: it refuses what is
    sent to a missing queue by its address and name, as it does over AMQP; over STOMP it confirms that.
    """
    address, _, name = place.name.partition("::")
    if (reached := elsewhere(place, queues)) is not None:
        return f"the queue {address} belongs to the address {reached['address']}: {_DROPS}; name native://{_told(reached)}"
    queues = [each for each in queues if (each["name"] == name if name else each["address"] == address)]
    if not queues and place.kind == "native" and not (name and refused):
        missing = f"the queue {place.name} is not there" if name else f"the address {address} has no queue"
        return f"{missing}: {_DROPS}; {_CURE}"
    if place.kind == "queue" and not name and not refused and queues:
        # Over STOMP a message for a queue is for anycast queues only.
        queues = [each for each in queues if each["routingType"] == "ANYCAST"]
        if not queues:
            return f"the address {address} has no anycast queue: {_DROPS}; {_CURE}"
    lost = {_told(each): _lost(each, address, origin) for each in queues}
    # The anycast queues of an address take turns. A filter keeps a queue out, and another one gets the message.
    turns = [each for each in queues if each.get("routingType") == "ANYCAST" and loses(each)]
    if not queues or (not all(lost.values()) and not turns):
        return ""
    told = "; ".join(f"{queue} {why}" for queue, why in lost.items() if why)
    return f"{told}: {_DROPS}; {_CURE}"


def elsewhere(place: Destination, queues: Sequence[Queue]) -> Queue | None:
    """Return the queue that a place names if it belongs to another address, and the address of that name has none."""
    name = place.name
    if place.kind != "queue" or any(each["address"] == name for each in queues):
        return None
    return next((each for each in queues if each["name"] == name), None)


def alone_at(place: Destination, queues: Sequence[Queue]) -> str:
    """Return the destination by which only the queue of a place gets what is sent there; "": the place's own, or none.

    Artemis sends a message for an address to each of its queues: beside the queue of that name there can be
    subscribers, and queues that it has made for dead letters.
    """
    address, _, name = place.name.partition("::")
    there = [each["name"] for each in queues if each["address"] == address]
    if place.kind != "queue" or (name or address) not in there or not (name or len(there) > 1):
        return ""
    return f"native://{address}::{name or address}"


def _told(queue: Queue) -> str:
    return f"{queue['address']}::{queue['name']}"


def _lost(queue: Queue, address: str, origin: str) -> str:
    if queue["address"] != address:
        return "has another address"
    if why := loses(queue):
        return why
    condition = takes_only(queue, origin)
    return f"takes only messages with {condition}" if condition else ""


# ---- Artemis own place -----------------------------------------------------------------------------------
# Where ActiveMQ Artemis itself would put a dead letter of a queue: its address settings, asked of its management.
#
# Measured with 2.31.2, 2.40.0 and 2.56.0 (docs/measured/artemis-dead-letter-address.md). A message to an address is
# confirmed and dropped if none of its queues takes it. One to `address::queue` is not: if the queue is gone, the
# broker makes it again, or refuses. Only its filter drops it, and that of Artemis' own dead-letter queues is for the
# address of the message's queue. So the place is one queue that is known to keep these dead letters.

if TYPE_CHECKING:
    AskingPlace = Generator[tuple[Question, ...], Sequence[Any], "OwnPlace | None"]


# Artemis' default prefix of the queues that it makes for dead letters.
PREFIX = "DLQ."


@dataclass(frozen=True, slots=True)
class OwnPlace:
    """Dead-letter destination by the broker's own settings.

    Args:
        destination: Destination, qualified: one queue.
        address: Address of the queue whose dead letters they are; the filter of the destination may compare it.
        told: The setting that decides, in words.
        returns: The destination is what the consumer consumes.
        make: Question that makes its queue; None: the queue is there.
        problem: Why no dead letter can go there; empty: they can.
    """

    destination: str
    address: str
    told: str
    returns: bool = False
    make: Question | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """The dead-letter settings of one address.

    Args:
        address: Its `dead-letter-address`.
        queue: Queue of that address which has only the dead letters of this one (`auto-create-dead-letter-resources`);
            None: there is none.
    """

    address: str
    queue: str | None

    @classmethod
    def of(cls, address: str, told: Mapping[str, Any]) -> DeadLetterSettings | None:
        """Return those of an address in the broker's answer; None: it has no dead-letter address."""
        # Artemis 2.31.2 has the short name.
        dead = told.get("deadLetterAddress") or told.get("DLA")
        if not dead:
            return None
        queue = None
        if told.get("autoCreateDeadLetterResources"):
            prefix, suffix = told.get("deadLetterQueuePrefix", PREFIX), told.get("deadLetterQueueSuffix", "")
            queue = f"{prefix}{address}{suffix}"
        return cls(dead, queue)


def own_place(source: Destination) -> AskingPlace:
    """Yield the questions that find the broker's own place for the dead letters of a queue or topic, and return it.

    The caller sends the values of the answers in, or throws the error with which the broker has refused one. Nothing is
    changed at the broker.

    Args:
        source: Destination that is consumed: one, without wildcards.

    Returns:
        The place; None: the broker has none for this queue, and would drop its poison messages.

    Raises:
        AdapterError: The broker refuses an answer, or gives another than expected.
    """
    try:
        found = yield from _found(source)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise AdapterError(
            f"the broker's management answered something else than expected: {error!r}"
        ) from None
    return found


def settings_of(address: str) -> Question:
    """Return the question for the settings of an address; `DeadLetterSettings.of` reads the answer."""
    return Question("getAddressSettingsAsJSON", (address,))


def own_place_error(source: str, place: OwnPlace) -> RedeliveryError | None:
    """Return why no consumer of a destination may begin whose dead letters go to this place; None: one may."""
    if place.returns:
        return ConfigurationError(
            f"{source} gets its own dead letters, by {place.told}: to read dead letters, add "
            "redelivery.deadLetterDestination=<another queue> to the URI, or dead_letter= to this consumer: messages "
            "that fail again go there",
            option="redelivery.deadLetterDestination",
        )
    return unusable(place, place.problem) if place.problem else None


def unusable(place: OwnPlace, why: str) -> AdapterError:
    """Return the error for a place of the broker's own to which no dead letter can go."""
    return AdapterError(
        f"dead letters belong in {place.destination}, by {place.told}, and that cannot be used: {why}; change the "
        "broker's setting, or name another place (redelivery.deadLetterDestination)"
    )


def with_own_place(able: Capabilities, place: OwnPlace | None) -> Capabilities:
    """Return the capabilities for a consumer with this place; None: the broker has none of its own."""
    if place is None:
        return able
    return replace(
        able,
        dead_letter_destination=place.destination,
        dead_letter_properties=((ORIGIN, place.address),),
        own_dead_letters=place.told,
    )


def without_answer(able: Capabilities, error: RedeliveryError) -> Capabilities:
    """Return the capabilities for the first consumer of a user who may not ask: with a caution."""
    needs = "" if able.management_address is None else rights(able.management_address)
    caution = (
        f"{UNTOLD} where its own settings put dead letters ({error}): copies go to "
        f"{able.dead_letter_destination}; give this user {needs}, or name the place "
        "(redelivery.deadLetterDestination)"
    )
    return replace(able, caution=caution)


def _found(source: Destination) -> AskingPlace:
    address, _, queue = source.name.partition("::")
    if queue or source.kind == "topic":
        (told,) = yield (settings_of(address),)
    else:
        queue = address
        told, listed = yield (settings_of(address), listing("name", queue))
        # A queue is found by its own name, and can belong to an address with another one, whose settings count.
        for found in queues_in(listed, "name", queue):
            if found["address"] != address:
                address = found["address"]
                (told,) = yield (settings_of(address),)
    settings = DeadLetterSettings.of(address, json.loads(told))
    if settings is None:
        return None
    field, value = ("address", settings.address) if settings.queue is None else ("name", settings.queue)
    (listed,) = yield (listing(field, value),)
    queues = queues_in(listed, field, value)
    target, make = _target(settings, queues, address)
    if make is not None and field == "address":
        # Artemis makes no second queue of a name, and calls that done.
        name = target["name"]
        (listed,) = yield (listing("name", name),)
        target, make = next(((each, None) for each in queues_in(listed, "name", name)), (target, make))
    told_by = f"the dead-letter-address of {address}"
    if settings.queue is not None:
        told_by += ", which has a queue for each address"
    return OwnPlace(
        _sent_to(target, apart=any(_takes_part(one, target, address) for one in queues)),
        address,
        told_by,
        returns=settings.address == address if source.kind == "topic" else target["name"] == queue,
        make=make,
        problem=_problem(target, settings, address),
    )


def _target(
    settings: DeadLetterSettings, queues: Sequence[Queue], address: str
) -> tuple[Queue, Question | None]:
    """Return the queue for the dead letters of an address, and the question that makes it, if it is missing."""
    dead = settings.address
    if settings.queue is None:
        keeping = [one for one in queues if not (one["filter"] or loses(one))]
        if keeping:
            # Several subscribers of a dead-letter address: the first by name.
            return min(
                keeping, key=lambda one: (one["routingType"] != "ANYCAST", one["name"] != dead, one["name"])
            ), None
        if not queues:
            return _made(dead, dead, "ANYCAST", "")
    # The broker drops what no queue of the address takes: its others have filters, or do not last.
    name = settings.queue or f"{PREFIX}{address}"
    there = next((one for one in queues if one["name"] == name), None)
    return (there, None) if there is not None else _made(name, dead, "MULTICAST", origin_filter(address))


def _takes_part(queue: Queue, target: Queue, address: str) -> bool:
    """True if a queue may get what is sent to the address of another one, `target`: a copy of it, or in its turn.

    A filter is not evaluated, but that of the dead letters of another address.
    """
    condition = queue["filter"]
    others = condition.startswith(f"{ORIGIN} = ") and condition != origin_filter(address)
    return queue["name"] != target["name"] and not (others and not loses(queue))


def _sent_to(queue: Queue, *, apart: bool = False) -> str:
    """Return the destination for copies to a queue: by its address and name, if its name alone might not reach it.

    `apart`: another queue of its address may get them, too, or instead.
    """
    if queue["routingType"] == "ANYCAST" and queue.get("autoDelete") != "true" and not apart:
        return qualified_queue(queue)
    return f"native://{queue['address']}::{queue['name']}"


def _problem(target: Queue, settings: DeadLetterSettings, address: str) -> str:
    queue = f"the queue {target['address']}::{target['name']}"
    if target["address"] != settings.address or takes_only(target, address):
        return f"{queue} does not take the dead letters of {address}"
    if why := loses(target):
        return f"{queue} {why}"
    try:
        Destination.parse(_sent_to(target))
    except ConfigurationError as error:
        return str(error)
    return ""


def _made(name: str, address: str, routing: str, condition: str) -> tuple[Queue, Question]:
    """Return a durable queue that stays when its last message is taken, and the question that makes it."""
    asked: dict[str, Any] = {
        "name": name,
        "address": address,
        "routing-type": routing,
        "durable": True,
        "auto-create-address": True,
        "auto-delete": False,
    }
    if condition:
        asked["filter-string"] = condition
    queue = {"name": name, "address": address, "routingType": routing, "filter": condition}
    # True: no error if another consumer has made it meanwhile.
    return queue, Question(CREATE, (json.dumps(asked), True))
