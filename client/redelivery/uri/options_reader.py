"""Reader of connection URI options: conversions by the table, and rules between options, group by group."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast

from redelivery.core import option_values
from redelivery.core.breaker import Breaker
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, DeadLetterStrategy, problems
from redelivery.core.dispatch_gate import Rate
from redelivery.core.policy import redelivery_policy
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import ConfigurationError, listed, near_miss
from redelivery.ledger import check_url
from redelivery.settings import (
    MORE_QUEUE_ARGUMENTS,
    QUEUE_ARGUMENTS,
    FailoverSettings,
    Ordering,
    QueueArguments,
    Secret,
    TlsSettings,
)
from redelivery.uri.option_table import (
    DEAD_LETTER_MAP_PREFIX,
    MAP_PREFIX,
    OPTIONS,
    OUR_MAP_PREFIX,
    OUR_POLICY,
    POLICY,
    STRATEGY_NAMES,
)
from redelivery.uri.syntax import name_repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterRoute
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.settings import BrokerName
    from redelivery.uri.option_table import Option

__all__ = [
    "DEAD_LETTER_OPTIONS",
    "OUTCOME",
    "Mistakes",
    "OptionsReader",
    "breaker",
    "check_subscribers",
    "dead_letters",
    "failover",
    "given_policies",
    "ledger",
    "mapped_option",
    "mapped_strategy_option",
    "of_a_pattern",
    "of_rabbitmq",
    "ordering",
    "rate",
    "scheduler",
    "tls",
]


# ---- Options reader --------------------------------------------------------------------------------------

T = TypeVar("T")


class OptionsReader:
    """Converts the options that were given, by the table; an option that was not given is its default.

    A value that cannot be converted raises ConfigurationError. With `mistakes` it is added there, and the default is
    returned, so that the other options are read as well.
    """

    __slots__ = ("_mistakes", "_outermost", "_refused", "given")

    def __init__(self, given: Mapping[str, str], mistakes: Mistakes | None = None) -> None:
        """Read from `given`: values by canonical option name."""
        self.given = given
        self._mistakes = mistakes
        # Refusals. A value that two parts read is refused twice, and is one mistake.
        self._refused = 0
        # Refusals, and one, when the outermost part began; 0 outside of parts.
        self._outermost = 0

    def refuse(self, error: ConfigurationError) -> None:
        """Raise an error over one option, or add it to the mistakes."""
        if self._mistakes is None:
            raise error
        self._refused += 1
        self._mistakes.add(error)

    def part(self, step: Callable[[OptionsReader], T], otherwise: Callable[[], T] | None = None) -> T:
        """Return what a step reads.

        With `mistakes`, if it raises: what `otherwise` returns, or what the step reads where no option is given.
        """
        if self._mistakes is None:
            return step(self)
        before, self._outermost = self._outermost, self._outermost or self._refused + 1
        try:
            return step(self)
        except ConfigurationError as error:
            # A contradiction may follow from a wrong value of the same part.
            if self._refused < self._outermost:
                self.refuse(error)
            return step(OptionsReader({})) if otherwise is None else otherwise()
        finally:
            self._outermost = before

    def alone(self, step: Callable[[OptionsReader], T], otherwise: T) -> T:
        """Return what a step reads of one option; with `mistakes`, `otherwise` if it raises."""
        try:
            return step(self)
        except ConfigurationError as error:
            self.refuse(error)
            return otherwise

    def _value(self, name: str, default: T, convert: Callable[[str], T]) -> T:
        if name not in self.given:
            return default
        try:
            return convert(self.given[name])
        except ConfigurationError as error:
            self.refuse(error)
            return default

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean option."""
        return self._value(name, default, lambda value: option_values.option_flag(value, name))

    def whole(self, name: str, default: int) -> int:
        """Return a whole number, bounded by the table's lower bound and Java's int."""
        found = self.whole_or_none(name)
        return default if found is None else found

    def whole_or_none(self, name: str) -> int | None:
        """Return a whole number, or None where it was not given."""

        def convert(value: str) -> int | None:
            return option_values.option_whole(value, name, OPTIONS[name].low, option_values.MAX_INT)

        return self._value(name, None, convert)

    def seconds(self, name: str, default: float) -> float:
        """Return a duration given in milliseconds as seconds."""
        return self._value(
            name, default, lambda value: option_values.option_ms(value, name, OPTIONS[name].low) / 1000
        )

    def real(self, name: str, default: float, low: float = 0.0) -> float:
        """Return a finite number."""
        return self._value(name, default, lambda value: option_values.option_real(value, name, low))

    def text(self, name: str, *, empty: bool = False) -> str | None:
        """Return a text, or None where it was not given. `empty`: it can be empty."""

        def convert(value: str) -> str | None:
            if not value.strip() and not (empty and not value):
                raise ConfigurationError(f"{name} must not be empty", option=name)
            return str(value)

        return self._value(name, None, convert)

    def choice(self, name: str, default: str) -> str:
        """Return one of the words that the table allows."""
        return self._value(
            name, default, lambda value: option_values.option_choice(value, name, OPTIONS[name].choices)
        )

    def fields_of(self, group: type) -> dict[str, Any]:
        """Return the fields of a group of settings that an option sets by itself, also by one of its other names."""
        names: dict[str, list[Option]] = {}
        for option in OPTIONS.values():
            if option.field is not None and option.field.group is group:
                names.setdefault(option.field.name, []).append(option)
        return {
            field: self._field(OPTIONS[self.one_of(*(each.name for each in them))])
            for field, them in names.items()
        }

    def _field(self, option: Option) -> Any:
        assert option.field is not None, "it has one"
        name, default = option.name, option.field.default()
        readers: dict[str, Callable[[], Any]] = {
            "boolean": lambda: self.flag(name, default),
            "integer": lambda: self.whole_or_none(name) if default is None else self.whole(name, default),
            "milliseconds": lambda: self.seconds(name, default),
            "number": lambda: self.real(name, default, option.low),
            "choice": lambda: self.choice(name, default),
            "secret": lambda: None if (text := self.text(name)) is None else Secret(text),
        }
        return readers.get(option.kind, lambda: self.text(name))()

    def one_of(self, *names: str) -> str:
        """Return which of several names for one setting was given, the first if none; two are refused."""
        present = [name for name in names if name in self.given]
        if len(present) > 1:
            self.refuse(
                ConfigurationError(
                    f"{present[0]} and {present[1]} are the same setting: give one of them", option=present[1]
                )
            )
        return present[0] if present else names[0]


