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
from redelivery.core.delivery import Record
from redelivery.driver import listener_hooks
from redelivery.driver import listener_hooks as hook_queue
from redelivery.driver import listener_hooks as hook_tasks
from redelivery.driver.listener_hooks import (
    HookCall,
    HookFaults,
    HookQueue,
    HookTasks,
    HookThread,
    ListenerHooks,
)
from redelivery.events import DeadLettered, DeadLettering, Event, Finished
from redelivery.events.event import ResultDetails
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
    dropped = 0

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


def as_hook(made: Callable[[], object], size: int = 0) -> HookCall:
    """Return a call of `on_dead_letter` that does this, for a message of so many bytes."""
    return HookCall(
        "on_dead_letter", made, confirmed(Arrival(Letter(1), 1, counts=False)), HookFaults(), size
    )


def test_messages_whose_dead_letter_has_no_answer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit of unconfirmed dead letters the oldest one's hook is called without its exception."""
    monkeypatch.setattr(listener_hooks, "MOST_DYING", 3)
    deaths: list[Death] = []
    hooks, arrivals = hooks_of(deaths), [Arrival(Letter(number), 1, counts=False) for number in range(5)]
    for each in arrivals:
        hooks.finished(None, poisoned(each))
    assert len(hooks._dying) == 3
    for each in arrivals:
        hooks.event(confirmed(each))
    assert [death.error is None for death in deaths] == [True, True, False, False, False]


def test_their_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unconfirmed dead letters keep 64 MiB of bodies at most; one is kept, however large it is."""
    monkeypatch.setattr(listener_hooks, "MOST_DYING_BYTES", 10)
    deaths: list[Death] = []
    hooks, arrivals = hooks_of(deaths), [Arrival(Letter(n, size=4), 1, counts=False) for n in range(5)]
    for each in arrivals:
        hooks.finished(None, poisoned(each))
        hooks.finished(None, poisoned(each))
    assert len(hooks._dying) == 2
    hooks.finished(None, poisoned(Arrival(Letter(9, size=99), 1, counts=False)))
    assert len(hooks._dying) == 1
    for each in arrivals:
        hooks.event(confirmed(each))
    hooks.finished(None, poisoned(Arrival(Letter(8, size=1), 1, counts=False)))
    assert (len(hooks._dying), hooks._bytes) == (1, 1)


def test_messages_of_one_id_are_two_messages() -> None:
    """A hook gets the message that died, also if a producer gives one id to several."""
    hooked: list[tuple[Message, str]] = []
    hooks = ListenerHooks(None, lambda message, death: hooked.append((message, str(death.cause))), Here())
    hooks.settler = lambda *_: True  # type: ignore[assignment]
    twins = [Arrival(Letter(1), 1, counts=False) for _ in range(2)]
    for each in twins:
        each.record = Record()
        hooks.finished(None, poisoned(each))
    for each in reversed(twins):
        hooks.event(confirmed(each))
    assert [message._delivery for message, _ in hooked] == [twins[1], twins[0]]


def test_a_message_is_the_same_over_connections() -> None:
    """The hook of a message whose dead letter was lost with the connection gets its exception with the second one."""
    deaths: list[Death] = []
    hooks, first, again = hooks_of(deaths), *(Arrival(Letter(1), epoch, counts=False) for epoch in (1, 2))
    first.record = again.record = Record()
    hooks.finished(None, poisoned(first))
    hooks.event(DeadLettering(0.0, ORDERS, again, "ValueError: x", None))
    hooks.event(confirmed(again))
    assert [type(death.error) for death in deaths] == [ValueError]


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


def made_of(queue: HookQueue) -> list[object]:
    """Make the calls that wait; return what they return."""
    found: list[object] = []
    while (call := queue.take()) is not None:
        found.append(call())
    return found


def test_waiting_calls_are_bounded_in_number() -> None:
    """Of more than 1,000 calls that wait, the oldest are dropped and counted; the first drop is reported once."""
    queue = HookQueue()
    first = [queue.add(as_hook(lambda number=number: number)) for number in range(1003)]  # type: ignore[misc]
    assert (queue.dropped, first.count(True), first.index(True)) == (3, 1, 1000)
    assert made_of(queue) == list(range(3, 1003))


def test_waiting_calls_are_bounded_in_bytes() -> None:
    """Calls whose messages have more than 64 MiB are dropped, the oldest first; one is kept, however large it is."""
    queue, mib = HookQueue(), 1024 * 1024
    for number, size in enumerate((30, 30, 4, 1, 30)):
        queue.add(as_hook(lambda number=number: number, size * mib))  # type: ignore[misc]
    assert queue.dropped == 2
    assert made_of(queue) == [2, 3, 4]
    queue.add(as_hook(lambda: "small", 1))
    queue.add(as_hook(lambda: "large", 99 * mib))
    assert (len(queue), queue.dropped) == (1, 3)
    assert made_of(queue) == ["large"]
    queue.add(as_hook(lambda: "after it", 64 * mib))
    assert made_of(queue) == ["after it"]


def test_a_slow_hook_drops_calls_with_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook thread behind which too many calls wait drops them, counts them, and logs one line."""
    monkeypatch.setattr(hook_queue, "MOST_CALLS", 2)
    thread, began, end = HookThread(SystemClock()), threading.Event(), threading.Event()
    made: list[int] = []

    def hang() -> None:
        began.set()
        end.wait(60)

    thread.elsewhere(as_hook(hang))
    assert began.wait(60)
    for number in range(5):
        thread.elsewhere(as_hook(lambda number=number: made.append(number)))  # type: ignore[misc]
    end.set()
    thread.close(60.0)
    assert (made, thread.dropped) == ([3, 4], 3)
    assert [line for line in caplog.messages if "dropped" in line] == caplog.messages
    assert len(caplog.messages) == 1


