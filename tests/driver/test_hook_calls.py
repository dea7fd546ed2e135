"""Calls of a listener's hooks: kept messages, other observers, the end, a closed loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.model import Arrival, Letter
from tests.driver.twins import eventually

from redelivery import Defer
from redelivery.clock import SystemClock
from redelivery.core.commands import Subscribe
from redelivery.driver.connection.hook_tasks import HookTasks
from redelivery.driver.connection.hook_thread import HookThread
from redelivery.driver.consumer import listener_hooks
from redelivery.driver.consumer.hook_call import HookCall, HookFaults
from redelivery.driver.consumer.listener_hooks import ListenerHooks
from redelivery.events import DeadLettered, DeadLettering, Event, Finished
from redelivery.events.of_handling import ResultDetails
from redelivery.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.events import Death

ORDERS = Subscribe(1, "queue://orders", 1)


class Here:
    """Calls that are made at once."""

    def here(self, call: Callable[[], object]) -> None:
        call()

    elsewhere = here

    def close(self, timeout: float) -> None:
        """Do nothing."""


def hooks_of(deaths: list[Death]) -> ListenerHooks:
    """Return the hooks of a listener that wants dead letters."""
    made = ListenerHooks(None, lambda _, death: deaths.append(death), Here())
    made.settler = lambda *_: True  # type: ignore[assignment]
    return made


def poisoned(delivery: Arrival) -> Finished:
    """Return the end of a run that has made a message poison."""
    details = ResultDetails("poisoned", "failed", ValueError("x"))
    return Finished(0.0, ORDERS, delivery, None, 0.1, details)


def confirmed(delivery: Arrival) -> DeadLettered:
    """Return the broker's answer."""
    return DeadLettered(0.0, ORDERS, delivery, "ValueError: x", "ValueError", 1, False)


def as_hook(made: Callable[[], object]) -> HookCall:
    """Return a call of `on_dead_letter` that does this."""
    return HookCall("on_dead_letter", made, confirmed(Arrival(Letter(1), 1, counts=False)), HookFaults())


def test_messages_whose_dead_letter_has_no_answer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit of unconfirmed dead letters the oldest one's hook is called without its exception."""
    monkeypatch.setattr(listener_hooks, "MOST", 3)
    deaths: list[Death] = []
    hooks, arrivals = hooks_of(deaths), [Arrival(Letter(number), 1, counts=False) for number in range(5)]
    for each in arrivals:
        hooks.finished(None, poisoned(each))
    assert len(hooks._dying) == 3
    for each in arrivals:
        hooks.event(confirmed(each))
    assert [death.error is None for death in deaths] == [True, True, False, False, False]


def test_nothing_is_kept_of_a_message_that_was_reported_dead() -> None:
    """Nothing of a reported message is kept, also if the broker's answer came first."""
    deaths: list[Death] = []
    hooks, delivery = hooks_of(deaths), Arrival(Letter(1), 1, counts=False)
    hooks.finished(None, poisoned(delivery))
    hooks.event(confirmed(delivery))
    late = Arrival(Letter(2), 1, counts=False)
    late.state = "settled"
    hooks.event(DeadLettering(0.0, ORDERS, late, "expired", None))
    assert (len(deaths), hooks._dying) == (1, {})


def test_a_listener_with_hooks_has_its_own_observers(twin: Twin) -> None:
    """A listener with hooks has its own observers, too; a deferral is no retry."""
    seen, retries = list[str](), list[Any]()

    def handle(message: Message) -> None:
        if message.redelivery_count == 0 and seen.count("finished") == 0:
            raise Defer(1, "not yet")

    def watch(event: Event) -> None:
        seen.append(event.name)

    connection = twin.connect()
    twin.listen(
        connection, "orders", handle, observers=[watch], on_retry=lambda *found: retries.append(found)
    )
    twin.broker.send("orders", "a")
    twin.advance(2)
    eventually(twin, lambda: connection.report().accepted)
    assert seen.count("finished") == 2
    assert (connection.report().deferred, retries) == (1, [])


def test_a_hook_that_leaves_does_not_end_the_others() -> None:
    """Any exception of a hook is logged, and the next call is made."""
    thread, made = HookThread(SystemClock()), list[int]()

    def leave() -> None:
        raise SystemExit(3)

    thread.elsewhere(as_hook(leave))
    thread.elsewhere(as_hook(lambda: made.append(1)))
    thread.close(60.0)
    assert made == [1]


def test_a_hook_thread_that_cannot_start_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for which no thread can be started raises and is not kept; the next call starts one."""
    clock, made = ManualClock(patience=0.05), list[int]()
    thread = HookThread(clock)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            thread.elsewhere(as_hook(lambda: made.append(1)))
    # An uncounted thread, which the clock must not take for the one that has not started.
    go_on = threading.Event()
    threading.Thread(target=go_on.wait, args=(60,), daemon=True).start()
    clock.advance(1)
    go_on.set()
    thread.elsewhere(as_hook(lambda: made.append(2)))
    thread.close(60.0)
    assert made == [2]


def test_a_hook_may_close_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A hook may close its connection; queued calls are not made, and the log has their number."""
    thread, ended, go_on = HookThread(SystemClock()), threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def close() -> None:
        go_on.wait(60)
        try:
            thread.close(60.0)
        except RuntimeError as error:
            raised.append(error)
        ended.set()

    thread.elsewhere(as_hook(close))
    thread.elsewhere(as_hook(lambda: None))
    go_on.set()
    assert ended.wait(60)
    assert raised == []
    assert caplog.messages == ["1 calls of on_dead_letter were not made before the connection was closed"]


def test_calls_that_were_not_made_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Calls that a slow hook kept from being made at the end are counted."""
    thread, began, end = HookThread(SystemClock()), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        end.wait(60)

    thread.elsewhere(as_hook(hang))
    for _ in range(2):
        thread.elsewhere(as_hook(lambda: None))
    assert began.wait(60)
    thread.close(0.0)
    end.set()
    assert caplog.messages == ["2 calls of on_dead_letter were not made before the connection was closed"]


def test_hooks_that_are_awaited_are_waited_for() -> None:
    """Closing a connection waits for its async hooks."""
    ended: list[int] = []

    async def hook() -> None:
        await asyncio.to_thread(ended.append, 1)

    async def main() -> None:
        tasks = HookTasks()
        tasks.entered(asyncio.get_running_loop())
        tasks.here(as_hook(hook))
        await tasks.wait(60.0)
        assert ended == [1]

    asyncio.run(main())


def test_nothing_is_called_on_a_loop_that_is_closed() -> None:
    """A call on a closed loop is dropped, and raises nothing on the thread that reads."""
    tasks, made, loop = HookTasks(), list[int](), asyncio.new_event_loop()
    tasks.elsewhere(as_hook(lambda: made.append(1)))
    tasks.entered(loop)
    loop.close()
    tasks.elsewhere(as_hook(lambda: made.append(1)))
    assert made == []
