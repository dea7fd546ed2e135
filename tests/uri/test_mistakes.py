"""All mistakes of a connection URI in one error, and the URI that would work."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest
from tests.for_each import for_each

import redelivery
from redelivery.errors import ConfigurationError
from redelivery.uri import parser
from redelivery.uri.parser import parse_to_connect, parse_uri, redact_uri, rewritten_uri

if TYPE_CHECKING:
    from redelivery.settings import Settings
    from redelivery.uri.options_reader import Mistakes
    from redelivery.uri.syntax import UriParts

JAVA = (
    "failover:(tcp://bob:hunter2@a:61616?soTimeout=3,tcp://bob:hunter2@b:61616)"
    "?jms.redeliveryPolicy.maximumRedelivery=3&jms.useAsyncSend=true&wireFormat.maxInactivityDuration=0"
    "&priorityBackup=true&nested.soTimeout=3&jms.redeliveryPolicy.redeliveryDelay=5s&jms.prefetchPolicy.all=3"
)


def refused(uri: str) -> ConfigurationError:
    """Return the error over a URI that is to connect."""
    with pytest.raises(ConfigurationError) as caught:
        parse_to_connect(uri)
    return caught.value


def test_a_java_uri_is_refused_once_with_all_mistakes() -> None:
    """The scheme comes first, then wrong options, then the Java client's own, then the URI that works."""
    error = refused(JAVA)
    assert str(error).splitlines() == [
        "8 mistakes in the URI:",
        *error.errors,
        f"this works without jms.redeliveryPolicy.redeliveryDelay: {error.suggestion}",
    ]
    assert [text.split()[0] for text in error.errors] == [
        "tcp://", "unknown", "jms.redeliveryPolicy.redeliveryDelay", "soTimeout", "jms.useAsyncSend",
        "wireFormat.maxInactivityDuration", "priorityBackup", "nested.soTimeout",
    ]  # fmt: skip
    assert "did you mean 'jms.redeliveryPolicy.maximumRedeliveries'" in error.errors[1]
    assert "hunter2" not in str(error)
    assert "bob" not in str(error)
    assert error.suggestion == (
        "failover:(stomp://USER:PASSWORD@a:61613,stomp://USER:PASSWORD@b:61613)"
        "?jms.redeliveryPolicy.maximumRedeliveries=3&jms.prefetchPolicy.all=3"
    )
    assert redelivery.connect(error.suggestion).settings.policies.default.maximum_redeliveries == 3


def test_connect_refuses_with_all_mistakes() -> None:
    """`connect` lists the mistakes of a Java URI; `parse_uri`, which only explains it, those of its options."""
    uri = "tcp://a?jms.useAsyncSend=true&redelivery.credit=x"
    with pytest.raises(ConfigurationError) as caught:
        redelivery.connect(uri)
    assert len(caught.value.errors) == 3
    with pytest.raises(ConfigurationError) as caught:
        parse_uri(uri)
    assert len(caught.value.errors) == 1
    assert parse_uri("tcp://a?jms.useAsyncSend=true").inapplicable == {"jms.useAsyncSend": "true"}


def test_mistakes_of_every_group_are_listed() -> None:
    """A wrong value hides no other one, in another group of options or in the same."""
    names = (
        "redelivery.heartbeat", "redelivery.rate", "redelivery.deadLetter",
        "redelivery.breakerFailures", "redelivery.queueArguments", "redelivery.ordering", "redelivery.scheduler",
        "redelivery.ledger", "redelivery.maxParked", "redelivery.tlsVerify", "jms.nonBlockingRedelivery",
        "jms.redeliveryPolicy.redeliveryDelay", "jms.redeliveryPolicy.useExponentialBackOff",
        "redelivery.policy.maximumElapsed", "redelivery.processExpired",
    )  # fmt: skip
    query = "&".join(f"{name}=(" for name in names)
    more = "redelivery.deadLetterDestination=A.>&jms.redeliveryPolicyMap.A.redeliveryDelay=x&no.such=1"
    error = refused(f"stomp+ssl://h?{query}&{more}")
    for name in (
        *names,
        "redelivery.deadLetterDestination",
        "jms.redeliveryPolicyMap.queue://A.redeliveryDelay",
        "no.such",
    ):
        assert any(name in text for text in error.errors), (name, error.errors)


