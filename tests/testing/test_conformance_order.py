"""The conformance suite's check of an order, on deliveries that are wrong and on those of a slow machine."""

from __future__ import annotations

import pytest

from redelivery.testing.conformance.orders import Delivered, check_order

EXPECTED = ["once#1", "free#1", "once#2", "g2#1"]


def found(text: str) -> list[Delivered]:
    """Return deliveries; `+` after one: it was not due yet when it was asked for. All but `free` block each other."""
    names = text.split()
    return [
        Delivered(name.rstrip("+"), "free" if name.startswith("free") else "g", name.endswith("+"))
        for name in names
    ]


@pytest.mark.parametrize(
    "text", ["once#1 free#1 once#2+ g2#1", "once#1 once#2 free#1 g2#1", "once#1 once#2 g2#1 free#1"]
)
def test_an_order_that_is_right(text: str) -> None:
    """The expected order passes, and one in which a redelivery was due when it was asked for."""
    check_order(found(text), EXPECTED)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("once#1 once#2+ free#1 g2#1", "free#1 waited for once#2"),
        ("once#1 g2#1 once#2 free#1", "g2#1 overtook once#2"),
        ("once#1 free#1 g2#1 once#2+", "g2#1 overtook once#2"),
        ("once#1 free#1 g2#1", "once#2"),
        ("once#1 free#1 once#2+ g2#1 g2#1", "g2#1"),
    ],
)
def test_an_order_that_is_wrong(text: str, why: str) -> None:
    """A message that waits for another one's redelivery, overtakes one that blocks it, is missing or comes twice."""
    with pytest.raises(AssertionError, match=why):
        check_order(found(text), EXPECTED)
