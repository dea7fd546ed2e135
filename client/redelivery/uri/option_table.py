"""Table of connection URI options: name, kind, default, meaning.

`parse_uri` reads URIs by it. The documentation and the command line's lists are made from it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, NamedTuple

from redelivery.settings import FailoverSettings, Settings, TlsSettings
from redelivery.uri.schemes import SCHEMES

__all__ = [
    "DEAD_LETTER_MAP_PREFIX",
    "MAP_PREFIX",
    "MAP_PREFIXES",
    "OPTIONS",
    "OUR_MAP_PREFIX",
    "OUR_POLICY",
    "POLICY",
    "STRATEGY_NAMES",
    "Of",
    "Option",
    "Scope",
    "map_prefix_of",
    "option_rows",
]

Scope = Literal["policy", "prefetch", "jms", "failover", "redelivery", "tls"]
"""Where an option belongs. `failover`: after `failover:(...)` only; `tls`: with a TLS address only.

The Java client's own options (`redelivery.uri.java_options`) are in no scope: `settings.inapplicable` has those of a
Java URI, and elsewhere they are refused."""

Kind = Literal[
    "boolean",
    "integer",
    "integer or auto",
    "milliseconds",
    "list of milliseconds",
    "number",
    "text",
    "secret",
    "choice",
    "destination",
    "file",
]

POLICY, MAP_PREFIX = "jms.redeliveryPolicy.", "jms.redeliveryPolicyMap."
"""Prefixes of the reference's policy options: of the default policy, and of a pattern's."""
OUR_POLICY, OUR_MAP_PREFIX = "redelivery.policy.", "redelivery.policyMap."
"""The same for policy options that the reference does not have."""
DEAD_LETTER_MAP_PREFIX = "redelivery.deadLetterMap."
"""Prefix of the options of a pattern's dead-letter strategy."""
MAP_PREFIXES = (MAP_PREFIX, OUR_MAP_PREFIX, DEAD_LETTER_MAP_PREFIX)
STRATEGY_NAMES = {
    "deadLetter": "redelivery.deadLetter",
    "destination": "redelivery.deadLetterDestination",
    "strategy": "redelivery.deadLetterStrategy",
    "expiration": "redelivery.deadLetterExpiration",
    **{
        name: f"redelivery.{name}"
        for name in (
            "queuePrefix", "queueSuffix", "topicPrefix", "topicSuffix", "useQueueForQueueMessages",
            "useQueueForTopicMessages", "destinationPerDurableSubscriber", "discard", "dropTemporaryQueues",
            "dropTemporaryTopics", "processExpired", "processNonPersistent",
        )
    },
}  # fmt: skip
"""Options of a pattern's dead-letter strategy, and the names of the same options of a connection."""

_ALL = frozenset(SCHEMES)
_NETWORK = _ALL - {"memory"}
_ENCRYPTED = frozenset({"stomp+ssl", "amqps"})
_STOMP = frozenset({"stomp", "stomp+ssl"})


class Of(NamedTuple):
    """Field of the settings that an option sets by itself: its default is the option's, and nothing else reads it."""

    group: type
    name: str

    def default(self) -> Any:
        """Return the field's default."""
        return next(each.default for each in fields(self.group) if each.name == self.name)

    def text(self, kind: Kind) -> str:
        """Return that default as an option of this kind has it."""
        value = self.default()
        if value is None:
            return ""
        if kind == "milliseconds":
            return str(round(value * 1000))
        return str(value).lower() if kind == "boolean" else str(value)


class Option(NamedTuple):
    """One option of the connection URI."""

    name: str
    kind: Kind
    default: str
    doc: str
    scope: Scope
    low: int = 0
    choices: tuple[str, ...] = ()
    schemes: frozenset[str] = _ALL
    """Schemes over which it has a meaning."""
    field: Of | None = None
    """Field that it sets, if a rule between options has no part in that."""

    @property
    def over(self) -> str:
        """Schemes over which it has a meaning, as text."""
        if self.schemes == _ALL:
            return "all"
        return "all but memory" if self.schemes == _NETWORK else ", ".join(sorted(self.schemes, reverse=True))

    @property
    def takes(self) -> str:
        """Values that it takes, as text."""
        return " or ".join(self.choices) if self.choices else self.kind


def _option(
    name: str,
    kind: Kind,
    default: str | Of,
    doc: str,
    scope: Scope,
    low: int = 0,
    choices: tuple[str, ...] = (),
    schemes: frozenset[str] = _ALL,
) -> Option:
    if isinstance(default, str):
        return Option(name, kind, default, doc, scope, low, choices, schemes)
    return Option(name, kind, default.text(kind), doc, scope, low, choices, schemes, default)