def ordering(read: OptionsReader, *, java: bool) -> Ordering:
    """Return the ordering: as given, else blocking for a Java URI (the reference's default)."""
    name, java_name = "redelivery.ordering", "jms.nonBlockingRedelivery"
    non_blocking = read.flag(java_name, not java)
    implied = "non_blocking" if non_blocking else "blocking"
    chosen = read.choice(name, implied)
    if java_name in read.given and name in read.given and (chosen == "blocking") is non_blocking:
        raise ConfigurationError(
            f"{name}={chosen} contradicts {java_name}={str(non_blocking).lower()}", option=name
        )
    return cast("Ordering", chosen)


def scheduler(read: OptionsReader, *, java: bool) -> Literal["client", "broker"]:
    """Return where a message waits for its redelivery: the broker cannot keep an order."""
    name = "redelivery.scheduler"
    chosen = cast("Literal['client', 'broker']", read.choice(name, "client"))
    order = ordering(read, java=java)
    if chosen == "broker" and order != "non_blocking":
        raise ConfigurationError(
            f"{name}=broker cannot keep an order, because a copy goes behind the other messages: use "
            f"redelivery.ordering=non_blocking, not {order}",
            option=name,
        )
    return chosen


def rate(read: OptionsReader) -> Rate | None:
    """Return the limit of the rate, given as messages a second."""
    name = "redelivery.rate"
    if name not in read.given:
        return None
    a_second = read.real(name, 0.0)
    if a_second <= 0:
        raise option_values.refuse(name, read.given[name], "a number of messages a second of more than 0")
    return Rate(a_second)


