"""Messages of a session whose handler, or settlement, ended in an unusual way."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import pull, seated

from redelivery.clock import SystemClock
from redelivery.core.events import Released
from redelivery.driver.consumer.async_worker import _attempt
from redelivery.driver.consumer.handler_run import HandlerRun

if TYPE_CHECKING:
    from tests.driver.twins import Twin

PATIENCE = 10.0


def test_a_handler_whose_worker_was_cancelled_is_at_work_until_it_ends(twin: Twin) -> None:
    """Closing a session waits for a handler of a cancelled worker only until the handler ends."""
    if not twin.asynchronous:
        return
    _, session, consumer = seated(twin, "individual", "long")
    session_state, dispatcher = session._state, consumer._dispatcher
    began, go_on = threading.Event(), threading.Event()

    def handle(_: Any) -> None:
        began.set()
        assert go_on.wait(PATIENCE)

    async def cancelled() -> None:
        with ThreadPoolExecutor(1) as pool:
            delivery, _ = dispatcher.poll()
            run = HandlerRun(dispatcher, SystemClock())
            worker = asyncio.ensure_future(_attempt(handle, delivery, run, pool, None))
            assert await asyncio.to_thread(began.wait, PATIENCE)
            worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker
            assert session_state.activity.wait_quiet(0.0, None) == "handler"
            go_on.set()

    asyncio.run(cancelled())
    assert session_state.activity.wait_quiet(0.0, None) is None


def test_one_that_is_settled_already_keeps_no_other_from_it(twin: Twin) -> None:
    """A commit's answer settles each of its messages, though one of them is settled already."""
    if twin.asynchronous:
        return
    _, session, consumer = seated(twin, "transacted", "a", "b")
    first, second = pull(twin, consumer, 2)
    first.conclude(Released(first.delivery))
    session._state.conclude([first, second], None)
    assert (first.outcome, second.outcome) == ("released", "accepted")