def test_contradictions_of_options_that_are_right_alone_are_listed() -> None:
    """Several contradictions of one URI are all reported; one that follows from a wrong value is not."""
    error = refused(
        "stomp://u@h?jms.userName=v&jms.prefetchPolicy.all=3&jms.prefetchPolicy.topicPrefetch=4"
        "&redelivery.breaker=off&redelivery.breakerFailures=1&redelivery.deadLetter=ack&redelivery.scheduler=broker"
    )
    assert len(error.errors) == 4
    error = refused("stomp://h?redelivery.deadLetterStrategy=indvidual&redelivery.queuePrefix=x")
    assert error.errors == [str(error)]
    assert "did you mean 'individual'" in str(error)


def test_twenty_are_listed() -> None:
    """Of many mistakes the text lists 20 and counts the others; `errors` has all."""
    error = refused("stomp://h?" + "&".join(f"no.option{'x' * n}=1" for n in range(1, 31)))
    lines = str(error).splitlines()
    assert (len(error.errors), len(lines), lines[-1]) == (30, 22, "and 10 more")


@for_each(["stomp://h?jms.useAsyncSend=true", "tcp://h:61616"])
def test_one_mistake_is_one_line(uri: str) -> None:
    """A single mistake stays one line, with the URI that works behind it."""
    error = refused(uri)
    assert len(error.errors) == 1
    assert str(error) == f"{error.errors[0]}; this works: stomp://h:61613"


def test_an_error_is_copied_whole() -> None:
    """The list of mistakes and the suggestion go with a copy of the error, and through pickle."""
    error = refused(JAVA)
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (other.errors, other.suggestion, str(other)) == (error.errors, error.suggestion, str(error))
    plain = ConfigurationError("one", option="x")
    assert (plain.errors, plain.suggestion) == (["one"], None)


@pytest.mark.parametrize(
    ("uri", "works"),
    [
        ("ssl://h?jms.useAsyncSend=true", "stomp+ssl://h:61614"),
        ("nio://h:1?keepAlive=true", "stomp://h:61613"),
        ("vm://broker", None),
        (
            "failover:(amqps://h:1?transport.trustAll=true)?jms.username=x",
            "failover:(amqps://h:1)?jms.userName=USER",
        ),
        ("tcp://h?jms.password=ab@cd&jms.useAsyncSend=true", None),
        ("failover:(stomp://a,tcp://b)", "failover:(stomp://a:61613,stomp://b:61613)"),
        ("tcp://h?consumer.prefetchSize=5", "stomp://h:61613?jms.prefetchPolicy.all=5"),
        ("tcp://h?jms.clientID=a;b", "stomp://h:61613?jms.clientID=***"),
    ],
)
def test_the_uri_that_works(uri: str, works: str | None) -> None:
    """A scheme becomes ours with its default port, TLS stays TLS, the Java client's options go."""
    error = refused(uri)
    if works is not None or "@" in uri:
        assert error.suggestion == works


def test_options_of_destinations_are_explained() -> None:
    """An option that the Java client takes behind a queue's name says what is written here."""
    assert "write jms.prefetchPolicy.all, or listen(credit=...)" in str(
        refused("stomp://u@h?consumer.prefetchSize=1")
    )


def test_explained_uris_mask_secrets_only() -> None:
    """The Java client's options are shown with plain values; a value that may be a secret is not."""
    shown = redact_uri(
        "failover:(tcp://bob:hunter2@a:61616?soTimeout=3)?jms.useAsyncSend=true&wireFormat.maxInactivityDuration=0"
        "&priorityBackup=true&nested.socket.keyStorePassword=hush&jms.copyMessageOnSend=a-passw0rd&hunter=1"
    )
    assert shown == (
        "failover:(tcp://a:61616)?jms.useAsyncSend=true&wireFormat.maxInactivityDuration=0&priorityBackup=true"
        "&nested.socket.keyStorePassword=***&jms.copyMessageOnSend=***&***"
    )


