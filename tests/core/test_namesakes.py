"""Two messages with one id that their producer set, and a lost connection: neither is taken for the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.bench import CAUSE, NOTHING, Bench
from tests.core.model import Arrival, Letter

from redelivery.core.commands import Accept, Hold, PoisonAck
from redelivery.core.events import Arrived, Confirmed, Poisoned

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redelivery.core.commands import Command

DAY = 86400.0


class Namesake(Arrival):
    """Delivery of a message that differs from others with its id in its body only."""

    __slots__ = ("_dated",)

    def __init__(self, epoch: int, body: bytes, *, marked: bool, dated: bool) -> None:
        super().__init__(Letter(0, attempts=int(marked)), epoch, counts=False)
        self.body = body
        self._dated = dated

    @property
    def key(self) -> Hashable:
        return "order-1"

    @property
    def strong(self) -> bool:
        return False

    @property
    def dated(self) -> bool:
        return self._dated


class Namesakes(Bench):
    """Engine of a broker that makes no ids of its own."""

    def __init__(self, *, dated: bool) -> None:
        super().__init__()
        self._dated = dated

    def come(self, *bodies: bytes, marked: bool = False) -> list[Namesake]:
        """Make messages arrive; the engine's commands are kept in `commands`."""
        came = [Namesake(self.epoch, body, marked=marked, dated=self._dated) for body in bodies]
        self.commands = self.feed(Arrived(1, came))
        return came

    def cut(self) -> None:
        """Lose the connection, and reconnect."""
        self.lose()
        self.connect()


@pytest.fixture(params=[False, True], ids=["without a time", "of one time"])
def bench(request: pytest.FixtureRequest) -> Namesakes:
    """Return an engine; its messages have no creation time, or all the same one."""
    return Namesakes(dated=request.param)


def accepts(commands: Sequence[Command]) -> list[object]:
    """Return the accepted deliveries."""
    return [one for each in commands if isinstance(each, Accept) for one in each.deliveries]


def test_one_that_was_prefetched_is_not_accepted_for_one_that_was_done(bench: Namesakes) -> None:
    """A prefetched message that is redelivered, with the flag, after the other's acknowledgement is handled."""
    created, _ = bench.come(b"created", b"cancelled")
    assert bench.want() is created
    assert accepts(bench.succeed(created)) == [created]
    bench.cut()
    (again,) = bench.come(b"cancelled", marked=True)
    assert bench.commands == NOTHING
    assert bench.want() is again
    assert bench.engine.state.counts.deduplicated == 0


def test_an_id_that_was_done_once_is_not_done_for_ever(bench: Namesakes) -> None:
    """A third message with that id months later, flagged because another consumer had it, is handled."""
    (created,) = bench.come(b"created")
    assert bench.want() is created
    bench.succeed(created)
    bench.cut()
    # Accepted unseen or handled again, depending on its time: settled in both cases.
    bench.come(b"created", marked=True)
    if (copy := bench.want()) is not None:
        bench.succeed(copy)
    bench.now += 90 * DAY
    for body in (b"refunded", b"created"):
        (late,) = bench.come(body, marked=True)
        assert bench.commands == NOTHING
        assert bench.want() is late
        bench.succeed(late)


@pytest.mark.parametrize("marked", [False, True])
def test_a_success_accepts_the_copy_of_its_own_message(bench: Namesakes, *, marked: bool) -> None:
    """While the handler of one runs on, both are redelivered: the other begins at once, and nothing hangs."""
    created, _ = bench.come(b"created", b"cancelled")
    assert bench.want() is created
    bench.cut()
    created_again, cancelled_again = bench.come(b"created", b"cancelled", marked=marked)
    assert bench.want() is cancelled_again
    assert bench.want() is None
    assert accepts(bench.succeed(created)) == [created_again]
    assert accepts(bench.succeed(cancelled_again)) == [cancelled_again]
    assert (bench.engine.load.parked, bench.engine.load.running, bench.want()) == (0, 0, None)


@pytest.mark.parametrize("marked", [False, True])
def test_a_failure_is_charged_to_its_own_message(bench: Namesakes, *, marked: bool) -> None:
    """The other message is not charged, not delayed, and has no cause of the first one."""
    created, _ = bench.come(b"created", b"cancelled")
    assert bench.want() is created
    bench.cut()
    created_again, cancelled_again = bench.come(b"created", b"cancelled", marked=marked)
    (hold,) = bench.fail(created)
    assert isinstance(hold, Hold)
    assert (hold.delivery, hold.count) == (created_again, 1)
    assert bench.want() is cancelled_again
    assert cancelled_again.record is None
    assert bench.want() is None
    bench.now = hold.due
    assert bench.want() is created_again


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_verdict_is_not_carried_out_on_another_message(bench: Namesakes, *, confirmed: bool) -> None:
    """A good message that arrives with the id of a dead letter, just after the loss, is handled."""
    (bad,) = bench.come(b"bad")
    assert bench.want() is bad
    (ack,) = bench.feed(Poisoned(bad, CAUSE))
    assert isinstance(ack, PoisonAck)
    if confirmed:
        bench.feed(Confirmed(bad, None))
    bench.cut()
    (good,) = bench.come(b"good", marked=True)
    assert bench.commands == NOTHING
    assert bench.want() is good
