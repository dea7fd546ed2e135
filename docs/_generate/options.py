"""Table of the options of a connection URI, for the configuration page."""

from __future__ import annotations

from docs._generate.parts import table

from redelivery.uri.option_table import MAP_PREFIX, OPTIONS, OUR_MAP_PREFIX, Option

__all__ = ["HEAD", "options_table", "row_of"]

HEAD = ["option", "takes", "unit", "default", "over", "meaning", "Java's name"]
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
    ".breakerMessages": "messages",
    ".breakerRamp": "messages",
    ".reportInterval": "messages",
    ".rate": "messages a second",
    ".maximumRedeliveries": "redeliveries",
    ".maxRedeliveries": "redeliveries",
    ".maximumDeferrals": "deferrals",
    "Percent": "percent",
    "Attempts": "rounds",
    ".breakerFailures": "failures",
    ".breakerTold": "failures",
    ".breakerReopen": "failures",
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
    """Return the table: one row for each option, in the order of the parser's table."""
    rows = [row_of(option) for option in OPTIONS.values()]
    as_option = ["as the option", "as the option", "the default of the option", "all"]
    rows += [
        [f"`{MAP_PREFIX}<pattern>.<option>`", *as_option, "An option of `jms.redeliveryPolicy.` for destinations of a pattern.", "the same"],
        [f"`{OUR_MAP_PREFIX}<pattern>.<option>`", *as_option, "An option of `redelivery.policy.` for destinations of a pattern.", "none"],
    ]  # fmt: skip
    return table(HEAD, rows)


def row_of(option: Option) -> list[str]:
    """Return the row of an option; no cell is empty."""
    takes = option.takes
    return [
        f"`{option.name}`",
        takes,
        _unit(option),
        option.default or _NOT_SET.get(option.name, "not set"),
        option.over,
        option.doc,
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
