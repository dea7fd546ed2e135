"""Settings of a connection URI as one value: where to connect, which policies, how to consume."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from redelivery.core.breaker import Breaker
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.uri.schemes import JAVA_PORTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.dispatch_gate import Rate

__all__ = [
    "MORE_QUEUE_ARGUMENTS",
    "QUEUE_ARGUMENTS",
    "BrokerName",
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
QueueArguments = tuple[tuple[str, str], ...]
QUEUE_ARGUMENTS = frozenset({
    "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-expires", "x-max-length", "x-max-length-bytes",
    "x-max-priority", "x-message-ttl", "x-queue-type",
})  # fmt: skip
"""Arguments of a queue declaration that RabbitMQ takes over STOMP.

It ignores others, such as `x-delivery-limit`.
"""
MORE_QUEUE_ARGUMENTS = QUEUE_ARGUMENTS | {
    "x-consumer-disconnected-timeout", "x-consumer-timeout", "x-dead-letter-strategy", "x-delayed-retry-max",
    "x-delayed-retry-min", "x-delayed-retry-type", "x-delivery-limit", "x-max-in-memory-bytes", "x-overflow",
    "x-quorum-initial-group-size", "x-single-active-consumer",
}  # fmt: skip
"""Arguments of a queue declaration that RabbitMQ 4 takes over AMQP 1.0."""


class Secret:
    """Text that no repr, str, log or error shows.

    `reveal()` returns it. Pickling keeps it, in clear text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Hide `text`."""
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the broker alone."""
        return self._text

    def __eq__(self, other: object) -> bool:
        """True if both hide the same text."""
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
    ip: str | None = None
    """The one to use of several addresses that the host's name has; None: the name has one."""
    one_node: bool = False
    """True: these addresses are ways to one node, by IPv4 and IPv6; its text and its identity are those of the name."""

    @property
    def name(self) -> Endpoint:
        """The endpoint as it was written: its name, without one of the addresses."""
        return replace(self, ip=None, one_node=False)

    @property
    def tls(self) -> bool:
        """True if the connection is encrypted."""
        return self.scheme in ("stomp+ssl", "amqps")

    def __str__(self) -> str:
        """Return the address as a URI, without credentials; of a node that shares its name, also the node's IP address.

        Two nodes have two texts: each may give its messages the same ids.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        uri = f"{self.scheme}://{host}:{self.port}" if self.port else f"{self.scheme}://{host}"
        return uri if self.ip is None or self.one_node else f"{uri} ({self.ip})"


@dataclass(frozen=True, slots=True)
class FailoverSettings:
    """Reconnect settings. Durations are seconds; defaults are those of Classic's failover transport 6.1.7."""

    initial_reconnect_delay: float = 0.01
    """First delay, from which back-off starts. Qpid calls it `failover.reconnectDelay`."""
    max_reconnect_delay: float = 30.0
    use_exponential_back_off: bool = True
    back_off_multiplier: float = 2.0
    max_reconnect_attempts: int = -1
    """Attempts after a loss before giving up. -1 is no limit, 0 is no reconnect."""
    startup_max_reconnect_attempts: int | None = None
    """Rounds over the addresses for the first connection. None is each address once, -1 is no limit."""
    randomize: bool = False
    """True if the addresses are tried in random order. True for a failover URI unless it says otherwise."""
    warn_after_reconnect_attempts: int = 10
    """Failed attempts after which a warning is logged, each time. 0 or less is never."""
    timeout: float | None = None
    """Seconds that a send may wait for a connection. None is no limit of its own."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Certificates for `stomp+ssl` and `amqps`. File names as given; no file is read while parsing."""

    ca_file: str | None = None
    """PEM file of the trusted authorities. None is the system's."""
    cert_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    verify: bool = True
    """True if the broker's certificate and host name are checked."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a connection URI says. Durations are seconds. Made by `parse_uri`; safe to log."""

    scheme: str
    """Scheme of the first endpoint, which chooses the adapter."""
    endpoints: tuple[Endpoint, ...]
    policies: RedeliveryPolicyMap = field(default_factory=RedeliveryPolicyMap)
    has_policies: bool = False
    """True if the URI itself sets a redelivery policy option."""
    credit: int | None = None
    """Messages that a queue consumer may have unsettled. None is `auto`, by the rate of its handlers."""
    topic_credit: int = 1000
    durable_topic_credit: int = 1000
    max_parked: int | None = None
    """Most parked messages of one consumer. None is not given."""
    ordering: Ordering = "non_blocking"
    client_id: str | None = None
    user_name: str | None = field(default=None, repr=False)
    password: Secret | None = field(default=None, repr=False)
    failover: FailoverSettings = field(default_factory=FailoverSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    heartbeat: float = 10.0
    """Seconds between heart-beats, requested in both directions."""
    connect_timeout: float = 10.0
    """Seconds for one address, including TCP, TLS and login."""
    send_timeout: float | None = None
    """Seconds for the reconnect and the confirmation of a send together. None is not given (30)."""
    maximum_header_bytes: int = 2**24
    """Most bytes of one STOMP frame's headers; a longer one ends the connection."""
    maximum_message_bytes: int = 2**28
    """Most bytes of one STOMP message's body; a larger one ends the connection."""
    broker: BrokerName = "auto"
    """Kind of broker. With `auto`, the broker's own description decides."""
    virtual_host: str | None = None
    """Virtual host. None is the adapter's own default."""
    consumer_timeout: float | None = None
    """Seconds that RabbitMQ 4.3 lets a consumer keep a message. None is as a policy needs, 0 is not asked."""
    queue_arguments: QueueArguments = ()
    """Arguments with which RabbitMQ declares queues consumed from or sent to. Empty is its default."""
    dead_letter_arguments: QueueArguments = ()
    """Arguments with which RabbitMQ declares the dead-letter queue."""
    dead_letters: DeadLetterMap = field(default_factory=DeadLetterMap)
    """How poison and expired messages leave, and where dead letters go, by destination."""
    has_dead_letters: bool = False
    """True if the URI itself sets an option of a dead-letter strategy."""
    report_interval: int = 1000
    """Dropped dead letters per log line of the discarding strategy. 0 is no line."""
    send_exhausted: bool = True
    """True if a message whose redeliveries are used up is dead-lettered, False if it is dropped.

    Classic's `sendToDlqIfMaxRetriesExceeded`.
    """
    fallback: bool = True
    """True if a poison message without an entry in the policy map is dead-lettered, False if it is dropped.

    Classic's `fallbackToDeadLetter`.
    """
    empty_body: Literal["stop", "forward"] = "stop"
    """Treatment of a poison message that must be copied, and whose body may have been lost on the way."""
    maximum_deferrals: int = 100
    maximum_set_aside: int = 100
    """Poison messages of one consumer that cannot be copied, before it stops. 0 stops at the first."""
    log_each: bool = False
    """True if each result is a line of the log, also while many messages fail."""
    unique_ids: bool = False
    """True if the user states that no producer uses an id for two messages."""
    breaker: Breaker | None = field(default_factory=Breaker)
    """Rules by which consumers pause while every message fails. None is never."""
    has_breaker: bool = False
    """True if the URI itself sets an option of the breaker."""
    rate: Rate | None = None
    """Most messages that a consumer handles in a time. None is no limit."""
    scheduler: Literal["client", "broker"] = "client"
    """Where a message is kept until its redelivery is due.

    `client`: here. `broker`: as a delayed copy.
    """
    wildcards: Literal["queues", "address"] = "queues"
    """Meaning of a wildcard in a queue's name.

    `queues`: the queues with such names. `address`: what Artemis makes of it: copies of later messages.
    """
    ledger: str | None = None
    """URL of the ledger of attempts, as in ``sqlite:///path``. None is no ledger."""
    inapplicable: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """Options of a Java URI that have no effect here; values of password options are masked."""

    def masked(self, text: str) -> str:
        """Remove the credentials from a text of a broker: all brokers repeat the user's name."""
        if self.password is not None and (secret := self.password.reveal()):
            text = text.replace(secret, "***")
        if self.user_name:
            text = re.sub(rf"(?<!\w){re.escape(self.user_name)}(?!\w)", "***", text)
        return text

    @property
    def java(self) -> bool:
        """True if this is a Java client's URI, which can be explained but not connected with."""
        return self.scheme in JAVA_PORTS
