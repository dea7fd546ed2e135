"""Event loops and monkey patches that the documentation calls supported, and the error for the others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import some
from tests.needs import need

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.driver.consumer.handler_watch import HandlerWatch
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from redelivery import Message

    Main = Callable[[], Coroutine[Any, Any, redelivery.Report]]

ONCE = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """A broker in real time: loops and libraries have clocks of their own."""
    with MemoryBroker() as made:
        yield made


def on_asyncio(main: Main, *, debug: bool) -> redelivery.Report:
    """Run on asyncio's own loop."""
    return asyncio.run(main(), debug=debug)


def on_uvloop(main: Main) -> redelivery.Report:
    """Run on uvloop's loop."""
    with asyncio.Runner(loop_factory=need("uvloop").new_event_loop) as runner:
        return runner.run(main())


def on_anyio(main: Main) -> redelivery.Report:
    """Run as anyio runs a program."""
    report: redelivery.Report = need("anyio").run(main)
    return report


LOOPS: dict[str, Callable[[Main], redelivery.Report]] = {
    "asyncio": partial(on_asyncio, debug=False),
    "asyncio in debug mode": partial(on_asyncio, debug=True),
    "uvloop": on_uvloop,
    "anyio": on_anyio,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_is_supported(broker: MemoryBroker, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of both kinds are called, failures and time-outs are charged, and the run ends by itself."""
    # It would give the slow handler up on a busy machine, where the loop cancels it late.
    monkeypatch.setattr(HandlerWatch, "add", lambda *_: None)

    async def handle(message: Message) -> None:
        if message.text == "slow":
            await asyncio.Event().wait()
        assert message.text != "bad"

    def plain(message: Message) -> None:
        assert message.text != "bad"

    async def main() -> redelivery.Report:
        async with redelivery.connect_async(broker.uri, policies=ONCE) as connection:
            connection.listen("orders", handle, workers=2, timeout=60)
            connection.listen("slow", handle, workers=2, timeout=0.02)
            connection.listen("plain", plain)
            for destination in ("orders", "plain"):
                for text in ("good", "bad", "good"):
                    await connection.send(destination, text)
            await connection.send("slow", "slow")
            return await connection.run(until_idle=0.05)

    assert LOOPS[loop](main) == redelivery.Report(accepted=4, poisoned=3)


def test_time_limits_of_anyio_in_a_handler(broker: MemoryBroker) -> None:
    """A time limit of anyio, which cancels the worker's task, is a failure; one that is caught is not."""
    anyio = need("anyio")

    async def handle(message: Message) -> None:
        if message.text == "fails":
            with anyio.fail_after(0.01):
                await anyio.Event().wait()
        with anyio.move_on_after(0.01):
            await anyio.Event().wait()

    async def main() -> redelivery.Report:
        async with redelivery.connect_async(broker.uri, policies=ONCE) as connection:
            connection.listen("orders", handle)
            for text in ("fails", "moves on", "fails", "moves on"):
                await connection.send("orders", text)
            return await connection.run(until_idle=0.1)

    assert on_anyio(main) == redelivery.Report(accepted=2, poisoned=2)
    assert {letter.cause for letter in broker.dead_letters()} == {"TimeoutError"}


def test_another_loop_is_refused(broker: MemoryBroker) -> None:
    """Without a loop of asyncio, as under Trio, `connect_async` says what to do."""
    entering = redelivery.connect_async(broker.uri).__aenter__()
    with pytest.raises(
        redelivery.ConfigurationError, match=r"needs asyncio; elsewhere use redelivery\.connect"
    ):
        entering.send(None)


GEVENT = """
from gevent import monkey
monkey.patch_all()
import gevent, greenlet, sys, time
import redelivery
from redelivery.testing import MemoryBroker

def handle(message):
    if message.text == "slow":
        with gevent.Timeout(0.001):
            time.sleep(60)
    if message.text == "killed":
        raise greenlet.GreenletExit

options = "?jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.initialRedeliveryDelay=1"
if sys.argv[1:]:
    options += f"&redelivery.ledger=sqlite:///{sys.argv[1]}"
with MemoryBroker() as broker:
    for text in ("slow", "killed", "good", "good"):
        broker.send("orders", text)
    with redelivery.connect(broker.uri + options) as connection:
        connection.listen("orders", handle, workers=2)
        report = connection.run(until_idle=0.2)
    print(report.accepted, report.redelivered, report.poisoned, report.released)
    print(sorted(letter.cause.partition(":")[0] for letter in broker.dead_letters()))
"""


@pytest.mark.parametrize("ledger", some([False, True], [True]), ids=["without a ledger", "with a ledger"])
def test_gevent(tmp_path: Path, *, ledger: bool) -> None:
    """Under gevent its Timeout and GreenletExit are failures, others are handled, and the connection can be closed."""
    need("gevent")
    given = [str(tmp_path / "ledger.db")] if ledger else []
    ended = subprocess.run(
        [sys.executable, "-c", GEVENT, *given], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.splitlines() == ["2 2 2 0", "['GreenletExit', 'Timeout']"], ended.stderr