def test_hooks_on_a_loop_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only so many hooks are awaited at once; those that begin are not cancelled for later ones, which wait."""
    monkeypatch.setattr(hook_tasks, "AT_ONCE", 2)
    monkeypatch.setattr(hook_queue, "MOST_CALLS", 3)
    ended: list[int] = []

    async def main() -> None:
        tasks, go_on = HookTasks(), asyncio.Event()
        tasks.entered(asyncio.get_running_loop())

        async def hook(number: int) -> None:
            await go_on.wait()
            ended.append(number)

        for number in range(4):
            tasks.here(as_hook(lambda number=number: hook(number)))  # type: ignore[misc]
        for number in range(4, 8):
            tasks.elsewhere(as_hook(lambda number=number: hook(number)))  # type: ignore[misc]
        assert (len(tasks._tasks), tasks.dropped) == (2, 3)
        go_on.set()
        await tasks.wait(60.0)
        assert not tasks._tasks

    asyncio.run(main())
    assert sorted(ended) == [0, 1, 5, 6, 7]
    assert len(caplog.messages) == 1


def test_plain_hooks_that_waited_are_all_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """When an awaited hook ends, all plain ones behind it are called, not one for each that has ended."""
    monkeypatch.setattr(hook_tasks, "AT_ONCE", 1)
    made: list[int] = []

    async def main() -> None:
        tasks, go_on, turns, last = HookTasks(), asyncio.Event(), asyncio.Event(), asyncio.Event()
        tasks.entered(asyncio.get_running_loop())

        async def hook() -> None:
            await go_on.wait()

        def plain(number: int) -> None:
            made.append(number)
            if number == 4:
                last.set()

        tasks.here(as_hook(hook))
        for number in range(5):
            tasks.elsewhere(as_hook(lambda number=number: plain(number)))  # type: ignore[misc]
        # Their turns on the loop come first, and find no room.
        asyncio.get_running_loop().call_soon(turns.set)
        await turns.wait()
        assert not made
        go_on.set()
        async with asyncio.timeout(10):
            await last.wait()

    asyncio.run(main())
    assert made == [0, 1, 2, 3, 4]


def test_hooks_end_with_their_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Async hooks that have not ended within the time of the close are cancelled; calls that wait are not made."""
    ended: list[str] = []

    async def hook() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> None:
        tasks = HookTasks()
        tasks.entered(asyncio.get_running_loop())
        for _ in range(hook_tasks.AT_ONCE + 3):
            tasks.here(as_hook(hook))
        await tasks.wait(0.01)
        tasks.here(as_hook(hook))
        tasks.elsewhere(as_hook(hook))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert ended == ["cancelled"] * hook_tasks.AT_ONCE
    assert caplog.messages == ["103 calls of hooks had not ended when the connection was closed"]


def test_an_async_hook_may_close_its_connection() -> None:
    """A hook that closes its connection is not waited for by itself, and not cancelled."""
    ended: list[str] = []

    async def main() -> None:
        tasks = HookTasks()
        tasks.entered(asyncio.get_running_loop())

        async def hook() -> None:
            await tasks.wait(60.0)
            ended.append("closed")

        tasks.here(as_hook(hook))
        (task,) = tasks._tasks
        await task

    asyncio.run(main())
    assert ended == ["closed"]


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
