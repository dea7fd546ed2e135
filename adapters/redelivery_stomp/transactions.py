"""Transactions: "send these, acknowledge those", all of it or none; and one that is aborted, to ask a question.

Nothing is committed before the broker has answered every frame of it. Classic, asked for everything in one write,
refuses the COMMIT over a refused SEND, but has forgotten the messages whose ACK was in it: a later ACK is "unexpected",
the next transaction is committed without it, and the message would come back although its copy is a dead letter
(measured). Aborted instead, they can be acknowledged in the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import AdapterError, RedeliveryError
from redelivery_stomp.frames import frame
from redelivery_stomp.headers import send_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.outgoing import Outgoing
    from redelivery_stomp.connection import StompConnection
    from redelivery_stomp.delivery import StompDelivery
    from redelivery_stomp.profile_base import StompProfile
    from redelivery_stomp.receipts import Answer

__all__ = ["Transaction", "aborted"]

Header = tuple[str, str]


def to_all(receipts: Sequence[Answer]) -> Answer:
    """Return what gives the one answer to all of them."""

    def answer(error: RedeliveryError | None) -> None:
        for each in receipts:
            each(error)

    return answer


class Transaction:
    """One transaction. It goes on when an answer comes, on the reading thread; writing never waits."""

    def __init__(self, link: StompConnection, name: str, answer: Answer) -> None:
        self._link = link
        self._within = [("transaction", name)]
        self._answer = answer
        self._deliveries: Sequence[StompDelivery] = ()
        self._unanswered = 0
        self._error: RedeliveryError | None = None  # the first

    def begin(
        self,
        messages: Sequence[Outgoing],
        deliveries: Sequence[StompDelivery],
        *,
        dead_letter: bool = False,
    ) -> None:
        """Write all but its end; `dead_letter`: the messages are copies."""
        self._deliveries = deliveries
        link, within = self._link, self._within
        frames = [frame(b"BEGIN", within)]
        self._unanswered = len(messages) + len(deliveries)
        for message in messages:
            headers = send_headers(link.profile, message, dead_letter=dead_letter)
            frames.append(frame(b"SEND", [*headers, *within, link.receipt(self._part)], message.body))
        for delivery in deliveries:
            lines = "".join(f"{name}:{value}\n" for name, value in [*within, link.receipt(self._part)])
            frames.append(b"%b%b\n\0" % (delivery.settlement(b"ACK"), lines.encode()))
        link.write(b"".join(frames))

    def _part(self, error: RedeliveryError | None) -> None:
        self._error = self._error or error
        self._unanswered -= 1
        if self._unanswered:
            return
        link = self._link
        if self._error is None:
            with link.order:  # the end of a subscription does not come between
                if not any(each.source.ended for each in self._deliveries):
                    link.write(frame(b"COMMIT", [*self._within, link.receipt(self._ended)]))
                    return
            self._error = AdapterError("the consumer has ended")  # its messages are others' already
        refused = self._error
        if isinstance(refused, AdapterError):
            link.write(frame(b"ABORT", [*self._within, link.receipt(lambda _: self._answer(refused))]))
        else:
            self._answer(refused)  # the connection is lost, and the transaction with it

    def _ended(self, error: RedeliveryError | None) -> None:
        self._answer(error)
        if isinstance(error, AdapterError):
            self._link.lost(
                f"the broker refused a commit, and will not take its acknowledgements again ({error})"
            )


def aborted(
    profile: StompProfile, name: str, message: Outgoing, sent: Header | None, receipt: Header
) -> bytes:
    """Return a transaction that sends a message and is aborted; `sent`: the SEND's own receipt."""
    within = [("transaction", name)]
    headers = [*send_headers(profile, message, dead_letter=True), *within, *([] if sent is None else [sent])]
    return b"".join([frame(b"BEGIN", within), frame(b"SEND", headers), frame(b"ABORT", [*within, receipt])])
