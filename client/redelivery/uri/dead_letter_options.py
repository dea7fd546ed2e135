"""Reader of a connection URI's options for poison and expired messages; contradictions are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict, cast

from redelivery.core import option_values
from redelivery.core.dead_lettering.safe_regex import SafeRegex
from redelivery.core.dead_lettering.strategies import DiscardingStrategy, IndividualStrategy
from redelivery.core.destination import Destination
from redelivery.errors import ConfigurationError
from redelivery.uri.repeatable import Masked

if TYPE_CHECKING:
    from redelivery.settings import BrokerName, DeadLetterRoute
    from redelivery.uri.options_reader import OptionsReader

__all__ = ["OUTCOME", "SCHEDULER", "DeadLetterFields", "dead_letters"]

OUTCOME = "jms.redeliveryPolicy.outcome"
_OUTCOMES = ("ACCEPTED", "REJECTED", "RELEASED", "MODIFIED_FAILED", "MODIFIED_FAILED_UNDELIVERABLE")
STRATEGY = "redelivery.deadLetterStrategy"
SCHEDULER = "redelivery.scheduler"


class DeadLetterFields(TypedDict):
    """Fields of `Settings` for dead letters."""

    dead_letter: DeadLetterRoute
    dead_letter_destination: str | None
    dead_letter_strategy: Literal["shared", "individual", "discarding"]
    individual: IndividualStrategy | None
    discarding: DiscardingStrategy | None
    report_interval: int
    send_exhausted: bool
    fallback: bool
    dead_letter_expiration: float
    empty_body: Literal["stop", "forward"]
    broker: BrokerName
    process_expired: bool
    process_non_persistent: bool


def dead_letters(read: OptionsReader) -> DeadLetterFields:
    """Return the settings for poison and expired messages."""
    route = read.part(_route)
    if route == "ack" and read.choice(SCHEDULER, "client") == "broker":
        read.refuse(
            ConfigurationError(
                f"{SCHEDULER}=broker contradicts redelivery.deadLetter=ack: the broker's own poison acknowledgement "
                "would leave a dead letter with the properties of the last delayed copy; use auto or forward",
                option=SCHEDULER,
            )
        )
    strategy = read.choice(STRATEGY, "shared")
    individual = read.part(lambda one: _individual(one, strategy, route), lambda: None)
    discarding = read.part(lambda one: _discarding(one, strategy, route), lambda: None)
    destination = read.alone(_dead_letter_destination, None)
    read.part(lambda one: _check_copies(one, route, strategy, discarding))
    return {
        "dead_letter": route,
        "dead_letter_destination": destination,
        "dead_letter_strategy": cast("Literal['shared', 'individual', 'discarding']", strategy),
        "individual": individual,
        "discarding": discarding,
        "report_interval": read.whole("redelivery.reportInterval", 1000),
        "send_exhausted": read.flag("redelivery.sendToDlqIfMaxRetriesExceeded", True),  # noqa: FBT003
        "fallback": read.flag("redelivery.fallbackToDeadLetter", True),  # noqa: FBT003
        "dead_letter_expiration": read.seconds("redelivery.deadLetterExpiration", 0.0),
        "broker": cast("BrokerName", read.choice("redelivery.broker", "auto")),
        "empty_body": cast("Literal['stop', 'forward']", read.choice("redelivery.emptyBody", "stop")),
        "process_expired": read.flag("redelivery.processExpired", True),  # noqa: FBT003
        "process_non_persistent": read.flag("redelivery.processNonPersistent", True),  # noqa: FBT003
    }


def _check_copies(
    read: OptionsReader, route: DeadLetterRoute, strategy: str, discarding: DiscardingStrategy | None
) -> None:
    """Refuse options without effect, because nothing is copied, or nothing is kept."""
    everything = route == "discard" or (discarding is not None and discarding.everything)
    why = "redelivery.deadLetter=discard" if route == "discard" else f"{STRATEGY}={strategy}"
    for name in ("redelivery.deadLetterDestination", "redelivery.deadLetterExpiration"):
        if name in read.given and (everything or route == "ack"):
            why = "redelivery.deadLetter=ack" if route == "ack" else why
            raise ConfigurationError(
                f"{name} is for forwarded copies, and {why} makes none; remove one of them", option=name
            )
    for name in ("redelivery.sendToDlqIfMaxRetriesExceeded", "redelivery.fallbackToDeadLetter"):
        if name in read.given and everything:
            raise ConfigurationError(
                f"{name} has no effect: {why} keeps no dead letter; remove it", option=name
            )


def _needs(read: OptionsReader, strategy: str, wanted: str, *names: str) -> bool:
    """Return True if this is the strategy; refuse its options if it is not."""
    if strategy == wanted:
        return True
    for name in names:
        if f"redelivery.{name}" in read.given:
            raise ConfigurationError(
                f"redelivery.{name} needs {STRATEGY}={wanted}, and it is {strategy}",
                option=f"redelivery.{name}",
            )
    return False


def _individual(read: OptionsReader, strategy: str, route: DeadLetterRoute) -> IndividualStrategy | None:
    affixes = ("queuePrefix", "queueSuffix", "topicPrefix", "topicSuffix")
    flags = ("useQueueForQueueMessages", "useQueueForTopicMessages", "destinationPerDurableSubscriber")
    if not _needs(read, strategy, "individual", *affixes, *flags):
        return None
    if route in ("ack", "discard"):
        why = {
            "ack": "only copies go to these names, and a poison acknowledgement leaves the name to the broker",
            "discard": "nothing is dead-lettered",
        }[route]
        raise ConfigurationError(
            f"{STRATEGY}=individual contradicts redelivery.deadLetter={route}: {why}", option=STRATEGY
        )
    name = "redelivery.deadLetterDestination"
    if name in read.given:
        raise ConfigurationError(f"{name} contradicts {STRATEGY}=individual: give one of them", option=name)
    per_subscriber = read.flag("redelivery.destinationPerDurableSubscriber", False)  # noqa: FBT003
    if per_subscriber and "jms.clientID" not in read.given:
        raise ConfigurationError(
            "redelivery.destinationPerDurableSubscriber needs jms.clientID, as durable subscriptions do",
            option="redelivery.destinationPerDurableSubscriber",
        )
    texts = {each: _affix(read, f"redelivery.{each}") for each in affixes}
    for kind in ("queue", "topic"):
        if texts[f"{kind}Prefix"] == "" and not texts[f"{kind}Suffix"]:
            raise ConfigurationError(
                f"redelivery.{kind}Prefix is empty, and there is no redelivery.{kind}Suffix: a dead letter would get "
                f"the name of its {kind}; give one of them",
                option=f"redelivery.{kind}Prefix",
            )
    return IndividualStrategy(
        texts["queuePrefix"],
        texts["queueSuffix"] or "",
        texts["topicPrefix"],
        texts["topicSuffix"] or "",
        read.flag("redelivery.useQueueForQueueMessages", True),  # noqa: FBT003
        read.flag("redelivery.useQueueForTopicMessages", True),  # noqa: FBT003
        per_subscriber,
    )


def _affix(read: OptionsReader, name: str) -> str | None:
    # An empty prefix is not the broker's own: `orders.DLQ` has a suffix only.
    text = read.text(name, empty=True)
    if text:
        _one(read, name, f"queue://{text}x" if name.endswith("Prefix") else f"queue://x{text}")
    return text


def _discarding(read: OptionsReader, strategy: str, route: DeadLetterRoute) -> DiscardingStrategy | None:
    temporary = {name: f"redelivery.{name}" for name in ("dropTemporaryQueues", "dropTemporaryTopics")}
    if not _needs(read, strategy, "discarding", "discard", *temporary, "reportInterval"):
        return None
    name = "redelivery.discard"
    only = None
    if (text := read.text(name)) is not None:
        try:
            only = SafeRegex.parse(text)
        except ConfigurationError as error:
            why = "a pattern cannot be used" if isinstance(read.given[name], Masked) else str(error)
            raise ConfigurationError(f"{name}: {why}", option=name) from None
    queues, topics = (read.flag(option, False) for option in temporary.values())  # noqa: FBT003
    made = DiscardingStrategy(only, queues, topics)
    if made.everything:
        for option in temporary.values():
            if option in read.given:
                raise ConfigurationError(
                    f"{option}=false has no effect: without {name} everything is dropped; give {name}",
                    option=option,
                )
    if route == "discard" or (made.everything and "redelivery.deadLetter" in read.given and route != "auto"):
        raise ConfigurationError(
            f"redelivery.deadLetter={route} contradicts {STRATEGY}=discarding: give one of them",
            option="redelivery.deadLetter",
        )
    return made


def _route(read: OptionsReader) -> DeadLetterRoute:
    name = "redelivery.deadLetter"
    outcome = _outcome(read)
    if outcome is None:
        return cast("DeadLetterRoute", read.choice(name, "auto"))
    if name in read.given:
        raise ConfigurationError(
            f"{OUTCOME} and {name} are the same setting: give one of them", option=OUTCOME
        )
    return outcome


def _outcome(read: OptionsReader) -> DeadLetterRoute | None:
    """Return the route that stands for Qpid JMS's outcome: a name in any case, or a number from 1."""
    value = read.given.get(OUTCOME)
    if value is None:
        return None
    word = value.upper()
    if word in ("1", "2", "3", "4", "5"):
        word = _OUTCOMES[int(word) - 1]
    if word == "ACCEPTED":
        return "discard"
    if word == "REJECTED":
        return "ack"
    if word == "MODIFIED_FAILED_UNDELIVERABLE":
        raise ConfigurationError(
            f"{OUTCOME}={word} is not supported yet; supported: ACCEPTED, REJECTED", option=OUTCOME
        )
    if word in _OUTCOMES:
        raise ConfigurationError(
            f"{OUTCOME}={word} releases a poison message for ever; allowed: ACCEPTED, REJECTED",
            option=OUTCOME,
        )
    raise option_values.refuse(OUTCOME, value, "one of ACCEPTED, REJECTED")


def _dead_letter_destination(read: OptionsReader) -> str | None:
    name = "redelivery.deadLetterDestination"
    return str(_one(read, name, str(read.given[name]))) if name in read.given else None


def _one(read: OptionsReader, name: str, text: str) -> Destination:
    """Return one destination that a copy can be sent to. Raises ConfigurationError."""
    try:
        found = Destination.parse(text)
    except ConfigurationError as error:
        why = "no destination" if isinstance(read.given[name], Masked) else str(error)
        raise ConfigurationError(f"{name}: {why}", option=name) from None
    wild = found.kind != "native" and any(token in ("*", ">") for token in found.name.split("."))
    if found.is_temporary or len(found.members) > 1 or wild or found.options:
        raise ConfigurationError(
            f"{name} must be one queue, topic or native address, without wildcards"
            if name == "redelivery.deadLetterDestination"
            else f"{name} must make the name of one destination, without wildcards",
            option=name,
        )
    return found
