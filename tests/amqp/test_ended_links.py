"""Sends over a link that the broker ends before its answer."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from tests.amqp import peer as scripted
from tests.amqp.peer import ScriptedPeer

import redelivery


@pytest.mark.parametrize("condition", ["amqp:link:detach-forced", "amqp:internal-error"])
def test_a_message_without_an_outcome_may_have_been_sent(
    monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    """If the broker takes a message and ends the link without an outcome, the error says that it may have arrived."""

    def takes_and_ends(_: object, link: Any, __: object) -> None:
        link.condition = proton.Condition(condition, "the node shuts down")  # type: ignore[call-arg]
        link.close()

    monkeypatch.setattr(scripted.Conversation, "_taken", takes_and_ends)
    with ScriptedPeer() as peer, redelivery.connect(peer.uri) as connection:
        told = "the node shuts down; the message to queue://orders may have been sent"
        with pytest.raises(redelivery.TransportError, match=told):
            connection.send("orders", "a", timeout=30)
