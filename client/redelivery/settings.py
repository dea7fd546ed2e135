"""What a connection URI says, as one value: where to connect, which policies, how to consume."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from redelivery.core.breaker import Breaker
from redelivery.core.policy.policy_map import RedeliveryPolicyMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.dead_lettering.strategies import DiscardingStrategy, IndividualStrategy
    from redelivery.core.rate import Rate

__all__ = [
    "MORE_QUEUE_ARGUMENTS",
    "QUEUE_ARGUMENTS",
    "BrokerName",
    "DeadLetterRoute",
    "Endpoint",
    "FailoverSettings",
    "Ordering",
    "QueueArguments",
    "Secret",
    "Settings",
    "TlsSettings",
]

Ordering = Literal["blocking", "non_blocking", "per_group"]
BrokerName = Literal["auto", "activemq", "artemis", "qpid-broker-j", "rabbitmq"]
DeadLetterRoute = Literal["auto", "ack", "forward", "discard"]
QueueArguments = tuple[tuple[str, str], ...]
QUEUE_ARGUMENTS = frozenset({
    "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-expires", "x-max-length", "x-max-length-bytes",
    "x-max-priority", "x-message-ttl", "x-queue-type",
})  # fmt: skip
"""What RabbitMQ declares a queue with when it is asked over STOMP. It ignores others, `x-delivery-limit` among them."""
MORE_QUEUE_ARGUMENTS = QUEUE_ARGUMENTS | {
    "x-consumer-disconnected-timeout", "x-consumer-timeout", "x-dead-letter-strategy", "x-delayed-retry-max",
    "x-delayed-retry-min", "x-delayed-retry-type", "x-delivery-limit", "x-max-in-memory-bytes", "x-overflow",
    "x-quorum-initial-group-size", "x-single-active-consumer",
}  # fmt: skip
"""The same over AMQP 1.0, of RabbitMQ 4."""


class Secret:
    """A text that no repr, str, log or error shows. `reveal()` gives it; pickling keeps it, in clear text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Hide `text`."""
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the broker alone."""
        return self._text

    def __eq__(self, other: object) -> bool:
        """Whether both hide the same text."""
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        """Return the hash of the text."""
        return hash((Secret, self._text))

    def __repr__(self) -> str:
        """Show three stars, however long the text is."""
        return "***"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a broker. For `memory://name` the host is the name and the port 0."""

    scheme: str
    host: str
    port: int

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("stomp+ssl", "amqps")

    def __str__(self) -> str:
        """Return the address as a URI, without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}" if self.port else f"{self.scheme}://{host}"


