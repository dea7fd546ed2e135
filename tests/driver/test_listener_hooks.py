"""`on_retry` and `on_dead_letter`: when, where and with which arguments they are called."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import AsyncMock

import pytest
from tests.driver.twins import eventually
from tests.eventually import eventually as wait_for

import redelivery
from redelivery import ConfigurationError, RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.clock import SystemClock
from redelivery.driver.listener_hooks import HookCall, HookFaults, HookThread
from redelivery.events import Death, Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.testing import ManualClock, MemoryBroker

NEVER: Any = {"policies": RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))}
ONCE: Any = {"policies": RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=1))}


def fail(_: Message) -> None:
    """Fail as a handler."""
    raise ValueError("no stock")


class Hooks:
    """Hooks that keep their arguments."""

    def __init__(self) -> None:
        self.retries: list[tuple[str, Retry]] = []
        self.deaths: list[tuple[str, Death]] = []
        self.threads: list[str] = []

    def on_retry(self, message: Message, retry: Retry) -> None:
        self.retries.append((message.text, retry))

    def on_dead_letter(self, message: Message, death: Death) -> None:
        self.threads.append(threading.current_thread().name)
        self.deaths.append((message.text, death))

    @property
    def both(self) -> dict[str, Any]:
        """Return the hooks as arguments of `listen`."""
        return {"on_retry": self.on_retry, "on_dead_letter": self.on_dead_letter}


def test_a_retry_and_a_death_are_reported(twin: Twin) -> None:
    """A retry has its delay, a death is reported after the broker's confirmation; both have the handler's exception."""
    hooks = Hooks()
    connection = twin.connect(**ONCE)
    twin.listen(connection, "orders", fail, **hooks.both)
    twin.broker.send("orders", "a")
    twin.advance(5)  # waits for the hooks, too
    [(text, retry)] = hooks.retries
    assert (text, retry.delay, retry.delivery_count, retry.maximum, retry.cause) == (
        "a", 1.0, 1, 2, "ValueError: no stock",
    )  # fmt: skip
    assert isinstance(retry.error, ValueError)
    [(text, death)] = hooks.deaths
    assert (text, death.cause, death.delivery_count) == ("a", "ValueError: no stock", 2)
    assert isinstance(death.error, ValueError)
    assert hooks.threads == ["MainThread" if twin.asynchronous else "redelivery-hooks"]


def test_a_copy_that_is_dead_lettered_is_reported_with_its_body(twin: Twin) -> None:
    """The hook of a forwarded dead letter gets the body, though the library itself drops it."""
    hooks = Hooks()
    connection = twin.connect("?redelivery.deadLetterDestination=broken", **ONCE)
    twin.listen(connection, "orders", fail, **hooks.both)
    twin.broker.send("orders", "whole")
    twin.advance(5)
    eventually(twin, lambda: hooks.deaths)
    assert [text for text, _ in hooks.deaths] == ["whole"]


def test_what_expires_is_reported_dead(twin: Twin) -> None:
    """The hook of an expired message gets no exception, because no handler ran."""
    hooks = Hooks()
    connection = twin.connect("?redelivery.ordering=blocking")
    # It waits behind another message.
    twin.broker.send("orders", "first")
    twin.broker.send("orders", "late", expires_at=twin.clock.time() + 4)
    twin.listen(connection, "orders", fail, **hooks.both)
    twin.advance(8)
    eventually(twin, lambda: len(hooks.deaths) == 2)
    assert dict(hooks.deaths)["late"] == Death("expired", 0, None)


def test_a_death_is_reported_once(twin: Twin) -> None:
    """A death is reported once, also if the broker refused it first, or confirms it on the next connection."""
    hooks = Hooks()
    connection = twin.connect(**NEVER)
    twin.broker.refuse_settlements(1)
    twin.listen(connection, "orders", fail, **hooks.both)
    twin.broker.send("orders", "a")
    twin.advance(0.5)
    assert hooks.deaths == []
    twin.broker.cut()
    twin.advance(5)
    eventually(twin, lambda: hooks.deaths)
    twin.advance(60)
    [(text, death)] = hooks.deaths
    assert (text, type(death.error)) == ("a", ValueError)


@pytest.mark.parametrize("hook", ["on_retry", "on_dead_letter"])
def test_what_a_hook_raises_changes_nothing(twin: Twin, hook: str, caplog: pytest.LogCaptureFixture) -> None:
    """A hook's exception is one ERROR line with message, hook and traceback, and changes nothing."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    connection = twin.connect(**ONCE)
    twin.listen(connection, "orders", fail, **{hook: broken})
    twin.broker.send("orders", "a")
    twin.advance(5)
    eventually(twin, lambda: f"{hook} failed" in caplog.text and connection.report().poisoned == 1)
    [line] = [each for each in caplog.records if f"{hook} failed" in each.getMessage()]
    fields: dict[str, Any] = line.__dict__["redelivery"]
    assert line.getMessage() == (
        f"queue://orders: {fields['message_id']}: {hook} failed (RuntimeError: a bug); "
        "that has no effect on the message"
    )
    assert (line.name, line.levelname) == ("redelivery.messages", "ERROR")
    assert (fields["event"], fields["destination"], fields["hook"]) == ("hook failed", "queue://orders", hook)
    assert (fields["cause"], fields["cause_type"]) == ("RuntimeError: a bug", "RuntimeError")
    assert line.exc_info is not None
    assert (connection.report().redelivered, connection.report().poisoned) == (1, 1)


