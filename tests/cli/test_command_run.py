"""Runs of a shell command: starts that fail, time-outs, and children that keep its pipes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually
from tests.fast_clock import fast

import redelivery
from redelivery.cli import shell_handler
from redelivery.cli import shell_handler as command_run
from redelivery.cli.shell_handler import CommandHandler, CommandRun, ServiceDown

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery_memory import MemoryBroker

__all__ = ["an_hour_after", "fast"]

# More than a pipe takes: the command must read it.
LONG = b"x" * 300_000
NEVER = "mkfifo never; read -r _ < never"
ONCE = "?jms.redeliveryPolicy.maximumRedeliveries=0"


def descriptors() -> int:
    """Return the number of descriptors of this process."""
    return len(os.listdir("/dev/fd"))


def gone(pid: int) -> bool:
    """True if a process has ended; its parent need not have noticed."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def run_all(broker: MemoryBroker, handler: CommandHandler, **options: Any) -> redelivery.Report:
    """Handle all messages of the queue; return the report."""
    with redelivery.connect(broker.uri + ONCE) as connection:
        connection.listen("orders", handler, **options)
        return connection.run(until_idle=0.05)


def an_hour_after(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Add an hour to the time of the time-outs of commands once a command has made a file."""
    clock = SimpleNamespace(monotonic=lambda: 3600.0 * file.exists())
    for module in (command_run, shell_handler):
        monkeypatch.setattr(module, "time", clock)


class Scarce:
    """Replacement of `Popen`: the system has room for so many commands at once, and for none after `closed`."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.refused = 0
        self._started: list[subprocess.Popen[bytes]] = []
        self._plain = subprocess.Popen

    def __call__(self, *given: Any, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command, or raise as the system does."""
        if options.get("shell") and sum(each.returncode is None for each in self._started) >= self.room:
            self.refused += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        process = self._plain(*given, **options)
        self._started.append(process)
        return process


def test_a_command_that_cannot_be_started_waits_for_others(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If descriptors are short, a command waits for the end of others of ours, and no message has failed."""
    scarce = Scarce(2)
    monkeypatch.setattr(subprocess, "Popen", scarce)
    for number in range(12):
        redelivery_broker.send("orders", str(number))
    report = run_all(redelivery_broker, CommandHandler("cat; sleep 0.02"), workers=6)
    assert scarce.refused > 0
    assert report == redelivery.Report(accepted=12)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("breaker", ["on", "off", "named"])
@pytest.mark.parametrize("error", [OSError(errno.ENOMEM, "no memory"), MemoryError()], ids=type)
def test_a_system_that_starts_no_command_is_a_service_that_is_down(
    cli: Any, shop: MemoryBroker, uri: str, monkeypatch: pytest.MonkeyPatch, error: Exception, breaker: str
) -> None:
    """If the system starts no command, nothing is charged, whatever the breaker: handling pauses until it does."""
    plain, left = subprocess.Popen, iter(range(3))

    def none(*given: Any, **options: Any) -> subprocess.Popen[bytes]:
        if options.get("shell") and next(left, None) is not None:
            raise error
        return plain(*given, **options)

    once = uri.replace("maximumRedeliveries=2", f"maximumRedeliveries=0&redelivery.breaker={breaker}")
    monkeypatch.setattr(subprocess, "Popen", none)
    ended = cli("consume", once, "orders", "--exec", "cat", "--count", "3")
    assert ended.code == 0
    assert ended.err.splitlines()[-1] == "report: accepted 3, spared 3"
    assert "the command cannot be started" in ended.err
    assert shop.dead_letters() == []


def test_a_breaker_that_is_off_spares_no_exit_status(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """With redelivery.breaker=off each failure of a command is charged, also those of --trip-on."""
    once = uri.replace("maximumRedeliveries=2", "maximumRedeliveries=0&redelivery.breaker=off")
    ended = cli("consume", once, "orders", "--exec", "exit 75", "--trip-on", "75", "--idle", "0.1")
    assert ended.code == 0
    assert ended.err.splitlines()[-1] == "report: accepted 0, poisoned 3"
    assert len(shop.dead_letters()) == 3


def test_waiting_for_others_ends_with_half_of_the_time(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that waits for others to end has half of its time left when it gives up: it is not charged as late."""
    monkeypatch.setattr(subprocess, "Popen", Scarce(0))
    handler = CommandHandler("cat", timeout=0.02)
    endless: Any = object()
    handler._running.add(endless)
    redelivery_broker.send("orders", "x")
    with redelivery.connect(redelivery_broker.uri) as connection, connection.consumer("orders") as consumer:
        message = consumer.receive(5)
        assert message is not None
        with pytest.raises(ServiceDown, match=r"cannot be started: .*Too many open files"):
            handler(message)


@pytest.mark.parametrize("keeps", ["stdin", "stderr"])
def test_a_child_that_outlives_its_command_keeps_nothing_of_ours(
    redelivery_broker: MemoryBroker, tmp_path: Path, keeps: str
) -> None:
    """A command is over when it has ended, whatever a child of it keeps open: no thread and no descriptor is left."""
    fork = f'{sys.executable} -c \'import os, time; os.fork() or (open("{tmp_path}/child", "w"), time.sleep(15))\''
    command = {"stdin": f"{fork}; exit 0", "stderr": "sleep 15 & exit 0"}[keeps]
    for _ in range(3):
        redelivery_broker.send("orders", LONG)
    begun, threads, open_before = time.monotonic(), threading.active_count(), descriptors()
    report = run_all(redelivery_broker, CommandHandler(command))
    assert time.monotonic() - begun < 30
    assert report == redelivery.Report(accepted=3)
    assert (threading.active_count(), descriptors()) == (threads, open_before)


@pytest.mark.parametrize("reads", ["its input is read", "its input is unread"])
def test_a_command_whose_time_is_over_is_killed_with_its_children(
    redelivery_broker: MemoryBroker, tmp_path: Path, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time a command is killed with the children that it waits for, also while it leaves its input unread."""
    monkeypatch.chdir(tmp_path)
    an_hour_after(monkeypatch, tmp_path / "never")
    first = "cat > /dev/null" if reads == "its input is read" else "true"
    redelivery_broker.send("orders", LONG)
    command = f"{first}; (echo $$ > leader; sh -c 'echo $$ > child; {NEVER}'; true); true"
    report = run_all(redelivery_broker, CommandHandler(command, timeout=60.0))
    assert report == redelivery.Report(poisoned=1)
    (letter,) = redelivery_broker.dead_letters()
    assert letter.cause == "CommandFailed: killed after 60 s (--timeout)"
    for name in ("leader", "child"):
        pid = int((tmp_path / name).read_text())
        eventually(partial(gone, pid))


def test_the_end_of_stderr_is_the_cause_whatever_its_length(redelivery_broker: MemoryBroker) -> None:
    """A command may write more to its stderr than a pipe takes, before and after the end of its input."""
    redelivery_broker.send("orders", LONG)
    noise = "head -c 200000 /dev/zero | tr '\\0' .  >&2"
    run_all(
        redelivery_broker,
        CommandHandler(f"{noise}; cat > /dev/null; {noise}; echo >&2; echo last >&2; exit 1"),
    )
    (letter,) = redelivery_broker.dead_letters()
    assert letter.cause is not None
    assert letter.cause.endswith(". / last") or letter.cause.endswith(".…")


def test_a_command_that_closes_its_stderr_runs_on(redelivery_broker: MemoryBroker) -> None:
    """A command may close its stdin and its stderr, and runs on; its status decides."""
    redelivery_broker.send("orders", LONG)
    report = run_all(
        redelivery_broker, CommandHandler("exec 0<&- 2>&-; sleep 0.05; exit 3", discard_on=frozenset({3}))
    )
    assert report == redelivery.Report(discarded=1)


def test_a_run_that_is_over_is_not_killed() -> None:
    """A kill after the end of a command does nothing: its number may belong to another process."""
    run = CommandRun("exit 4", dict(os.environ), None)
    assert run.attend(b"", None) == 4
    run.kill()
