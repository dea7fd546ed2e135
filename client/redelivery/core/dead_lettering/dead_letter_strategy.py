"""Strategy for the dead letters of some destinations: how a poison message leaves, and where its dead letter goes.

Names and meanings follow ActiveMQ Classic's dead-letter strategies; here the client applies them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from redelivery.core import option_values
from redelivery.core.dead_lettering.safe_regex import SafeRegex
from redelivery.core.destination import Destination
from redelivery.core.option_values import check_mapping, shown
from redelivery.core.policy.policy_map import DestinationPatterns
from redelivery.core.policy.wildcards import check_wildcards, covers, includes, is_pattern, overlap
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import timedelta

    from redelivery.core.capabilities import Capabilities

__all__ = [
    "DeadLetterMap",
    "DeadLetterRoute",
    "DeadLetterStrategy",
    "dead_letter_place",
    "follows_broker",
    "problems",
]


# ---- Dead letter strategy --------------------------------------------------------------------------------

DeadLetterRoute = Literal["auto", "ack", "forward", "discard"]
Kind = Literal["shared", "individual", "discarding"]

SAMPLES = ("x", "x.x")  # of names that `>` matches
AFFIXES = ("queue_prefix", "queue_suffix", "topic_prefix", "topic_suffix")
FLAGS = (
    "use_queue_for_queue_messages", "use_queue_for_topic_messages", "destination_per_durable_subscriber",
    "drop_temporary_queues", "drop_temporary_topics", "process_expired", "process_non_persistent",
)  # fmt: skip
# Options that need the strategy of that name.
NEEDS: dict[str, tuple[str, ...]] = {
    "individual": (*AFFIXES, *FLAGS[:3]),
    "discarding": ("discard", *FLAGS[3:5]),
}


@dataclass(frozen=True, slots=True, repr=False)
class DeadLetterStrategy:
    """How poison and expired messages of some destinations leave, and where their dead letters go.

    Args:
        dead_letter: `ack`: by the broker's own poison acknowledgement. `forward`: as a confirmed copy. `discard`: no
            dead letter. `auto`: the first of `ack` and `forward` that is safe and can do what is configured.
        destination: Destination of copies, one queue, topic or native address; None: the broker's own default.
        strategy: `shared`: one dead-letter destination. `individual`: one for each destination: prefix, name, suffix.
            `discarding`: dead letters are dropped.
        queue_prefix: Individual: prefix for queues. None: the broker's own, such as `DLQ.`.
        queue_suffix: Individual: suffix for queues.
        topic_prefix: Individual: prefix for topics. None: the broker's own.
        topic_suffix: Individual: suffix for topics.
        use_queue_for_queue_messages: Individual: a queue for dead letters of queues; False: a topic, which keeps them
            for its subscribers only.
        use_queue_for_topic_messages: Individual: the same for dead letters of topics.
        destination_per_durable_subscriber: Individual: each durable subscription of a topic has its own, named
            `….clientID:subscription`.
        discard: Discarding: regular expressions between blanks; only dead letters of destinations whose whole name
            matches one are dropped. None: all.
        drop_temporary_queues: Discarding: also those of temporary queues.
        drop_temporary_topics: Discarding: also those of temporary topics.
        expiration: Time that a copy lives, in seconds or a `timedelta`; 0: for ever.
        process_expired: False: expired messages are dropped.
        process_non_persistent: False: non-persistent messages are dropped. Default True, although Classic's own
            default is false, which loses them.

    Raises:
        ConfigurationError: A value is not allowed, or two contradict each other.
    """

    dead_letter: DeadLetterRoute = "auto"
    destination: str | None = None
    strategy: Kind = "shared"
    queue_prefix: str | None = None
    queue_suffix: str = ""
    topic_prefix: str | None = None
    topic_suffix: str = ""
    use_queue_for_queue_messages: bool = True
    use_queue_for_topic_messages: bool = True
    destination_per_durable_subscriber: bool = False
    discard: str | None = None
    drop_temporary_queues: bool = False
    drop_temporary_topics: bool = False
    expiration: float | timedelta = 0.0
    process_expired: bool = True
    process_non_persistent: bool = True
    _discarded: SafeRegex | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the values."""
        given = {name: getattr(self, name) for name in _DEFAULTS}
        # 1 is equal to True, and no default.
        differs = {
            n: v for n, v in given.items() if v != _DEFAULTS[n] or (v is not _DEFAULTS[n] and n in FLAGS)
        }
        for wrong in problems(differs, str):
            raise wrong
        changed: dict[str, Any] = {"expiration": option_values.seconds(self.expiration, "expiration")}
        if self.destination is not None:
            changed["destination"] = str(Destination.parse(self.destination))
        if self.discard is not None:
            changed["_discarded"] = SafeRegex.parse(self.discard)
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Show what differs from the defaults."""
        told = {name: getattr(self, name) for name in _DEFAULTS}
        shown = [f"{name}={value!r}" for name, value in told.items() if value != _DEFAULTS[name]]
        return f"DeadLetterStrategy({', '.join(shown)})"

    @property
    def individual(self) -> bool:
        """True if each destination has a dead-letter destination of its own."""
        return self.strategy == "individual"

    @property
    def keeps_nothing(self) -> bool:
        """True if no dead letter is kept."""
        return self.dead_letter == "discard" or (
            self.strategy == "discarding"
            and self.discard is None
            and not (self.drop_temporary_queues or self.drop_temporary_topics)
        )

    @property
    def lifetime(self) -> float:
        """Seconds that a copy lives; 0: for ever."""
        return option_values.seconds(self.expiration, "expiration")

    def to(self, destination: str) -> DeadLetterStrategy:
        """Return a strategy that keeps all, as copies to this destination, which live as long as those of this one."""
        return DeadLetterStrategy(destination=destination, expiration=self.expiration)

    def drops(self, source: Destination) -> bool:
        """Return True if each dead letter of `source` is dropped."""
        if self.keeps_nothing:
            return True
        if source.is_temporary and (
            self.drop_temporary_topics if source.is_topic else self.drop_temporary_queues
        ):
            return True
        return self._discarded is not None and self._discarded.match(source.name)

    def individual_place(
        self, source: Destination, able: Capabilities, subscriber: str | None
    ) -> Destination:
        """Return the individual dead-letter destination of `source`, a queue or a topic.

        `subscriber`: `clientID:name` of the durable subscription; None: not durable.
        """
        queues, topics = able.individual_prefixes
        if source.is_topic:
            prefix = topics if self.topic_prefix is None else self.topic_prefix
            each = self.destination_per_durable_subscriber and subscriber is not None
            own = f".{subscriber}" if each else ""
            kind = "queue" if self.use_queue_for_topic_messages else "topic"
            return Destination(kind, f"{prefix}{source.name}{own}{self.topic_suffix}")
        prefix = queues if self.queue_prefix is None else self.queue_prefix
        kind = "queue" if self.use_queue_for_queue_messages else "topic"
        return Destination(kind, f"{prefix}{source.name}{self.queue_suffix}")

    def returns_to(self, source: Destination, able: Capabilities, subscriber: str | None) -> str | None:
        """Return an individual destination that the pattern `source` itself consumes; None if none is found."""
        for rest in SAMPLES:
            sample = Destination(
                source.kind, ".".join(_sampled(part, rest) for part in source.name.split("."))
            )
            found = self.individual_place(sample, able, subscriber)
            if covers(source, found):
                return str(found)
        return None


_DEFAULTS: dict[str, object] = {one.name: one.default for one in fields(DeadLetterStrategy) if one.init}


def _sampled(part: str, rest: str) -> str:
    """Return a name that a part of a pattern matches."""
    return {"*": "x", ">": rest}.get(part, part)


def follows_broker(strategy: DeadLetterStrategy, capabilities: Capabilities) -> bool:
    """Return True if no option names a place, and the broker can be asked for its own."""
    return capabilities.tells_dead_letters and not strategy.individual and strategy.destination is None


def dead_letter_place(text: object, name: str) -> Destination:
    """Return one destination that a copy can be sent to; `name`: option or argument that names it, for errors.

    Raises ConfigurationError.
    """
    must = f"{name} must be one queue, topic or native address, without wildcards"
    return _one(text, name, must, masked=_is_masked(text))


def _is_masked(value: object) -> bool:
    """Return True if errors must not repeat a text: it is a URI's, can be a secret, and is no plain `str` then."""
    return isinstance(value, str) and type(value) is not str


