"""The broker's answers to dead letters are in the log before the query dies, fails or ends: none is sent again."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.spark.query import Query, dead_bodies, fails_bad, readers_of

from redelivery.clock import pass_time
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.stream.source_connection import SourceConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.commands import Forward
    from redelivery.testing import ManualClock, MemoryBroker

    AnswerAfter = Callable[[Callable[[bytes], float | None]], None]

POISON = "jms.redeliveryPolicy.maximumRedeliveries=0"
BAD = [f"bad-{number}".encode() for number in range(5)]


@pytest.fixture
def answer_after(redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> AnswerAfter:
    """Make the broker answer a query's dead letters after so many seconds, by their bodies; None: never."""
    forward = SourceConnection.forward

    def slow(seconds_of: Callable[[bytes], float | None]) -> None:
        def slowly(
            self: SourceConnection, log: str, command: Forward, done: Callable[[object], None]
        ) -> None:
            seconds = seconds_of(command.delivery.body)

            def answered(error: object) -> None:
                if seconds is not None:
                    redelivery_clock.call_later(seconds, partial(done, error))

            forward(self, log, command, answered)

        monkeypatch.setattr(SourceConnection, "forward", slowly)

    return slow


def fail_all(broker: MemoryBroker, query: Query) -> None:
    """Fail five messages for good; they are not settled yet."""
    for body in BAD:
        broker.send("orders", body)
    query.step(fails_bad)


def poisoned(broker: MemoryBroker, query: Query) -> None:
    """Fail five messages for good; the next one is there when they are settled."""
    fail_all(broker, query)
    broker.send("orders", "good")
    query.read_ahead()


def letters_of_failures(
    broker: MemoryBroker, query: Query, end: Callable[[Query], None], lasts: float = 0.0
) -> list[bytes]:
    """Return all dead letters of a query whose next batch lasts so long and fails, at each of four starts."""
    poisoned(broker, query)
    for _ in range(4):
        assert query.plan()
        query.read()
        pass_time(query.start()._clock, lasts)
        end(query)
    query.drain(fails_bad)
    assert query.bodies() == ["good"]
    return dead_bodies(broker)


@pytest.mark.parametrize("end", [Query.die, Query.end], ids=["killed", "failed"])
def test_a_sink_that_is_down_repeats_no_dead_letter(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    answer_after: AnswerAfter,
    end: Callable[[Query], None],
) -> None:
    """A query that fails or dies again and again sends each dead letter once: no batch begins before the answers."""
    answer_after(lambda _: 0.05)
    query = make_query(uri=POISON)
    assert letters_of_failures(redelivery_broker, query, end) == BAD


@pytest.mark.parametrize("seconds", [0.5, 3.0])
def test_an_answer_while_a_batch_runs_is_recorded_when_the_query_fails(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    answer_after: AnswerAfter,
    seconds: float,
) -> None:
    """Answers that take longer than a batch waits for them are in the log if they come before the query ends."""
    answer_after(lambda _: seconds)
    query = make_query(uri=POISON)
    assert letters_of_failures(redelivery_broker, query, Query.end, lasts=5.0) == BAD


def test_a_query_that_is_killed_repeats_slow_dead_letters_once(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    answer_after: AnswerAfter,
) -> None:
    """Answers that come while a batch runs that is then killed are lost; the repeated batch waits longer for them."""
    answer_after(lambda _: 0.5)
    query = make_query(uri=POISON)
    found = letters_of_failures(redelivery_broker, query, Query.die, lasts=5.0)
    assert found == sorted([*BAD, *BAD])


def test_the_end_of_a_query_sends_no_dead_letter(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """Dead letters that were refused are sent again by the next start, and not by the end, which would not wait."""
    query = make_query(uri=POISON)
    redelivery_broker.refuse_sends(5)
    poisoned(redelivery_broker, query)
    assert query.plan()
    query.read()
    redelivery_clock.advance(60)
    query.end()
    assert dead_bodies(redelivery_broker) == []
    query.drain(fails_bad)
    assert dead_bodies(redelivery_broker) == BAD


@pytest.mark.parametrize("stuck", [BAD, BAD[:1]], ids=["all", "one"])
@pytest.mark.parametrize("seconds", [1.5, None])
def test_good_messages_do_not_wait_for_answers(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    answer_after: AnswerAfter,
    stuck: list[bytes],
    seconds: float | None,
) -> None:
    """A batch waits 0.1 s at most for a broker that answers slowly or never."""
    answer_after(lambda body: seconds if body in stuck else 0.005)
    query = make_query(uri=POISON)
    for number in range(10):
        redelivery_broker.send("orders", BAD[number % 5])
        redelivery_broker.send("orders", "good")
        query.read_ahead()
        began = redelivery_clock.monotonic()
        assert query.step(fails_bad) is not None
        assert redelivery_clock.monotonic() - began < 0.11
    assert len(query.bodies()) == 10


def test_a_reader_that_fails_at_each_start_repeats_no_dead_letter(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], answer_after: AnswerAfter
) -> None:
    """A query that fails between two batches records the answers, too."""
    answer_after(lambda _: 0.2)
    query = make_query(uri=POISON)
    fail_all(redelivery_broker, query)

    def fails() -> int:
        raise RedeliveryError("reading has stopped")

    for _ in range(4):
        readers_of(query.start()).published = fails  # type: ignore[method-assign]
        with pytest.raises(RedeliveryError, match="reading has stopped"):
            query.plan()
        query.end()
    query.drain(fails_bad)
    assert dead_bodies(redelivery_broker) == BAD


def test_a_wrong_checkpoint_sends_no_dead_letter(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], answer_after: AnswerAfter
) -> None:
    """A checkpoint that is older than the log is refused before a dead letter is sent."""
    answer_after(lambda _: None)
    query = make_query(uri=POISON)
    poisoned(redelivery_broker, query)
    assert query.plan()
    before = dead_bodies(redelivery_broker)
    for _ in range(3):
        query.die()
        with pytest.raises(ConfigurationError, match="the checkpoint is older than the log"):
            query.start().latest({1: 0}, 100)
    assert dead_bodies(redelivery_broker) == before == BAD


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("a store's own")])
def test_a_log_that_cannot_be_written_at_the_end(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    answer_after: AnswerAfter,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """A query ends with a line in its log, unlocked, if it cannot record the last answers: they are sent again."""
    caplog.set_level("INFO")
    answer_after(lambda _: 3.0)
    query = make_query(uri=POISON)
    poisoned(redelivery_broker, query)
    assert query.plan()
    redelivery_clock.advance(5)

    def fails(*_: object) -> None:
        raise error

    query.start()._journal.save = fails  # type: ignore[method-assign]
    query.end()
    assert f"the broker's last answers to dead letters are not in the log ({error})" in caplog.text
    query.drain(fails_bad)
    assert {*dead_bodies(redelivery_broker)} == {*BAD}


TWICE = """
import os, signal
from redelivery_spark.stream import stream_reader
signal.signal(signal.SIGTERM, stream_reader._end)
try:
    os.kill(os.getpid(), signal.SIGTERM)
finally:
    os.kill(os.getpid(), signal.SIGTERM)
    print("stopped")
"""


@pytest.mark.ci("a child process: 0.5 s")
def test_a_second_signal_does_not_interrupt_the_end() -> None:
    """Spark sends SIGTERM twice to the process of a source: the second one changes nothing."""
    done = subprocess.run([sys.executable, "-c", TWICE], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
