"""Errors do not repeat a password that stands in the wrong place of a URI."""

from __future__ import annotations

import traceback

import pytest
from tests.for_each import for_each

from redelivery.errors import ConfigurationError
from redelivery.uri.option_table import OPTIONS
from redelivery.uri.parser import parse_uri

PASSWORDS = (
    "Tr0ub4dor3",
    "hunter2",
    "correcthorsebatterystaple",
    "u:hunter2",
    "a-B9_x",
    "12345abcdef",
    "PaSsWoRt",
)


def said(uri: str) -> str:
    """Return the texts of the error over a URI; empty if it is accepted."""
    try:
        parse_uri(uri)
    except ConfigurationError as error:
        return "".join([*traceback.format_exception(error), repr(error), str(error.option)])
    return ""


@pytest.mark.ci("the command line with each option: 0.6 s")
@for_each(sorted(OPTIONS))
def test_a_password_in_another_option(name: str) -> None:
    """An error repeats a value only if it is a number, near a word of the option, or the option takes any text."""
    for uri in (f"stomp+ssl://h?{name}=%s", f"failover:(stomp://h)?{name}=%s", f"tcp://h?{name}=%s"):
        for password in PASSWORDS:
            assert password not in said(uri % password)


@for_each(PASSWORDS)
def test_a_password_in_place_of_a_name(password: str) -> None:
    """The second half of a password with a & in it is not repeated as the name of an option."""
    letters_alone = password.isalpha()
    for uri in (f"stomp://h?{password}=1", f"stomp://h?jms.redeliveryPolicyMap.A.{password}=1"):
        assert letters_alone or password not in said(uri)
    quiet = f"stomp://h?jms.userName=bob&{password}=1"
    assert password not in said(quiet)
    assert password not in said(f"stomp://h?jms.userName=bob&jms.redeliveryPolicyMap.A.{password}=1")


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("redelivery.heartbeat=5s", "'5s'"),
        ("redelivery.heartbeat=-1", "not -1"),
        ("jms.redeliveryPolicy.backOffMultiplier=NaN", "'NaN'"),
        ("jms.redeliveryPolicy.maximumRedeliveries=1e3", "'1e3'"),
        ("redelivery.ordering=nonblocking", "'nonblocking'"),
        ("jms.redeliveryPolicy.useExponentialBackOff=yes", "'yes'"),
        ("redelivery.ledger=sqlite:ledger.db", "sqlite:ledger.db"),
        ("redelivery.deadLetterDestination=queue://", "queue://"),
    ],
)
def test_what_explains_an_error_is_repeated(option: str, shown: str) -> None:
    """An error repeats a number, a word near one of the option, or a path."""
    assert shown in said(f"stomp://h?{option}")
