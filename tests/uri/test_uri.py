"""The connection URI: every option honoured or refused, nothing silently ignored."""

from __future__ import annotations

import pickle
from operator import attrgetter

import pytest
from tests.for_each import for_each

from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import ConfigurationError
from redelivery.settings import Endpoint, Secret, Settings
from redelivery.uri.option_table import OPTIONS, Option, option_rows
from redelivery.uri.parser import parse_uri
from redelivery.uri.schemes import SCHEMES


def test_defaults() -> None:
    """A bare URI has the documented defaults."""
    settings = parse_uri("stomp://h")
    assert settings == Settings(scheme="stomp", endpoints=(Endpoint("stomp", "h", 61613),))
    assert (settings.credit, settings.max_parked, settings.ordering) == (None, None, "non_blocking")
    assert (settings.heartbeat, settings.connect_timeout, settings.maximum_deferrals) == (10.0, 10.0, 100)
    assert not settings.has_policies
    assert not settings.failover.randomize
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert hash(settings) == hash(parse_uri("stomp://h:61613"))


@pytest.mark.parametrize(
    ("uri", "endpoints"),
    [
        ("memory://demo", [("memory", "demo", 0)]),
        ("stomp://h", [("stomp", "h", 61613)]),
        ("stomp+ssl://h", [("stomp+ssl", "h", 61614)]),
        ("amqp://h/", [("amqp", "h", 5672)]),
        ("amqps://h", [("amqps", "h", 5671)]),
        ("stomp://h:1", [("stomp", "h", 1)]),
        ("stomp://[::1]:7", [("stomp", "::1", 7)]),
        ("stomp://10.0.0.1", [("stomp", "10.0.0.1", 61613)]),
        ("failover:(stomp://a,stomp+ssl://b:2)", [("stomp", "a", 61613), ("stomp+ssl", "b", 2)]),
        ("failover://(stomp://a)", [("stomp", "a", 61613)]),
        ("failover:stomp://a,stomp://b", [("stomp", "a", 61613), ("stomp", "b", 61613)]),
        ("tcp://h:61616", [("tcp", "h", 61616)]),
        ("vm://localhost", [("vm", "localhost", 0)]),
    ],
)
def test_endpoints(uri: str, endpoints: list[tuple[str, str, int]]) -> None:
    """Addresses are read in order with the default port of their scheme; they print without credentials."""
    settings = parse_uri(uri)
    assert [(e.scheme, e.host, e.port) for e in settings.endpoints] == endpoints
    assert settings.scheme == endpoints[0][0]
    assert parse_uri(str(settings.endpoints[0])).endpoints == settings.endpoints[:1]


