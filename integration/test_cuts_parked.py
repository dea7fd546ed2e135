"""Connections that are cut while messages are parked: with few subscriptions, Artemis loses few messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import eventually, settled
from integration.stranded import stranded, stuck
from integration.test_cuts_prefetched import quick
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.own_broker("may restart it: Artemis strands messages")

PARKED = 100
CUTS = 8
# Artemis sometimes loses the first message of each subscription (docs/measured/artemis-stomp-cuts.md). With one
# subscription for each parked message 83 were lost; with three, none to seven.
SUBSCRIPTIONS = 3
QUIET = 0.5  # seconds without a frame


@pytest.mark.parametrize("credit", [4, 40, "auto"])
def test_cut_links_cost_few_parked_messages(
    artemis: Broker, make_proxy: Callable[[int], LinkProxy], unique_queue: str, credit: int | str
) -> None:
    """Few of 100 parked messages are lost until the broker's restart while 8 connections are cut."""
    proxy, work = make_proxy(artemis.stomp_port), Work()
    with redelivery.connect(artemis.uri()) as connection:
        for number in range(PARKED):
            connection.send(unique_queue, f"bad{number}")
    policies = redelivery.RedeliveryPolicyMap(default=POLICY(initial_redelivery_delay=600.0))
    uri = f"{quick(artemis, proxy)}&redelivery.credit={credit}"
    with redelivery.connect(uri, policies=policies) as connection:
        connection.listen(unique_queue, work)
        with Running(connection):
            eventually(lambda: len(work.attempts) == PARKED, message="all have failed")
            for _ in range(CUTS):
                settled(lambda: proxy.to_client.frames, QUIET)
                links = proxy.links_ever
                assert proxy.cut() >= 1
                eventually(lambda before=links: proxy.links_ever > before, message="a new link")  # type: ignore[misc]
            settled(lambda: proxy.to_client.frames, QUIET)
            begun = proxy.to_broker.log.count("SUBSCRIBE")
    if stuck(artemis):
        # Such as a deadlock after a connection that broke while DISCONNECT was answered:
        # docs/measured/artemis-stomp-cuts.md, "Deadlocks".
        artemis.restart()
    lost = stranded(artemis, unique_queue)
    print(
        f"\nartemis, credit {credit}: {CUTS} links cut: {lost} of {PARKED} lost, {begun} subscriptions in all"
    )
    assert begun <= (CUTS + 1) * SUBSCRIPTIONS
    assert lost <= CUTS * SUBSCRIPTIONS
