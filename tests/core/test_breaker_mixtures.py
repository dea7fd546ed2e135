"""The breaker changes nothing for queues with many messages that cause their failures themselves."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.core.breaker_world import BreakerWorld


@pytest.mark.ci("mixtures of 1,000 messages with other seeds: 2 s")
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0], ids=["10%", "50%", "90%", "thirty, all bad"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_messages_that_are_bad_for_themselves_end_as_without_a_breaker(share: float, seed: int) -> None:
    """Bad messages among good ones have the same calls, charges, delays and dead letters, at the same times."""
    count = 30 if share == 1.0 else 1000
    bad = Random(seed).sample(range(1, count + 1), int(share * count))
    rule = {"every": [count + 1, bad], "result": "maybe"}
    messages = [{"at": 0, "names": f"m1..m{count}"}]
    scenario: dict[str, Any] = {"messages": messages, "handler": [rule], "until": 600}
    on, off = BreakerWorld(scenario), BreakerWorld({**scenario, "breaker": "off"})
    assert on.run() == off.run()
    assert on.log == off.log
    assert len(on.dead) == len(bad)
    assert on.calls.total() == 7 * len(bad) + count - len(bad)
