"""Refusals of connection URIs, and texts that no error and no repr may show."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.metadata import EntryPoint, EntryPoints
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redelivery
from redelivery import registry
from redelivery.errors import ConfigurationError
from redelivery.registry import schemes
from redelivery.uri.parser import parse_uri, redact_uri


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("redelivery.scheduler=borker", "redelivery.scheduler"),
        ("redelivery.scheduler=broker&redelivery.ordering=blocking", "cannot keep an order"),
        ("redelivery.scheduler=broker&redelivery.ordering=per_group", "not per_group"),
        ("redelivery.scheduler=broker&jms.nonBlockingRedelivery=false", "not blocking"),
        ("redelivery.scheduler=broker&redelivery.deadLetter=ack", "contradicts redelivery.deadLetter=ack"),
        (
            "redelivery.deadLeter=ack",
            "unknown option redelivery.deadLeter; did you mean 'redelivery.deadLetter'",
        ),
        ("redelivery.DeadLetter=ack", "did you mean 'redelivery.deadLetter'"),
        ("maximumRedeliveries=3", "did you mean 'jms.redeliveryPolicy.maximumRedeliveries'"),
        ("jms.redeliveryPolicy.zzz=3", "allowed: maximumRedeliveries, "),
        ("redelivery.maximumRedeliveries=5", "did you mean 'jms.redeliveryPolicy.maximumRedeliveries'"),
        ("jms.initialRedeliveryDelay=5", "did you mean 'jms.redeliveryPolicy.initialRedeliveryDelay'"),
        ("jms.redeliveryPolicyMap.orders.zzz=1", "unknown option jms.redeliveryPolicyMap.queue://orders.zzz"),
        ("jms.redeliveryPolicyMap.maximumRedeliveries=1", "needs a pattern and an option"),
        ("jms.redeliveryPolicyMap..maximumRedeliveries=1", "needs a pattern and an option"),
        ("jms.redeliveryPolicyMap.qeue://A.redeliveryDelay=1", "did you mean 'queue'"),
        (
            "jms.redeliveryPolicyMap.A.redeliveryDelay=1&jms.redeliveryPolicyMap.queue://A.redeliveryDelay=2",
            "twice",
        ),
        ("jms.redeliveryPolicyMap.or*ers.redeliveryDelay=1", "whole part, > only at the end"),
        ("jms.redeliveryPolicyMap.a.>.x.redeliveryDelay=1", "whole part, > only at the end"),
        ("redelivery.credit=4&redelivery.credit=5", "redelivery.credit is given twice in the URI"),
        ("hunter=4&hunter=5", "an option is given twice in the URI"),
        (
            "jms.redeliveryPolicyMap.A.*.maximumRedeliveries=4&jms.redeliveryPolicyMap.A.*.maximumRedeliveries=5",
            "jms.redeliveryPolicyMap.A.*.maximumRedeliveries is given twice in the URI",
        ),
        (
            "jms.password=p&redelivery.policyMap.A.delays=4&redelivery.policyMap.A.delays=5",
            "redelivery.policyMap.<pattern>.delays is given twice in the URI",
        ),
        ("jms.redeliveryPolicyMap.A.maxRedeliveries=1", "did you mean 'maximumRedeliveries'"),
        (
            "jms.password=p&jms.redeliveryPolicyMap.A.maximumRedeliverys=1",
            "name not shown.; did you mean 'maximumRedeliveries'",
        ),
        (
            "redelivery.ledger=/var/x.db",
            "redelivery.ledger=/var/x.db: a ledger is sqlite:///relative/path or",
        ),
        ("redelivery.ledger=sqlite:///", "a ledger is sqlite:///relative/path or sqlite:////absolute/path"),
        ("redelivery.credit=0", "redelivery.credit must be a whole number from 1"),
        ("redelivery.credit=-1", "whole number from 1"),
        ("redelivery.credit=Auto", "or auto, not 'Auto'"),
        ("jms.prefetchPolicy.queuePrefetch=0", "whole number from 1"),
        ("jms.prefetchPolicy.all=3&jms.prefetchPolicy.topicPrefetch=4", "all contradicts"),
        ("jms.prefetchPolicy.queueBrowserPrefetch=4", "Java client only"),
        ("jms.useAsyncSend=true", "jms.useAsyncSend is an option of the Java client only; remove it"),
        (
            "wireFormat.maxInactivityDuration=1",
            "is an option of the Java client only; write redelivery.heartbeat",
        ),
        ("wireFormat.maxInactivityDuration=0", "Java client only"),
        ("transport.tcpNoDelay=true", "Java client only"),
        ("redelivery.maxParked=0", "whole number from 1"),
        ("redelivery.ordering=ordered", "blocking, non_blocking, per_group"),
        ("redelivery.ordering=non-blocking", "did you mean 'non_blocking'"),
        ("redelivery.ordering=blocking&jms.nonBlockingRedelivery=true", "contradicts"),
        ("redelivery.ordering=per_group&jms.nonBlockingRedelivery=false", "contradicts"),
        ("jms.nonBlockingRedelivery=yes", "true or false"),
        ("redelivery.heartbeat=0", "whole number of milliseconds from 100"),
        ("redelivery.heartbeat=1s", "whole number of milliseconds"),
        ("redelivery.connectTimeout=0", "from 1"),
        ("redelivery.maximumHeaderBytes=1023", "whole number from 1024"),
        ("redelivery.maximumMessageBytes=1MiB", "whole number from 1024"),
        ("redelivery.virtualHost=", "must not be empty"),
        ("redelivery.deadLetter=nack", "auto, ack, forward, discard"),
        ("redelivery.deadLetter=ack&redelivery.deadLetterDestination=D", "makes none"),
        ("redelivery.deadLetter=discard&redelivery.deadLetterExpiration=1", "makes none"),
        ("redelivery.deadLetterDestination=A,B", "must be one queue"),
        ("redelivery.deadLetterDestination=A.>", "without wildcards"),
        ("redelivery.deadLetterDestination=temp-queue://A", "must be one queue"),
        ("redelivery.deadLetterDestination=", "has no name"),
        ("jms.redeliveryPolicy.outcome=RELEASED", "for ever"),
        ("jms.redeliveryPolicy.outcome=4", "MODIFIED_FAILED releases"),
        ("jms.redeliveryPolicy.outcome=MODIFIED_FAILED_UNDELIVERABLE", "not supported yet"),
        ("jms.redeliveryPolicy.outcome=NOPE", "one of ACCEPTED, REJECTED"),
        ("jms.redeliveryPolicy.outcome=ACCEPTED&redelivery.deadLetter=ack", "same setting"),
        ("jms.redeliveryPolicy.maxRedeliveries=1&jms.redeliveryPolicy.maximumRedeliveries=1", "same setting"),
        (
            "jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.MaximumRedeliveries=1",
            "two spellings",
        ),
        ("redelivery.tlsCaFile=/ca.pem", "needs a stomp.ssl:// or amqps:// address"),
        ("jms.redeliveryPolicy.preDispatchCheck=no", "preDispatchCheck must be true or false"),
        ("randomize=false", "randomize is misplaced"),
        ("failover.maxReconnectAttempts=1", "misplaced"),
        ("redelivery.credit", "redelivery.credit has no value"),
        ("&redelivery.credit=1", "name=value"),
        ("redelivery.credit=1?redelivery.maxParked=2", "one . before its options"),
        ("jms.clientID=%zz", "two hexadecimal digits"),
        ("jms.clientID=%ff", "not UTF-8"),
        ("jms.clientID=a%0Ab", "control character"),
        ("jms.clientID=a#b", "%23"),
    ],
)
def test_options_refused(query: str, message: str) -> None:
    """An option that cannot be honoured is refused with one sentence that says what is allowed."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        parse_uri(f"stomp://h?{query}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "not empty"),
        ("localhost:61613", "scheme://host:port"),
        ("stomp:h", "scheme://host:port"),
        ("stomp://a,stomp://b", r"several addresses are written failover:\(uri1,uri2\)"),
        ("(stomp://a,stomp://b)", r"several addresses are written failover:\(uri1,uri2\)"),
        ("tcp://a:61616,tcp://b:61616", r"several addresses are written failover:\(uri1,uri2\)"),
        ("stomp://h?redelivery.credit=5&amp;redelivery.rate=2", "written &amp; in XML only"),
        ("stomp://h?user=bob", "user is a name of Artemis' client: write jms.userName"),
        ("stmp://h", "did you mean 'stomp'"),
        ("stom://h", "did you mean 'stomp'"),
        ("memory://a/b", "memory:// takes a name and no path"),
        ("Memory://a/b", "memory:// takes a name and no path"),
        ("stomp://", "needs a host"),
        ("stomp://h:", "needs a host"),
        ("stomp://::1:61613", r"in brackets, as in \[::1\]:61613"),
        ("stomp://u:p@fe80::1", r"in brackets, as in \[::1\]:61613"),
        ("stomp://[fe80::1%25eth0]:61613", "no zone"),
        ("stomp://${host}:61613", r"write the value of the placeholder \$\{...\}"),
        ("stomp://h:x", "needs a host"),
        ("stomp://h:0", "1 to 65535"),
        ("stomp://h:65536", "1 to 65535"),
        ("stomp://h/vhost", "redelivery.virtualHost"),
        ("stomp://h ", "no blanks"),
        ("stomp://u:p@q@h", "%40"),
        ("stomp://:p@h", "user:password@"),
        ("stomp://u:p:q@h", "user:password@"),
        ("stomp://u@h?jms.userName=v", "credentials are given twice"),
        ("stomp://u@h?jms.password=v", "credentials are given twice"),
        ("memory://demo:1", "no port"),
        ("memory://u@demo", "no user name"),
        (
            "memory://x?jms.userName=u",
            "jms.userName needs a stomp://, stomp.ssl://, amqp:// or amqps:// address",
        ),
        ("memory://x?jms.password=p", "jms.password needs a stomp://"),
        ("memory://x?redelivery.heartbeat=1000", "redelivery.heartbeat needs a stomp://"),
        ("memory://x?redelivery.connectTimeout=1000", "redelivery.connectTimeout needs a stomp://"),
        ("memory://x?redelivery.virtualHost=v", "redelivery.virtualHost needs a stomp://"),
        ("amqp://x?redelivery.maximumMessageBytes=9999", "redelivery.maximumMessageBytes needs a stomp"),
        ("memory://x?redelivery.tlsVerify=false", "tlsVerify needs a stomp.ssl:// or amqps:// address"),
        ("failover:(memory://x)?redelivery.heartbeat=1000", "redelivery.heartbeat needs a stomp://"),
        ("tcp://h?redelivery.tlsVerify=false", "tlsVerify needs a stomp.ssl:// or amqps:// address"),
        ("failover:(stomp://a", "failover is written"),
        ("failover:(stomp://a)x", "failover is written"),
        ("failover:(stomp://a)&redelivery.credit=1", "failover is written"),
        ("failover:stomp://a?redelivery.credit=1", "no options"),
        ("failover:()", "scheme://host:port"),
        ("failover:(stomp://a,)", "scheme://host:port"),
        ("failover:(failover:(stomp://a))", "failover is written"),
        ("failover:(stomp://a?redelivery.credit=1)", "redelivery.credit is misplaced"),
        ("failover:(stomp://a?keepAlive=true)", "keepAlive is misplaced"),
        ("failover:(tcp://a?jms.useAsyncSend=true)", "misplaced"),
        ("failover:(stomp://a,amqp://b)", "one protocol"),
        ("failover:(stomp://a,tcp://b)", "one protocol"),
        ("failover:(stomp://u:p@a,stomp://v:p@b)", "same credentials"),
        ("failover:(stomp://a)?maxReconnectAttempts=1&failover.maxReconnectAttempts=1", "same setting"),
        ("failover:(stomp://a)?failover.initialReconnectDelay=0&failover.reconnectDelay=1", "same setting"),
        ("failover:(stomp://a)?initialReconnectDelay=9&maxReconnectDelay=8", "must not be longer"),
        ("failover:(stomp://a)?backOffMultiplier=0.5", "of at least 1"),
        ("failover:(stomp://a)?backup=true", "Java client only"),
        ("failover:(tcp://a)?failover.maxReconnectAttempts=1", "of Qpid JMS only; remove it"),
        ("tcp://h?jms.redeliveryPolicy.maxRedeliveries=1", "of Qpid JMS only; remove it"),
        ("stomp+ssl://h?redelivery.tlsKeyFile=k", "needs redelivery.tlsCertFile"),
        ("stomp+ssl://h?redelivery.tlsCaFile=c&redelivery.tlsVerify=false", "contradicts"),
    ],
)
def test_addresses_refused(uri: str, message: str) -> None:
    """An address, a failover list or a combination that makes no sense is refused."""
    with pytest.raises(ConfigurationError, match=message):
        parse_uri(uri)
    assert redact_uri(uri)


