"""Repeats a test that failed while Artemis had stranded a message of its queues, or answered some connections no more.

About one in 300 connections that are cut with unacknowledged messages makes Artemis lose one of them until its restart:
docs/measured/artemis-stomp-cuts.md, "Messages lost until the restart"; and it can deadlock. There is no other reason to
repeat a test: management must count a message as being delivered that no consumer has, or the broker must leave
connections without an answer for 30 s. The end of the whole run lists each repeated test, and the run fails if there
are more than `MOST_IN_ALL`: a fault of this library could also strand messages. See `integration/stranded.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

from integration.raw_stomp import ConnectFailed
from integration.stranded import stranded, stuck

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

    from integration.brokers import Broker

__all__ = [
    "QUEUES",
    "pytest_runtest_call",
    "pytest_runtest_logreport",
    "pytest_runtest_protocol",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
]

QUEUES = pytest.StashKey[list[str]]()
"""Names of the queues of a test."""
_SPOILT = pytest.StashKey[str]()
_STUCK = pytest.StashKey[bool]()
MOST = 2  # times that a test is run again
# Most repeated tests of one run. A whole run had 0 to 4 of them; more than 10 would not be chance.
MOST_IN_ALL = 10
_AGAIN = "stranded by Artemis, and run again"
_spoilt: list[str] = []  # in the process that reports


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Ask the broker for stranded messages right after a failure."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception):
        item.stash[_SPOILT] = _stranded(item)
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test on Artemis, as those of Spark are; repeat it if Artemis has stranded a message of it."""
    if not _on_artemis(item):
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for last in (*(False,) * MOST, True):
        item.stash[_SPOILT], item.stash[_STUCK] = "", False
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        why = item.stash[_SPOILT]
        if last or not why:
            break
        item.user_properties.append((_AGAIN, why))
        item.stash[_SESSION].renew(_artemis(item), stuck=item.stash[_STUCK])
        item._initrequest()  # type: ignore[attr-defined]  # pytest-rerunfailures does the same: fixtures anew
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the repeated tests, also those of the other processes of the run."""
    if report.when == "teardown":
        found = [why for name, why in report.user_properties if name == _AGAIN]
        _spoilt.extend(f"{report.nodeid}: {why}" for why in found)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with too many repeated tests."""
    if len(_spoilt) > MOST_IN_ALL and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """List the repeated tests."""
    if _spoilt:
        terminalreporter.section(
            "run again, because Artemis had stranded messages of theirs, or did not answer"
        )
        terminalreporter.line("\n".join(_spoilt))
    if len(_spoilt) > MOST_IN_ALL:
        terminalreporter.line(f"{len(_spoilt)} times; more than {MOST_IN_ALL} is a failure")


def _on_artemis(item: pytest.Item) -> bool:
    return "artemis" in getattr(item, "fixturenames", ()) or any(
        name in item.nodeid.lower() for name in ("artemis", "spark")
    )


def _artemis(item: pytest.Item) -> Broker | None:
    session: Any = item.stash.get(_SESSION, None)
    return None if session is None else session.running("artemis")


_SESSION = pytest.StashKey[Any]()


def _stranded(item: pytest.Item) -> str:
    """Return why a test is to be run again, or an empty text."""
    given: dict[str, Any] = getattr(item, "funcargs", {})
    item.stash[_SESSION] = given.get("session")
    broker = _artemis(item)
    queues = [*item.stash[QUEUES]] if QUEUES in item.stash else []
    if "bench" in given:
        queues.append(given["bench"].queue)
    if broker is None or not broker.running:
        return ""
    if item.stash[_SESSION].owns:
        broker.resume()
    if why := stuck(broker):
        item.stash[_STUCK] = True
        return why
    found = 0
    for queue in queues:
        try:
            found += stranded(broker, queue)
        except (AssertionError, OSError, TimeoutError, ConnectFailed):
            continue  # no such queue, or no answer, proves nothing
    return f"{found} stranded" if found else ""
