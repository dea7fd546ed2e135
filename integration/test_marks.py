"""Redeliveries after a consumer's connection has ended: all messages, with the redelivered flag by the profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.peers import PAIRS, fill
from redelivery.driver.port import ConnectionPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.conftest import Session
    from integration.proxy import LinkProxy

HELD = 20


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_copies_are_marked_as_the_profile_says(
    session: Session,
    pair: tuple[str, str],
    unique_queue: str,
    make_proxy: Callable[..., LinkProxy],
    *,
    reset: bool,
) -> None:
    """Unsettled messages of a lost connection are redelivered, with the redelivered flag if the profile says so.

    On Artemis the flag is set by chance: mostly for none after a FIN, and for all after an RST, which a FIN with unread
    bytes becomes.
    """
    broker = session.broker(pair[0])
    fill(broker, pair[1], unique_queue, [b"%d" % number for number in range(HELD)])
    proxy = make_proxy(broker.ports[pair[1]])
    with ConnectionPort(broker.uri(protocol=pair[1])) as port:
        marks = port.capabilities.marks
    with (
        redelivery.connect(broker.uri(protocol=pair[1], port=proxy.port)) as first,
        first.consumer(unique_queue, credit=HELD) as consumer,
    ):
        held = [consumer.receive(timeout=60) for _ in range(HELD)]
        assert None not in held
        proxy.refuse()
        assert proxy.cut(reset=reset) >= 1
    found: dict[bytes, bool] = {}
    with (
        redelivery.connect(broker.uri(protocol=pair[1])) as second,
        second.consumer(unique_queue, credit=HELD) as consumer,
    ):
        while len(found) < HELD:
            message = consumer.receive(timeout=30)
            assert message is not None, f"{len(found)} have come again"
            found[message.body] = message.redelivered
            message.accept()
    marked = sum(found.values())
    print(f"\n{'-'.join(pair)} {'RST' if reset else 'FIN'}: {marked} of {HELD} marked")
    if marks:
        assert marked == HELD
