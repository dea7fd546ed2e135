"""Description of a broker's version that no integration test has covered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery.core.tested_versions import TESTED, numbers, untested


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("4.3.6", None),
        ("4.3.11", None),
        ("4.3.7-rc.1", None),
        ("4.4.0", "is newer than every tested version, and is treated as 4.3.6"),
        ("5.0.0+beta", "is newer than every tested version, and is treated as 4.3.6"),
        ("4.1.2", "was not tested itself; 4.0.5 and 4.3.6 were"),
        ("3.13.7", "was not tested itself; 3.10.8 and 4.0.5 were"),
        ("3.9.29", "is older than every tested version"),
        ("", "reports no version, and is treated as 4.3.6"),
        ("main", "reports no version, and is treated as 4.3.6"),
    ],
)
def test_a_version_is_compared_by_its_first_two_numbers(version: str, said: str | None) -> None:
    """A version like a tested one has no description; every other one has a clause of its own."""
    assert untested("rabbitmq", version) == said


def test_nothing_is_said_of_a_broker_that_is_not_known() -> None:
    """The memory broker has no versions, and no description."""
    assert untested("memory", "1.0") is None


@given(st.sampled_from(sorted(TESTED)), st.text(max_size=20))
def test_every_version_has_an_answer(broker: str, version: str) -> None:
    """Every text that a broker reports as its version has a description, or none is needed."""
    assert (
        untested(broker, version) is None
        or numbers(version)
        or "reports no version" in str(untested(broker, version))
    )


@pytest.mark.parametrize("broker", sorted(TESTED))
def test_the_tested_versions_are_listed_oldest_first(broker: str) -> None:
    """The last version is the one that an unknown one is treated as."""
    assert sorted(TESTED[broker], key=numbers) == [*TESTED[broker]]