@pytest.mark.parametrize(
    ("uri", "mistakes"),
    [
        ("tcp://h?redelivery.scheduler=broker&redelivery.ordering=nonblocking", ["redelivery.ordering must"]),
        ("stomp://h?jms.nonBlockingRedelivery=ture&redelivery.ordering=blocking", ["jms.nonBlockingRedelivery must"]),
        (
            "stomp://h?jms.prefetchPolicy.topicPrefetch=x&redelivery.credit=few",
            ["redelivery.credit must", "jms.prefetchPolicy.topicPrefetch must"],
        ),
        (
            "stomp://h?jms.prefetchPolicy.all=3&jms.prefetchPolicy.topicPrefetch=x",
            ["jms.prefetchPolicy.topicPrefetch must"],
        ),
        (
            "failover:(tcp://h)?failover.timeout=3&failover.randomize=true",
            ["unknown option failover.timeout", "failover.randomize is an option of Qpid JMS only; remove it"],
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_makes_one_mistake(uri: str, mistakes: list[str]) -> None:
    """A wrong value that two groups read makes one mistake, and no contradiction; it hides none of its own group."""
    with pytest.raises(ConfigurationError) as caught:
        parse_uri(uri)
    assert len(caught.value.errors) == len(mistakes), caught.value.errors
    for text, begin in zip(caught.value.errors, mistakes, strict=True):
        assert text.startswith(begin)


@for_each(
    ["jms.clientPwd", "clientPwd", "jms.clientKey", "jms.clientAuth", "jms.clientToken", "jms.clientPassword"]
)
def test_a_secret_gets_no_open_name(name: str) -> None:
    """A misspelt option that sounds like a secret is not taken for one whose value is shown."""
    for error in (
        refused(f"tcp://h?{name}=hunter2"),
        refused(f"stomp://h?jms.useAsyncSend=true&{name}=hunter2"),
    ):
        assert "hunter2" not in str(error)
        assert error.suggestion is not None
    assert "hunter2" not in repr(rewritten_uri(f"tcp://h?{name}=hunter2"))


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("jms.redeliveryPolicyMap.A.redeliveryDelay=x", "jms.redeliveryPolicyMap.A.redeliveryDelay"),
        ("jms.redeliveryPolicyMap.A.redeliveryDely=1", "jms.redeliveryPolicyMap.A.redeliveryDely"),
        ("jms.redeliveryPolicy.MaximumRedeliveries=x", "jms.redeliveryPolicy.MaximumRedeliveries"),
        (
            "redelivery.policyMap.A.delays=1&jms.redeliveryPolicyMap.A.maximumRedeliveries=2",
            "redelivery.policyMap.A.delays",
        ),
    ],
)  # fmt: skip
def test_only_the_wrong_option_is_left_out(options: str, left: str) -> None:
    """Of a policy map only the option that is wrong is left out, in any spelling; the other patterns stay."""
    found = rewritten_uri(f"tcp://h?{options}&jms.redeliveryPolicyMap.B.maximumRedeliveries=2")
    assert found.left_out == (left,)
    assert any(note.endswith("; left out") for note in found.notes)
    assert found.options["jms.redeliveryPolicyMap.B.maximumRedeliveries"] == "2"
    assert left not in found.options


def test_a_pattern_of_a_uri_with_credentials_is_not_named() -> None:
    """Where a URI has credentials, an option that is left out is named without its pattern."""
    error = refused("tcp://u:p@h?jms.redeliveryPolicyMap.hunter2.maximumRedeliveris=3")
    assert "this works without jms.redeliveryPolicyMap.<pattern>.<option>: " in str(error)
    assert "hunter2" not in str(error)


def test_many_contradictions_are_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 patterns whose options contradict each other one option each is left out, without a search for each."""
    read: list[UriParts] = []
    before = parser._collected

    def collected(parts: UriParts, mistakes: Mistakes, *, connects: bool) -> Settings | None:
        read.append(parts)
        return before(parts, mistakes, connects=connects)

    monkeypatch.setattr(parser, "_collected", collected)
    one = "redelivery.policyMap.A{0}.delays=1&jms.redeliveryPolicyMap.A{0}.maximumRedeliveries=2"
    found = rewritten_uri("tcp://h?" + "&".join(one.format(number) for number in range(50)))
    assert (len(found.left_out), len(found.options), len(read) <= 110) == (50, 50, True), len(read)
