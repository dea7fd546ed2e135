"""Reader of connection URI options: conversions by the table, and rules between options, group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar, cast

from redelivery.core import option_values
from redelivery.core.rate import Rate
from redelivery.errors import ConfigurationError
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
from redelivery.uri.option_table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from redelivery.uri.mistakes import Mistakes

__all__ = [
    "OptionsReader",
    "failover",
    "ledger",
    "of_rabbitmq",
    "ordering",
    "rate",
    "scheduler",
    "tls",
]

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
    first = read.one_of("initialReconnectDelay", "failover.initialReconnectDelay", "failover.reconnectDelay")
    longest = read.one_of("maxReconnectDelay", "failover.maxReconnectDelay")
    grow = read.one_of("useExponentialBackOff", "failover.useReconnectBackOff")
    growth = read.one_of("backOffMultiplier", "failover.reconnectBackOffMultiplier")
    attempts = read.one_of("maxReconnectAttempts", "failover.maxReconnectAttempts")
    startup = read.one_of("startupMaxReconnectAttempts", "failover.startupMaxReconnectAttempts")
    order = read.one_of("randomize", "failover.randomize")
    warn = read.one_of("warnAfterReconnectAttempts", "failover.warnAfterReconnectAttempts")
    timeout = read.seconds("timeout", -0.001)
    made = FailoverSettings(
        initial_reconnect_delay=read.seconds(first, 0.01),
        max_reconnect_delay=read.seconds(longest, 30.0),
        use_exponential_back_off=read.flag(grow, True),  # noqa: FBT003
        back_off_multiplier=read.real(growth, 2.0, 1.0),
        max_reconnect_attempts=read.whole(attempts, -1),
        startup_max_reconnect_attempts=read.whole_or_none(startup),
        randomize=read.flag(order, enabled),
        warn_after_reconnect_attempts=read.whole(warn, 10),
        timeout=None if timeout < 0 else timeout,
    )
    both = first in read.given and longest in read.given
    if both and made.initial_reconnect_delay > made.max_reconnect_delay:
        raise ConfigurationError(f"{first} must not be longer than {longest}", option=first)
    return made


def tls(read: OptionsReader) -> TlsSettings:
    """Return the certificates."""
    made = TlsSettings(
        ca_file=read.text("redelivery.tlsCaFile"),
        cert_file=read.text("redelivery.tlsCertFile"),
        key_file=read.text("redelivery.tlsKeyFile"),
        key_password=_secret(read, "redelivery.tlsKeyPassword"),
        verify=read.flag("redelivery.tlsVerify", True),  # noqa: FBT003
    )
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


def _secret(read: OptionsReader, name: str) -> Secret | None:
    text = read.text(name)
    return None if text is None else Secret(text)


def ledger(read: OptionsReader) -> str | None:
    """Return the URL of the ledger."""
    url = read.text("redelivery.ledger")
    if url is not None:
        check_url(read.given["redelivery.ledger"], "redelivery.ledger")
    return url