def _one(text: object, name: str, must: str, *, masked: bool) -> Destination:
    try:
        found = Destination.parse(text)  # type: ignore[arg-type]  # checked there
    except ConfigurationError as error:
        why = "no destination" if masked else str(error)
        raise ConfigurationError(f"{name}: {why}", option=name) from None
    wild = found.kind != "native" and any(token in ("*", ">") for token in found.name.split("."))
    if found.is_temporary or len(found.members) > 1 or wild or found.options:
        raise ConfigurationError(must, option=name)
    return found


def problems(
    given: Mapping[str, Any], named: Callable[[str], str], *, right: bool = True
) -> Iterator[ConfigurationError]:
    """Yield what is wrong with values of a strategy, by the names of its fields: those that were given.

    `named`: name of a field for the user: the option of a URI, or the argument itself. `right`: False: another value
    was wrong, and contradictions may follow from it; they are looked for only among values that are right.
    """
    wrong = list(_wrong_values(given, named))
    yield from wrong
    if right and not wrong:
        yield from _contradictions(given, named)


def _wrong_values(given: Mapping[str, Any], named: Callable[[str], str]) -> Iterator[ConfigurationError]:
    for one, value in given.items():
        try:
            _check(one, value, named(one))
        except ConfigurationError as error:
            yield error


