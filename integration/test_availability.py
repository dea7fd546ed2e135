"""Brokers and clients that cannot be had: a skip with the reason, and one try in all processes of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from integration.availability import had
from integration.brokers import BrokerError
from integration.run_folder import RUN

if TYPE_CHECKING:
    from pathlib import Path


class Planted:
    """A start that fails, and counts its tries."""

    def __init__(self) -> None:
        self.tries = 0

    def __call__(self) -> NoReturn:
        self.tries += 1
        raise BrokerError("fetching x failed (1):\nmany\nlines\nno route to host\n")


@pytest.fixture(autouse=True)
def of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a run's folder of its own."""
    monkeypatch.setenv(RUN, str(tmp_path))
    monkeypatch.delenv("REDELIVERY_REQUIRE_BROKERS", raising=False)


def test_a_failure_is_a_skip_and_is_not_tried_again() -> None:
    """Each test is skipped with the first failure's reason; nothing is tried a second time."""
    planted = Planted()
    for _ in range(3):
        with pytest.raises(
            pytest.skip.Exception, match=r"artemis: fetching x failed \(1\): ... no route to host"
        ):
            had("artemis", "artemis", planted)
    assert planted.tries == 1


def test_a_required_broker_fails_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first test of a required broker fails with the whole text; the next ones are skipped and name it."""
    monkeypatch.setenv("REDELIVERY_REQUIRE_BROKERS", "artemis")
    planted = Planted()
    with pytest.raises(pytest.fail.Exception, match=r"asks for artemis, but: artemis: [^$]*many\nlines"):
        had("artemis", "artemis", planted)
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match=r"no route to host \(required: .*one_test fails\)"):
            had("artemis", "artemis", planted)
    assert planted.tries == 1


def test_what_can_be_had_is_not_touched_by_another_failure() -> None:
    """A failure of one client leaves the broker and the other clients as they are."""
    with pytest.raises(pytest.skip.Exception):
        had("artemis", "artemis's Java client core", Planted())
    assert had("artemis", "artemis's Java client qpid", lambda: 7) == 7


def test_a_fault_of_the_tests_own_code_is_no_skip() -> None:
    """A TypeError of a start is raised by each test, and is no reason to skip the others."""

    def wrong() -> NoReturn:
        raise TypeError("start() takes no argument")

    for _ in range(2):
        with pytest.raises(TypeError):
            had("artemis", "artemis", wrong)
    with pytest.raises(pytest.skip.Exception, match="cannot be opened"):
        had("artemis", "artemis", lambda: open("/absent/cannot be opened"))  # noqa: SIM115
