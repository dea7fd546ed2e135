"""Header blocks of one shape are read column by column, with the values that each delivery has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery.driver.port import column_reader, restorer
from redelivery.errors import ConfigurationError
from redelivery_stomp import even_frames
from redelivery_stomp.rabbitmq_profile import RabbitDelivery

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from redelivery.core.head_columns import HeadColumns

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
        "amqp-message-id",
        "redeliveryId",
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
    """Return the wire of deliveries of a broker's queue."""
    return {"scheme": "stomp", "broker": broker, "version": "1.2", "destination": "queue://a"}


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    """Read also shapes of a single message; a test of that limit sets its own."""
    with patch.object(even_frames, "FEW", 1):
        yield


def said(broker: str, heads: Sequence[bytes]) -> dict[str, list[Any]]:
    """Return the values that each delivery has; times in microseconds."""
    restore = restorer(wire(broker))
    deliveries = [restore(head, b"x", 0.0) for head in heads]
    found: dict[str, list[Any]] = {name: [getattr(each, name) for each in deliveries] for name in PROPERTIES}
    epoch, unit = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    found["timestamp"] = [None if time is None else (time - epoch) // unit for time in found["timestamp"]]
    found["headers"] = [list(each.items()) for each in found["headers"]]
    return found


def groups_of(
    broker: str, heads: Sequence[bytes], asked: Collection[str] = PROPERTIES
) -> Sequence[HeadColumns]:
    """Return the columns that are read."""
    reader = column_reader(wire(broker))
    assert reader is not None
    return reader(heads, asked)


def check(broker: str, heads: Sequence[bytes]) -> set[int]:
    """Check that the columns are equal to the deliveries' values; return the rows that were read."""
    rows: list[int] = []
    for group in groups_of(broker, heads):
        assert list(group.rows) == sorted(group.rows)
        columns = {name: list(values) for name, values in group.values.items()}
        headers = zip(*group.properties, strict=True) if group.names else [()] * len(group.rows)
        columns["headers"] = [list(zip(group.names, row, strict=True)) for row in headers]
        assert columns == said(broker, [heads[row] for row in group.rows])
        rows += group.rows
    assert len(rows) == len(set(rows))
    return set(rows)


@given(even_heads(), st.sampled_from(BROKERS[:2]))
def test_columns_are_what_each_delivery_says(heads: list[bytes], broker: str) -> None:
    """Columns have the deliveries' values, also with repeated names, escapes, and lines that are not headers."""
    assert check(broker, heads) == set(range(len(heads)))


@given(st.lists(even_heads(), max_size=4).flatmap(lambda each: st.permutations([*chain(*each)])))
def test_messages_of_several_shapes_are_read_shape_by_shape(heads: list[bytes]) -> None:
    """Messages of several shapes are read in any order, except those on RabbitMQ with a repeated header."""
    repeated = {
        row for row, head in enumerate(heads)
        if any(head.count(b"\n%b:" % name) > 1 for name in (b"timestamp", b"amqp-message-id", b"redeliveryId"))
    }  # fmt: skip
    # Each message may have a shape of its own, which takes more looks than the default.
    with patch.object(even_frames, "MOST_LOOKS", 100):
        assert check("artemis", heads) == set(range(len(heads)))
        assert check("rabbitmq", heads) == set(range(len(heads))) - repeated


@given(
    st.lists(even_heads() | st.lists(st.binary(max_size=12), max_size=3), max_size=3).flatmap(
        lambda each: st.permutations([*chain(*each)])
    )
)
def test_other_heads_are_read_alike_or_not_read(heads: list[bytes]) -> None:
    """Bytes that are not a header block are not read, and the others have the right values."""
    for broker in BROKERS:
        check(broker, heads)


@pytest.mark.parametrize(
    ("heads", "read"),
    [
        ([], set()),
        ([b""], {0}),
        ([b"\na:1", b"\na:1\n"], {0, 1}),
        ([b"\na:1\r\n", b"\na:1\n"], {1}),
        ([b"\na:\xff\n", b"\na:1\n"], {1}),
        ([b"\na:\xff\n", b"\na:1\r\n"], set()),
        ([b"\na\\c:1\n", b"\na\\c:1\n", b"\nb:1\n"], {2}),
        ([b"\na\n", b"\nb\n", b"\na:\n"], {0, 1, 2}),
    ],
)
def test_what_is_odd_is_not_read(heads: list[bytes], read: set[int]) -> None:
    """CRLF line ends, escapes in a name, and bytes that are not UTF-8 are not read; the other rows are."""
    assert check("artemis", heads) == read


def test_what_few_have_is_not_read() -> None:
    """A shape of few messages is not read: it takes longer than making the deliveries."""
    heads = [b"\na:1\n"] * 8 + [b"\nb:1\n"] * 7 + [b"\na:1\nb:1\n"] * 7
    with patch.object(even_frames, "FEW", 8):
        assert check("artemis", heads) == set(range(8))


def test_the_commonest_shapes_are_read() -> None:
    """The commonest of many shapes are read, after a limited number of looks."""
    heads = [b"\n%b:1\n" % (b"a" * size) for size in range(1, 13) for _ in range(size)]
    assert check("artemis", heads) == {row for row, head in enumerate(heads) if len(head) - 4 >= 5}
    uneven = [
        b"".join(b"\n%c%d:1" % (97 + (row >> bit & 1), bit) for bit in range(12)) for row in range(4096)
    ]
    assert len(check("artemis", [*uneven, *[b"\na:1\n"] * 9])) <= 9


def test_only_what_is_asked_for_is_read() -> None:
    """Only the wanted property is read, and no application properties without `headers`."""
    (found,) = groups_of("artemis", [b"\nmessage-id:7\nkind:a\n"], {"identity"})
    assert found == ([0], {"identity": ["7"]}, [], [])


def test_rabbitmq_has_the_ids_and_times_of_properties() -> None:
    """Ids and times on RabbitMQ are read from properties: the header `message-id` differs at each delivery."""
    heads = [
        b"\nmessage-id:T_1@@s@@7\namqp-message-id:%b\nredeliveryId:b\ntimestamp:%b\n" % each
        for each in ((b"a", b"1700000000"), (b"", b"1700000000123"), (b"c\\cd", b"none"))
    ]
    assert check("rabbitmq", heads) == {0, 1, 2}
    (found,) = groups_of("rabbitmq", heads, {"identity", "timestamp"})
    assert found.values == {
        "identity": ["a", "b", "c:d"], "timestamp": [1700000000000000, 1700000000123000, None]
    }  # fmt: skip


def test_deliveries_that_read_a_property_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries that read a property in their own way, without a column rule, are read one by one."""
    monkeypatch.setattr(RabbitDelivery, "columns", {})
    assert not groups_of("rabbitmq", [b"\nmessage-id:7\n"])


def test_wires_of_others() -> None:
    """A wire without a scheme is refused; an adapter without a reader of columns has none."""
    with pytest.raises(ConfigurationError, match="a wire without 'scheme'"):
        column_reader({})
    assert column_reader({"scheme": "memory"}) is None