def failover(read: OptionsReader, *, enabled: bool) -> FailoverSettings:
    """Return how to reconnect. `enabled`: the URI is a `failover:` URI; it shuffles its addresses."""
    fields = read.fields_of(FailoverSettings)
    first = read.one_of("initialReconnectDelay", "failover.initialReconnectDelay", "failover.reconnectDelay")
    longest = read.one_of("maxReconnectDelay", "failover.maxReconnectDelay")
    startup = read.one_of("startupMaxReconnectAttempts", "failover.startupMaxReconnectAttempts")
    order = read.one_of("randomize", "failover.randomize")
    timeout = read.seconds("timeout", -0.001)
    made = FailoverSettings(
        **fields,
        startup_max_reconnect_attempts=read.whole_or_none(startup),
        randomize=read.flag(order, enabled),
        timeout=None if timeout < 0 else timeout,
    )
    both = first in read.given and longest in read.given
    if both and made.initial_reconnect_delay > made.max_reconnect_delay:
        raise ConfigurationError(f"{first} must not be longer than {longest}", option=first)
    return made


def tls(read: OptionsReader) -> TlsSettings:
    """Return the certificates."""
    made = TlsSettings(**read.fields_of(TlsSettings))
    if made.cert_file is None and (made.key_file is not None or made.key_password is not None):
        name = "redelivery.tlsKeyFile" if made.key_file is not None else "redelivery.tlsKeyPassword"
        raise ConfigurationError(f"{name} needs redelivery.tlsCertFile", option=name)
    if not made.verify and made.ca_file is not None:
        raise ConfigurationError(
            "redelivery.tlsCaFile contradicts redelivery.tlsVerify=false", option="redelivery.tlsVerify"
        )
    return made


class RabbitMQFields(TypedDict):
    """Fields of `Settings` for RabbitMQ alone."""

    consumer_timeout: float | None
    queue_arguments: QueueArguments
    dead_letter_arguments: QueueArguments


def of_rabbitmq(read: OptionsReader, *, amqp: bool) -> RabbitMQFields:
    """Return the settings for RabbitMQ alone; over `amqp` queues have more arguments."""
    known = MORE_QUEUE_ARGUMENTS if amqp else QUEUE_ARGUMENTS
    return {
        "consumer_timeout": (
            read.seconds("redelivery.consumerTimeout", 0.0)
            if "redelivery.consumerTimeout" in read.given
            else None
        ),
        "queue_arguments": read.alone(lambda one: _arguments(one, "redelivery.queueArguments", known), ()),
        "dead_letter_arguments": read.alone(
            lambda one: _arguments(one, "redelivery.deadLetterArguments", known), ()
        ),
    }


def _arguments(read: OptionsReader, name: str, known: Collection[str]) -> QueueArguments:
    """Return the arguments of a queue's declaration: `name:value,name:value`."""
    text = read.text(name)
    pairs = [part.partition(":") for part in text.split(",")] if text is not None else []
    found = {argument.strip(): value.strip() for argument, _, value in pairs}
    for argument, colon, _ in pairs:
        if not colon or argument.strip() not in known:
            raise option_values.refuse(
                name,
                read.given[name],
                f"name:value,name:value with names out of {', '.join(sorted(known))}",
            )
    if len(found) < len(pairs):
        raise ConfigurationError(f"{name} gives one argument twice", option=name)
    return tuple(found.items())


def ledger(read: OptionsReader) -> str | None:
    """Return the URL of the ledger."""
    url = read.text("redelivery.ledger")
    if url is not None:
        check_url(read.given["redelivery.ledger"], "redelivery.ledger")
    return url


# ---- Breaker options -------------------------------------------------------------------------------------
# Reader of a connection URI's breaker options; contradictions are refused.

SWITCH = "redelivery.breaker"


class BreakerFields(TypedDict):
    """Fields of `Settings` for the breaker."""

    breaker: Breaker | None
    has_breaker: bool


def breaker(read: OptionsReader) -> BreakerFields:
    """Return the breaker of consumers; None if it is switched off."""
    switch = read.choice(SWITCH, "on")
    given = [name for name in read.given if name.startswith(SWITCH)]
    values = [name for name in given if name != SWITCH]
    if switch == "off" and values:
        raise ConfigurationError(f"{SWITCH}=off contradicts {values[0]}", option=values[0])
    counted = f"{SWITCH}Failures"
    if switch == "named" and counted in values:
        raise ConfigurationError(
            f"{SWITCH}=named contradicts {counted}: with it, only exceptions of Classifier().trip() open the "
            "breaker; remove one of the two",
            option=counted,
        )
    return {"breaker": None if switch == "off" else _read_breaker(read, switch), "has_breaker": bool(given)}


