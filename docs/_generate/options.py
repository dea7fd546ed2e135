"""Table of the options of a connection URI, for the configuration page."""

from __future__ import annotations

from docs._generate.parts import table

from redelivery.uri.option_table import DEAD_LETTER_MAP_PREFIX, MAP_PREFIX, OPTIONS, OUR_MAP_PREFIX, Option

__all__ = ["HEAD", "options_table", "row_of"]

HEAD = ["option", "meaning", "takes", "unit", "default", "over", "Java's name"]
_TITLES = {
    "policy": "When is a failed message redelivered?",
    "prefetch": "How many messages does a consumer prefetch?",
    "jms": "Who logs in, and what waits?",
    "failover": "How does it reconnect?",
    "redelivery": "Consumers, dead letters, network",
    "tls": "TLS",
}
# What happens where an option is not set and the table of options names no default.
_NOT_SET = {
    "jms.redeliveryPolicy.outcome": "as redelivery.deadLetter",
    "redelivery.policy.delays": "as jms.redeliveryPolicy",
    "jms.prefetchPolicy.all": "as redelivery.credit",
    "jms.userName": "no log-in",
    "jms.password": "no log-in",
    "startupMaxReconnectAttempts": "1",
    "failover.startupMaxReconnectAttempts": "1",
    "redelivery.maxParked": "1000; where the broker limits unacknowledged messages (Classic: 200), 80 % of that",
    "redelivery.rate": "no limit",
    "redelivery.deadLetterDestination": "the broker's dead-letter queue",
    "redelivery.discard": "all",
    "redelivery.ledger": "no ledger",
    "redelivery.virtualHost": "the broker's default",
    "redelivery.consumerTimeout": "as the policy needs, 1800000 at least",
    "redelivery.queueArguments": "the broker's defaults",
    "redelivery.deadLetterArguments": "the broker's defaults",
    "redelivery.tlsCaFile": "the system's authorities",
    "redelivery.tlsCertFile": "no certificate",
    "redelivery.tlsKeyFile": "in tlsCertFile",
    "redelivery.tlsKeyPassword": "no password",
}
# Ends of names, and what the number counts.
_UNITS = {
    "Bytes": "bytes",
    "Prefetch": "messages",
    "prefetchPolicy.all": "messages",
    ".credit": "messages",
    ".maxParked": "messages",
    ".maximumSetAside": "messages",
    ".reportInterval": "messages",
    ".rate": "messages a second",
    ".maximumRedeliveries": "redeliveries",
    ".maxRedeliveries": "redeliveries",
    ".maximumDeferrals": "deferrals",
    "Percent": "percent",
    "Attempts": "rounds",
    ".breakerFailures": "failures",
}
_INDIVIDUAL, _DISCARDING = "`individualDeadLetterStrategy` {}", "`discardingDLQBrokerPlugin` {}"
# What the Java client or `activemq.xml` calls an option that has another name here.
_JAVA = {
    "redelivery.credit": "`jms.prefetchPolicy.*`",
    "redelivery.ordering": "`jms.nonBlockingRedelivery`",
    "redelivery.sendTimeout": "`jms.sendTimeout`",
    "redelivery.connectTimeout": "`connectionTimeout`",
    "redelivery.heartbeat": "`wireFormat.maxInactivityDuration`",
    "redelivery.maximumMessageBytes": "`wireFormat.maxFrameSize`",
    "redelivery.tlsCaFile": "`javax.net.ssl.trustStore`",
    "redelivery.tlsCertFile": "`javax.net.ssl.keyStore`",
    "redelivery.tlsKeyPassword": "`javax.net.ssl.keyStorePassword`",
    "redelivery.tlsVerify": "`socket.verifyHostName`",
    "redelivery.scheduler": "`redeliveryPlugin`",
    "redelivery.sendToDlqIfMaxRetriesExceeded": "`redeliveryPlugin` sendToDlqIfMaxRetriesExceeded",
    "redelivery.fallbackToDeadLetter": "`redeliveryPlugin` fallbackToDeadLetter",
    "redelivery.deadLetterStrategy": "`deadLetterStrategy`",
    "redelivery.deadLetterDestination": "`sharedDeadLetterStrategy` deadLetterQueue",
    "redelivery.deadLetterExpiration": "`deadLetterStrategy` expiration",
    "redelivery.processExpired": "`deadLetterStrategy` processExpired",
    "redelivery.processNonPersistent": "`deadLetterStrategy` processNonPersistent",
    **{
        f"redelivery.{name}": _INDIVIDUAL.format(name)
        for name in (
            "queuePrefix",
            "queueSuffix",
            "topicPrefix",
            "topicSuffix",
            "useQueueForQueueMessages",
            "useQueueForTopicMessages",
            "destinationPerDurableSubscriber",
        )
    },
    **{
        f"redelivery.{name}": _DISCARDING.format(theirs)
        for name, theirs in {
            "discard": "dropOnly",
            "dropTemporaryQueues": "dropTemporaryQueues",
            "dropTemporaryTopics": "dropTemporaryTopics",
            "reportInterval": "reportInterval",
        }.items()
    },
}
_QPID = ("failover.", "jms.redeliveryPolicy.maxRedeliveries", "jms.redeliveryPolicy.outcome")


def options_table() -> str:
    """Return a table for each scope, in the order of the parser's table."""
    parts: list[str] = []
    for scope, title in _TITLES.items():
        rows = [row_of(option) for option in OPTIONS.values() if option.scope == scope]
        if scope == "policy":
            rows += [
                _mapped(MAP_PREFIX, "jms.redeliveryPolicy.", "`RedeliveryPolicyMap`, not in a URL"),
                _mapped(OUR_MAP_PREFIX, "redelivery.policy.", "none"),
            ]
        if scope == "redelivery":
            rows.append(_mapped(DEAD_LETTER_MAP_PREFIX, "redelivery.", "a `policyEntry` of the broker"))
        parts.append(f"## {title}\n\n{table(HEAD, rows)}")
    return "\n\n".join(parts)


def _mapped(prefix: str, option: str, java: str) -> list[str]:
    name, meaning = (
        f"`{prefix}<pattern>.<option>`",
        f"The option of `{option}`, for the destinations of a pattern.",
    )
    return [name, meaning, "as the option", "as the option", "as the option", "all", java]


def row_of(option: Option) -> list[str]:
    """Return the row of an option; no cell is empty."""
    takes = " or ".join(f"`{one}`" for one in option.choices) or option.takes
    return [
        f"`{option.name}`",
        option.doc,
        takes,
        _unit(option),
        option.default or _NOT_SET.get(option.name, "not set"),
        option.over,
        _java(option.name),
    ]


def _unit(option: Option) -> str:
    if "milliseconds" in option.kind:
        return "ms"
    return next((unit for end, unit in _UNITS.items() if option.name.endswith(end)), "-")


def _java(name: str) -> str:
    if name.startswith(_QPID):
        return "Qpid JMS: the same"
    return _JAVA.get(name, "none" if name.startswith("redelivery.") else "the same")