def _setting(field: str) -> Of:
    return Of(Settings, field)


def _reconnecting(field: str) -> Of:
    return Of(FailoverSettings, field)


def _policy(name: str, kind: Kind, default: str, doc: str, low: int = 0) -> Option:
    return Option(f"{POLICY}{name}", kind, default, doc, "policy", low)


def _failover(
    name: str, qpid: str, kind: Kind, default: str | Of, doc: str, low: int = 0
) -> tuple[Option, ...]:
    synonyms = [f"failover.{synonym}" for synonym in qpid.split()]
    also = [
        _option(synonym, kind, default, f"Qpid's name for {name}.", "failover", low) for synonym in synonyms
    ]
    return (_option(name, kind, default, doc, "failover", low), *also)


def _prefetch(name: str, default: str, doc: str) -> Option:
    return Option(f"jms.prefetchPolicy.{name}", "integer", default, doc, "prefetch", 1)


def _ours(
    name: str, kind: Kind, default: str | Of, doc: str, low: int = 0, choices: tuple[str, ...] = ()
) -> Option:
    return _option(f"redelivery.{name}", kind, default, doc, "redelivery", low, choices)


def _network(
    name: str, kind: Kind, default: str | Of, doc: str, low: int = 0, choices: tuple[str, ...] = ()
) -> Option:
    return _option(f"redelivery.{name}", kind, default, doc, "redelivery", low, choices, _NETWORK)


def _stomp(name: str, doc: str, kind: Kind, default: str | Of, low: int = 0) -> Option:
    return _option(f"redelivery.{name}", kind, default, doc, "redelivery", low, schemes=_STOMP)


def _tls(name: str, kind: Kind, field: str, doc: str) -> Option:
    return _option(f"redelivery.{name}", kind, Of(TlsSettings, field), doc, "tls", schemes=_ENCRYPTED)


