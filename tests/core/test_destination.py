"""Destinations."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery.core.destination import Destination
from redelivery.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "kind", "name", "qualified"),
    [
        ("orders", "queue", "orders", "queue://orders"),
        ("queue://orders", "queue", "orders", "queue://orders"),
        ("topic://PRICES.*", "topic", "PRICES.*", "topic://PRICES.*"),
        ("temp-queue://ID:1", "temp-queue", "ID:1", "temp-queue://ID:1"),
        ("temp-topic://ID:1", "temp-topic", "ID:1", "temp-topic://ID:1"),
        ("native:///amq/queue/a b?c,d", "native", "/amq/queue/a b?c,d", "native:///amq/queue/a b?c,d"),
        (" queue:// orders ", "queue", "orders", "queue://orders"),
        ("orders?consumer.prefetchSize=1", "queue", "orders", "queue://orders?consumer.prefetchSize=1"),
        ("queue://topic://x", "queue", "topic://x", "queue://topic://x"),
        ("queue://topic:x", "queue", "topic:x", "queue://topic:x"),
        ("/queue/orders", "queue", "/queue/orders", "queue:///queue/orders"),
        ("ünï.日本", "queue", "ünï.日本", "queue://ünï.日本"),
    ],
)
def test_parse(text: str, kind: str, name: str, qualified: str) -> None:
    """A name is parsed with its kind, a queue by default, and formatted as qualified text."""
    destination = Destination.parse(text)
    assert (destination.kind, destination.name, str(destination)) == (kind, name, qualified)
    assert Destination.parse(qualified) == destination
    assert Destination.parse(destination) is destination
    assert pickle.loads(pickle.dumps(destination)) == destination


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("A", ["queue://A"]),
        ("A, B", ["queue://A", "queue://B"]),
        ("topic://A,B,queue://C", ["topic://A", "topic://B", "queue://C"]),
        ("native://A,B", ["native://A,B"]),
    ],
)
def test_members(text: str, members: list[str]) -> None:
    """A composite lists its members, which have its kind unless they name one."""
    assert [str(member) for member in Destination.parse(text).members] == members


@pytest.mark.parametrize(
    "text", ["", " ", "queue://", "topic://?a=b", "A,,B", "A,", ",", "native://", "A,native://B"]
)
def test_a_missing_name_is_refused(text: str) -> None:
    """A destination without a name, or a composite with an empty member, is refused."""
    with pytest.raises(ConfigurationError, match="destination"):
        Destination.parse(text)


@pytest.mark.parametrize("text", ["topic:A", "native:A", "B,topic:A"])
def test_a_prefix_without_slashes_is_refused(text: str) -> None:
    """Camel's way to write a destination is refused with ours, and with the name of such a queue."""
    with pytest.raises(
        ConfigurationError, match=r"write '(topic|native)://A', or 'queue://(topic|native):A' for"
    ):
        Destination.parse(text)


@pytest.mark.parametrize("text", ["qeue://A", "http://A", "Topic://A", "queues://A"])
def test_an_unknown_prefix_is_refused(text: str) -> None:
    """An unknown prefix raises an error that lists the known ones; it does not become part of a queue's name."""
    with pytest.raises(ConfigurationError, match="queue://, topic://"):
        Destination.parse(text)


@pytest.mark.parametrize("value", [None, 3, b"queue://A", ["A"]], ids=repr)
def test_only_text_is_a_destination(value: Any) -> None:
    """Anything but text or a Destination is refused."""
    with pytest.raises(ConfigurationError, match="must be text or a Destination"):
        Destination.parse(value)


CONTROL = st.sampled_from([chr(c) for c in (*range(32), *range(127, 160), 0x2028, 0x2029, 0xD800)])


@given(
    st.sampled_from(["", "queue://", "topic://", "native://"]),
    st.text(max_size=8),
    CONTROL,
    st.text(max_size=8),
)
def test_header_injection_is_impossible(prefix: str, before: str, control: str, after: str) -> None:
    """No destination contains a control character, in any place and however it is built."""
    name = f"{before}{control}{after}"
    with pytest.raises(ConfigurationError):
        Destination.parse(prefix + name)
    with pytest.raises(ConfigurationError):
        Destination("native", name)
    with pytest.raises(ConfigurationError):
        Destination("queue", "A", name)


@pytest.mark.parametrize(
    ("kind", "name"), [("queues", "A"), ("queue", ""), ("queue", " A"), ("queue", "A?b=c"), ("native", " ")]
)
def test_the_constructor_checks_too(kind: str, name: str) -> None:
    """A destination built from its parts follows the same rules."""
    with pytest.raises(ConfigurationError):
        Destination(kind, name)


@given(
    st.sampled_from(["queue", "topic", "temp-queue", "temp-topic", "native"]),
    st.text(
        st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp"], blacklist_characters="?,"), min_size=1
    ),
)
def test_parse_reads_back_what_str_writes(kind: str, name: str) -> None:
    """`parse` of a destination's text returns an equal destination."""
    if name.strip() and (kind == "native" or name == name.strip()):
        destination = Destination(kind, name)
        again = Destination.parse(str(destination))
        assert again == destination or (kind == "native" and again.name == name.rstrip())
        assert hash(Destination.parse(str(again))) == hash(again)


def test_kinds() -> None:
    """A destination knows whether it is a topic and whether it is temporary."""
    assert Destination.parse("temp-topic://A").is_topic
    assert Destination.parse("temp-queue://A").is_temporary
    assert not Destination.parse("A").is_topic
    assert not Destination.parse("topic://A").is_temporary
