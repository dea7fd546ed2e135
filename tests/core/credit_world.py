"""One consumer with `auto` credit, its workers, and a broker at a distance, in virtual time."""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from tests.core.bench import Bench
from tests.core.model import Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Accept, Credit, Release
from redelivery.core.credit import CreditPace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.core.model import Arrival

    from redelivery.core.commands import Command

FLOW = Capabilities("flow", flow=True, release=True)
WINDOW = Capabilities("window", grows=True)


class CreditWorld:
    """Handles a queue of messages. `handler`: seconds per message, by its number; `away`: seconds to the broker.

    `fails`: numbers of messages that fail once, and are redelivered after a minute.
    """

    def __init__(
        self,
        able: Capabilities,
        *,
        messages: int,
        workers: int = 2,
        handler: Callable[[int], float] = lambda _: 0.01,
        away: float = 0.001,
        fails: frozenset[int] = frozenset(),
        max_parked: int = 1000,
    ) -> None:
        first = 2 * workers + 2
        self.bench = Bench(able=able, credit=1000, max_parked=max_parked, pace=CreditPace(first))
        self.able = able
        self.queue = deque(Letter(number) for number in range(messages))
        self.handler, self.away, self.fails = handler, away, set(fails)
        # At the broker: how many it may still send; how many it has sent without an answer.
        self.allowed = 0 if able.flow else first
        self.unsettled = self.most_unsettled = 0
        self.idle = workers
        self.done: list[float] = []
        self.most_parked = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._later(0, self.send)
        self._carry_out(self.bench.commands)

    @property
    def credit(self) -> int:
        """Credit that the engine counts with."""
        return self.bench.engine.state.flow._credit

    def run(self, seconds: float = 1e6) -> None:
        """Continue until nothing is left to do, or the time is over."""
        until = self.bench.now + seconds
        while self._events and self._events[0][0] <= until:
            self.bench.now, _, do = heappop(self._events)
            do()
            self._work()

    def rate(self, after: float = 0.0) -> float:
        """Return messages per second, from so many seconds after the first."""
        times = [at for at in self.done if at >= self.done[0] + after]
        return (len(times) - 1) / (times[-1] - times[0])

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        heappush(self._events, (self.bench.now + seconds, next(self._order), do))

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Credit):
                self._later(self.away, partial(self._allow, command.messages, 0))
            elif isinstance(command, Accept | Release):
                back = len(command.deliveries)
                self._later(self.away, partial(self._allow, 0 if self.able.flow else back, back))

    def _allow(self, more: int, settled: int) -> None:
        self.allowed += more
        self.unsettled -= settled
        self.send()

    def send(self) -> None:
        """Send what the credit allows."""
        sent = [self.queue.popleft() for _ in range(min(self.allowed, len(self.queue)))]
        self.allowed -= len(sent)
        self.unsettled += len(sent)
        self.most_unsettled = max(self.most_unsettled, self.unsettled)
        if sent:
            self._later(self.away, partial(self._arrive, sent))

    def _arrive(self, sent: list[Letter]) -> None:
        self.bench.arrive(*sent)
        self._carry_out(self.bench.commands)

    def _work(self) -> None:
        """Give idle workers the messages that are there; each asks again after every event."""
        load = self.bench.engine.load
        while self.idle:
            delivery = self.bench.want()
            self._carry_out(self.bench.commands)
            if delivery is None:
                if (due := load.next_due()) is not None:
                    self._later(max(0.0, due - self.bench.now), lambda: None)
                return
            self.idle -= 1
            self._later(self.handler(delivery.letter.number), partial(self._end, delivery))

    def _end(self, delivery: Arrival) -> None:
        self.idle += 1
        if delivery.letter.number in self.fails:
            self.fails.discard(delivery.letter.number)
            self._carry_out(self.bench.fail(delivery))
            self.most_parked = max(self.most_parked, self.bench.engine.load.parked)
        else:
            self.done.append(self.bench.now)
            self._carry_out(self.bench.succeed(delivery))