def _read_breaker(read: OptionsReader, switch: str) -> Breaker:
    longest = read.seconds(f"{SWITCH}MaximumOpen", 43200.0)
    failures = read.whole(f"{SWITCH}Failures", Breaker().failures)
    made = Breaker(failures=0 if switch == "named" else failures)
    return replace(made, maximum_open=longest or None)


# ---- Dead letter options ---------------------------------------------------------------------------------
# Reader of a connection URI's options for poison and expired messages; contradictions are refused.
#
# The connection's own strategy is `redelivery.deadLetter…` and its neighbours; that of a pattern is
# `redelivery.deadLetterMap.<pattern>.<option>`. Both are read by the same rules.

OUTCOME = "jms.redeliveryPolicy.outcome"
_OUTCOMES = ("ACCEPTED", "REJECTED", "RELEASED", "MODIFIED_FAILED", "MODIFIED_FAILED_UNDELIVERABLE")
SCHEDULER = "redelivery.scheduler"
STRATEGY_OPTIONS = {short: re.sub("([A-Z])", r"_\1", short).lower() for short in STRATEGY_NAMES}
"""Options of a pattern in a map, and the fields of `DeadLetterStrategy` that they set."""
DEAD_LETTER_OPTIONS = frozenset({
    *STRATEGY_NAMES.values(), "redelivery.emptyBody", "redelivery.fallbackToDeadLetter", "redelivery.reportInterval",
    "redelivery.sendToDlqIfMaxRetriesExceeded",
})  # fmt: skip
"""Options of a connection about dead letters, but those of a map."""
_OF_FIELDS = {field: short for short, field in STRATEGY_OPTIONS.items()}


class DeadLetterFields(TypedDict):
    """Fields of `Settings` for dead letters."""

    dead_letters: DeadLetterMap
    has_dead_letters: bool
    report_interval: int
    send_exhausted: bool
    fallback: bool
    empty_body: Literal["stop", "forward"]
    broker: BrokerName


def mapped_strategy_option(option: str, *, quiet: bool) -> str:
    """Return the key of an option of one pattern: the name of the connection's own option.

    Raises ConfigurationError if there is no such option.
    """
    if option in STRATEGY_OPTIONS:
        return STRATEGY_NAMES[option]
    prefix = f"{DEAD_LETTER_MAP_PREFIX}<pattern>."
    if (own := of_a_pattern(f"redelivery.{option}")) is not None:
        why = f" {option}: write {prefix}{own}"
    else:
        allowed = "; allowed: " + ", ".join(STRATEGY_OPTIONS)
        shown = f" {option}" if name_repeats(option, quiet=quiet) else " (name not shown)"
        why = f"{shown}{near_miss(option, tuple(STRATEGY_OPTIONS)) or allowed}"
    raise ConfigurationError(
        f"{prefix}<option> has an unknown option{why}", option=DEAD_LETTER_MAP_PREFIX[:-1]
    )


def of_a_pattern(name: str) -> str | None:
    """Return the option of a pattern for what an option of a connection is, by its full name; None: there is none."""
    return next((short for short, own in STRATEGY_NAMES.items() if own == name), None)


def dead_letters(
    read: OptionsReader,
    patterns: Mapping[str, Mapping[str, str]],
    places: DeadLetterMap | None = None,
    *,
    quiet: bool,
) -> DeadLetterFields:
    """Return the settings for poison and expired messages.

    `patterns`: for each, values by the names that `mapped_strategy_option` returns. `places`: strategies that are given
    beside the options.
    """
    default = _strategy(read, _with_outcome(read), lambda short: STRATEGY_NAMES[short])
    mapping: dict[str, DeadLetterStrategy] = {}
    for pattern, options in patterns.items():
        prefix = f"{DEAD_LETTER_MAP_PREFIX}{'<pattern>' if quiet else pattern}."
        found = _strategy(read, options, lambda short, prefix=prefix: f"{prefix}{short}")  # type: ignore[misc]
        if found is not None:
            mapping[pattern] = found
    made = DeadLetterMap(mapping, default)
    read.part(lambda one: _check_connection(one, made))
    read.part(lambda one: _check_effects(one, made if places is None else places, named=places is None))
    return {
        "dead_letters": made,
        "has_dead_letters": bool(patterns) or default is not None,
        "report_interval": read.whole("redelivery.reportInterval", 1000),
        "send_exhausted": read.flag("redelivery.sendToDlqIfMaxRetriesExceeded", True),  # noqa: FBT003
        "fallback": read.flag("redelivery.fallbackToDeadLetter", True),  # noqa: FBT003
        "broker": cast("BrokerName", read.choice("redelivery.broker", "auto")),
        "empty_body": cast("Literal['stop', 'forward']", read.choice("redelivery.emptyBody", "stop")),
    }


