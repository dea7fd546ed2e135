"""SIGTERM and SIGINT drain; a second signal acts as before. Each test has a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from redelivery.driver.connection.connection_end import Signals

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = """
import asyncio, os, signal, sys, threading
import redelivery
from redelivery.testing import MemoryBroker

number, kind = signal.Signals[sys.argv[1]], sys.argv[2]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and its children do
broker = MemoryBroker("signals")
for body in ("a", "b"):
    broker.send("orders", body)

def handle(message):
    first = signal.getsignal(number)
    os.kill(os.getpid(), number)
    if kind == "twice":
        if message.text == "b":
            raise ValueError("the first was not enough")
        while signal.getsignal(number) is first:  # until it is handled: two that wait to be are one
            held.wait(0.005)
        os.kill(os.getpid(), number)
        held.wait(60)
    while not connection.report().released:  # until the drain gives back the other message
        held.wait(0.005)

async def handle_async(message):
    os.kill(os.getpid(), number)
    while not connection.report().released:  # until the drain gives back the other message
        await asyncio.to_thread(lambda: None)

held = threading.Event()

async def main():
    global connection
    async with redelivery.connect_async(broker.uri) as connection:
        connection.listen("orders", handle_async)
        return await connection.run()

if kind == "async":
    report = asyncio.run(main())
else:
    with redelivery.connect(broker.uri) as connection:
        connection.listen("orders", handle)
        report = connection.run()
print(report.accepted, report.running, broker.depth("orders"), [m.broker_count for m in broker.messages("orders")])
"""


DRAINS = [("SIGTERM", "sync"), ("SIGINT", "sync"), ("SIGTERM", "async"), ("SIGINT", "async")]
SECONDS = [("SIGTERM", "twice"), ("SIGINT", "twice")]


@pytest.fixture(scope="module")
def programs() -> Iterator[dict[tuple[str, str], subprocess.Popen[str]]]:
    """Start all programs at once; each test waits for one of them."""
    started = {
        case: subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *case], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for case in DRAINS + SECONDS
    }
    yield started
    for program in started.values():
        program.kill()
        program.communicate()


@pytest.mark.parametrize("case", DRAINS, ids=" ".join)
def test_a_signal_drains(
    programs: dict[tuple[str, str], subprocess.Popen[str]], case: tuple[str, str]
) -> None:
    """After a signal the running handler finishes, other messages are released, and the program goes on."""
    out, err = programs[case].communicate(timeout=60)
    assert programs[case].returncode == 0, err
    assert out == "1 0 1 [0]\n"


@pytest.mark.ci("child processes: 0.4 s")
@pytest.mark.parametrize("case", SECONDS, ids=" ".join)
def test_a_second_signal_acts_as_it_always_did(
    programs: dict[tuple[str, str], subprocess.Popen[str]], case: tuple[str, str]
) -> None:
    """While a handler hangs, a second SIGTERM kills, and a second SIGINT is a KeyboardInterrupt."""
    _, err = programs[case].communicate(timeout=60)
    if case[0] == "SIGTERM":
        assert programs[case].returncode == -signal.SIGTERM
    else:
        assert "KeyboardInterrupt" in err


def test_a_second_signal_while_the_first_has_ended_nothing_yet() -> None:
    """A second SIGINT while a run waits for its subscription is a KeyboardInterrupt."""
    stops: list[int] = []
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Signals(lambda: stops.append(1)):
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, found)
    assert stops == [1]
