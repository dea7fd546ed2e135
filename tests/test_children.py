"""Programs that a failed test has left end with it; those of all tests go on."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.children import end_children_of_test, for_all_tests

if TYPE_CHECKING:
    from collections.abc import Iterator

WAITS = ["sh", "-c", "read -r _"]


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Return a list of programs, which are ended."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for each in found:
        each.kill()
        each.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_test_ends_its_own_programs_only(
    request: pytest.FixtureRequest, programs: list[subprocess.Popen[bytes]]
) -> None:
    """A program of this test is killed, in its own session, too; one for all tests and a fork's parent are not."""
    environments = (None, {**os.environ, "MORE": "1"}, for_all_tests())
    programs += [
        subprocess.Popen(WAITS, stdin=subprocess.PIPE, env=each, start_new_session=True)
        for each in environments
    ]
    own, also, session = programs
    assert set(end_children_of_test(request.node.nodeid)) == {own.pid, also.pid}
    assert (own.wait(10), also.wait(10), session.poll()) == (-9, -9, None)
    assert end_children_of_test("tests/test_children.py::another") == []


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_test_ends_its_forks() -> None:
    """A child that is forked without a program of its own is killed, too."""
    child = os.fork()
    if not child:
        os.read(os.pipe()[0], 1)
        os._exit(0)
    assert end_children_of_test("any") == [child]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
