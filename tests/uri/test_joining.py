"""Options added to a connection URI, and a URI that ends in `&`."""

from __future__ import annotations

import pytest

from redelivery.errors import ConfigurationError
from redelivery.uri.parser import parse_uri, redact_uri
from redelivery.uri.syntax import with_options

MORE = {"redelivery.heartbeat": "7000"}


@pytest.mark.parametrize(
    "uri",
    ["stomp://h", "stomp://h?", "stomp://h?jms.clientID=a", "stomp://h?jms.clientID=a&", "stomp://h?jms.clientID=a&&",
     "stomp://h?&", "failover:(stomp://h)", "failover:(stomp://h)?timeout=3", "failover:(stomp://h)?timeout=3&"],
)  # fmt: skip
def test_options_are_added(uri: str) -> None:
    """An added option is read as one more option, whatever the URI ends in."""
    before, after = parse_uri(uri), parse_uri(with_options(uri, MORE))
    assert (after.heartbeat, after.client_id, after.failover) == (7.0, before.client_id, before.failover)
    assert with_options(uri, {}) == uri


def test_values_are_escaped() -> None:
    """A value with any character is read as it was."""
    value = "a&b=c d%+?#ä@)"
    assert parse_uri(with_options("stomp://h", {"jms.clientID": value})).client_id == value


@pytest.mark.parametrize("end", ["&", "&&", "&&&"])
@pytest.mark.parametrize(
    "head", ["tcp://h:1", "stomp://h:1", "failover:(tcp://h:1)", "failover:(stomp://h:1)"]
)
def test_a_uri_may_end_in_ampersands(head: str, end: str) -> None:
    """Any number of & behind the last option is ignored, as by the Java client (6.1.7, run)."""
    uri = f"{head}?jms.redeliveryPolicy.maximumRedeliveries=2{end}"
    assert parse_uri(uri).policies == parse_uri(uri.rstrip("&")).policies
    assert redact_uri(uri) == redact_uri(uri.rstrip("&"))


@pytest.mark.parametrize("query", ["&jms.clientID=a", "jms.clientID=a&&redelivery.heartbeat=1"])
def test_an_empty_option_between_others_is_refused(query: str) -> None:
    """An empty option between others is one sentence; the Java client raises a NullPointerException."""
    for scheme in ("tcp", "stomp"):
        with pytest.raises(ConfigurationError, match="there is none between two &"):
            parse_uri(f"{scheme}://h?{query}")
