"""Cause of a lost connection: the broker's last ERROR, and the message or the queue that it may be about.

Both count for one second only: a connection may be open for days, and an old ERROR does not explain a later loss.
"""

from __future__ import annotations

import re
import time
from collections import deque
from typing import TYPE_CHECKING

from redelivery.adapter_support.refusals import with_cure
from redelivery.core.delivery import Cause
from redelivery.core.protocol_poison import HeadOfQueue
from redelivery.core.shown_values import move_command

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from redelivery.errors import AdapterError
    from redelivery_stomp.delivery import StompDelivery, Subscription

__all__ = ["RecentAcknowledgements", "StompDisconnectCause", "named", "said"]


# ---- Disconnect cause ------------------------------------------------------------------------------------

# Seconds. If a connection closes within this time after an ERROR, the ERROR is the cause.
AT_ONCE = 1.0
# Characters of an id that are reported.
LONGEST_NAME = 120

# Artemis' ERROR about a SEND prints the message with all its properties, which may be secrets, and not the reason.
_DUMP = re.compile(r" \w*Message\w*\[messageID=.*", re.DOTALL)
# Its ERROR about a consumer that it has ended prints the state of the queue, behind its names.
_STATE = re.compile(r"(?<=, )postOffice=.* (?=disconnected by server$)")
_NO_REASON = ": Artemis sends the reason over AMQP only; often a right is missing, or the address is full"


class StompDisconnectCause:
    """The last ERROR and the last suspect of one connection."""

    def __init__(self) -> None:
        self._error: AdapterError | None = None
        self._refuses = False
        self._heard = float("-inf")
        self._suspect: tuple[Hashable, int] | tuple[None, None] = None, None
        self._accused = float("-inf")
        # False if the connection was ended here.
        self.by_broker = True

    def hear(self, error: AdapterError) -> None:
        """Keep an ERROR."""
        self._error, self._refuses, self._heard = error, False, time.monotonic()

    def unclaimed(
        self,
        acknowledged: Sequence[StompDelivery],
        arrived: StompDelivery | None,
        no_refusal: re.Pattern[str] | None,
        *,
        refuses: bool = True,
        takes_back: bool = False,
    ) -> None:
        """Find the suspect of the last ERROR, which names no request.

        It is the message that the ERROR names. An ERROR without a message may refuse any request, or be about the last
        message. If `no_refusal` matches its text, it is about neither (`StompProfile.no_refusal`).

        Args:
            acknowledged: The last acknowledged messages, oldest first.
            arrived: The last message that arrived.
            no_refusal: Matches the broker's texts about something else; None before the log-in.
            refuses: False if this broker names each request that it refuses.
            takes_back: `StompProfile.takes_back`.
        """
        text = str(self._error)
        culprit = accused(text, acknowledged)
        if culprit is None and not (no_refusal is not None and no_refusal.search(text)):
            self._refuses = refuses
            culprit = acknowledged[-1] if acknowledged else arrived
        if culprit is not None:
            self.refused(culprit, takes_back=takes_back)

    def refused(self, delivery: StompDelivery, *, takes_back: bool) -> None:
        """Suspect a message whose acknowledgement the broker refuses; if it `takes_back` messages, their queue."""
        if takes_back:
            self.undelivered(delivery.source)
        else:
            self.accuse(delivery)

    def accuse(self, delivery: StompDelivery | None) -> None:
        """Suspect a message, in case the broker closes the connection over it."""
        self._accuse((None, None) if delivery is None else (delivery.proof, delivery.consumer))

    def undelivered(self, subscription: Subscription) -> None:
        """Suspect a message that the broker cannot deliver to this subscription: none that was delivered."""
        cure = f"use AMQP, which delivers it like any other: {move_command(subscription.destination, None)}"
        self._accuse((HeadOfQueue(subscription.destination, cure), subscription.consumer))

    def _accuse(self, suspect: tuple[Hashable, int] | tuple[None, None]) -> None:
        self._suspect, self._accused = suspect, time.monotonic()

    @property
    def error(self) -> AdapterError | None:
        """The ERROR of the last second, or None."""
        return self._error if time.monotonic() - self._heard < AT_ONCE else None

    @property
    def ended_with(self) -> str | None:
        """Text of the ERROR with which the broker ended the connection, empty without one; None if ended here."""
        return str(self.error or "") if self.by_broker else None

    @property
    def refusal(self) -> AdapterError | None:
        """The ERROR of the last second, if it may refuse a request that it does not name; else None."""
        return self.error if self._refuses else None

    @property
    def suspect(self) -> tuple[Hashable, int] | tuple[None, None]:
        """The suspect of the last second, as `ConnectionLost` has it, and its consumer; or (None, None)."""
        return self._suspect if time.monotonic() - self._accused < AT_ONCE else (None, None)