def _check(one: str, value: object, name: str) -> None:
    if one == "dead_letter":
        option_values.option_choice(value, name, get_args(DeadLetterRoute))
    elif one == "strategy":
        option_values.option_choice(value, name, get_args(Kind))
    elif one == "expiration":
        option_values.seconds(value, name)
    elif one in FLAGS:
        option_values.flag(value, name)
    elif one == "destination":
        dead_letter_place(value, name)
    elif not isinstance(value, str):
        raise option_values.refuse(name, value, "text")
    elif one == "discard":
        _check_patterns(value, name)
    elif value:
        text = str.__str__(value)
        text = f"queue://{text}x" if one.endswith("prefix") else f"queue://x{text}"
        must = f"{name} must make the name of one destination, without wildcards"
        _one(text, name, must, masked=_is_masked(value))


def _check_patterns(text: str, name: str) -> None:
    try:
        SafeRegex.parse(text)
    except ConfigurationError as error:
        why = "a pattern cannot be used" if _is_masked(text) else str(error)
        raise ConfigurationError(f"{name}: {why}", option=name) from None


def _contradictions(given: Mapping[str, Any], named: Callable[[str], str]) -> Iterator[ConfigurationError]:
    kind, route = given.get("strategy", "shared"), given.get("dead_letter", "auto")
    for wanted, names in NEEDS.items():
        for one in names:
            if one in given and kind != wanted:
                yield ConfigurationError(
                    f"{named(one)} needs {named('strategy')}={wanted}, and it is {kind}", option=named(one)
                )
    if kind == "individual":
        yield from _against_individual(given, route, named)
    if kind == "discarding":
        yield from _against_discarding(given, route, named)
    everything = kind == "discarding" and _everything(given)
    if everything or route in ("ack", "discard"):
        why = (
            f"{named('dead_letter')}={route}"
            if route in ("ack", "discard")
            else f"{named('strategy')}={kind}"
        )
        for one in ("destination", "expiration"):
            if one in given:
                yield ConfigurationError(
                    f"{named(one)} is for forwarded copies, and {why} makes none; remove one of them",
                    option=named(one),
                )


def _everything(given: Mapping[str, Any]) -> bool:
    """Return True if a discarding strategy drops each dead letter."""
    return given.get("discard") is None and not any(given.get(one) for one in NEEDS["discarding"][1:])


def _against_individual(
    given: Mapping[str, Any], route: str, named: Callable[[str], str]
) -> Iterator[ConfigurationError]:
    own = f"{named('strategy')}=individual"
    if route in ("ack", "discard"):
        why = {
            "ack": "only copies go to these names, and a poison acknowledgement leaves the name to the broker",
            "discard": "nothing is dead-lettered",
        }[route]
        yield ConfigurationError(
            f"{own} contradicts {named('dead_letter')}={route}: {why}", option=named("strategy")
        )
    elif "destination" in given:
        name = named("destination")
        yield ConfigurationError(f"{name} contradicts {own}: give one of them", option=name)
    for kind in ("queue", "topic"):
        if given.get(f"{kind}_prefix") == "" and not given.get(f"{kind}_suffix"):
            prefix, suffix = named(f"{kind}_prefix"), named(f"{kind}_suffix")
            yield ConfigurationError(
                f"{prefix} is empty, and there is no {suffix}: a dead letter would get the name of its {kind}; give "
                "one of them",
                option=prefix,
            )


def _against_discarding(
    given: Mapping[str, Any], route: str, named: Callable[[str], str]
) -> Iterator[ConfigurationError]:
    everything = _everything(given)
    for one in NEEDS["discarding"][1:]:
        if everything and one in given:
            yield ConfigurationError(
                f"{named(one)}=false has no effect: without {named('discard')} everything is dropped; give "
                f"{named('discard')}",
                option=named(one),
            )
    if route == "discard" or (everything and "dead_letter" in given and route != "auto"):
        name = named("dead_letter")
        yield ConfigurationError(
            f"{name}={route} contradicts {named('strategy')}=discarding: give one of them", option=name
        )