def test_a_hook_that_fails_often_has_one_traceback(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A hook that fails often has one traceback for each type of exception; further lines are short."""
    errors = iter([RuntimeError("a"), RuntimeError("b"), KeyError("c")])

    def broken(*_: object) -> None:
        raise next(errors)

    connection = twin.connect(**ONCE)
    twin.listen(connection, "orders", fail, on_retry=broken)
    for _ in range(3):
        twin.broker.send("orders", "a")
    twin.advance(5)
    eventually(twin, lambda: caplog.text.count("on_retry failed") == 3)
    lines = [each for each in caplog.records if "on_retry failed" in each.getMessage()]
    assert [each.exc_info is not None for each in lines] == [True, False, True]


def test_a_coroutine_hook_that_fails_is_logged(
    redelivery_broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """An async hook that fails is logged as a plain one, with its message and its name."""

    async def broken(*_: object) -> None:
        await asyncio.to_thread(threading.get_ident)
        raise RuntimeError("a bug")

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, **NEVER) as connection:
            connection.listen("orders", fail, on_dead_letter=broken)
            redelivery_broker.send("orders", "a")
            await connection.start()
            while "on_dead_letter failed (RuntimeError: a bug)" not in caplog.text:
                await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(threading.get_ident))])

    asyncio.run(main())
    assert "queue://orders: " in caplog.text


def test_a_hook_may_use_the_connection(redelivery_broker: MemoryBroker) -> None:
    """A hook may send on its connection, though the thread that reads from the broker must not wait."""
    sent: list[str] = []

    def on_dead_letter(message: Message, _: Death) -> None:
        sent.append(connection.send("alarms", message.body))

    with redelivery.connect(redelivery_broker.uri, **NEVER) as connection:
        connection.listen("orders", fail, on_dead_letter=on_dead_letter)
        redelivery_broker.send("orders", "a")
        connection.start()
        wait_for(lambda: redelivery_broker.depth("alarms") == 1)
    assert len(sent) == 1


def test_coroutine_hooks_are_awaited(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> None:
    """With `connect_async` async hooks are awaited on the loop."""
    called: list[str] = []

    async def on_retry(message: Message, _: Retry) -> None:
        await asyncio.to_thread(called.append, f"retry {message.text}")

    async def on_dead_letter(message: Message, _: Death) -> None:
        await asyncio.to_thread(called.append, f"death {message.text}")

    async def handle(_: Message) -> None:
        raise ValueError("no")

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, **ONCE) as connection:
            connection.listen("orders", handle, on_retry=on_retry, on_dead_letter=on_dead_letter)
            redelivery_broker.send("orders", "a")
            await connection.start()
            while connection.report().poisoned == 0 or len(called) < 2:
                redelivery_clock.advance(0.1)
                await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(threading.get_ident))])

    asyncio.run(main())
    assert called == ["retry a", "death a"]


def test_the_clock_waits_for_the_hook_of_a_dead_letter(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """`advance` returns after the hook of a dead letter has ended on its thread."""
    hooks = Hooks()
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock, **NEVER) as connection:
        connection.listen("orders", fail, on_dead_letter=hooks.on_dead_letter)
        connection.start()
        for number in range(1, 31):
            redelivery_broker.send("orders", "a")
            redelivery_clock.advance(1)
            assert len(hooks.deaths) == number


@pytest.mark.parametrize("hook", ["on_retry", "on_dead_letter"])
def test_hooks_that_cannot_be_called_are_refused(twin: Twin, hook: str) -> None:
    """A hook that is no function, is async on threads, or is of a session that settles together is refused."""

    async def coroutine(*_: object) -> None: ...

    connection: Any = twin.connect()
    with pytest.raises(ConfigurationError, match=f"{hook}= must be callable, not int"):
        connection.listen("orders", fail, **{hook: 3})
    if not twin.asynchronous:
        for asynchronous in (coroutine, functools.partial(AsyncMock())):
            with pytest.raises(
                ConfigurationError, match=f"{hook}= is async def; use redelivery.connect_async"
            ):
                connection.listen("orders", fail, **{hook: asynchronous})
    session = connection.session("transacted")
    with pytest.raises(ConfigurationError, match=f"{hook}=: a transacted session settles messages together"):
        session.listen("orders", fail, **{hook: lambda *_: None})


def test_calls_that_wait_are_made_before_the_end() -> None:
    """Queued calls are made at the end in order, on one thread; after the end none is queued."""
    thread, made = HookThread(SystemClock()), list[int]()

    def call(append: Callable[[], object]) -> HookCall:
        return HookCall("on_dead_letter", append, cast("Any", None), HookFaults())

    for number in range(50):
        thread.elsewhere(call(lambda number=number: made.append(number)))  # type: ignore[misc]
    thread.close(60.0)
    thread.elsewhere(call(lambda: made.append(-1)))
    assert made == list(range(50))
