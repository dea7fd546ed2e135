"""A MESSAGE of ActiveMQ Classic. A producer's properties replace the broker's own headers: these prove nothing.

Measured (docs/measured/activemq-stomp-messages.md, "Forged frames"): only `subscription`, and `ack` where one is
to be acknowledged, are always Classic's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from redelivery.core.broker_redelivery import original_expiry
from redelivery.core.dead_lettering.origin import LONGEST
from redelivery.core.destination import Destination
from redelivery.core.policy.classic_wildcards import covers, is_pattern
from redelivery.errors import ConfigurationError
from redelivery_stomp.delivery import FROM_AMQP, StompDelivery
from redelivery_stomp.frames import unescape

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redelivery_stomp.delivery import DeliveryProfile, Subscription

__all__ = ["ClassicDelivery", "confined"]


# In the header block of a message that does not expire.
EXPIRES, LIVES = b"\nexpires:", b"\nexpires:0\n"


class ClassicDelivery(StompDelivery):
    """One MESSAGE of Classic. Its producer may have written its id and time."""

    __slots__ = ("arrived",)
    digested: ClassVar[bool] = True

    def __init__(self, source: Subscription, head: bytes, body: bytes) -> None:
        # Not by super(), which is slower: this runs for each message.
        StompDelivery.__init__(self, source, head, body)
        self.arrived = 0.0 if LIVES in head else time.time()

    def arrived_at(self, wall: float) -> None:
        if self.arrived:
            self.arrived = wall

    def plain(self, now: float) -> bool:
        head = self.head
        if FROM_AMQP in head:
            # Classic may not be able to settle it.
            return False
        # A body that is not empty arrived whole.
        lives = head.startswith(LIVES, head.find(EXPIRES))
        return bool(self.body) if lives else super().plain(now)

    @property
    def expires_at(self) -> float | None:
        head = self.head
        # Runs for each message: no call that is not needed.
        if head.startswith(LIVES, head.find(EXPIRES)):
            return None
        # Classic sends no message that has expired by its own clock. A time in the past comes from a clock here that is
        # ahead, or from a property of this name.
        at = super().expires_at
        at = at if at is not None and at > self.arrived else None
        # Its scheduler sends a copy late, by up to half a second (6.1.7), and moves the expiry by that.
        return original_expiry(at, self.noted) if at is not None else None

    @property
    def key(self) -> Hashable | None:
        # A ledger reads it for each message: finding three headers is faster than reading all.
        if b"\r" in self.head:
            identity, timestamp = self.message_id, self.raw.get("timestamp")
        else:
            identity, timestamp = self._text(b"\nmessage-id:"), self._text(b"\ntimestamp:") or None
        return (self.destination, identity, timestamp) if identity else None

    def _text(self, name: bytes) -> str:
        return unescape(self.field(name).decode("utf-8", "replace"))

    @property
    def destination(self) -> str:
        source = self.source
        written = self.field(b"\ndestination:")
        if not written or written != source.last[0]:
            address = self.raw.get("destination") or ""
            source.last = written, confined(source.profile, address, source.destination)
        return source.last[1]

    @property
    def fanned_out(self) -> bool:
        # A message of a topic, a virtual topic, a composite queue or a composite address shares its id with others, of
        # which Classic keeps one dead letter. It shows where such a message was sent first
        # (docs/measured/activemq-fan-out.md). So does a dead letter, and one that was moved back.
        own = self.destination
        kind = own.partition("://")[0]
        if kind not in ("queue", "temp-queue") or self.raw.get("original-destination") is not None:
            return True
        # A virtual topic with setOriginalDestination=false leaves its own name in the message.
        return self.source.profile.qualified(self.raw.get("destination") or "", kind) != own


def confined(profile: DeliveryProfile, address: str, consumed: str) -> str:
    """Return the destination of a message that arrived for a consumer of `consumed`.

    A consumer of one destination gets no other destination's messages. For a pattern the header names the destination.
    A name that the pattern does not match is forged: the result is then the pattern itself. The same goes for a name
    that is too long.
    """
    kind, _, name = consumed.partition("://")
    own = profile.qualified(name, "queue") if kind == "native" else consumed
    claimed = profile.qualified(address, kind)
    plain = own.partition("?")[0]
    if len(claimed) > LONGEST:
        return plain
    try:
        told = Destination.parse(claimed)
        if kind.startswith("temp-") and claimed.startswith(f"{kind}://ID:"):
            # The broker's name of a temporary destination differs from the name here.
            return claimed
        bounds = Destination.parse(own)
        one = not (is_pattern(told) or told.options or len(told.members) > 1)
        if one and any(covers(member, told) for member in bounds.members):
            return claimed
    except ConfigurationError:
        # A name that is no destination is none of the consumer's.
        pass
    return plain