@pytest.mark.parametrize(
    ("query", "field", "value"),
    [
        ("redelivery.credit=5", "credit", 5),
        ("redelivery.credit=5&jms.prefetchPolicy.queuePrefetch=7", "credit", 5),
        ("jms.prefetchPolicy.queuePrefetch=7", "topic_credit", 7),
        ("jms.prefetchPolicy.all=7", "durable_topic_credit", 7),
        ("jms.prefetchPolicy.topicPrefetch=7", "credit", None),
        ("jms.prefetchPolicy.all=1000", "credit", 1000),
        ("redelivery.credit=auto", "credit", None),
        ("redelivery.credit=auto&jms.prefetchPolicy.queuePrefetch=7", "credit", None),
        ("redelivery.credit=auto", "topic_credit", 1000),
        ("jms.prefetchPolicy.queuePrefetch=40000", "credit", 32767),
        ("redelivery.maxParked=50", "max_parked", 50),
        ("redelivery.ordering=per_group", "ordering", "per_group"),
        ("redelivery.ordering=per_group&jms.nonBlockingRedelivery=true", "ordering", "per_group"),
        ("jms.nonBlockingRedelivery=false", "ordering", "blocking"),
        ("jms.nonBlockingRedelivery=TRUE", "ordering", "non_blocking"),
        ("jms.clientID=a+b%2Bc", "client_id", "a b+c"),
        ("jms.ClientID=c1", "client_id", "c1"),
        ("jms.userName=bob%40corp", "user_name", "bob@corp"),
        ("redelivery.heartbeat=100", "heartbeat", 0.1),
        ("redelivery.connectTimeout=2500", "connect_timeout", 2.5),
        ("redelivery.virtualHost=/prod", "virtual_host", "/prod"),
        ("redelivery.maximumDeferrals=0", "maximum_deferrals", 0),
        ("redelivery.maximumSetAside=0", "maximum_set_aside", 0),
        ("redelivery.maximumHeaderBytes=65536", "maximum_header_bytes", 65536),
        ("redelivery.maximumMessageBytes=1024", "maximum_message_bytes", 1024),
        ("redelivery.deadLetter=forward", "dead_letters.default.dead_letter", "forward"),
        (
            "redelivery.deadLetterDestination=DLQ.orders",
            "dead_letters.default.destination",
            "queue://DLQ.orders",
        ),
        (
            "redelivery.deadLetterDestination=native:///queue/d",
            "dead_letters.default.destination",
            "native:///queue/d",
        ),
        ("redelivery.deadLetterStrategy=shared", "dead_letters.default.strategy", "shared"),
        ("redelivery.deadLetterExpiration=1500", "dead_letters.default.expiration", 1.5),
        ("redelivery.processExpired=false", "dead_letters.default.process_expired", False),
        ("redelivery.processNonPersistent=False", "dead_letters.default.process_non_persistent", False),
        ("redelivery.scheduler=client", "dead_letters.default.dead_letter", "auto"),
        ("jms.redeliveryPolicy.outcome=accepted", "dead_letters.default.dead_letter", "discard"),
        ("jms.redeliveryPolicy.outcome=2", "dead_letters.default.dead_letter", "ack"),
        ("jms.redeliveryPolicy.outcome=2", "has_policies", False),
        ("jms.redeliveryPolicyMap.A.maximumRedeliveries=1", "has_policies", True),
    ],
)
def test_options(query: str, field: str, value: object) -> None:
    """Each option lands in its field, converted."""
    assert attrgetter(field)(parse_uri(f"stomp://h?{query}")) == value


def test_policies_per_destination() -> None:
    """Each pattern starts from fresh defaults, whatever the default policy is."""
    settings = parse_uri(
        "stomp://h?jms.redeliveryPolicy.maxRedeliveries=9&jms.redeliveryPolicy.redeliveryDelay=5"
        "&jms.redeliveryPolicyMap.topic://PRICES.*.maximumRedeliveries=1"
        "&jms.redeliveryPolicyMap.topic://PRICES.*.UseExponentialBackOff=true"
        "&jms.redeliveryPolicyMap.FRED%2E%3E.redeliveryDelay=7"
        "&jms.redeliveryPolicyMap.a%26b.maximumRedeliveries=2"
    )
    policies = settings.policies
    assert policies.default == RedeliveryPolicy(maximum_redeliveries=9, redelivery_delay=0.005)
    assert dict(policies.entries) == {
        "topic://PRICES.*": RedeliveryPolicy(maximum_redeliveries=1, use_exponential_back_off=True),
        "queue://FRED.>": RedeliveryPolicy(redelivery_delay=0.007),
        "queue://a&b": RedeliveryPolicy(maximum_redeliveries=2),
    }
    assert policies.pattern_for("FRED.JOE") == "queue://FRED.>"


@pytest.mark.parametrize(
    ("query", "field", "value"),
    [
        ("", "randomize", True),
        ("randomize=false", "randomize", False),
        ("initialReconnectDelay=5", "initial_reconnect_delay", 0.005),
        ("failover.reconnectDelay=5", "initial_reconnect_delay", 0.005),
        ("maxReconnectDelay=60000", "max_reconnect_delay", 60.0),
        ("failover.useReconnectBackOff=false", "use_exponential_back_off", False),
        ("failover.reconnectBackOffMultiplier=1.5", "back_off_multiplier", 1.5),
        ("failover.maxReconnectAttempts=3", "max_reconnect_attempts", 3),
        ("startupMaxReconnectAttempts=2", "startup_max_reconnect_attempts", 2),
        ("warnAfterReconnectAttempts=4", "warn_after_reconnect_attempts", 4),
        ("timeout=3000", "timeout", 3.0),
        ("timeout=-1", "timeout", None),
    ],
)
def test_failover_options(query: str, field: str, value: object) -> None:
    """Reconnect options have Classic's names or Qpid's, behind the parentheses."""
    settings = parse_uri(f"failover:(stomp://a,stomp://b)?{query}")
    assert getattr(settings.failover, field) == value