def test_an_unknown_scheme_is_told_those_that_are_installed() -> None:
    """The error over an unknown scheme lists only schemes that an adapter serves."""
    with pytest.raises(ConfigurationError) as caught:
        parse_uri("kafka://h")
    assert str(caught.value) == (
        f"the URI's scheme 'kafka' is unknown; those that can connect: {', '.join(schemes())}"
    )


def test_a_scheme_without_an_adapter_is_not_supported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error over a scheme of ours without an adapter lists those that can connect."""
    memory = EntryPoint("memory", "redelivery_memory:MemoryAdapter", registry.GROUP)
    monkeypatch.setattr(registry, "_installed", lambda: EntryPoints([memory]))
    monkeypatch.setattr(registry, "_registered", {})
    with pytest.raises(ConfigurationError) as caught:
        redelivery.connect("amqps://h")
    assert str(caught.value) == "amqps:// is not supported yet; these schemes can connect: memory"


@pytest.mark.parametrize(
    ("uri", "user", "password"),
    [
        ("stomp://bob:hush@h", "bob", "hush"),
        ("stomp://bob@h", "bob", None),
        ("stomp://b%40b:h%3Aus%2Bh+@h", "b@b", "h:us+h+"),
        ("stomp://h?jms.userName=bob&jms.password=hu%26sh", "bob", "hu&sh"),
        ("failover:(stomp://bob:hush@a,stomp://bob:hush@b)", "bob", "hush"),
        ("failover:(stomp://bob:hush@a,stomp://b)", "bob", "hush"),
    ],
)
def test_credentials(uri: str, user: str, password: str | None) -> None:
    """Credentials stand before the host or in options, percent-encoded where needed, and print nowhere."""
    found = parse_uri(uri)
    assert found.user_name == user
    assert (found.password and found.password.reveal()) == password
    for text in (repr(found), str(found), f"{found.password!r}{found.password}", redact_uri(uri)):
        assert "bob" not in text
        assert "hush" not in text


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("stomp://u:p@h?redelivery.credit=5", "stomp://h:61613?redelivery.credit=5"),
        ("failover:(stomp://a,stomp://b:1)?jms.password=x", "failover:(stomp://a:61613,stomp://b:1)?jms.password=***"),
        ("stomp://h?jms.pasword=x&redelivery.credit=1", "stomp://h:61613?***&redelivery.credit=1"),
        ("stomp://h?jms.redeliveryPolicyMap.A.>.redeliveryDelay=1",
         "stomp://h:61613?jms.redeliveryPolicyMap.A.>.redeliveryDelay=1"),
        ("stomp://h?redelivery.policy.delays=1,2&redelivery.policyMap.A.>.maximumElapsed=3",
         "stomp://h:61613?redelivery.policy.delays=1,2&redelivery.policyMap.A.>.maximumElapsed=3"),
        ("stomp://h?jms.clientID=x;jms.password=y", "stomp://h:61613?jms.clientID=***"),
        ("stomp://u:12345?jms.clientID=b@h", "***"),
        ("stomp://u:p/w@h", "***"),
        ("user:password@host", "***"),
    ],
)  # fmt: skip
def test_redact(uri: str, shown: str) -> None:
    """A URI is shown without credentials; it is `***` if any part could belong to one."""
    assert redact_uri(uri) == shown


SHAPES = (
    "stomp://bob:{}@h", "stomp://{}@h:1", "stomp://h?jms.password={}", "stomp://h?jms.userName=bob&jms.password={}&jms.bogus=1",
    "failover:(stomp://bob:{}@a,stomp://b)?randomize=maybe", "stomp://h?jms.pasword={}", "stomp://bob:{}@h?redelivery.credit=x",
    "stomp+ssl://h?redelivery.tlsKeyPassword={}", "bob:{}@h", "stomp://bob:{}@h:99999", "stmp://bob:{}@h",
    "tcp://h?jms.password={}&bogus=1", "tcp://h?socket.keyStorePassword={}", "stomp://h?jms.password={}&redelivery.deadLetterDestination=A,,B",
)  # fmt: skip


# Letters that no text of the library has four of in a row, and every character that means something in a URI.
secrets = st.text(st.sampled_from("qzxjQZXJ7@:/?&=#,;()%+[]'\" \n\u00e9"), min_size=4, max_size=20)


@given(st.sampled_from(SHAPES), secrets, st.booleans())
def test_no_secret_is_ever_shown(shape: str, secret: str, encoded: bool) -> None:
    """No error, repr or redaction shows a password, wherever it stands, encoded or not."""
    uri = shape.format(quote(secret, safe="") if encoded else secret)
    texts = [redact_uri(uri)]
    try:
        found = parse_uri(uri)
    except ConfigurationError as error:
        texts += [str(error), repr(error), str(error.option), str(error.__cause__)]
    else:
        texts += [repr(found), str(found), repr(found.tls), repr(found.policies)]
    # A stray & or @ can cut the secret in pieces; none of them is shown.
    for piece in re.findall("[qzxjQZXJ7]{4,}", secret):
        assert not any(piece in text for text in texts)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text is a URI or a ConfigurationError, never another exception."""
    for uri in (
        text,
        f"stomp://{text}",
        f"stomp://h?{text}",
        f"failover:({text}",
        f"stomp://h?jms.redeliveryPolicyMap.{text}=1",
    ):
        with suppress(ConfigurationError):
            parse_uri(uri)
        assert redact_uri(uri)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("STOMP://h:1?jms.userName=A", "stomp://h:1?jms.userName=A"),
        ("Stomp+SSL://h", "stomp+ssl://h"),
        ("FailOver:(STOMP://a,Stomp://b)?randomize=false", "failover:(stomp://a,stomp://b)?randomize=false"),
        ("Memory://Shop", "memory://Shop"),
    ],
)
def test_the_case_of_a_scheme_does_not_matter(written: str, meant: str) -> None:
    """The case of a scheme does not matter (RFC 3986); the case of all the rest does."""
    assert repr(parse_uri(written)) == repr(parse_uri(meant))
