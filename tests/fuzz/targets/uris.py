"""Connection URIs: they are read or refused, never with a secret in a text."""

from __future__ import annotations

import re

from tests.fuzz.target import Target

from redelivery.errors import ConfigurationError
from redelivery.uri.option_table import OPTIONS
from redelivery.uri.parser import parse_uri, redact_uri

__all__ = ["TARGETS"]

_DICTIONARY = [
    *(f"{name}=".encode() for name in OPTIONS),
    b"&", b"?", b"=", b"%", b"%00", b"%2", b"%ff", b"@", b":", b"/", b"(", b")", b",", b"#", b"+", b" ", b"\0",
    b"failover:(", b"//", b"[", b"]", b"[::1]", b"%2e", b"%C3%28", b"%26", b"%40", b".", b">", b"*", b"true", b"false",
    b"jms.redeliveryPolicyMap.", b"jms.redeliveryPolicy.", b"redelivery.", b"redelivery.policy.",
    b"redelivery.policyMap.", b"1000,5000", b"sqlite:", b"\xc3\xa9", b"\xed\xa0\x80",
    b"stomp://", b"stomp+ssl://", b"amqp://", b"amqps://", b"memory://", b"tcp://", b"vm://",
]  # fmt: skip

# A mutation may make the secret the value of an option that is shown. It is no secret then.
_SHOWN = re.compile(
    rf"({'|'.join(re.escape(name) for name, option in OPTIONS.items() if option.kind != 'secret')})=[^&]*SECRETpw"
)


def seeds() -> list[bytes]:
    """Return URIs of all kinds, and one with each option."""
    plain = [
        "failover:(stomp://u:SECRETpw@a:61613,stomp://u:SECRETpw@b:61613)?jms.redeliveryPolicy.maximumRedeliveries=4",
        "amqps://h?redelivery.tlsCaFile=/x&jms.userName=bob&jms.password=SECRETpw",
        "memory://x?jms.redeliveryPolicyMap.FRED.>.maximumRedeliveries=3&redelivery.ledger=/tmp/a",
        "tcp://h:1?wireFormat.a=b&jms.useAsyncSend=true",
        "memory://x?redelivery.policyMap.FRED.>.delays=1000,5000&redelivery.policyMap.FRED.>.maximumElapsed=9",
        "stomp://h?redelivery.policy.maximumElapsed=9&jms.redeliveryPolicy.maximumRedeliveries=-1&jms.password=SECRETpw",
        "stomp+ssl://[::1]:1?jms.prefetchPolicy.all=10&redelivery.deadLetter=ack",
    ]
    values = ("1", "true", "x")
    return [
        uri.encode()
        for uri in (*plain, *(f"stomp://h?{name}={value}" for name in OPTIONS for value in values))
    ]


def check(data: bytes) -> None:
    """Read a URI and show it."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        shown = repr(parse_uri(text))
    except ConfigurationError as error:
        shown = f"{error}{error!r}"
    shown += redact_uri(text)
    assert "SECRETpw" not in shown or _SHOWN.search(text), shown


TARGETS = (Target(name="uri", check=check, seeds=seeds, dictionary=_DICTIONARY, memory_mb=32, longest=16384),)
