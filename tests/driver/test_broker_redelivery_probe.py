"""The probe of redelivery by the broker, with a slow broker."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from redelivery import AdapterError
from redelivery.core.capabilities import Capabilities
from redelivery.core.delivery import Delivery
from redelivery.core.events import Arrived
from redelivery.driver.connection.broker_redelivery_probe import DELAY, DelayProbe

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.connection.connection_driver import ConnectionDriver


class SlowBroker:
    """Link and clock of a slow broker: each wait of the probe carries out what is due.

    The broker answers a SUBSCRIBE and a SEND after the given seconds (None: never). It delivers each message as soon as
    it has the message and a subscription, or `held` seconds after it was sent.
    """

    def __init__(self, subscribed: float, taken: float | None, held: float = 0.0) -> None:
        self.browsers: dict[int, DelayProbe] = {}
        self.up = True
        self._subscribed, self._taken, self._held = subscribed, taken, held
        self._now = 0.0
        self._plan: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self._now

    time = monotonic

    def notify(self, condition: threading.Condition, count: int = 1) -> None:
        pass

    def wait(self, condition: threading.Condition, timeout: float) -> None:
        until = self._now + timeout
        self._plan.sort(key=lambda each: each[0])
        if self._plan and self._plan[0][0] <= until:
            self._now, action = self._plan.pop(0)
            action()
        else:
            self._now = until

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        if len(commands) == 2:
            self._subscribed += self._now
            self._plan.append((self._subscribed, partial(self._proof().begun, None)))

    def _proof(self) -> DelayProbe:
        (proof,) = self.browsers.values()
        return proof

    def send(self, message: Outgoing) -> Future[None]:
        answer: Future[None] = Future()
        if self._taken is not None:
            at = self._now + self._taken
            self._plan.append((at, lambda: answer.set_result(None)))
            handed = max(at, self._subscribed, self._now + self._held)
            self._plan.append((handed, lambda: self._proof().feed(Arrived(-1, [Delivery(-1, 1, b"")]))))
        return answer


def prove(broker: SlowBroker, proof: str) -> None:
    able = Capabilities("lazy", reschedule="confirmed", reschedule_proof=cast("Any", proof))
    DelayProbe(
        cast("ConnectionDriver", broker), -1, "queue://orders", able, cast("Clock", broker)
    ).carry_out()


@pytest.mark.parametrize("proof", ["arrival", "held"])
@pytest.mark.parametrize(("subscribed", "taken"), [(0.0, 0.1), (3.0, 0.1), (3.0, 0.9)])
def test_slowness_is_no_proof(proof: str, subscribed: float, taken: float) -> None:
    """A message that arrives late because the subscription was slow does not count as held back."""
    with pytest.raises(AdapterError, match="did not hold a message back"):
        prove(SlowBroker(subscribed, taken), proof)
    prove(SlowBroker(subscribed, taken, held=DELAY), proof)


@pytest.mark.parametrize("proof", ["arrival", "held"])
def test_silence_is_no_proof(proof: str) -> None:
    """A probe without a confirmation of its message or subscription fails, even if nothing arrives early."""
    with pytest.raises(AdapterError, match=r"did not (confirm|deliver) a message to"):
        prove(SlowBroker(0.0, None), proof)
    with pytest.raises(AdapterError, match="did not confirm a consumer"):
        prove(SlowBroker(100.0, 0.0), proof)
    prove(SlowBroker(0.0, 3.0, held=30.0), "held")
