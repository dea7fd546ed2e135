"""What one broker can do over one protocol: the only thing the engine knows of brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CONSUMER_TIMEOUT", "HOLDABLE", "Capabilities", "cannot_browse"]

# Seconds that RabbitMQ lets a consumer hold a message, as it is delivered.
CONSUMER_TIMEOUT = 1800.0
# Share of a broker's limits that holding may use up; the rest is for prefetch and handlers.
HOLDABLE = 0.8


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one broker can do over one protocol, measured, never hoped.

    `poison_persistent`, `poison_non_persistent`: the broker's own poison acknowledgement is known to keep such
    a message. `proves_persistent`: which of the two a message is, is certain; else its producer may say that of one
    which is not, and the broker's own acknowledgement is used for `deadLetter=ack` only.
    `poison_on_request`: it keeps a message if the broker is configured so; used for `deadLetter=ack` only.
    `forward`: how safe "send the copy, then accept" is: `atomic` (one transaction) or `confirmed`
    (the copy is confirmed first; a crash in between leaves a duplicate, never a loss).
    `drops_second_copy`: it drops a copy that is sent again because the acknowledgement of its original was lost, also
    when another process sends it.
    `duplicate_property`: the property by whose value it drops what a producer sends for a second time, and confirms it
    nevertheless.
    `flow`: credit is granted message by message; otherwise the window is fixed when subscribing.
    `grows`: that window grows by `Credit` while messages are parked.
    `window_in_bytes`: that window counts bytes, so the adapter is told of what is held (`Hold`), to widen it.
    `release`: a delivery can be given back uncounted. `release_counts`: but some of its queues count it, so nothing is
    given back that another process need not have.
    `counts`: deliveries carry the broker's own count. `max_unacknowledged`: messages per queue that may stay
    unsettled before the broker stops sending. `max_hold`: seconds a delivery may stay unsettled after it arrived;
    a policy that would hold one longer is refused at start-up.
    `groups`: deliveries tell their message group. `selectors`: the broker filters by a selector.
    `subscriptions`: it has durable topic subscriptions. `queue_wildcards`: a consumer may name many queues.
    `browse`: it shows what is on a queue without taking it; `browse_limit`: so many messages at most, and a consumer
    with a selector finds what it wants among so many only.
    `individual_prefixes`: what its own individual dead-letter queues are called by: of queues, and of topics.
    `transactions`: deliveries can be accepted, and messages sent, in one transaction (`Commit`).
    `reschedule`: how safe "send a copy that the broker holds back, then accept" is, as `forward`; `native`: it holds
    the message itself back, uncounted, and keeps what is noted on it; `none`: it cannot, or cannot be told to.
    `reschedule_proof`: how that is found out when a consumer starts: by a message that must not come early, and must
    come (`arrival`) or need not be waited for (`held`); `certain`: not at all, or the broker says so of the queue.
    `reschedule_needs`: what the broker must be set to for it. `longest_delay`: seconds that it can hold a message.
    `marks`: what comes again after the end of a connection is marked as redelivered, all of it.
    `unsettleable`: some messages cannot be settled: `Delivery.settleable` tells which.
    `caution`: how the broker may lose a message of this queue, and the cure; `advice`: what it could do better there.
    `batch`: settlements may share a write, so the driver collects them for up to a millisecond.
    """

    broker: str
    version: str = ""
    poison_persistent: bool = False
    poison_non_persistent: bool = False
    proves_persistent: bool = True
    poison_on_request: bool = False
    forward: Literal["atomic", "confirmed"] = "confirmed"
    drops_second_copy: bool = False
    duplicate_property: str | None = None
    flow: bool = False
    grows: bool = False
    window_in_bytes: bool = False
    release: bool = False
    release_counts: bool = False
    counts: bool = False
    marks: bool = True
    unsettleable: bool = False
    max_unacknowledged: int | None = None
    max_hold: float | None = None
    dead_letter_destination: str = "queue://DLQ"
    individual_prefixes: tuple[str, str] = ("DLQ.", "DLQ.")
    batch: bool = True
    groups: bool = True
    selectors: bool = True
    subscriptions: bool = True
    queue_wildcards: bool = True
    browse: bool = False
    browse_limit: int | None = None
    transactions: bool = False
    reschedule: Literal["none", "atomic", "confirmed", "native"] = "none"
    reschedule_proof: Literal["certain", "arrival", "held"] = "arrival"
    reschedule_needs: str = ""
    longest_delay: float | None = None
    caution: str = ""
    advice: str = ""

    def poisons(self, *, persistent: bool, asked: bool = False) -> bool:
        """Whether the broker's own poison acknowledgement keeps a message that says so of itself.

        `asked`: the user has asked for it, and so vouches for what cannot be proven.
        """
        kept = self.poison_persistent if persistent else self.poison_non_persistent
        return kept and (self.proves_persistent or asked)

    @property
    def most_delay(self) -> float | None:
        """Seconds that the delays of one delivery may have together, or None. Handlers and prefetch need the rest."""
        return None if self.max_hold is None else self.max_hold * HOLDABLE

    def held_too_long(self, seconds: float) -> bool:
        """Whether the broker would take a message back that is held for so long: then it is given back before.

        It comes again at once, and waits for the rest: for the broker that is another delivery. A policy's own delays
        are fewer (the driver sees to that); deferrals may come on top of them.
        """
        return self.release and self.most_delay is not None and seconds > self.most_delay


def cannot_browse(capabilities: Capabilities) -> str:
    """Return the sentence that refuses a browse."""
    return (
        f"{capabilities.broker} cannot show a queue over this protocol without taking its messages; "
        "take=True (--take) receives them and gives them back, or use a protocol that can"
    )
