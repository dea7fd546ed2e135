"""Messages that are held at lost connections: the broker may drop them after some, and those that do not come back."""

from __future__ import annotations

from dataclasses import replace

from tests.core.bench import CAUSE, NATIVE, Bench
from tests.core.model import Letter

from redelivery.core.commands import LossesCounted
from redelivery.core.events import Failed
from redelivery.core.message_history import REMEMBERED, RETURN, MessageHistory

LIMITED = replace(NATIVE, loss_limit=20)


def parked(able: object = LIMITED) -> tuple[Bench, MessageHistory, Letter]:
    """Return an engine that has parked one message."""
    bench, history = Bench(able=able), MessageHistory()  # type: ignore[arg-type]
    bench.engine.state.share(history)
    letter = Letter(1)
    bench.arrive(letter)
    delivery = bench.want()
    assert delivery is not None
    bench.feed(Failed(delivery, CAUSE))
    return bench, history, letter


def test_half_of_the_losses_is_said_once() -> None:
    """A message that was held at half of the lost connections that its queue allows is reported, once."""
    bench, _, letter = parked()
    said: list[tuple[int, LossesCounted]] = []
    for number in range(1, 20):
        said += [(number, each) for each in bench.lose() if isinstance(each, LossesCounted)]
        bench.connect()
        bench.arrive(letter)
    assert said == [(10, LossesCounted(1, 10, 20))]


def test_nothing_is_said_of_a_queue_without_a_limit() -> None:
    """Where the broker drops nothing after lost connections, none are reported."""
    bench, _, letter = parked(NATIVE)
    for _ in range(30):
        assert not any(isinstance(each, LossesCounted) for each in bench.lose())
        bench.connect()
        bench.arrive(letter)


def test_what_does_not_come_back_is_counted_after_a_minute() -> None:
    """A message that was held at a loss is unaccounted for a minute after its consumer is served, for an hour."""
    bench, history, letter = parked()
    assert history.unaccounted(bench.now) == 0
    bench.lose()
    assert history.unaccounted(bench.now + RETURN) == 0, "nothing comes back in an outage"
    bench.now += 1000
    bench.connect()
    history.served(bench.now)
    found = [
        history.unaccounted(bench.now + later)
        for later in (0, RETURN - 1, RETURN, REMEMBERED, REMEMBERED + 1)
    ]
    assert found == [0, 0, 1, 1, 0]
    bench.arrive(letter)
    assert history.unaccounted(bench.now + RETURN) == 0


def test_the_minute_begins_again_with_the_next_loss() -> None:
    """A second outage within the minute is no time in which a message could have come back."""
    bench, history, _ = parked()
    for _ in range(3):
        bench.lose()
        bench.connect()
        history.served(bench.now)
        bench.now += RETURN - 1
        assert history.unaccounted(bench.now) == 0
    assert history.unaccounted(bench.now + 1) == 1
    bench.lose()
    assert history.unaccounted(bench.now + 1) == 0