def _strategy(
    read: OptionsReader, options: Mapping[str, str], named: Callable[[str], str]
) -> DeadLetterStrategy | None:
    """Return one strategy; None without any option, or where it was refused and that is a mistake of several.

    `options`: values by the names of the connection's own options. `named`: name of a short option, for errors.
    """
    given: dict[str, Any] = {}
    right = True
    for short, name in STRATEGY_NAMES.items():
        if name in options:
            try:
                given[STRATEGY_OPTIONS[short]] = _value(options[name], OPTIONS[name].kind, name, named(short))
            except ConfigurationError as error:
                right = False
                read.refuse(error)
    wrong = list(problems(given, lambda field: named(_OF_FIELDS[field]), right=right))
    for each in wrong:
        read.refuse(each)
    plain: dict[str, Any] = {
        field: str(value) if isinstance(value, str) else value for field, value in given.items()
    }
    return DeadLetterStrategy(**plain) if given and right and not wrong else None


def _value(value: str, kind: str, name: str, shown: str) -> object:
    """Return the value of an option; texts are checked with the strategy. Raises ConfigurationError."""
    match kind:
        case "boolean":
            return option_values.option_flag(value, shown)
        case "milliseconds":
            return option_values.option_ms(value, shown) / 1000
        case "choice":
            return option_values.option_choice(value, shown, OPTIONS[name].choices)
        case "destination":
            return value
        case _:
            affix = name.endswith(("Prefix", "Suffix"))
            # An empty prefix is not the broker's own: `orders.DLQ` has a suffix only.
            if not value.strip() and not (affix and not value):
                raise ConfigurationError(f"{shown} must not be empty", option=shown)
            return value


def _with_outcome(read: OptionsReader) -> Mapping[str, str]:
    """Return the options, with Qpid JMS's name for the route as ours."""
    name = STRATEGY_NAMES["deadLetter"]
    outcome = read.part(_outcome, lambda: None)
    if outcome is None:
        return read.given
    if name in read.given:
        read.refuse(
            ConfigurationError(f"{OUTCOME} and {name} are the same setting: give one of them", option=OUTCOME)
        )
        return read.given
    return {**read.given, name: outcome}


def _check_connection(read: OptionsReader, made: DeadLetterMap) -> None:
    """Refuse options of the whole connection that contradict its strategies, or have no effect with them."""
    if read.choice(SCHEDULER, "client") == "broker" and any(each.dead_letter == "ack" for each in made):
        raise ConfigurationError(
            f"{SCHEDULER}=broker contradicts redelivery.deadLetter=ack: the broker's own poison acknowledgement "
            "would leave a dead letter with the properties of the last delayed copy; use auto or forward",
            option=SCHEDULER,
        )
    if "jms.clientID" not in read.given:
        check_subscribers(made, STRATEGY_NAMES["destinationPerDurableSubscriber"])


def _check_effects(read: OptionsReader, made: DeadLetterMap, *, named: bool) -> None:
    """Refuse options of a connection that have no effect with its strategies. `named`: options have made these."""
    strategy = STRATEGY_NAMES["strategy"] if named else "strategy"
    if "redelivery.reportInterval" in read.given and not any(each.strategy == "discarding" for each in made):
        raise ConfigurationError(
            f"redelivery.reportInterval needs {strategy}=discarding, and it is {made.default.strategy}",
            option="redelivery.reportInterval",
        )
    if all(each.keeps_nothing for each in made):
        for name in ("redelivery.sendToDlqIfMaxRetriesExceeded", "redelivery.fallbackToDeadLetter"):
            if name in read.given:
                one, route = made.default, STRATEGY_NAMES["deadLetter"] if named else "dead_letter"
                why = f"{route}=discard" if one.dead_letter == "discard" else f"{strategy}={one.strategy}"
                raise ConfigurationError(
                    f"{name} has no effect: {why} keeps no dead letter; remove it", option=name
                )


