"""Places of the dead letters of a connection: where its settings let them go on this broker."""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from redelivery.core.dead_lettering.artemis_places import (
    ANSWERS,
    ORIGIN,
    PAGE,
    DeadLetterSettings,
    Question,
    answer_of,
    answered,
    answers_to,
    dropped_at,
    elsewhere,
    own_place,
    qualified_queue,
    queues_at,
    repeated,
    rights,
    settings_of,
    where,
)
from redelivery.core.dead_lettering.dead_letter_strategy import follows_broker
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.destination import Destination
from redelivery.core.policy.wildcards import ARTEMIS, check_wildcards, covers, is_pattern
from redelivery.driver.port import ConnectionPort
from redelivery.errors import AdapterError, ConfigurationError, TransportError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterStrategy
    from redelivery.driver.port import ConsumerPort
    from redelivery.settings import Settings

__all__ = [
    "DeadLetterPlaces",
    "Reached",
    "ReachedQueues",
    "dead_letter_places",
    "own_dead_letter_queues",
    "queues_matching",
]


# ---- Dead letter places ----------------------------------------------------------------------------------


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


# ---- Broker management -----------------------------------------------------------------------------------
# Requests to the management of ActiveMQ Artemis over a port, and its lists of queues.

Found = TypeVar("Found")


@contextmanager
def managed(port: ConnectionPort, address: str) -> Generator[BrokerManagement]:
    """Yield the management at an address, with a subscriber for its answers until the end of the block.

    Raises:
        AdapterError: The broker refuses the subscriber.
        TransportError: The connection was lost.
    """
    marks = uuid.uuid4().hex
    plan = port.plan(f"topic://{ANSWERS}", {"selector": answers_to(marks)}, route=Redrive(""))
    with port.consume(plan) as consumer:
        yield BrokerManagement(port, consumer, address, marks)


class BrokerManagement:
    """The management of one broker, one question at a time."""

    def __init__(self, port: ConnectionPort, consumer: ConsumerPort, address: str, marks: str) -> None:
        self._port = port
        self._consumer = consumer
        self._address = address
        self._marks = marks
        self._asked = 0

    def ask(self, question: Question) -> Any:
        """Return the broker's answer; a request that can succeed the next time is repeated.

        Raises:
            AdapterError: The broker refuses to answer this user.
            TransportError: The connection was lost, or nothing has answered in time.
        """
        return repeated(self._ask, question)

    def _ask(self, question: Question) -> Any:
        self._asked += 1
        mark, limit = f"{self._marks}-{self._asked}", self._port.settings.connect_timeout
        self._port.send_connected(question.message(self._address, mark)).wait()
        while (answer := self._consumer.take(timeout=limit)) is not None:
            if answer.correlation_id == mark:
                return answer_of(answer.body, answer.headers)
        raise TransportError(
            f"{self._address} has not answered within {limit:g} s: is it the broker's management address?"
        )

    def answered(self, asking: Generator[tuple[Question, ...], Sequence[Any], Found]) -> Found:
        """Return what a rule finds that yields its questions. Raises as `ask` does, and what the rule raises."""
        return answered(asking, self.ask)

    def queues(self) -> Iterator[Mapping[str, str]]:
        """Yield all queues of the broker. Raises as `ask` does."""
        for page in range(1, 1_000_000):
            told = json.loads(self.ask(Question("listQueues", (where(), page, PAGE))))
            yield from told["data"]
            if page * PAGE >= int(told["count"]):
                return


def holds_messages(queue: Mapping[str, str]) -> bool:
    """Return True for a queue that has messages, and is neither a temporary nor an internal one of the broker."""
    return (
        queue["messageCount"] != "0" and queue["temporary"] != "true" and queue.get("internalQueue") != "true"
    )


# ---- Own dead letter queues ------------------------------------------------------------------------------
# Queues of dead letters by the broker's own settings (ActiveMQ Artemis): those on its dead-letter addresses.

# Addresses that are asked for, one by one: a second on a busy broker.
MOST = 1000


def own_dead_letter_queues(port: ConnectionPort, origins: Sequence[str] = ()) -> tuple[tuple[str, ...], str]:
    """Return the queues of dead letters by the broker's own settings, and why there may be others, or "".

    `origins`: only the queues for the dead letters of these destinations, without wildcards; the usual one, where the
    settings name none that is there. Empty: all queues with messages on the dead-letter address of any address.

    Raises:
        TransportError: The connection was lost, or nothing has answered in time.
    """
    address = port.capabilities.management_address
    assert address is not None, "a broker that tells has one"
    try:
        with managed(port, address) as management:
            if origins:
                usual = port.capabilities.dead_letter_destination
                found = [_place_of(management, Destination.parse(each)) or usual for each in origins]
                return tuple(dict.fromkeys(found)), ""
            names = list(management.ask(Question("getAddressNames", ())))
            dead = set(_dead_letter_addresses(management, names[:MOST]))
            queues = sorted(
                qualified_queue(each)
                for each in management.queues()
                if each["address"] in dead and holds_messages(each)
            )
    except AdapterError as error:
        needs = rights(address)
        return (
            (),
            f"the broker does not name its dead-letter addresses to this user: {error}; give it {needs}",
        )
    more = f"the broker has more than {MOST:,} addresses: name the origin (--destination), or the dead-letter queue"
    return tuple(queues), more if len(names) > MOST else ""