# ---- Dead letter map -------------------------------------------------------------------------------------
# Map from destinations to dead-letter strategies.


class DeadLetterMap:
    """Immutable map from destination patterns to dead-letter strategies; keys and precedence as in a policy map.

    A consumer's own queue or topic is looked up, as on Classic; behind a wildcard, the message's own destination. The
    default serves what no pattern matches; the values of the two are not mixed.
    """

    __slots__ = ("_default", "_entries", "_patterns", "has_default")

    has_default: bool
    """True if a default was given; otherwise `default` is a plain `DeadLetterStrategy`."""

    def __init__(
        self,
        mapping: Mapping[str, DeadLetterStrategy] | Mapping[Destination, DeadLetterStrategy] | None = None,
        default: DeadLetterStrategy | None = None,
    ) -> None:
        """Build a map.

        Args:
            mapping: Strategies by pattern (`queue://orders.>`; a bare name is a queue), in order of registration.
                None: no patterns.
            default: Strategy of destinations that no pattern matches; None: a plain `DeadLetterStrategy`.

        Raises:
            ConfigurationError: A key is no destination or has a wildcard in a wrong place, or a value is no strategy.
        """
        check_mapping(mapping, "DeadLetterMap({'orders.>': DeadLetterStrategy(…)})")
        given = mapping or {}
        self._patterns = DestinationPatterns.classic(given)
        self._entries = tuple(zip(self._patterns.texts, given.values(), strict=True))
        for pattern, strategy in self._entries:
            check_wildcards(Destination.parse(pattern))
            _check_strategy(strategy, f"the dead-letter strategy for {pattern}")
        self.has_default = default is not None
        self._default = DeadLetterStrategy() if default is None else default
        _check_strategy(self._default, "the default dead-letter strategy")

    @property
    def default(self) -> DeadLetterStrategy:
        """Strategy of destinations that no pattern matches."""
        return self._default

    @property
    def entries(self) -> tuple[tuple[str, DeadLetterStrategy], ...]:
        """Patterns, qualified (`queue://orders.>`), and their strategies, in the order of registration."""
        return self._entries

    def strategy_for(self, destination: str | Destination) -> DeadLetterStrategy:
        """Return the strategy that serves `destination`; a bare name is a queue.

        Raises:
            ConfigurationError: The text names no destination.
        """
        index = self._patterns.index(destination)
        return self._default if index is None else self._entries[index][1]

    def pattern_for(self, destination: str | Destination) -> str | None:
        """Return the pattern whose strategy serves `destination`; None: the default serves it.

        Raises:
            ConfigurationError: The text names no destination.
        """
        index = self._patterns.index(destination)
        return None if index is None else self._entries[index][0]

    def serving(self, source: Destination) -> Iterator[DeadLetterStrategy]:
        """Yield the strategies that can serve messages of a consumer.

        One for one queue or topic; for a wildcard all whose pattern has a name in common with it, and the default.
        """
        return (strategy for _, strategy in self.entries_serving(source))

    def entries_serving(self, source: Destination) -> Iterator[tuple[str | None, DeadLetterStrategy]]:
        """Yield the strategies of `serving`, each with its pattern; None: it is the default."""
        if not is_pattern(source):
            yield self.pattern_for(source), self.strategy_for(source)
            return
        default = True
        for pattern, strategy in self._entries:
            members = Destination.parse(pattern).members
            if any(overlap(source, one) for one in members):
                yield pattern, strategy
            # Where a pattern has all names of the source, no message gets the default.
            default = default and not any(includes(one, source) for one in members)
        if default:
            yield None, self._default

    def __iter__(self) -> Iterator[DeadLetterStrategy]:
        """Go through all strategies; the default is the last."""
        yield from (strategy for _, strategy in self._entries)
        yield self._default

    def __eq__(self, other: object) -> bool:
        """Return True if both maps have equal entries in the same order, and equal defaults."""
        if not isinstance(other, DeadLetterMap):
            return NotImplemented
        return (self._entries, self._default) == (other._entries, other._default)

    def __hash__(self) -> int:
        """Return the hash of the patterns."""
        return hash(self._patterns.texts)

    def __repr__(self) -> str:
        """Show the entries and the default."""
        return f"DeadLetterMap({dict(self._entries)!r}, default={self._default!r})"


def _check_strategy(strategy: object, name: str) -> None:
    if not isinstance(strategy, DeadLetterStrategy):
        raise ConfigurationError(f"{name} must be a DeadLetterStrategy, not {shown(strategy)}")