def said(headers: Mapping[str, str], body: bytes) -> str:
    """Return the text of an ERROR in one line, without properties of a message.

    RabbitMQ sends the kind in the header, and the reason in the body.
    """
    detail = body.decode("utf-8", "replace").strip().partition("\n")[0]
    message = headers.get("message") or detail or "an error without a text"
    # Only RabbitMQ's ERROR has the header `version`. The bodies of the others repeat the message in a stack trace.
    text = f"{message}: {detail}" if "version" in headers and message not in detail and detail else message
    return with_cure(_STATE.sub("…]] ", _DUMP.sub(_NO_REASON, text)))


def accused(text: str, acknowledged: Sequence[StompDelivery]) -> StompDelivery | None:
    """Return the acknowledged message that the ERROR names, or None."""
    for delivery in acknowledged:
        if any((i := delivery.raw.get(name)) and _names(text, i) for name in ("ack", "message-id")):
            return delivery
    return None


def _names(text: str, identity: str) -> bool:
    """True if the text has this id as a whole, not as a part of a longer one."""
    at = text.find(identity)
    return at >= 0 and re.search(rf"(?<![\w,:-]){re.escape(identity)}(?![,:-]?\w)", text) is not None


def named(culprit: StompDelivery | None) -> str:
    """Return the part of an error text that names a message. A producer may have set its id, of any kind and length."""
    if culprit is None:
        return ""
    name = Cause.of(culprit.message_id or "without an id").text
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return (
        f": in the message {name} from {culprit.destination}; use AMQP, which delivers it like any other: "
        f"{move_command(culprit.destination, culprit.message_id)}"
    )


# ---- Recent acknowledgements -----------------------------------------------------------------------------
# The messages that were acknowledged last: the broker may close the connection because of one of them.

# Most messages that are kept, and most bytes of their bodies: an ERROR arrives some time after its ACK. Messages that
# were acknowledged in lists have their bodies; the engine drops the bodies of most others. The last batch is always
# kept.
RECENT, MOST_BYTES = 16_384, 16 << 20


class RecentAcknowledgements:
    """Batches of acknowledged messages, oldest first. Used with the connection's `order` held, except `all`."""

    def __init__(self) -> None:
        self._batches: deque[tuple[Sequence[StompDelivery], int]] = deque()
        self._messages = self._bytes = 0

    def add(self, deliveries: Sequence[StompDelivery]) -> None:
        """Keep a batch, in place of the oldest ones."""
        size = sum([len(each.body) for each in deliveries])
        batches = self._batches
        batches.append((deliveries, size))
        self._messages += len(deliveries)
        self._bytes += size
        while (self._messages > RECENT or self._bytes > MOST_BYTES) and len(batches) > 1:
            oldest, size = batches.popleft()
            self._messages -= len(oldest)
            self._bytes -= size

    def all(self) -> list[StompDelivery]:
        """Return all kept messages, oldest first."""
        return [one for batch, _ in list(self._batches) for one in batch]
