"""The credit `auto` in bytes: it follows the size of what arrived."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.bench import Bench
from tests.core.credit_world import FLOW, WINDOW
from tests.core.model import Letter
from tests.matrix import some
from tests.tiers import amount

from redelivery.core.commands import Accept, Command, Credit, Release
from redelivery.core.credit import LAST, MOST_BYTES, CreditPace, first_credit
from redelivery.core.events import Continued, Paused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.core.model import Arrival

    from redelivery.core.capabilities import Capabilities

KB, MB = 1000, 1_000_000


class Broker:
    """A queue, and a consumer whose messages the test settles. Each message is sent alone, while credit is left."""

    def __init__(self, sizes: Sequence[int], *, workers: int = 2, able: Capabilities = FLOW) -> None:
        first = first_credit(workers)
        self.bench = Bench(able=able, credit=1000, pace=CreditPace(first))
        self.queue = deque(Letter(number, size=size) for number, size in enumerate(sizes))
        self.allowed = 0 if able.flow else first
        self.grows = not able.flow
        self.here = self.most = 0
        self.withdrawals = self.handled = 0
        self.running: list[Arrival] = []
        self._take(self.bench.commands)

    def _take(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Credit):
                self.withdrawals += command.messages < 0
                self.allowed += command.messages
                assert self.allowed >= 0, "only unused credit is taken back"
            elif isinstance(command, Accept | Release):
                self.allowed += len(command.deliveries) if self.grows else 0

    def send(self) -> None:
        """Send as many as the credit allows; it may be taken back after each."""
        while self.allowed and self.queue:
            letter = self.queue.popleft()
            self.allowed -= 1
            self.here += letter.size
            self.most = max(self.most, self.here)
            self.bench.arrive(letter)
            self._take(self.bench.commands)

    def begin(self) -> bool:
        """Give a message to the application; return False if there is none."""
        delivery = self.bench.want()
        self._take(self.bench.commands)
        if delivery is None:
            return False
        self.running.append(delivery)
        return True

    def end(self) -> None:
        """Settle the message that the application has had the longest."""
        delivery = self.running.pop(0)
        self.handled += 1
        self.here -= delivery.letter.size
        self._take(self.bench.succeed(delivery))

    def work(self, messages: int) -> None:
        """Handle messages, one after the other, a millisecond each; the broker sends more meanwhile."""
        for _ in range(messages):
            self.send()
            self.bench.now += 0.001 / 8
            if self.begin():
                self.end()


def sized(*sizes: int, first: int = 6) -> int:
    """Return the credit after so many messages, one by one, of a pace that had the largest credit."""
    pace = CreditPace(first)
    pace.credit = 1000
    for size in sizes:
        pace.weigh(size, 1, 0)
    return pace.credit


def test_as_many_as_64_mib_of_the_present_size() -> None:
    """The credit is 64 MiB of messages at the mean size of the last ones; it is whole for up to 64 KiB."""
    assert sized(*[64 * 1024] * 100) == 1000
    assert sized(*[MOST_BYTES // 500] * 100) == 500
    assert sized(*[MB] * 100) == MOST_BYTES // MB
    assert sized(*[50] * 10_000, *[MB] * 10 * LAST) < 1.25 * MOST_BYTES // MB


def test_never_below_two_for_each_worker() -> None:
    """The credit is never below the first, two messages for each worker and two more, however large they are."""
    assert sized(*[10_000 * MB] * 100, first=first_credit(8)) == 18


def test_a_little_less_changes_nothing() -> None:
    """Sizes that differ a little withdraw nothing: each withdrawal would be a frame."""
    assert sized(*[MOST_BYTES // 810] * 100) == 1000


@pytest.mark.parametrize("able", [FLOW, WINDOW])
def test_a_queue_of_small_ones_keeps_the_largest_credit(able: Capabilities) -> None:
    """Messages of up to 64 KiB never cost credit."""
    broker = Broker([60 * KB] * 3000, able=able)
    broker.work(3000)
    assert (broker.withdrawals, broker.handled, broker.bench.engine.load.credit) == (0, 3000, 1000)


def test_large_ones_behind_small_ones_fit_into_memory() -> None:
    """Messages of 1 MB after small ones that made the credit grow: about 64 MiB are here while the handlers wait."""
    broker = Broker([50] * 3000)
    broker.work(3000)
    assert (broker.handled, broker.bench.engine.load.credit) == (3000, 1000)
    broker.queue.extend(Letter(number, size=MB) for number in range(3000, 3500))
    broker.send()
    assert broker.withdrawals > 0
    assert broker.most < 1.5 * MOST_BYTES
    assert broker.allowed == 0


@pytest.mark.parametrize("able", some([FLOW, WINDOW], [FLOW]))
def test_small_ones_after_large_ones_get_the_largest_credit_again(able: Capabilities) -> None:
    """The credit grows again when the messages are small again."""
    broker = Broker([50] * 3000 + [MB] * 300 + [50] * 20_000, able=able)
    broker.work(30_000)
    assert broker.handled == 23_300
    assert broker.bench.engine.load.credit == 1000


def test_an_application_that_keeps_large_messages_gets_more() -> None:
    """An application that pulls 300 messages of 1 MB before it settles the first gets them."""
    broker = Broker([MB] * 300, workers=0)
    broker.send()
    while broker.begin():
        broker.send()
    assert len(broker.running) == 300


def test_a_window_that_only_grows_stops_growing() -> None:
    """A window that cannot be taken back grows to 64 MiB of large messages, and no further."""
    broker = Broker([MB] * 3000, able=WINDOW)
    broker.work(3000)
    assert broker.most < 1.5 * MOST_BYTES


def test_messages_that_were_on_their_way_use_the_credit() -> None:
    """Messages that arrive after a withdrawal had been sent before: nothing more is granted until they are settled."""
    broker = Broker([50] * 3000)
    broker.work(2990)
    bench, late = broker.bench, [Letter(number, size=MB) for number in range(10_000, 10_500)]
    for begin in range(0, 500, 50):
        bench.arrive(*late[begin : begin + 50])
        broker._take([each for each in bench.commands if isinstance(each, Credit) and each.messages > 0])
    before = broker.allowed
    for _ in range(400):
        assert broker.begin()
        broker.end()
    assert broker.allowed == before
    for _ in range(90):
        assert broker.begin()
        broker.end()
    assert broker.allowed > before


def test_large_messages_that_arrive_late_do_not_stop_the_credit() -> None:
    """After a pause credit is granted at once, also if large messages arrived when it had been withdrawn."""
    broker = Broker([50] * 3000)
    broker.work(3000)
    bench = broker.bench
    bench.feed(Paused())
    bench.arrive(*[Letter(number, size=MB) for number in range(5000, 5064)])
    granted = [each.messages for each in bench.feed(Continued()) if isinstance(each, Credit)]
    assert granted
    assert granted[0] > 0


@settings(max_examples=amount(quick=20, ci=300, full=2000), deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.sampled_from([0, 50, 100 * KB, MB, 50 * MB]), st.integers(1, 200)), max_size=8
    ),
    workers=st.integers(0, 8),
    pulls=st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
def test_every_message_is_handled(sizes: list[tuple[int, int]], workers: int, pulls: list[int]) -> None:
    """However sizes change, and however many messages an application keeps, every message is handled."""
    broker = Broker([size for size, many in sizes for _ in range(many)], workers=workers)
    everything = len(broker.queue)
    for turn in range(2 * everything + 1):
        broker.send()
        broker.bench.now += 0.001
        for _ in range(pulls[turn % len(pulls)]):
            if not broker.begin():
                break
            broker.send()
        if broker.running:
            broker.end()
    while broker.running:
        broker.end()
        broker.send()
        while broker.begin():
            broker.send()
    assert broker.handled == everything
