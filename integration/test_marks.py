"""What a broker sends again after a consumer's link has ended: all of it, and marked where it is said to be."""

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
    """Messages that a link held come again, all of them marked where the profile says so.

    On Artemis a copy is marked by chance: mostly none after a FIN and all after an RST, which a FIN with bytes
    still unread becomes.
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
        assert proxy.cut(reset=reset) == 1
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