def check_subscribers(strategies: DeadLetterMap, name: str) -> None:
    """Refuse a dead-letter destination for each durable subscription without a client id. `name`: of its option."""
    if any(each.destination_per_durable_subscriber for each in strategies):
        raise ConfigurationError(f"{name} needs jms.clientID, as durable subscriptions do", option=name)


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


# ---- Policy options --------------------------------------------------------------------------------------
# Reader of policies in a connection URI: the reference's options, and ours.
#
# The reference's are `jms.redeliveryPolicy.*` and `jms.redeliveryPolicyMap.<pattern>.*`. Ours are
# `redelivery.policy.*` and `redelivery.policyMap.<pattern>.*`: a limit of time, and a list of delays. Both may
# describe one policy.

_QPID = "maxRedeliveries"
_DELAYS, _ELAPSED = "delays", "maximumElapsed"
_OURS = (_DELAYS, _ELAPSED)
# More than a list written by hand has, and fewer than fill the memory.
_MOST_DELAYS = 10_000


def mapped_option(prefix: str, option: str, *, quiet: bool) -> str:
    """Return the key of an option of one pattern: its full name without the pattern.

    Raises ConfigurationError if there is no such option.
    """
    name = option[:1].lower() + option[1:]
    if prefix != OUR_MAP_PREFIX:
        if name in _OURS:
            raise ConfigurationError(
                f"{MAP_PREFIX}<pattern>.{name} is not the Java client's: write {OUR_MAP_PREFIX}<pattern>.{name}",
                option=MAP_PREFIX[:-1],
            )
        if POLICY + name not in OPTIONS and not name_repeats(option, quiet=quiet):
            near = near_miss(name, [each.removeprefix(POLICY) for each in OPTIONS if each.startswith(POLICY)])
            raise ConfigurationError(
                f"{MAP_PREFIX}<pattern>.<option> has an unknown option (name not shown){near}",
                option=MAP_PREFIX[:-1],
            )
        return POLICY + option
    if option in _OURS:
        return OUR_POLICY + option
    if POLICY + name in OPTIONS:
        why = f" {name}: write {MAP_PREFIX}<pattern>.{name}"
    else:
        allowed = "; allowed: " + ", ".join(_OURS)
        shown = f" {option}" if name_repeats(option, quiet=quiet) else " (name not shown)"
        why = f"{shown}{near_miss(option, _OURS) or allowed}"
    raise ConfigurationError(
        f"{OUR_MAP_PREFIX}<pattern>.<option> has an unknown option{why}", option=OUR_MAP_PREFIX[:-1]
    )


def given_policies(
    read: OptionsReader, patterns: Mapping[str, Mapping[str, str]], *, quiet: bool
) -> RedeliveryPolicyMap:
    """Return the map that a URI describes. `patterns`: for each, values by the names that `mapped_option` returns.

    Raises ConfigurationError for a value that cannot be honoured, and for options that contradict each other, or adds
    it to the mistakes of `read`.
    """
    default = _read_policy(read, read.given, POLICY, OUR_POLICY)
    mapping: dict[str, Policy] = {}
    for pattern, options in patterns.items():
        shown = "<pattern>" if quiet else pattern
        policy = _read_policy(read, options, f"{MAP_PREFIX}{shown}.", f"{OUR_MAP_PREFIX}{shown}.")
        if policy is not None:
            mapping[pattern] = policy
    return RedeliveryPolicyMap(mapping, default=default)


def _read_policy(
    read: OptionsReader, options: Mapping[str, str], prefix: str, our_prefix: str
) -> Policy | None:
    """Return one policy; None without any option, or where it was refused and that is a mistake of several."""
    try:
        return _policy(options, prefix, our_prefix)
    except ConfigurationError as error:
        alone = list[ConfigurationError]()
        for name, value in options.items():
            try:
                _policy({name: value}, prefix, our_prefix)
            except ConfigurationError as one:
                alone.append(one)
        # Options that are wrong together are reported where none is wrong alone.
        for mistake in alone or [error]:
            read.refuse(mistake)
        return None


