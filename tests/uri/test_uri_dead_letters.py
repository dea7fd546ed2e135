"""Dead-letter options of a connection URI, and their contradictions."""

from __future__ import annotations

import pytest

import redelivery
from redelivery import ConfigurationError, DeadLetterStrategy, RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.core.capabilities import Capabilities
from redelivery.core.destination import Destination
from redelivery.uri.parser import parse_uri

PRE = "redelivery."
INDIVIDUAL = "deadLetterStrategy=individual"
DISCARDING = "deadLetterStrategy=discarding"


def read(options: str, scheme: str = "stomp://h") -> redelivery.Settings:
    """Parse options; names without a prefix are `redelivery.` ones."""
    each = [part if part.startswith("jms.") else PRE + part for part in options.split("&")]
    return parse_uri(f"{scheme}?{'&'.join(each)}")


def strategy(options: str) -> DeadLetterStrategy:
    """Return the connection's own strategy."""
    return read(options).dead_letters.default


def test_strategies_are_read() -> None:
    """Each option is read; one that is not given is the broker's own, or Classic's default."""
    assert strategy("deadLetter=auto") == DeadLetterStrategy()
    assert strategy(INDIVIDUAL) == DeadLetterStrategy(strategy="individual")
    given = strategy(
        f"{INDIVIDUAL}&queuePrefix=D.&queueSuffix=.q&topicPrefix=T.&topicSuffix=.t&useQueueForQueueMessages=false&"
        "useQueueForTopicMessages=false&destinationPerDurableSubscriber=true&jms.clientID=c"
    )
    assert given == DeadLetterStrategy(
        strategy="individual", queue_prefix="D.", queue_suffix=".q", topic_prefix="T.", topic_suffix=".t",
        use_queue_for_queue_messages=False, use_queue_for_topic_messages=False, destination_per_durable_subscriber=True,
    )  # fmt: skip
    assert strategy(DISCARDING) == DeadLetterStrategy(strategy="discarding")
    options = f"{DISCARDING}&discard=A%20B.[0-9]*&dropTemporaryTopics=true&reportInterval=5"
    assert strategy(options) == DeadLetterStrategy(
        strategy="discarding", discard="A B.[0-9]*", drop_temporary_topics=True
    )
    all_of_it = read(options)
    assert (all_of_it.report_interval, all_of_it.send_exhausted, all_of_it.fallback) == (5, True, True)
    all_of_it = read("sendToDlqIfMaxRetriesExceeded=false&fallbackToDeadLetter=false")
    assert (all_of_it.send_exhausted, all_of_it.fallback) == (False, False)


