"""A delivery: one arrival of one message, as the engine sees it.

An adapter subclasses `Delivery` and computes each property only when it is read: of a thousand messages that succeed,
the engine reads no header.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from redelivery.core.cause import EXPIRED, UNKNOWN, Cause

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from datetime import datetime

__all__ = ["DIGEST", "EXPIRED", "UNKNOWN", "BodyKind", "Cause", "Delivery", "Outcome", "Record", "State"]

State = Literal["ready", "running", "parked", "waiting", "settling", "aside", "held", "settled", "lost"]
"""State of a delivery.

ready     may be dispatched            running   a handler has it
parked    until its due time           waiting   a second delivery, while the handler of the lost one runs
settling  poison, not yet confirmed    held      released here, but the broker takes nothing back
settled   accepted, released, …        lost      its connection is gone: no command may be sent for it
aside     cannot be dead-lettered, or settled: unacknowledged, never dispatched
"""

Outcome = Literal[
    "accepted", "redelivered", "deferred", "spared", "poisoned", "discarded", "released", "stale"
]
"""Outcome of one dispatch. `stale`: its connection was lost, and the result could not be sent. `spared`: it failed and
is redelivered, uncharged, because the breaker takes the failure for an outage."""

BodyKind = Literal["text", "bytes", "unknown", "unknown-bytes", "partial"]
"""Type of the body, for a copy. `partial`: the body did not arrive whole (a JMS Map or Stream). `unknown`: it is empty,
and the protocol does not show if it was sent so (an empty text) or is missing (a JMS Object or Map). `unknown-bytes`:
the same, and if it was sent empty, it was bytes."""

# Bytes of a digest.
DIGEST = 16
# Kinds of a body that arrived whole.
WHOLE = frozenset({"text", "bytes"})


class Record:
    """Memory of one message over several deliveries: its count, its due time, its verdict.

    Made at the first failure, or when a connection is lost. It is found again by the message's identity.
    """

    __slots__ = (
        "aside", "cause", "confirmed", "copied", "copy", "count", "deferrals", "deferred", "digest", "due",
        "elsewhere", "exhausted", "failed_at", "failed_first", "first_failure", "held", "idle", "last_failure",
        "losses", "missed_since", "name", "poisoned", "released", "releases", "returns", "runner", "spared", "strong",
        "succeeded", "tries", "uncharged", "unheard",
    )  # fmt: skip

    def __init__(self, count: int = 0) -> None:
        self.count, self.deferrals = count, 0  # charged, and uncharged
        self.due: float | None = None
        self.deferred = False  # parked uncharged
        self.held = 0.0  # seconds parked since arrival
        # Releases because the broker lets no delivery be held for longer, where it counts them.
        self.releases = 0
        # Of every kind: those, and the ones by which the breaker withheld it.
        self.released = 0
        self.spared = False  # parked, uncharged, for a retry
        self.elsewhere: float | None = None  # since when another has it
        self.failed_at: tuple[object, float] | None = None  # of which breaker, and when
        # After how many successes it failed for the first time, and of which source.
        self.failed_first: tuple[object, int] | None = None
        # Failures that were spared although others succeeded.
        self.uncharged = 0
        self.cause: Cause | None = None
        self.first_failure: float | None = None
        self.idle = 0.0  # seconds kept by the breaker
        self.last_failure: float | None = None
        # Connections that were lost while a consumer had the message; and since when, after the last one, it could have
        # come back and has not: infinite until a consumer is there for it.
        self.losses = 0
        self.missed_since: float | None = None
        # Poison: only the confirmation of its dead letter is outstanding.
        self.poisoned = False
        # Due time of its delayed copy, once it is sent as one.
        self.returns: float | None = None
        self.name: str | None = None  # of that copy
        # Poison because its redeliveries are used up; otherwise by request, or because it expired.
        self.exhausted = False
        # The consumer whose handler still has the message, from a lost connection.
        self.runner: int | None = None
        self.copy: Delivery | None = None  # waits for that handler
        # True if that handler ended well, for a `copy` that another consumer has.
        self.succeeded = False
        # Digest of the message; and True if the key alone identifies it.
        self.digest: bytes | None = None
        self.strong = False
        self.tries = 0  # poison acknowledgements tried
        self.copied = False  # the last of them was a copy
        self.confirmed = False  # its dead letter is counted
        # A copy may be at the broker: its answer, or the acceptance of the original, was lost.
        self.unheard = False
        self.aside: float | None = None  # when the log reports it again

    def apart(self) -> Record:
        """Return a record of what is known so far, independent of a handler whose consumer has closed."""
        other = Record(self.count)
        other.deferrals, other.deferred, other.due = self.deferrals, self.deferred, self.due
        other.cause, other.poisoned, other.exhausted = self.cause, self.poisoned, self.exhausted
        other.first_failure, other.last_failure = self.first_failure, self.last_failure
        other.tries, other.confirmed = self.tries, self.confirmed
        other.returns, other.name, other.digest = self.returns, self.name, self.digest
        other.strong, other.aside, other.spared = self.strong, self.aside, self.spared
        other.failed_at, other.idle = self.failed_at, self.idle
        other.failed_first, other.uncharged = self.failed_first, self.uncharged
        other.losses, other.unheard = self.losses, self.unheard
        other.released, other.releases = self.released, self.releases
        return other


class Delivery:
    """One arrival of one message, for one consumer, on one connection (`epoch`).

    An adapter makes a subclass. `seq`, `state`, `outcome` and `record` belong to the engine; it also drops `body` once
    the message is accepted. Each property is computed when it is read, and must not raise.
    """

    __slots__ = ("attempt", "body", "consumer", "epoch", "outcome", "record", "seq", "state")

    digested: ClassVar[bool] = False
    """True if its bytes may be needed to recognise it after it was accepted; its body is then kept for a while."""

    attempt: tuple[bytes, int | None]
    """With a ledger, from the look-up on: its key there, and its mark while it runs."""

    def __init__(self, consumer: int, epoch: int, body: bytes) -> None:
        self.consumer = consumer
        self.epoch = epoch
        self.body = body
        self.seq = 0
        self.state: State = "ready"
        self.outcome: Outcome | None = None
        self.record: Record | None = None

    def let_go(self) -> Delivery:
        """Drop the body: the message is accepted. Return a small object from which its key can be read later."""
        self.body = b""
        return self

    def slim(self) -> int:
        """Drop everything that the digest does not need; return the number of bytes kept."""
        return len(self.body)

    def stored(self) -> tuple[bytes, bytes | None]:
        """Return all bytes of the message: those before the body, and the body; None: it is part of the first.

        A `Restore` makes an equal delivery from them. Called before `let_go`; changes nothing.
        """
        raise NotImplementedError

    @staticmethod
    def stored_all(deliveries: Sequence[Delivery]) -> tuple[list[bytes], list[bytes | None]]:
        """Return `stored()` of many deliveries of this class: the bytes before each body, and the bodies."""
        stored = [each.stored() for each in deliveries]
        return [head for head, _ in stored], [body for _, body in stored]

    def plain(self, now: float) -> bool:
        """True if the message has not expired at the wall-clock time `now`, and its body is there and arrived whole.

        Called for each message. False can also mean that a quick check cannot prove it.
        """
        return bool(self.body) and not self.has_expired(now) and self.body_kind in WHOLE

    def has_expired(self, now: float) -> bool:
        """True if the message has expired at the wall-clock time `now`: no handler gets it, on no path."""
        expires = self.expires_at
        return expires is not None and expires <= now

    # What the adapter knows of the message: computed when read, and never raises.

    @property
    def size(self) -> int:
        """Bytes that it keeps in memory, about: those of its body, and of its properties where they may be large."""
        return len(self.body)

    def read_ahead(self) -> None:
        """Prepare all properties: the caller will read them all, and computing them together may cost less."""

    @property
    def key(self) -> Hashable | None:
        """Identity of the message over deliveries and connections; None if the broker gives none."""
        return None

    @property
    def strong(self) -> bool:
        """True if the broker made the id in `key`: no producer can set it, and no two messages share a key."""
        return False

    @property
    def dated(self) -> bool:
        """True if `key` contains the time at which the producer made the message."""
        return False

    def digest(self) -> bytes:
        """Return 16 bytes that distinguish the message from others with its key, computed from all that was sent.

        Equal at each delivery: it contains nothing that a broker changes. Called before the body is dropped.
        """
        sent = sorted((str(name), repr(value)) for name, value in self.headers.items())
        whole = f"{sent!r}\0".encode("utf-8", "surrogatepass")
        return blake2b(whole + self.body, digest_size=DIGEST).digest()

    @property
    def proof(self) -> Hashable | None:
        """Identity that no other message has: `key`, with the digest if a producer can set the key; or None."""
        key = self.key
        return key if key is None or self.strong else (key, self.digest())

    @property
    def identity(self) -> str | None:
        """The id in `key` as text, equal at each delivery; None without a key. Logs name the message by it."""
        return None

    @property
    def destination(self) -> str:
        """Destination that the message was sent to, qualified: `queue://orders`."""
        raise NotImplementedError

    @property
    def origin(self) -> str | None:
        """Original destination of a dead letter, qualified, as the broker recorded it; None without such a record."""
        return None

    @property
    def moved(self) -> bool:
        """True if the broker's own marks show that it dead-lettered the message itself: it is no client's copy."""
        return False

    @property
    def died_of(self) -> str | None:
        """Cause of a dead letter, as the broker recorded it; None without such a record."""
        return None

    @property
    def redelivered(self) -> bool:
        """True if the broker marked the message as redelivered."""
        return False

    @property
    def broker_count(self) -> int | None:
        """Number of earlier deliveries as the broker counts them; None if it does not report them."""
        return None

    @property
    def expires_at(self) -> float | None:
        """When the message expires: seconds since the Unix epoch; None: never."""
        return None

    @property
    def group(self) -> str | None:
        """Message group; None without one."""
        return None

    @property
    def persistent(self) -> bool:
        """True if the producer asked the broker to keep the message over a restart."""
        return True

    @property
    def body_kind(self) -> BodyKind:
        """Type of the body, for a copy."""
        return "bytes"

    @property
    def fanned_out(self) -> bool:
        """True if others may have the same message, and the broker's own poison acknowledgement leaves too few letters.

        Other queues or subscribers: it keeps one dead letter for all of them, or none. Each copy is kept.
        """
        return False

    @property
    def original(self) -> bool:
        """True if the broker has the message. Otherwise only a log has it, and it can only be copied."""
        return True

    @property
    def readable(self) -> bool:
        """True if a copy can be the same message. Otherwise only its bytes arrived, fit for a dead letter."""
        return True

    @property
    def settleable(self) -> bool:
        """True if the broker can settle the message. Read only with the capability `unsettleable`."""
        return True

    @property
    def message_id(self) -> str | None:
        """The broker's or the producer's id of the message, as the application knows it; None without one."""
        return None

    @property
    def noted(self) -> Mapping[str, Any]:
        """Notes of redelivery by the broker: properties of a delayed copy, or the broker's own."""
        return self.headers

    @property
    def headers(self) -> Mapping[str, Any]:
        """Application properties, without the protocol's own headers."""
        return {}

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Message annotations of AMQP 1.0 by name, as many as can be read; empty over other protocols."""
        return {}

    @property
    def content_type(self) -> str | None:
        """MIME type; None without one."""
        return None

    @property
    def content_encoding(self) -> str | None:
        """Compression of the body, as `gzip`; None without one, or if the protocol has none."""
        return None

    @property
    def correlation_id(self) -> str | None:
        """Correlation id; None without one."""
        return None

    @property
    def typed(self) -> tuple[str, ...]:
        """Parts that only its own bytes keep, in words: a body or a correlation id that is neither text nor bytes."""
        return ()

    @property
    def reply_to(self) -> str | None:
        """Destination for an answer; None without one."""
        return None

    @property
    def message_type(self) -> str | None:
        """JMSType (AMQP subject); None without one."""
        return None

    @property
    def priority(self) -> int:
        """Priority, 0 to 9; 4 if the producer gave none (JMS)."""
        return 4

    @property
    def timestamp(self) -> datetime | None:
        """When the message was sent, in UTC; None if it is not known."""
        return None

    @property
    def expiration(self) -> datetime | None:
        """When the message expires, in UTC; None: never."""
        return None

    @property
    def value(self) -> Any:
        """The decoded body if the protocol types it (an AMQP map, list, number); otherwise the bytes."""
        return self.body
