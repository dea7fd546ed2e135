"""One broker for all processes of a run: started once, used by copies that may not stop it, and replaced if broken."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pytest
from tests.children import end_children_of_test

from integration import shared
from integration.brokers import Broker, BrokerError
from integration.brokers.process import ServerProcess
from integration.run_folder import LINES, RUN, LastOfTheLog, log
from integration.shared import Guest, Host, SharedBrokers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.brokers.base import Place

NOBODY = 1 << 30  # above all pids


class Fake(Broker):
    """A broker without a program."""

    name = "fake"
    version = "1"
    services = ("stomp",)
    starts = 0
    refuses = False

    def start(self) -> Self:
        """Count the start."""
        type(self).starts += 1
        if self.refuses:
            raise BrokerError("no port is free")
        self._server: Any = SimpleNamespace(
            running=True, pid=NOBODY, execute=lambda argv: f"did {argv[0]}", close=lambda: None
        )
        return self

    def files(self, place: Place) -> dict[str, bytes]:
        """Return none."""
        del place
        return {}

    def command(self, place: Place) -> list[str]:
        """Return none."""
        del place
        return []


def summary(outcome: str = "passed") -> tuple[Any, list[str]]:
    """Return a reporter of a run with this outcome, and the lines that it is given."""
    lines: list[str] = []

    def add(text: str) -> None:
        lines.extend(text.splitlines())

    return SimpleNamespace(stats={outcome: [object()]}, section=add, line=add), lines


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SharedBrokers]]:
    """Two processes of a run, and the one that began it."""
    monkeypatch.setattr(Fake, "starts", 0)
    monkeypatch.setattr(shared, "ALL_BROKERS", {"fake": Fake})
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Host()) as host:
        address = str(Path(folder) / "socket")
        host.listen(address)
        found = [SharedBrokers(Guest(address)) for _ in range(2)]
        yield found
        for each in found:
            each.close()


def test_it_is_started_once(guests: list[SharedBrokers]) -> None:
    """Each process has a copy with the same ports, whose server answers."""
    one, two = (each.broker("fake") for each in guests)
    assert Fake.starts == 1
    assert one.ports == two.ports
    assert one is guests[0].broker("fake")
    assert (one.running, one.pid, two.server.execute(["tool"])) == (True, NOBODY, "did tool")


@pytest.mark.parametrize("change", ["kill", "stop", "pause", "resume", "restart"])
def test_no_test_changes_it(guests: list[SharedBrokers], change: str) -> None:
    """A test that would change it is refused, with the way to get its own."""
    with pytest.raises(BrokerError, match="mark the test with own_broker"):
        getattr(guests[0].broker("fake"), change)()


def test_a_broken_one_is_replaced_once(guests: list[SharedBrokers]) -> None:
    """Later tests of each process have another one, although both have asked for it."""
    one, two = (each.broker("fake") for each in guests)
    guests[0].replace(one)
    guests[1].replace(two)
    new = guests[0].broker("fake")
    assert new.ports != one.ports
    assert guests[1].broker("fake").ports == new.ports
    assert Fake.starts == 2


def test_an_interrupted_question_leaves_no_answer(guests: list[SharedBrokers]) -> None:
    """The question after one whose wait was interrupted gets its own answer."""
    broker = guests[0].broker("fake")

    source: Any = guests[0]._source
    plain = source._connection
    connection = SimpleNamespace(send=plain.send, close=plain.close)

    def interrupted() -> NoReturn:
        connection.recv = plain.recv
        pytest.fail("the time limit")

    connection.recv = interrupted
    source._connection = connection
    with pytest.raises(pytest.fail.Exception):
        broker.server.execute(["first"])
    assert broker.server.execute(["second"]) == "did second"


def test_a_failed_start_has_its_reason(guests: list[SharedBrokers], monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that asked gets the reason."""
    monkeypatch.setattr(Fake, "refuses", True)
    with pytest.raises(BrokerError, match="no port is free"):
        guests[0].broker("fake")


def test_a_fault_of_the_host_is_no_broker_that_cannot_be_had(guests: list[SharedBrokers]) -> None:
    """A fault of the code that starts brokers is raised in the process that asked, with its place."""
    with pytest.raises(RuntimeError, match=r"shared\.py(.|\n)*KeyError: 'unknown'"):
        guests[0].broker("unknown")


def test_a_broker_that_ended_by_itself_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared broker that is found dead is started again, and the end of the run says so."""
    monkeypatch.setattr(shared, "ALL_BROKERS", {"fake": Fake})
    reporter, lines = summary()
    with contextlib.closing(Host()) as host:
        broker: Any = SharedBrokers(host).broker("fake")
        host.pytest_terminal_summary(reporter)
        assert lines == []
        host._brokers["fake"].server.running = False  # type: ignore[misc]
        assert SharedBrokers(host).broker("fake").ports == broker.ports
        host.pytest_terminal_summary(reporter)
    assert lines[1:] == ["shared broker fake had ended, and was started again: 1 times"]


@pytest.mark.parametrize(("outcome", "shown"), [("passed", 0), ("failed", LINES), ("error", LINES)])
def test_a_run_with_failures_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str, shown: int
) -> None:
    """The last lines of the log are in the summary if a test has failed."""
    monkeypatch.setenv(RUN, str(tmp_path))
    for number in range(40):
        log(f"starting broker {number}")
    reporter, lines = summary(outcome)
    LastOfTheLog().pytest_terminal_summary(reporter)
    assert lines[1:] == [f"starting broker {number}" for number in range(40 - shown, 40)]


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_server_and_its_watchdog_go_on(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Neither a server that a failed test was the first to need nor its watchdog ends with the test."""
    argv = ["sh", "-c", "echo READY; exec tail -f /dev/null"]
    with contextlib.closing(ServerProcess(argv, log=tmp_path / "log", ready="READY")) as server:
        server.start()
        assert end_children_of_test(request.node.nodeid) == []