def test_tls_options() -> None:
    """Certificates are options of an encrypted address."""
    tls = parse_uri(
        "stomp+ssl://h?redelivery.tlsCaFile=/ca.pem&redelivery.tlsCertFile=/c.pem"
        "&redelivery.tlsKeyFile=/k.pem&redelivery.tlsKeyPassword=hush"
    ).tls
    assert (tls.ca_file, tls.cert_file, tls.key_file, tls.verify) == ("/ca.pem", "/c.pem", "/k.pem", True)
    assert tls.key_password == Secret("hush")
    assert not parse_uri("amqps://h?redelivery.tlsVerify=false").tls.verify


def test_java_only_options_are_listed_not_lost() -> None:
    """Options of the Java client are kept by name; only values that can be no credential are shown."""
    settings = parse_uri(
        "failover:(tcp://a:1?wireFormat.maxInactivityDuration=0,tcp://b:2)?jms.useAsyncSend=true&backup=true"
        "&jms.prefetchPolicy.queueBrowserPrefetch=7&nested.socket.keyStorePassword=x"
        "&jms.redeliveryPolicy.destination=queue://A&jms.copyMessageOnSend=a-passw0rd"
    )
    assert settings.inapplicable == {
        "wireFormat.maxInactivityDuration": "0",
        "jms.useAsyncSend": "true",
        "backup": "true",
        "jms.prefetchPolicy.queueBrowserPrefetch": "7",
        "nested.socket.keyStorePassword": "***",
        "jms.redeliveryPolicy.destination": "***",
        # Not repeated: the value may belong to another option.
        "jms.copyMessageOnSend": "***",
    }


def test_option_rows_show_each_supported_option() -> None:
    """The table for documentation and help has every supported option once, and no other."""
    rows = option_rows()
    names = [row[0] for row in rows]
    assert len(names) == len(set(names))
    assert ("redelivery.ordering", "blocking or non_blocking or per_group", "non_blocking") in {
        row[:3] for row in rows
    }
    assert all(len(row) == 5 and row[3] and row[4] for row in rows)


@for_each([*OPTIONS.values()])
def test_each_option_says_over_which_schemes_it_has_a_meaning(option: Option) -> None:
    """The schemes of the table can connect, and an option is refused over the others."""
    assert option.schemes <= set(SCHEMES)
    shown = {row[0]: row[3] for row in option_rows()}[option.name]
    if option.schemes == set(SCHEMES):
        assert shown == "all"
        return
    assert shown in ("all but memory", "stomp+ssl, amqps", "stomp+ssl, stomp")
    for scheme in set(SCHEMES) - option.schemes:
        with pytest.raises(ConfigurationError, match=f"{option.name} needs a .*://"):
            parse_uri(f"{scheme}://h?{option.name}=1")


@pytest.mark.parametrize("name", ["redelivery.queueArguments", "redelivery.deadLetterArguments"])
def test_what_a_queue_is_declared_with(name: str) -> None:
    """Arguments of queues are read as given; an ignored name, or one twice, is refused with the names it takes."""
    settings = parse_uri(f"stomp://h?{name}=x-queue-type:quorum,x-dead-letter-exchange:")
    found = settings.queue_arguments if "queue" in name else settings.dead_letter_arguments
    assert dict(found) == {"x-queue-type": "quorum", "x-dead-letter-exchange": ""}
    refusal = f"{name} (must be .* x-max-length, .*, not '|gives one argument twice)"
    for wrong in ("x-delivery-limit:3", "x-queue-type", "x-queue-type:quorum,,", "x-expires:1,x-expires:2"):
        with pytest.raises(ConfigurationError, match=refusal):
            parse_uri(f"stomp://h?{name}={wrong}")


@pytest.mark.parametrize(
    "argument", ["x-delayed-retry-type:failed", "x-delayed-retry-min:1", "x-delayed-retry-max:9",
                 "x-consumer-disconnected-timeout:90000"]
)  # fmt: skip
def test_what_quorum_queues_of_rabbitmq_43_are_declared_with(argument: str) -> None:
    """Arguments of quorum queues are accepted over AMQP; over STOMP the broker would ignore them."""
    assert parse_uri(f"amqp://h?redelivery.queueArguments={argument}").queue_arguments
    with pytest.raises(ConfigurationError, match="names out of"):
        parse_uri(f"stomp://h?redelivery.queueArguments={argument}")
