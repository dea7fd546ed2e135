"""Header blocks of one shape are read column by column, and say what each delivery says by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery.driver.port import column_reader, restorer
from redelivery.errors import ConfigurationError

PROPERTIES = (
    "identity", "destination", "content_type", "correlation_id", "reply_to", "timestamp", "redelivered", "headers",
)  # fmt: skip
BROKERS = ["artemis", "activemq", "rabbitmq"]
NAMES = st.sampled_from(
    [
        "message-id",
        "destination",
        "timestamp",
        "redelivered",
        "content-type",
        "correlation-id",
        "reply-to",
        "kind",
        "é",
        "",
    ]
)
VALUES = st.text(alphabet="aé:0\\c,/", max_size=5) | st.sampled_from(
    [
        "true",
        "0",
        "1700000000123",
        "253402300799999",
        "253402300800000",
        "007",
        "٣",
        "/queue/a",
        "topic://t",
        "1,2",
    ]
)
LINES = st.one_of(NAMES, st.just("no colon"))


@st.composite
def even_heads(draw: st.DrawFn) -> list[bytes]:
    """Header blocks with the same names in the same order, some of them twice."""
    names = draw(st.lists(LINES, max_size=6))
    rows = draw(st.integers(1, 4))
    made: list[bytes] = []
    for _ in range(rows):
        lines = [name if name == "no colon" else f"{name}:{draw(VALUES)}" for name in names]
        made.append("".join(f"\n{line}" for line in lines).encode() + b"\n")
    return made


def wire(broker: str) -> dict[str, str]:
    """Return how deliveries of a broker's queue are read."""
    return {"scheme": "stomp", "broker": broker, "version": "1.2", "destination": "queue://a"}


def said(broker: str, heads: list[bytes]) -> dict[str, list[Any]]:
    """Return what each delivery says by itself; times as microseconds."""
    restore = restorer(wire(broker))
    deliveries = [restore(head, b"x", 0.0) for head in heads]
    found: dict[str, list[Any]] = {name: [getattr(each, name) for each in deliveries] for name in PROPERTIES}
    epoch, unit = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    found["timestamp"] = [None if time is None else (time - epoch) // unit for time in found["timestamp"]]
    found["headers"] = [list(each.items()) for each in found["headers"]]
    return found


def read(broker: str, heads: list[bytes]) -> dict[str, list[Any]] | None:
    """Return the same, read column by column; None: it was not."""
    reader = column_reader(wire(broker))
    assert reader is not None
    found = reader(heads, PROPERTIES)
    if found is None:
        return None
    columns: dict[str, list[Any]] = {name: list(values) for name, values in found.values.items()}
    rows = zip(*found.properties, strict=True) if found.names else [()] * len(heads)
    columns["headers"] = [list(zip(found.names, row, strict=True)) for row in rows]
    return columns


@given(even_heads(), st.sampled_from(BROKERS[:2]))
def test_columns_are_what_each_delivery_says(heads: list[bytes], broker: str) -> None:
    """Whatever the values, with repeated names, escapes, and lines that are no headers."""
    assert read(broker, heads) == said(broker, heads)


@given(
    st.lists(even_heads() | st.lists(st.binary(max_size=12), max_size=3), max_size=2).map(
        lambda s: [*chain(*s)]
    )
)
def test_other_heads_are_read_alike_or_not_read(heads: list[bytes]) -> None:
    """Bytes that are no header block, blocks of several shapes: what is read is right."""
    for broker in BROKERS:
        found = read(broker, heads)
        assert found is None or found == said(broker, heads)


@pytest.mark.parametrize(
    "heads",
    [
        [],
        [b""],
        [b"\na:1\n", b"\nb:1\n"],
        [b"\na:1\n", b"\na:1\nb:2\n"],
        [b"\na:1\r\n", b"\na:1\r\n"],
        [b"\na:\xff\n", b"\na:1\n"],
        [b"\na\\c:1\n", b"\na\\c:1\n"],
        [b"\na\n", b"\nb\n"],
    ],
)
def test_what_is_not_read(heads: list[bytes]) -> None:
    """Other names, another order, escapes in a name, what is no UTF-8: these are read one by one."""
    assert read("artemis", heads) is None


def test_only_what_is_asked_for_is_read() -> None:
    """One property alone, and no application properties without `headers`."""
    reader = column_reader(wire("artemis"))
    assert reader is not None
    found = reader([b"\nmessage-id:7\nkind:a\n"], {"identity"})
    assert found is not None
    assert found.values == {"identity": ["7"]}
    assert (found.names, found.properties) == ([], [])


def test_brokers_whose_deliveries_know_more() -> None:
    """RabbitMQ's say more than their headers do: they are read one by one."""
    assert read("rabbitmq", [b"\nmessage-id:7\n"]) is None


def test_wires_of_others() -> None:
    """A wire without a scheme is refused; an adapter without a reader of columns has none."""
    with pytest.raises(ConfigurationError, match="a wire without 'scheme'"):
        column_reader({})
    assert column_reader({"scheme": "memory"}) is None