@dataclass(frozen=True, slots=True)
class FailoverSettings:
    """How to reconnect. Durations are seconds; defaults are those of Classic's failover transport 6.1.7."""

    initial_reconnect_delay: float = 0.01
    """The first pause, from which back-off starts. Qpid calls it `failover.reconnectDelay`."""
    max_reconnect_delay: float = 30.0
    use_exponential_back_off: bool = True
    back_off_multiplier: float = 2.0
    max_reconnect_attempts: int = -1
    """Attempts after a loss before giving up; -1 is no limit, 0 does not reconnect."""
    startup_max_reconnect_attempts: int | None = None
    """Rounds over the addresses for the first connection; None: each address once; -1 is no limit."""
    randomize: bool = False
    """Whether the addresses are tried in random order. True for `failover:` unless it says otherwise."""
    warn_after_reconnect_attempts: int = 10
    """A warning is logged each time after this many failed attempts; 0 or less: never."""
    timeout: float | None = None
    """How long a send may wait for a connection; None is no limit of its own."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Certificates for `stomp+ssl` and `amqps`. File names as given; nothing is read while parsing."""

    ca_file: str | None = None
    """PEM file of the authorities to trust; None: the system's."""
    cert_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    verify: bool = True
    """Whether the broker's certificate and host name are checked."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a connection URI says. Durations are seconds. Made by `parse_uri`; safe to log."""

    scheme: str
    """The scheme of the first endpoint, which names the adapter."""
    endpoints: tuple[Endpoint, ...]
    policies: RedeliveryPolicyMap = field(default_factory=RedeliveryPolicyMap)
    has_policies: bool = False
    """Whether the URI itself sets a redelivery policy option."""
    credit: int | None = None
    """Messages that a queue consumer may have unsettled; None: `auto`, by the rate of its handlers."""
    topic_credit: int = 1000
    durable_topic_credit: int = 1000
    max_parked: int | None = None
    """Messages that may wait for a redelivery; None: not given."""
    ordering: Ordering = "non_blocking"
    client_id: str | None = None
    user_name: str | None = field(default=None, repr=False)
    password: Secret | None = field(default=None, repr=False)
    failover: FailoverSettings = field(default_factory=FailoverSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    heartbeat: float = 10.0
    """Seconds between heart-beats, asked for in both directions."""
    connect_timeout: float = 10.0
    """Seconds for one address: TCP, TLS and login together."""
    send_timeout: float | None = None
    """Seconds for the connection to stand and the broker to confirm a message; None: not given, 30."""
    maximum_header_bytes: int = 2**24
    """Most bytes of one STOMP frame's headers; a longer one ends the connection."""
    maximum_message_bytes: int = 2**28
    """Most bytes of one STOMP message's body; a larger one ends the connection."""
    broker: BrokerName = "auto"
    """Which broker it is; `auto`: what it says of itself."""
    virtual_host: str | None = None
    """None: the adapter's own default."""
    consumer_timeout: float | None = None
    """Seconds that RabbitMQ 4.3 is asked to let a consumer hold a message; None: as a policy needs; 0: not asked."""
    queue_arguments: QueueArguments = ()
    """What RabbitMQ declares a queue with that is consumed from or sent to; nothing: the virtual host's default."""
    dead_letter_arguments: QueueArguments = ()
    """The same for the dead-letter queue."""
    dead_letter: DeadLetterRoute = "auto"
    dead_letter_destination: str | None = None
    """Qualified (`queue://name`); None: the broker's own default."""
    dead_letter_strategy: Literal["shared", "individual", "discarding"] = "shared"
    individual: IndividualStrategy | None = None
    """How the individual dead-letter destinations are called; None: another strategy."""
    discarding: DiscardingStrategy | None = None
    """Which dead letters are dropped; None: another strategy."""
    report_interval: int = 1000
    """Discarding: a line in the log for each so many dropped; 0: none."""
    send_exhausted: bool = True
    """Whether what has used up its redeliveries is dead-lettered; Classic's `sendToDlqIfMaxRetriesExceeded`."""
    fallback: bool = True
    """Whether one that no entry of the policy map serves is dead-lettered; Classic's `fallbackToDeadLetter`."""
    dead_letter_expiration: float = 0.0
    """Seconds that a forwarded copy lives; 0 is for ever."""
    process_expired: bool = True
    process_non_persistent: bool = True
    """True here; Classic's own default is false, which loses messages."""
    empty_body: Literal["stop", "forward"] = "stop"
    """What is done with a poison message that must be copied, and whose body may have been lost on the way."""
    maximum_deferrals: int = 100
    maximum_set_aside: int = 100
    """Poison messages of one consumer that no copy can be made of, before it stops; 0: it stops at the first."""
    log_each: bool = False
    """Whether each result is a line of the log, in a storm of failures, too."""
    unique_ids: bool = False
    """The user's word that no producer uses an id for two messages."""
    breaker: Breaker | None = field(default_factory=Breaker)
    """When consumers pause because everything fails; None: never."""
    has_breaker: bool = False
    """Whether the URI itself sets an option of the breaker."""
    rate: Rate | None = None
    """How many messages a consumer handles at most; None: no limit."""
    scheduler: Literal["client", "broker"] = "client"
    """Who holds a message until its redelivery is due; `broker`: as a delayed copy."""
    ledger: str | None = None
    """URL of the ledger of attempts (`sqlite:///path`); None: there is none."""
    inapplicable: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """Options of a Java URI that mean nothing here; values of password options are masked."""

    def masked(self, text: str) -> str:
        """Take the credentials out of a broker's words: all of them repeat the user's name."""
        if self.password is not None and (secret := self.password.reveal()):
            text = text.replace(secret, "***")
        if self.user_name:
            text = re.sub(rf"(?<!\w){re.escape(self.user_name)}(?!\w)", "***", text)
        return text

    @property
    def java(self) -> bool:
        """Whether this is a Java client's URI, which can be explained but not connected with."""
        from redelivery.uri.option_table import JAVA_PORTS  # noqa: PLC0415 - it is the parser that knows them

        return self.scheme in JAVA_PORTS
