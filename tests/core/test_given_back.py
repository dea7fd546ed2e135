"""Messages released by an engine that dispatches no more keep their count and their delay."""

from __future__ import annotations

from dataclasses import replace

from tests.core.bench import NATIVE, Bench
from tests.core.model import Letter

from redelivery.core.commands import Release
from redelivery.core.events import Drained, Released

FLOWS = replace(NATIVE, flow=True)


def test_a_failure_after_the_end_leaves_its_delay() -> None:
    """A message whose handler fails after the end keeps its delay for its next consumer."""
    bench = Bench(able=FLOWS)
    delivery = bench.run(Letter(0))
    bench.feed(Drained())
    assert [type(command) for command in bench.fail(delivery)] == [Release]
    record = bench.engine.state.history.known(delivery, 0.0)
    assert record is not None
    assert (record.count, record.due) == (1, bench.now + 60)


def test_what_comes_after_the_end_keeps_its_delay() -> None:
    """A remembered message that arrives after the end is released, and its delay is kept."""
    bench, letter = Bench(able=FLOWS), Letter(0)
    bench.fail(bench.run(letter))
    bench.lose()
    bench.connect()
    bench.feed(Drained())
    (again,) = bench.arrive(letter)
    assert [type(command) for command in bench.commands] == [Release]
    record = bench.engine.state.history.known(again, 0.0)
    assert record is not None
    assert (record.count, record.due) == (1, bench.now + 60)


def test_the_application_gives_it_back_at_once() -> None:
    """A message that the application releases keeps its count and loses its delay."""
    bench, letter = Bench(able=FLOWS), Letter(0)
    bench.fail(bench.run(letter))
    bench.now += 60
    delivery = bench.want()
    assert delivery is not None
    bench.feed(Released(delivery))
    record = bench.engine.state.history.known(delivery, 0.0)
    assert record is not None
    assert (record.count, record.due) == (1, None)
