"""Transactions: "send these, acknowledge those", all or nothing; and an aborted one that checks a destination.

The COMMIT is written after the broker has answered every other frame. If all frames are in one write, and Classic
refuses a SEND, it refuses the COMMIT, but drops its record of the messages whose ACK was in it. A later ACK of them is
"unexpected", and the next transaction is committed without it: the message is redelivered although its copy is a dead
letter (measured). After an ABORT the messages can be acknowledged in the next transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import AdapterError, RedeliveryError
from redelivery_stomp.frames import frame
from redelivery_stomp.headers import send_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.outgoing import Outgoing
    from redelivery_stomp.delivery import StompDelivery
    from redelivery_stomp.frame_limits import LearnedLimits
    from redelivery_stomp.ports import StompIo
    from redelivery_stomp.profile_base import StompProfile
    from redelivery_stomp.receipts import Answer

__all__ = ["Transaction", "aborted"]

Header = tuple[str, str]


class Transaction:
    """One transaction. Each answer continues it, on the reading thread; writing never waits."""

    def __init__(self, io: StompIo, name: str, answer: Answer) -> None:
        """`answer` gets the result: None, the first refusal, or the loss of the connection."""
        self._io = io
        self._within = [("transaction", name)]
        self._answer = answer
        self._deliveries: Sequence[StompDelivery] = ()
        self._unanswered = 0
        # The first error.
        self._error: RedeliveryError | None = None

    def begin(
        self, messages: Sequence[Outgoing], deliveries: Sequence[StompDelivery], limits: LearnedLimits
    ) -> None:
        """Write everything but the COMMIT; nothing if a message is known to be too large."""
        self._deliveries = deliveries
        io, within = self._io, self._within
        frames = [frame(b"BEGIN", within)]
        self._unanswered = len(messages) + len(deliveries)
        receipts: list[Header] = []
        for message in messages:
            headers = send_headers(io.profile, message)
            receipts.append(io.receipt(self._part))
            frames.append(frame(b"SEND", [*headers, *within, receipts[-1]], message.body))
            if (wrong := limits.check(io, receipts[-1], frames[-1])) is not None:
                for _, name in receipts:
                    io.receipts.take(name)
                self._answer(wrong)
                return
        for delivery in deliveries:
            lines = "".join(f"{name}:{value}\n" for name, value in [*within, io.receipt(self._part)])
            frames.append(b"%b%b\n\0" % (delivery.settlement(b"ACK"), lines.encode()))
        io.write(b"".join(frames))

    def _part(self, error: RedeliveryError | None) -> None:
        """Count the answer to one SEND or ACK; after the last one write COMMIT or ABORT."""
        self._error = self._error or error
        self._unanswered -= 1
        if self._unanswered:
            return
        io = self._io
        if self._error is None:
            # The lock keeps the subscriptions from ending between the check and the COMMIT.
            with io.order:
                if not any(each.source.ended for each in self._deliveries):
                    io.write(frame(b"COMMIT", [*self._within, io.receipt(self._ended)]))
                    return
            # The broker may have sent the messages to another consumer.
            self._error = AdapterError("the consumer has ended")
        refused = self._error
        if isinstance(refused, AdapterError):
            io.write(frame(b"ABORT", [*self._within, io.receipt(lambda _: self._answer(refused))]))
        else:
            # The connection is lost, and the broker drops the transaction.
            self._answer(refused)

    def _ended(self, error: RedeliveryError | None) -> None:
        self._answer(error)
        if isinstance(error, AdapterError):
            self._io.lost(
                f"the broker refused a commit, and its acknowledgements cannot be repeated ({error})",
                by_broker=False,
            )


def aborted(
    profile: StompProfile, name: str, message: Outgoing, sent: Header | None, receipt: Header | None
) -> bytes:
    """Return a transaction that sends a message and is aborted; `sent`, `receipt`: those of SEND and ABORT."""
    within = [("transaction", name)]
    headers = [*send_headers(profile, message, dead_letter=True), *within]
    if sent is not None:
        headers.append(sent)
    end = within if receipt is None else [*within, receipt]
    return b"".join([frame(b"BEGIN", within), frame(b"SEND", headers), frame(b"ABORT", end)])
