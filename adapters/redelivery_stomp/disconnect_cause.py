"""What a broker complained of, and over which message, while that may explain the end of the connection."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from redelivery.errors import AdapterError
    from redelivery_stomp.delivery import StompDelivery

__all__ = ["StompDisconnectCause", "accused", "said"]

AT_ONCE = 1.0  # seconds after a complaint within which a closing is taken for its consequence
# Artemis missed our heart-beats, a broker knows nothing of what was acknowledged, RabbitMQ has waited too long for an
# acknowledgement or shuts down: no request is refused, and no message is to blame that is not named.
_NO_REFUSAL = re.compile(
    "AMQ229014|Did not receive data|AMQ339018|AMQ339025|Unexpected N?ACK|[Ss]ubscription (not )?found|"
    "unknown delivery tag|delivery acknowledgement .*timed out|CONNECTION_FORCED"
)


class StompDisconnectCause:
    """The last ERROR and the last suspect. A connection may live on for days: neither explains a later loss."""

    def __init__(self) -> None:
        self._error: AdapterError | None = None
        self._refuses = False
        self._heard = float("-inf")
        self._suspect: StompDelivery | None = None
        self._accused = float("-inf")

    def hear(self, error: AdapterError) -> None:
        """Note an ERROR."""
        self._error, self._refuses, self._heard = error, False, time.monotonic()

    def unclaimed(self, acknowledged: Sequence[StompDelivery], arrived: StompDelivery | None) -> None:
        """Judge an ERROR that names no request, by what was acknowledged lately, oldest first, and what came last.

        It is about any of them that it names. One that names no message may refuse any request, or be about the last.
        """
        text = str(self._error)
        culprit = accused(text, acknowledged)
        if culprit is None and not _NO_REFUSAL.search(text):
            self._refuses = True
            culprit = acknowledged[-1] if acknowledged else arrived
        if culprit is not None:
            self.accuse(culprit)

    def accuse(self, delivery: StompDelivery | None) -> None:
        """Note over which message the broker complains, in case it closes the connection for it."""
        self._suspect, self._accused = delivery, time.monotonic()

    @property
    def error(self) -> AdapterError | None:
        """The ERROR that came just now, or None."""
        return self._error if time.monotonic() - self._heard < AT_ONCE else None

    @property
    def refusal(self) -> AdapterError | None:
        """The same, if it may be the refusal of a request that it does not name."""
        return self.error if self._refuses else None

    @property
    def suspect(self) -> tuple[Hashable, int] | tuple[None, None]:
        """The message that was accused just now and the consumer that it came for, or neither."""
        suspect = self._suspect
        if suspect is None or time.monotonic() - self._accused >= AT_ONCE:
            return None, None
        return suspect.key, suspect.consumer


def said(headers: Mapping[str, str], body: bytes) -> str:
    """Return what an ERROR says, in one line: RabbitMQ's header only names the kind, and its body tells."""
    detail = body.decode("utf-8", "replace").strip().partition("\n")[0]
    message = headers.get("message") or detail or "an error without a text"
    # The others' bodies repeat the message, in a stack trace.
    return f"{message}: {detail}" if "version" in headers and message not in detail and detail else message


def accused(text: str, acknowledged: Sequence[StompDelivery]) -> StompDelivery | None:
    """Return the message whose acknowledgement the broker complains of, if it names one."""
    for delivery in acknowledged:
        if any((i := delivery.raw.get(name)) and _names(text, i) for name in ("ack", "message-id")):
            return delivery
    return None


def _names(text: str, identity: str) -> bool:
    """Whether the text has this id as a whole, not as a part of a longer one."""
    at = text.find(identity)
    return at >= 0 and re.search(rf"(?<![\w,:-]){re.escape(identity)}(?![,:-]?\w)", text) is not None
