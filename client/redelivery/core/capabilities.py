"""Capabilities of one broker over one protocol: all that the engine knows about brokers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

__all__ = [
    "HOLDABLE",
    "STREAM",
    "Capabilities",
    "cannot_browse",
    "cannot_spare",
]

# Share of a broker's limits that parked messages may use; the rest is for prefetched messages and handlers.
HOLDABLE = 0.8
STREAM = (
    "a stream of RabbitMQ keeps its messages, has no dead letters, and shows a new consumer only what is sent from "
    "then on; bind a quorum or classic queue to the exchange that feeds it, and consume that queue"
)
"""Why a stream is refused, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of one broker over one protocol, as measured.

    Args:
        broker: Name of the broker, for logs and errors.
        version: Version of the broker; "" if it does not report one.
        poison_persistent: The broker's own poison acknowledgement keeps (dead-letters) persistent messages.
        poison_non_persistent: The same for non-persistent messages.
        own_poison: When that acknowledgement is used. `first`: whenever it keeps the message. `last`: for a message
            that cannot be copied. `asked`: for `deadLetter=ack` only, because no message shows if other queues have it,
            too (`Delivery.fanned_out`).
        ack_caution: What `deadLetter=ack` may lose of a queue, said when its consumer starts, and the cure.
        poison_on_request: The broker keeps such a message if it is configured to. Used for `deadLetter=ack` only.
        forward: How safe "send the copy, then accept the original" is. `atomic`: one transaction. `confirmed`: the
            copy is confirmed first; a crash in between leaves a duplicate, never a loss.
        drops_second_copy: The broker drops a copy that is sent again because the acknowledgement of its original was
            lost, also if another process sends it.
        duplicate_property: Property whose value identifies a message that a producer sends twice. The broker drops the
            second one and confirms it nevertheless. None: the broker has no such property.
        flow: Credit is granted message by message. Otherwise the window is fixed by the subscription.
        grows: That window grows by `Credit` while messages are parked.
        window_in_bytes: That window counts bytes. The adapter gets a `Hold` for each parked message, to widen it.
        release: A delivery can be released uncounted.
        release_counts: Some queues count a release. Messages are then released only if another process needs them.
        release_limit: Releases after which the broker drops a message of this queue, or dead-letters it. Of a broker:
            of some of its queues. None: no limit.
        counts: Deliveries carry the broker's own count.
        marks: Every message that is redelivered after the end of a connection has the redelivered flag.
        unsettleable: Some messages cannot be settled; `Delivery.settleable` is false for them.
        max_unacknowledged: Messages per queue that may stay unsettled before the broker stops sending. None: no limit.
        max_hold: Seconds that a delivery may stay unsettled after it arrived; a policy that parks one for longer is
            refused at start-up. None: no limit.
        tells_dead_letters: The adapter can find out where the broker's own settings put the dead letters of a queue
            (`Subscribe.own_place`).
        dead_letter_destination: The broker's default dead-letter queue, qualified. Of a queue: the broker's own place
            for its dead letters.
        dead_letter_properties: Properties without which that place drops a dead letter: its queue has a filter.
        own_dead_letters: The broker's setting that has decided this place; empty: none has.
        individual_prefixes: Prefixes of the broker's own individual dead-letter queues: of queues, and of topics.
        batch: Settlements may share a write. The driver collects them for up to 1 ms.
        groups: Deliveries carry their message group.
        binds_groups: While several consumers share a queue, the broker sends the messages of a group to one of them.
        selectors: The broker filters by a selector.
        subscriptions: The broker has durable topic subscriptions.
        queue_wildcards: One consumer may name many queues by a wildcard.
        copies_by_wildcard: Such a consumer has a queue of its own at the broker, with a copy of each later message,
            which stays in its own queue. It is refused without `redelivery.wildcards=address`.
        management_address: Address at which the broker answers requests in Artemis' format, to users with the right.
            None: there is none.
        browse: The broker can show the messages of a queue without delivering them.
        browse_over: The protocol over which it can, if it cannot over this one; empty: none.
        browse_limit: Most messages that a browse shows; a consumer with a selector finds matches among so many only.
            None: no limit.
        transactions: Deliveries can be accepted, and messages sent, in one transaction (`Commit`).
        reschedule: How the broker delays a redelivery. `atomic`, `confirmed`: by a delayed copy, as safe as the same
            values of `forward`. `native`: it delays the message itself, uncounted, and keeps notes on it. `none`:
            it cannot, or a client cannot ask for it.
        reschedule_proof: How a starting consumer verifies that. `arrival`: by a probe message that must not arrive
            early, and must arrive. `held`: by one that must not arrive early. `certain`: no probe is needed, or the
            broker reports it for the queue.
        reschedule_needs: Setting of the broker that delayed redelivery needs.
        longest_delay: Seconds that the broker can delay a message. None: no limit.
        delay_digits: Each delay has a queue of its own at the broker, and is rounded up to so many digits of its
            milliseconds. One such queue may be down while others take copies. None: there are no such queues.
        loss_limit: Lost connections at which a message of this queue may be held here; then the broker drops it, or
            dead-letters it by itself. None: no limit, or not known.
        replicated: The broker keeps the messages of this queue on several nodes of a cluster.
        caution: How the broker may lose a message of this queue, or why its dead letters may be elsewhere than its
            settings say, and the cure.
        advice: How the queue could be configured better.
        not_delivered: Parts of messages that the broker does not give to clients of this protocol: neither handlers nor
            copies have them. Empty: nothing known.
    """

    broker: str
    version: str = ""
    poison_persistent: bool = False
    poison_non_persistent: bool = False
    own_poison: Literal["first", "last", "asked"] = "first"
    ack_caution: str = ""
    poison_on_request: bool = False
    forward: Literal["atomic", "confirmed"] = "confirmed"
    drops_second_copy: bool = False
    duplicate_property: str | None = None
    flow: bool = False
    grows: bool = False
    window_in_bytes: bool = False
    release: bool = False
    release_counts: bool = False
    release_limit: int | None = None
    counts: bool = False
    marks: bool = True
    unsettleable: bool = False
    max_unacknowledged: int | None = None
    max_hold: float | None = None
    tells_dead_letters: bool = False
    dead_letter_destination: str = "queue://DLQ"
    dead_letter_properties: tuple[tuple[str, str], ...] = ()
    own_dead_letters: str = ""
    individual_prefixes: tuple[str, str] = ("DLQ.", "DLQ.")
    batch: bool = True
    groups: bool = True
    binds_groups: bool = True
    selectors: bool = True
    subscriptions: bool = True
    queue_wildcards: bool = True
    copies_by_wildcard: bool = False
    management_address: str | None = None
    browse: bool = False
    browse_over: str = ""
    browse_limit: int | None = None
    transactions: bool = False
    reschedule: Literal["none", "atomic", "confirmed", "native"] = "none"
    reschedule_proof: Literal["certain", "arrival", "held"] = "arrival"
    reschedule_needs: str = ""
    longest_delay: float | None = None
    delay_digits: int | None = None
    loss_limit: int | None = None
    replicated: bool = False
    caution: str = ""
    advice: str = ""
    not_delivered: str = ""

    def poisons(self, *, persistent: bool, asked: bool = False) -> bool:
        """Return True if the broker's own poison acknowledgement keeps a message of this persistence.

        `asked`: the user has configured `deadLetter=ack`.
        """
        kept = self.poison_persistent if persistent else self.poison_non_persistent
        return kept and (self.own_poison != "asked" or asked)

    @property
    def most_delay(self) -> float | None:
        """Seconds that the delays of one delivery may take together; None: no limit. Handlers need the rest."""
        return None if self.max_hold is None else self.max_hold * HOLDABLE

    def delay_ms(self, seconds: float) -> int:
        """Return a delay in whole milliseconds, at least one, as `delay_digits` and `longest_delay` allow."""
        wanted = max(1, ceil(seconds * 1000 - 1e-6))
        digits = self.delay_digits or len(str(wanted))
        unit: int = 10 ** max(0, len(str(wanted)) - digits)
        rounded = -(-wanted // unit) * unit
        return rounded if self.longest_delay is None else min(rounded, round(self.longest_delay * 1000))

    def held_too_long(self, seconds: float) -> bool:
        """Return True if a message parked for so long must be released before the broker takes it back.

        The broker redelivers it at once, as another delivery, and it is parked for the rest of its delay. The driver
        keeps the delays of a policy below this limit; deferrals may add to them.
        """
        return self.release and self.most_delay is not None and seconds > self.most_delay


def cannot_browse(capabilities: Capabilities) -> str:
    """Return the error message that refuses a browse."""
    other = f", or {capabilities.browse_over}, over which it can" if capabilities.browse_over else ""
    return (
        f"{capabilities.broker} cannot show a queue over this protocol without taking its messages; "
        f"use dead_letters(uri, take=True) or --take, which receives and releases them{other}"
    )


def cannot_spare(queue: str, capabilities: Capabilities, *, known: bool) -> str | None:
    """Return the error message that refuses to give messages of a queue back; None: no release is counted.

    Args:
        queue: Qualified name of the queue.
        capabilities: Capabilities of the broker for this queue, or for any.
        known: True: they are those of this queue, as the broker has reported it.
    """
    limit, broker = capabilities.release_limit, f"{capabilities.broker} {capabilities.version}".rstrip()
    if limit is None:
        return None
    if known:
        return (
            f"{queue}: each look, and each filtered redrive or purge, counts against the limit of this queue: {broker} "
            f"drops a message after {limit} of them (x-delivery-limit); add --yes (despite_limit=True) to go on, or "
            "move all to a queue without a limit: a redrive without filters, with --to"
        )
    return (
        f"{queue}: {broker} does not report here whether the queue drops a message after {limit} looks, as quorum "
        "queues do; look over AMQP, as a user who may configure the queue, or add --yes (despite_limit=True)"
    )
