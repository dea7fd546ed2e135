"""Engine fed by hand, with a simulated broker's answers: for walks through one transition at a time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tests.core.model import WALL_OFFSET, Arrival, Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Dispatch, LookUp, Mark
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, DeadLetterStrategy
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import Cause
from redelivery.core.destination import Destination
from redelivery.core.engine import Engine
from redelivery.core.events import Arrived, Connected, ConnectionLost, Failed, Known, Succeeded, Wanted
from redelivery.core.ledger_engine import LedgerEngine
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from redelivery.core.commands import Command
    from redelivery.core.events import Event
    from redelivery.core.ledger_entry import Entry

CAUSE = Cause("it failed")
NATIVE = Capabilities("model", poison_persistent=True, poison_non_persistent=True, release=True)
CONFIRMED_FORWARD = Capabilities("model", forward="confirmed")
NOTHING: list[Any] = []
THREE = RedeliveryPolicy(maximum_redeliveries=3, initial_redelivery_delay=60.0, redelivery_delay=60.0)


@functools.lru_cache
def only(policy: RedeliveryPolicy) -> RedeliveryPolicyMap:
    """Return a map of one policy, made once: walks make ten thousand engines."""
    return RedeliveryPolicyMap({}, default=policy)


def routed(source: str | None = None, subscriber: str | None = None, **strategy: Any) -> DeadLetterRouting:
    """Return the route of a consumer with one dead-letter strategy; its values by the fields' names."""
    return DeadLetterRouting(
        DeadLetterMap(default=DeadLetterStrategy(**strategy)),
        source=None if source is None else Destination.parse(source),
        subscriber=subscriber,
    )


class Bench:
    """Feeds an engine and keeps the time. Default policy: one minute before each of three redeliveries."""

    def __init__(
        self, *, policy: RedeliveryPolicy | None = None, able: Capabilities = NATIVE, **options: Any
    ) -> None:
        policy = policy or THREE
        options.setdefault("dead_letters", DeadLetterRouting())
        kind = LedgerEngine if options.pop("counted", False) else Engine
        self.engine = kind(1, policies=only(policy), **options)
        self.engine.state.wall_offset = WALL_OFFSET
        self.able = able
        self.now = 100.0
        self.epoch = 0
        self.latest: list[Arrival] = []
        self.commands = self.connect()

    def feed(self, event: Event) -> list[Command]:
        return list(self.engine.feed(event, self.now))

    def connect(self) -> list[Command]:
        self.epoch += 1
        return self.feed(Connected(self.epoch, self.able))

    def lose(self) -> list[Command]:
        return self.feed(ConnectionLost(self.epoch, TransportError("cut")))

    def arrive(self, *letters: Letter) -> list[Arrival]:
        arrivals = [Arrival(letter, self.epoch, counts=self.able.counts) for letter in letters]
        self.latest = arrivals
        self.commands = self.feed(Arrived(1, arrivals))
        return arrivals

    def want(self) -> Arrival | None:
        """Ask for a delivery; the engine's other commands are kept in `commands`."""
        self.commands = self.feed(Wanted())
        for command in self.commands:
            if isinstance(command, Dispatch):
                assert isinstance(command.delivery, Arrival)
                return command.delivery
        return None

    def run(self, letter: Letter) -> Arrival:
        """Make a message arrive, and dispatch it."""
        (arrival,) = self.arrive(letter)
        assert self.want() is arrival
        return arrival

    def fail(self, delivery: Arrival) -> list[Command]:
        return self.feed(Failed(delivery, CAUSE))

    def succeed(self, delivery: Arrival) -> list[Command]:
        return self.feed(Succeeded(delivery))

    def again(self, letter: Letter) -> Arrival:
        """Redeliver a message, with the redelivered flag."""
        letter.attempts += 1
        return self.arrive(letter)[0]


class Counted(Bench):
    """Engine fed by hand, with the replies of a simulated ledger."""

    def __init__(self, **options: Any) -> None:
        super().__init__(counted=True, **options)

    def known(self, letter: Letter, entry: Entry | None = None) -> tuple[Arrival, list[Command]]:
        """Make a message arrive, ask for it, and answer its look-up."""
        (arrival,) = self.arrive(letter)
        (look,) = self.feed(Wanted())
        assert isinstance(look, LookUp)
        assert look.delivery is arrival
        return arrival, self.feed(Known(arrival, entry))

    def begun(self, letter: Letter, entry: Entry | None = None) -> Arrival:
        """Dispatch it, too."""
        arrival, (mark, dispatch) = self.known(letter, entry)
        assert isinstance(mark, Mark)
        assert isinstance(dispatch, Dispatch)
        assert mark.delivery is dispatch.delivery is arrival
        return arrival
