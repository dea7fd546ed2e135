"""Faults that are planted in the memory of equal messages: each loses a message, and the simulator finds it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.simulator.explore import kind_of, wander
from tests.simulator.world import Case

from redelivery.core.accepts_in_doubt import AcceptsInDoubt
from redelivery.core.message_history import GivenBack, HeldAtLoss

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 10_000


def in_doubt_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Keep an acceptance in doubt over more than one connection."""
    patch.setattr(AcceptsInDoubt, "forget", lambda *_, **__: None)


def paying_for_all(patch: pytest.MonkeyPatch) -> None:
    """Accept any number of copies for one acceptance."""
    patch.setattr(AcceptsInDoubt, "take", lambda self, key, digest: digest in self._digests.get(key, ()))


def blind_to_held(patch: pytest.MonkeyPatch) -> None:
    """Ignore the messages that were unsettled when the connection was lost."""
    patch.setattr(HeldAtLoss, "digests", lambda *_: ())


def blind_to_given_back(patch: pytest.MonkeyPatch) -> None:
    """Ignore the messages that were released over the connection."""
    patch.setattr(GivenBack, "digests", lambda *_: ())


@pytest.mark.ci("faults planted in the engine, to test the simulator: 1.6 s")
@pytest.mark.parametrize(
    ("fault", "profile", "outcomes", "budget"),
    [
        (in_doubt_for_ever, "artemis-amqp", ("ok",), {"cut": 3}),
        (paying_for_all, "artemis-amqp", ("ok",), {"cut": 3}),
        (blind_to_held, "rabbitmq-stomp", ("ok",), {"cut": 2}),
        (blind_to_given_back, "rabbitmq-stomp", ("ok", "release"), {"cut": 2}),
        (blind_to_given_back, "classic-stomp", ("ok",), {"cut": 2, "close": 1}),
    ],
)
def test_a_loss_of_an_equal_message_is_found(
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    profile: str,
    outcomes: tuple[str, ...],
    budget: dict[str, int],
) -> None:
    """If one of two equal messages is accepted without a handler's success, the simulator reports a loss."""
    fault(monkeypatch)
    case = Case(profile, "AtAt*", consumers=2, outcomes=outcomes, budget=budget)
    found = (wander(case, random.Random(seed))[0] for seed in range(MOST))
    assert any(kind_of(broken) == "loss" for broken in found if broken is not None)