def _dead_letter_addresses(management: BrokerManagement, addresses: Iterable[str]) -> Iterator[str]:
    for address in addresses:
        told = json.loads(management.ask(settings_of(address)))
        found = DeadLetterSettings.of(address, told)
        if found is not None:
            yield found.address


def _place_of(management: BrokerManagement, origin: Destination) -> str | None:
    """Return the queue that a consumer's dead letters go to; None: there is none yet, or none can be used."""
    place = management.answered(own_place(origin))
    return None if place is None or place.make is not None or place.problem else place.destination


# ---- Matching queues -------------------------------------------------------------------------------------
# Queues whose names match a pattern, where the broker's own wildcards are other queues (ActiveMQ Artemis).


class Matching(NamedTuple):
    """Queues whose names match, qualified, in the order of their names."""

    names: tuple[str, ...]
    subscribers: tuple[str, ...]
    """Those of subscribers, which need not be dead letters: they are not looked at."""


def queues_matching(port: ConnectionPort, pattern: Destination) -> Matching:
    """Return the queues with messages whose names match.

    Not among them are temporary queues, the broker's internal ones, and those that it has made for a wildcard, which
    have copies.

    Raises:
        AdapterError: The broker does not list its queues to this user.
        ConfigurationError: It does to none, or the pattern cannot match.
        TransportError: The connection was lost, or nothing has answered in time.
    """
    check_wildcards(pattern)
    address = port.capabilities.management_address
    if address is None:
        raise ConfigurationError(
            f"{pattern}: {port.capabilities.broker} does not list its queues; name each one",
            option="destination",
        )
    try:
        with managed(port, address) as management:
            found = [
                each for each in management.queues() if covers(pattern, Destination("queue", each["name"]))
            ]
    except AdapterError as error:
        raise AdapterError(
            f"{pattern}: the broker does not list its queues to this user: {error}; give it {rights(address)}, or name "
            "each queue"
        ) from error
    there = [one for one in sorted(found, key=itemgetter("name")) if _has_messages(one)]
    return Matching(
        tuple(qualified_queue(one) for one in there if _of_consumers(one)),
        tuple(qualified_queue(one) for one in there if not _of_consumers(one)),
    )


def _has_messages(queue: Mapping[str, str]) -> bool:
    """True for a queue that has messages, and no copies for a wildcard."""
    return holds_messages(queue) and {"*", ARTEMIS.any_words}.isdisjoint(queue["name"].split("."))


def _of_consumers(queue: Mapping[str, str]) -> bool:
    """True for a queue that consumers share."""
    # The filter is that of a queue which the broker has made for the dead letters of one address.
    return queue["routingType"] == "ANYCAST" or queue["filter"].startswith(ORIGIN)


# ---- Reached queues --------------------------------------------------------------------------------------
# Where a message reaches the queue that it is sent to, on ActiveMQ Artemis, by its list of queues.
#
# Artemis confirms and drops what is sent to the name of a queue that belongs to another address, and what a filter
# keeps out (docs/measured/artemis-dead-letter-address.md).


class Reached(NamedTuple):
    """Answer for one destination: where messages for it are sent, and why the broker may drop them there, or ""."""

    destination: str
    dropped: str = ""


class ReachedQueues:
    """Asks over a connection of its own: over STOMP a refused question ends the connection it is asked on.

    A broker that lists no queues, or not to this user, is believed to keep all, and one that does not answer twice in a
    row.
    """

    def __init__(self, uri: str, clock: Clock) -> None:
        self._uri = uri
        self._clock = clock
        self._port: ConnectionPort | None = None
        self._answers = True

    def of(self, destination: str, able: Capabilities) -> Reached:
        """Ask for a destination; `able`: of the broker."""
        place, address = Destination.parse(destination), able.management_address
        if address is None or place.kind not in ("queue", "native"):
            return Reached(destination)
        for last in (False, True):
            if not self._answers:
                break
            try:
                return self._asked(destination, address)
            except AdapterError:
                self._answers = False
            except TransportError:
                # One answer that is lost says nothing about the next one.
                self.close()
                self._answers = not last
        return Reached(destination)

    def _asked(self, destination: str, address: str) -> Reached:
        place = Destination.parse(destination)
        with managed(self.connected(), address) as management:
            queues = management.answered(queues_at(place))
        if (found := elsewhere(place, queues)) is not None:
            destination = f"native://{found['address']}::{found['name']}"
            place, queues = Destination.parse(destination), [found]
        return Reached(destination, dropped_at(place, queues, origin=""))

    def close(self) -> None:
        """End the connection."""
        if self._port is not None:
            self._port.close()
            self._port = None

    def connected(self) -> ConnectionPort:
        """Return the connection, open. Raises as `ConnectionPort.__enter__` does."""
        if self._port is None:
            self._port = ConnectionPort(
                self._uri, clock=self._clock, made_by="redelivery.dead_letters", quiet=True
            )
            self._port.__enter__()
        return self._port