_TABLE: tuple[Option, ...] = (
    _policy("maximumRedeliveries", "integer", "6", "Redeliveries before poison; -1: no limit.", -1),
    _policy("initialRedeliveryDelay", "milliseconds", "1000", "Delay before the first redelivery."),
    _policy("redeliveryDelay", "milliseconds", "1000", "Delay before later ones, without back-off."),
    _policy("maximumRedeliveryDelay", "milliseconds", "-1", "Cap on exponential steps; -1 is no cap.", -1),
    _policy("useExponentialBackOff", "boolean", "false", "Multiply each delay by the multiplier."),
    _policy("backOffMultiplier", "number", "5.0", "The multiplier; has an effect above 1 only."),
    _policy("useCollisionAvoidance", "boolean", "false", "Vary each delay but the first by a random share."),
    _policy("collisionAvoidancePercent", "integer", "15", "That share, in percent, 0 to 100, either way."),
    _policy("collisionAvoidanceFactor", "number", "0.15", "The same as a factor, 0 to 1; not both."),
    _policy("preDispatchCheck", "boolean", "true",
            "In transacted sessions: dead-letter, without delivery, a message whose broker count exceeds the maximum."),
    _policy("maxRedeliveries", "integer", "6", "Qpid JMS's name for maximumRedeliveries (there -1); not both.", -1),
    _policy("outcome", "text", "", "Qpid JMS: ACCEPTED is deadLetter=discard, REJECTED is ack."),
    Option("redelivery.policy.maximumElapsed", "milliseconds", "-1",
           "No redelivery begins later than this after a message's first failure: it is poison; -1: no limit.",
           "policy", -1),
    Option("redelivery.policy.delays", "list of milliseconds", "",
           "The delay before each redelivery: `1000,5000,30000`; its length is the maximum.", "policy"),
    _prefetch("queuePrefetch", "as redelivery.credit", "Messages a queue consumer may hold unsettled; 32767 at most."),
    _prefetch("topicPrefetch", "as for queues", "The same for a topic consumer."),
    _prefetch("durableTopicPrefetch", "as for queues", "The same for a durable topic subscription."),
    _prefetch("all", "", "All of these at once; not together with one of them."),
    Option("jms.nonBlockingRedelivery", "boolean", "true", "Whether others overtake a parked message.", "jms"),
    _option("jms.clientID", "text", _setting("client_id"), "Client id, needed by durable topic subscriptions.", "jms"),
    Option("jms.userName", "secret", "", "User name; or user:password@ before the host.", "jms", schemes=_NETWORK),
    Option("jms.password", "secret", "", "Password; never shown.", "jms", schemes=_NETWORK),
    *_failover("initialReconnectDelay", "initialReconnectDelay reconnectDelay",
               "milliseconds", _reconnecting("initial_reconnect_delay"),
               "First delay between two rounds of reconnecting."),
    *_failover("maxReconnectDelay", "maxReconnectDelay", "milliseconds", _reconnecting("max_reconnect_delay"),
               "Longest delay between two rounds."),
    *_failover("useExponentialBackOff", "useReconnectBackOff", "boolean", _reconnecting("use_exponential_back_off"),
               "Whether these delays grow."),
    *_failover("backOffMultiplier", "reconnectBackOffMultiplier", "number", _reconnecting("back_off_multiplier"),
               "Factor by which they grow.", 1),
    *_failover("maxReconnectAttempts", "maxReconnectAttempts", "integer", _reconnecting("max_reconnect_attempts"),
               "Rounds of reconnecting; -1: no limit.", -1),
    *_failover("startupMaxReconnectAttempts", "startupMaxReconnectAttempts", "integer", "1",
               "How often all addresses are tried before `connect` fails; -1: for ever.", -1),
    *_failover("randomize", "randomize", "boolean", "true", "Try the addresses in random order."),
    *_failover("warnAfterReconnectAttempts", "warnAfterReconnectAttempts", "integer",
               _reconnecting("warn_after_reconnect_attempts"),
               "Rounds after which a warning is logged, each time; -1: never.", -1),
    *_failover("timeout", "", "milliseconds", "-1",
               "Time that a send waits for a connection; -1: until its own timeout (sendTimeout).", -1),
    _ours("credit", "integer or auto", "auto",
          "Messages a consumer may have unsettled, without parked ones; auto: few, more while handlers are fast.", 1),
    _ours("maxParked", "integer", _setting("max_parked"), "Messages that may be parked at once.", 1),
    _ours("ordering", "choice", "non_blocking", "Which messages wait behind a parked one.",
          choices=("blocking", "non_blocking", "per_group")),
    _ours("maximumDeferrals", "integer", _setting("maximum_deferrals"),
          "Deferrals of one message that use up no redelivery."),
    _ours("maximumSetAside", "integer", _setting("maximum_set_aside"),
          "Messages that cannot be dead-lettered and that a consumer may set aside; one more stops it."),
    _ours("uniqueIds", "boolean", _setting("unique_ids"),
          "True: no producer uses an id for two messages; fewer messages are handled again after a lost connection."),
    _ours("rate", "number", "", "Messages a second that a consumer handles at most, redeliveries included."),
    _ours("breaker", "choice", "on",
          "Pause handling, uncharged, when everything fails; `named`: only for exceptions of Classifier().trip().",
          choices=("on", "named", "off")),
    _ours("breakerFailures", "integer", "200",
          "Failures in a row, of half as many messages at least, that open it; 0: as `breaker=named`."),
    _ours("breakerMaximumOpen", "milliseconds", "43200000",
          "Time since the first opening after which failures are charged again; 0: no limit. Without exceptions of "
          "Classifier().trip() it is 10 minutes at most."),
    _ours("scheduler", "choice", "client", "Where a message waits for its redelivery.", choices=("client", "broker")),
    _ours("wildcards", "choice", _setting("wildcards"),
          "What a wildcard in a queue's name means: the queues with such names; address: copies, as on Artemis.",
          choices=("queues", "address")),
    _ours("deadLetter", "choice", "auto",
          "How a poison message leaves: in the broker's safest way (auto), as a copy (forward), by the broker's own "
          "acknowledgement (ack), or dropped (discard).",
          choices=("auto", "ack", "forward", "discard")),
    _ours("deadLetterDestination", "destination", "", "Destination of copies; default: the broker's own."),
    _ours("deadLetterStrategy", "choice", "shared", "One dead-letter destination, or one each.",
          choices=("shared", "individual", "discarding")),
    _ours("queuePrefix", "text", "the broker's own", "Individual: prefix of a queue's dead-letter queue."),
    _ours("queueSuffix", "text", "", "Individual: its suffix."),
    _ours("topicPrefix", "text", "the broker's own", "Individual: prefix of a topic's dead-letter queue."),
    _ours("topicSuffix", "text", "", "Individual: its suffix."),
    _ours("useQueueForQueueMessages", "boolean", "true", "Individual: a queue, not a topic, for messages of queues."),
    _ours("useQueueForTopicMessages", "boolean", "true", "Individual: a queue, not a topic, for messages of topics."),
    _ours("destinationPerDurableSubscriber", "boolean", "false",
          "Individual: one for each durable subscription, named `.clientID:subscription`."),
    _ours("discard", "text", "", "Discarding: regular expressions on names, between blanks; default: all."),
    _ours("dropTemporaryQueues", "boolean", "false", "Discarding: also messages of temporary queues."),
    _ours("dropTemporaryTopics", "boolean", "false", "Discarding: also messages of temporary topics."),
    _ours("reportInterval", "integer", "1000", "Discarding: messages per log line; 0: no line."),
    _ours("sendToDlqIfMaxRetriesExceeded", "boolean", "true",
          "Dead-letter a message that has used up its redeliveries; false: accept and drop it."),
    _ours("fallbackToDeadLetter", "boolean", "true",
          "Dead-letter a message that no pattern of the policy map serves; false: accept and drop it."),
    _ours("processExpired", "boolean", "true", "Dead-letter an expired message."),
    _ours("processNonPersistent", "boolean", "true", "The same for a non-persistent poison message."),
    _ours("deadLetterExpiration", "milliseconds", "0", "Time until a copy expires; 0: never."),
    _ours("emptyBody", "choice", "stop",
          "Poison with an empty body, which may be a damaged JMS Map or Object: set it aside (stop), or copy it.",
          choices=("stop", "forward")),
    _ours("ledger", "text", "", "Count attempts durably: sqlite:///relative/path or sqlite:////absolute/path."),
    _ours("logEach", "boolean", _setting("log_each"),
          "Log each failure; false: of failures alike, 10 in 10 s, and one line for the rest."),
    _ours("sendTimeout", "milliseconds", "30000",
          "Time of one send: the reconnect, if any, and the broker's confirmation.", 1),
    _network("heartbeat", "milliseconds", _setting("heartbeat"),
             "Time between heart-beats; at least 100, on Qpid Broker-J 1000.", 100),
    _network("connectTimeout", "milliseconds", _setting("connect_timeout"),
             "Time for one address: TCP, TLS and log-in together; the look-up of its name is not limited.", 1),
    _network("broker", "choice", "auto", "The broker, where it hides its name.",
             choices=("auto", "activemq", "artemis", "qpid-broker-j", "rabbitmq")),
    _network("virtualHost", "text", _setting("virtual_host"), "Virtual host at the broker."),
    _network("consumerTimeout", "milliseconds", "",
             "RabbitMQ 4.3, quorum queues: how long a message may be unsettled; default: as its policy needs, "
             "30 minutes at least; 0: as the broker is set."),
    _network("queueArguments", "text", "",
             "RabbitMQ: arguments of queues: `x-queue-type:quorum,x-max-length:9`."),
    _network("deadLetterArguments", "text", "",
             "RabbitMQ: arguments of the dead-letter queue. Over AMQP a new one is a quorum queue beside one."),
    _stomp("maximumHeaderBytes",
           "Largest header block of a frame. A larger one ends the connection; a third time, the consumer.",
           "integer", _setting("maximum_header_bytes"), 1024),
    _stomp("maximumMessageBytes",
           "Largest body of a message. A larger one ends the connection; a third time, the consumer.",
           "integer", _setting("maximum_message_bytes"), 1024),
    _tls("tlsCaFile", "file", "ca_file", "PEM file of trusted authorities; default: the system's."),
    _tls("tlsCertFile", "file", "cert_file", "PEM file of our own certificate."),
    _tls("tlsKeyFile", "file", "key_file", "PEM file of its key, if apart."),
    _tls("tlsKeyPassword", "secret", "key_password", "Password of the key; never shown."),
    _tls("tlsVerify", "boolean", "verify", "Check the broker's certificate and host name."),
)  # fmt: skip

OPTIONS: dict[str, Option] = {option.name: option for option in _TABLE}
"""Options that have a meaning here, by full name."""


def map_prefix_of(name: str) -> str | None:
    """Return the prefix of an option of a pattern; None for any other option."""
    return next((prefix for prefix in MAP_PREFIXES if name.startswith(prefix)), None)


def option_rows() -> list[tuple[str, str, str, str, str]]:
    """Return (name, type, default, schemes, one line) of every supported option, for documentation and help texts."""
    mapped, ours = f"{MAP_PREFIX}<pattern>.<option>", f"{OUR_MAP_PREFIX}<pattern>.<option>"
    rows = [(o.name, o.takes, o.default, o.over, o.doc) for o in _TABLE]
    return [
        *rows,
        (mapped, "as the option", "", "all", "A jms.redeliveryPolicy option for destinations of a pattern."),
        (ours, "as the option", "", "all", "A redelivery.policy option for destinations of a pattern."),
        (
            f"{DEAD_LETTER_MAP_PREFIX}<pattern>.<option>", "as the option", "", "all",
            "Option of the dead-letter strategy for destinations of a pattern: deadLetter, destination, strategy, …",
        ),
    ]  # fmt: skip