def test_an_empty_prefix_is_not_the_brokers_own() -> None:
    """A dead-letter queue can have a suffix only, as Classic's `queuePrefix="" queueSuffix=".DLQ"` gives it."""
    given = strategy(f"{INDIVIDUAL}&queuePrefix=&queueSuffix=.DLQ")
    found = given.individual_place(Destination("queue", "orders"), Capabilities("any"), None)
    assert str(found) == "queue://orders.DLQ"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (f"{INDIVIDUAL}&deadLetter=ack", "contradicts redelivery.deadLetter=ack: only copies go"),
        (f"{INDIVIDUAL}&deadLetter=discard", "contradicts redelivery.deadLetter=discard"),
        (f"{INDIVIDUAL}&jms.redeliveryPolicy.outcome=REJECTED", "contradicts redelivery.deadLetter=ack"),
        (f"{INDIVIDUAL}&deadLetterDestination=D", "deadLetterDestination contradicts .*individual"),
        (f"{INDIVIDUAL}&discard=A", "redelivery.discard needs .*=discarding, and it is individual"),
        (f"{INDIVIDUAL}&queuePrefix=", "queuePrefix is empty, and there is no redelivery.queueSuffix"),
        (f"{INDIVIDUAL}&topicPrefix=&queueSuffix=.D", "topicPrefix is empty, and there is no redelivery.topicSuffix"),
        (f"{INDIVIDUAL}&queuePrefix=%20&queueSuffix=.D", "must not be empty"),
        (f"{INDIVIDUAL}&queuePrefix=D.%3E.", "queuePrefix must make the name of one destination"),
        (f"{INDIVIDUAL}&topicSuffix=,A", "topicSuffix must make the name of one destination"),
        (f"{INDIVIDUAL}&queueSuffix=%3Fa=b", "queueSuffix must make the name of one destination"),
        (f"{INDIVIDUAL}&queuePrefix=a%0Ab", "control character"),
        (f"{INDIVIDUAL}&destinationPerDurableSubscriber=true", "needs jms.clientID"),
        ("queuePrefix=D.", "redelivery.queuePrefix needs redelivery.deadLetterStrategy=individual, and it is shared"),
        ("useQueueForTopicMessages=true", "needs redelivery.deadLetterStrategy=individual"),
        ("discard=A", "redelivery.discard needs redelivery.deadLetterStrategy=discarding"),
        ("reportInterval=4", "redelivery.reportInterval needs"),
        (f"{DISCARDING}&deadLetter=forward", "redelivery.deadLetter=forward contradicts"),
        (f"{DISCARDING}&discard=A&deadLetter=discard", "redelivery.deadLetter=discard contradicts"),
        (f"{DISCARDING}&deadLetterDestination=D", "is for forwarded copies, and .*=discarding makes none"),
        (f"{DISCARDING}&deadLetterExpiration=5", "is for forwarded copies"),
        (f"{DISCARDING}&dropTemporaryQueues=false", "false has no effect: without redelivery.discard everything"),
        (f"{DISCARDING}&sendToDlqIfMaxRetriesExceeded=false", "no effect: .*discarding keeps no dead letter"),
        (f"{DISCARDING}&discard=(a%2B)%2B", "could take for ever"),
        (f"{DISCARDING}&discard=LOG.%3E", "regular expressions here"),
        (f"{DISCARDING}&discard=%5B", "cannot read this regular expression"),
        (f"{DISCARDING}&reportInterval=-1", "whole number from 0"),
        ("deadLetter=discard&fallbackToDeadLetter=true", "no effect: redelivery.deadLetter=discard keeps"),
        ("deadLetter=ack&deadLetterExpiration=5", "is for forwarded copies, and redelivery.deadLetter=ack makes none"),
        ("deadLetterStrategy=individuel", "shared, individual, discarding"),
        ("quePrefix=D.", "did you mean 'redelivery.queuePrefix'"),
    ],
)  # fmt: skip
def test_contradictions(options: str, message: str) -> None:
    """A contradiction is one sentence, before a connection."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        read(options)
    assert "\n" not in str(caught.value)


def test_a_password_in_a_pattern_is_not_shown() -> None:
    """In a URI that was cut wrongly at its password, no value is repeated."""
    with pytest.raises(ConfigurationError) as caught:
        parse_uri(f"stomp://u:p?hunter2@h?{PRE}{DISCARDING}&{PRE}discard=hunter(")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "policies", "message"),
    [
        ("fallbackToDeadLetter=false", None, "no policy is given; to do so, say redelivery.deadLetter=discard"),
        ("fallbackToDeadLetter=false&jms.redeliveryPolicy.maximumRedeliveries=2", None, "a default policy is given"),
        ("fallbackToDeadLetter=false", RedeliveryPolicyMap({"A": RedeliveryPolicy()}, RedeliveryPolicy()), "a default"),
        ("sendToDlqIfMaxRetriesExceeded=false&jms.redeliveryPolicy.maximumRedeliveries=-1", None, "no policy has"),
    ],
)  # fmt: skip
def test_what_the_policies_make_no_sense_of(
    options: str, policies: RedeliveryPolicyMap | None, message: str
) -> None:
    """Dropping unserved messages, or those beyond a maximum, needs policies that leave some to drop."""
    each = [part if part.startswith("jms.") else PRE + part for part in options.split("&")]
    with pytest.raises(ConfigurationError, match=message):
        redelivery.connect(f"memory://x?{'&'.join(each)}", policies=policies)


def test_a_map_is_read() -> None:
    """Each pattern has a strategy of its own, from fresh defaults; the connection's own stays the default."""
    found = read(
        "deadLetterMap.orders.%3E.destination=orders.dead&deadLetterMap.orders.%3E.expiration=1500&"
        "deadLetterMap.topic://prices.*.strategy=individual&deadLetterMap.topic://prices.*.topicSuffix=.dead&"
        "deadLetterMap.noise.deadLetter=discard&deadLetterDestination=others&processExpired=false"
    )
    assert found.has_dead_letters
    assert found.dead_letters == redelivery.DeadLetterMap(
        {
            "orders.>": DeadLetterStrategy(destination="orders.dead", expiration=1.5),
            "topic://prices.*": DeadLetterStrategy(strategy="individual", topic_suffix=".dead"),
            "noise": DeadLetterStrategy(dead_letter="discard"),
        },
        default=DeadLetterStrategy(destination="others", process_expired=False),
    )
    assert not read("credit=5").has_dead_letters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("deadLetterMap.a.destinatio=d", "deadLetterMap.<pattern>.<option> has an unknown option destinatio; did you"),
        ("deadLetterMap.a.deadLetterDestination=d", "write redelivery.deadLetterMap.<pattern>.destination"),
        ("deadLetterMap.a.emptyBody=stop", "has an unknown option emptyBody; allowed: deadLetter, "),
        ("deadLetterMap.a.destination=b.*", "deadLetterMap.queue://a.destination must be one queue"),
        ("deadLetterMap.a.queuePrefix=D.", "deadLetterMap.queue://a.queuePrefix needs .*a.strategy=individual"),
        ("deadLetterMap.a%3E.destination=d", "> only at the end"),
        ("deadLetterMap.destination=d", "needs a pattern and an option"),
        ("deadLetterMap.a.processExpired=x", "queue://a.processExpired must be true or false"),
        ("deadLetterMap.a.deadLetter=ack&scheduler=broker", "scheduler=broker contradicts redelivery.deadLetter=ack"),
        ("deadLetterMap.a.strategy=individual&deadLetterMap.a.destinationPerDurableSubscriber=true", "jms.clientID"),
        ("deadLetterMap.a.destination=d&deadLetterMap.queue://a.destination=e", "given twice"),
    ],
)  # fmt: skip
def test_wrong_maps(options: str, message: str) -> None:
    """A wrong option of a pattern is one sentence with the pattern and the option."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        read(options)
    assert "\n" not in str(caught.value)