def _policy(options: Mapping[str, str], prefix: str, our_prefix: str) -> Policy | None:
    """Return the policy of the default, or of a pattern; None without any option. The prefixes are for errors."""
    theirs: dict[str, object] = {
        name.removeprefix(POLICY): value
        for name, value in options.items()
        if name.startswith(POLICY) and name != OUTCOME
    }
    ours = {name: options[OUR_POLICY + name] for name in _OURS if OUR_POLICY + name in options}
    if not theirs and not ours:
        return None
    elapsed = None
    if _ELAPSED in ours:
        elapsed = redelivery_policy.option_ms(ours[_ELAPSED], our_prefix + _ELAPSED)
    if _DELAYS not in ours:
        if prefix == POLICY:
            _rename_qpids(theirs)
        return RedeliveryPolicy.from_prefixed_options(theirs, prefix, elapsed)
    name = our_prefix + _DELAYS
    if theirs:
        raise ConfigurationError(
            f"{name} is a whole schedule, and its length is the maximum: remove {prefix}{next(iter(theirs))}",
            option=name,
        )
    from redelivery.core.policy.redelivery_policy import DelayListPolicy  # noqa: PLC0415 - most programs need none

    return DelayListPolicy.from_ms(_delays(ours[_DELAYS], name), elapsed)


def _rename_qpids(options: dict[str, object]) -> None:
    """Accept Qpid's name for the maximum, which its client does not take in a policy map."""
    if _QPID not in options:
        return
    if "maximumRedeliveries" in options:
        raise ConfigurationError(
            f"{POLICY}maximumRedeliveries and {POLICY}{_QPID} are the same setting: give one of them",
            option=POLICY + _QPID,
        )
    options["maximumRedeliveries"] = option_values.option_whole(
        options.pop(_QPID), POLICY + _QPID, -1, option_values.MAX_INT
    )


def _delays(text: str, name: str) -> list[int]:
    """Return a list of milliseconds: whole numbers with commas and any blanks between them."""
    words = [word.strip() for word in str(text).split(",")]
    whole = all(word.isascii() and word.isdigit() and len(word) <= 19 for word in words)
    if not whole or any(int(word) > option_values.MAX_LONG for word in words):
        raise option_values.refuse(name, text, "milliseconds with a comma between them, as 1000,5000,30000")
    if len(words) > _MOST_DELAYS:
        raise ConfigurationError(f"{name} has {len(words)} delays; {_MOST_DELAYS} at most", option=name)
    return [int(word) for word in words]


# ---- Mistakes --------------------------------------------------------------------------------------------
# Mistakes of one connection URI, collected, so that one error lists all of them.

Rank = Literal["address", "option", "java"]
_RANKS: tuple[Rank, ...] = ("address", "option", "java")


class Mistakes:
    """Mistakes of one URI: those of its addresses first, then those of options, then the Java client's own options."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, ConfigurationError]] = {}
        self.rewritable = False
        """True if a mistake is one that a rewritten URI does not have: a scheme, or an option to remove or rename."""

    def add(self, error: ConfigurationError, rank: Rank = "option", *, rewritable: bool = False) -> None:
        """Add a mistake; the same text is added once."""
        self._found.setdefault(str(error), (_RANKS.index(rank), error))
        self.rewritable = self.rewritable or rewritable

    def attempt(self, step: Callable[[], object], rank: Rank = "option") -> None:
        """Run a step, and add the ConfigurationError that it raises."""
        try:
            step()
        except ConfigurationError as error:
            self.add(error, rank)

    def __len__(self) -> int:
        """Number of mistakes."""
        return len(self._found)

    def ordered(self) -> list[ConfigurationError]:
        """Return the mistakes, most important first."""
        return [found for _, found in sorted(self._found.values(), key=lambda item: item[0])]

    def error(self, suggestion: str | None = None, left_out: Sequence[str] = ()) -> ConfigurationError:
        """Return (not raise) one error for all.

        Args:
            suggestion: The URI that would work, without credentials; None: none is known.
            left_out: Options that the suggestion leaves out, and that the user may want to correct.
        """
        ordered = self.ordered()
        texts, first = [str(one) for one in ordered], ordered[0]
        without = f" without {', '.join(left_out)}" if left_out else ""
        works = f"this works{without}: {suggestion}"
        if len(texts) == 1:
            text = texts[0] if suggestion is None else f"{texts[0]}; {works}"
        else:
            lines = listed(f"{len(texts)} mistakes in the URI:", texts)
            if suggestion is not None:
                lines.append(works)
            text = "\n".join(lines)
        return ConfigurationError(text, option=first.option, errors=texts, suggestion=suggestion)
