"""A scheme that no adapter serves, and the one that an error suggests."""

from __future__ import annotations

import re

import pytest

import redelivery
from redelivery import ConfigurationError
from redelivery.uri.parser import parse_uri, redact_uri


@pytest.mark.parametrize(
    ("scheme", "near"),
    [
        ("stomps", "stomp+ssl"),
        ("stomp+tls", "stomp+ssl"),
        ("stompssl", "stomp+ssl"),
        ("stom+ssl", "stomp+ssl"),
        ("amqp+tls", "amqps"),
        ("amqpssl", "amqps"),
        ("STOMPS", "stomp+ssl"),
        ("stmp", "stomp"),
        ("amq", "amqp"),
    ],
)
def test_a_scheme_that_asks_for_tls_is_answered_by_one_with_tls(scheme: str, near: str) -> None:
    """A near miss of a scheme with TLS has TLS."""
    with pytest.raises(ConfigurationError, match=f"did you mean {re.escape(repr(near))}"):
        parse_uri(f"{scheme}://h")


@pytest.mark.parametrize(
    ("scheme", "ours"),
    [
        ("tcp", "stomp://host:61613 or amqp://host:5672"),
        ("ssl", "stomp+ssl://host:61614 or amqps://host:5671"),
    ],
)
def test_a_scheme_of_the_java_client_is_answered_by_ours(scheme: str, ours: str) -> None:
    """A scheme of the Java client is answered by ours, with TLS for TLS."""
    with pytest.raises(ConfigurationError, match=re.escape(f"use {ours}; ")):
        redelivery.connect(f"{scheme}://h")


@pytest.mark.parametrize("written", ["amqp+ssl://b-1.mq.example.com:5671", "AMQP+SSL://b-1.mq.example.com"])
def test_the_scheme_that_amazon_mq_prints_is_read(written: str) -> None:
    """`amqp+ssl`, as the console of Amazon MQ prints it, is `amqps`, also in a list."""
    for uri in (written, f"failover:({written},amqps://b-2.mq.example.com)"):
        first = parse_uri(uri).endpoints[0]
        assert (first.scheme, first.host, first.port) == ("amqps", "b-1.mq.example.com", 5671)
        assert redact_uri(uri).count("amqps://b-1") == 1
