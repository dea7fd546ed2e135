"""Transactions as frames: all of it, or none; and one that is aborted, to ask a question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_stomp.frames import frame
from redelivery_stomp.headers import send_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.outgoing import Outgoing
    from redelivery_stomp.delivery import StompDelivery
    from redelivery_stomp.profile import Profile

__all__ = ["aborted", "committed"]

Header = tuple[str, str]


def committed(
    profile: Profile,
    name: str,
    messages: Sequence[Outgoing],
    deliveries: Sequence[StompDelivery],
    receipt: Header,
    *,
    dead_letter: bool = False,
) -> bytes:
    """Return a transaction that sends messages and acknowledges deliveries; the COMMIT's receipt answers for all.

    A SEND in it must have no receipt: then Classic lets a refused one spoil the whole transaction. With a receipt it
    answers ERROR for the SEND alone, and commits the ACK (measured: the message would be gone).
    """
    within = [("transaction", name)]
    sends = [
        frame(b"SEND", [*send_headers(profile, each, dead_letter=dead_letter), *within], each.body)
        for each in messages
    ]
    acks = [b"%btransaction:%b\n\n\0" % (each.settlement(b"ACK"), name.encode()) for each in deliveries]
    return b"".join([frame(b"BEGIN", within), *sends, *acks, frame(b"COMMIT", [*within, receipt])])


def aborted(profile: Profile, name: str, message: Outgoing, sent: Header | None, receipt: Header) -> bytes:
    """Return a transaction that sends a message and is aborted; `sent`: the SEND's own receipt."""
    within = [("transaction", name)]
    headers = [*send_headers(profile, message, dead_letter=True), *within, *([] if sent is None else [sent])]
    return b"".join([frame(b"BEGIN", within), frame(b"SEND", headers), frame(b"ABORT", [*within, receipt])])
