"""Imports have no circles; those for the type checker are in a list that can only shrink."""

from __future__ import annotations

import pytest
from tests.house.source import circles, compared, graph

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

FOR_THE_TYPE_CHECKER = {
    # Consumers, their queues and deliveries name each other.
    "redelivery_memory.messages redelivery_memory.queues redelivery_memory.server",
}


def circles_of(*when: str) -> set[str]:
    """Return the circles at those times, each as the names of its modules without `redelivery.`."""
    return {" ".join(name.removeprefix("redelivery.") for name in each) for each in circles(graph(*when))}


def test_no_circle_at_load_time() -> None:
    """Imports at load time have no circle: any module can be imported first."""
    assert circles_of("load") == set()


def test_no_circle_at_run_time() -> None:
    """Imports at load time and inside functions have no circle."""
    assert circles_of("load", "lazy") == set()


def test_circles_for_the_type_checker_become_fewer() -> None:
    """Circles with the imports for the type checker are exactly those in the list."""
    assert compared(circles_of("load", "lazy", "typing"), FOR_THE_TYPE_CHECKER) == {}


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [("a", "b")]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}}, [("a", "b", "c"), ("d", "e")]),
    ],
)
def test_circles_are_found(edges: dict[str, set[str]], expected: list[tuple[str, ...]]) -> None:
    """A circle is each largest set of modules that reach each other."""
    assert circles(edges) == expected
