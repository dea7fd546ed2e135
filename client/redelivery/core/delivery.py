"""A delivery: one arrival of one message, as the engine sees it.

An adapter subclasses `Delivery` and computes what the broker sent lazily, because on the hot path nobody
asks: of a thousand messages that succeed, none has its headers parsed for the engine's sake.
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
"""Where a delivery is.

ready     may be dispatched            running   a handler has it
parked    waits for its due time       waiting   a copy that waits for the handler of the lost delivery
settling  poisoned, not yet confirmed  held      released here, but the broker takes nothing back
settled   done with                    lost      its connection is gone: nothing may be sent for it
aside     cannot be dead-lettered, or settled: unacknowledged, never dispatched
"""

Outcome = Literal[
    "accepted", "redelivered", "deferred", "spared", "poisoned", "discarded", "released", "stale"
]
"""What became of one dispatch. `stale`: its connection was lost, so the result could not be sent. `spared`: it failed
and is redelivered, uncharged: the breaker takes it for an outage."""

BodyKind = Literal["text", "bytes", "unknown", "unknown-bytes", "partial"]
"""How a copy must be typed. `partial`: the body did not arrive whole (a JMS Map or Stream). `unknown`: it is empty,
and the protocol does not tell whether it was (an empty text) or is missing (a JMS Object or Map); `unknown-bytes`: the
same, and if it was empty, it was bytes."""

# Bytes of a digest.
DIGEST = 16
# Kinds of a body that arrived whole.
WHOLE = frozenset({"text", "bytes"})


class Record:
    """What the engine remembers of one message beyond one delivery: its count, its due time, its verdict.

    Made at the first failure, or when a connection is lost; it outlives the connection, by identity.
    """

    __slots__ = (
        "aside", "cause", "confirmed", "copied", "copy", "count", "deferrals", "deferred", "digest", "due", "exhausted",
        "failed_at", "first_failure", "held", "idle", "last_failure", "name", "poisoned", "returns", "runner", "spared",
        "strong", "succeeded", "tries",
    )  # fmt: skip

    def __init__(self, count: int = 0) -> None:
        self.count, self.deferrals = count, 0  # charged, and not
        self.due: float | None = None
        self.deferred = False  # whether it waits uncharged
        self.held = 0.0  # seconds parked since arrival
        self.spared = False  # waits, uncharged, for a retry
        self.failed_at: tuple[object, float] | None = None  # for which breaker
        self.cause: Cause | None = None
        self.first_failure: float | None = None
        self.idle = 0.0  # seconds kept by the breaker
        self.last_failure: float | None = None
        # The verdict: only its confirmation is outstanding.
        self.poisoned = False
        # When its delayed copy is to come, once it leaves as one.
        self.returns: float | None = None
        self.name: str | None = None  # of that copy
        # For its redeliveries are used up; else it was poisoned, or has expired.
        self.exhausted = False
        # The consumer whose handler still has the message, over a connection that is lost.
        self.runner: int | None = None
        self.copy: Delivery | None = None  # waits for that one
        # Whether that handler ended well, for a copy that another consumer has.
        self.succeeded = False
        # Of the message, and whether it need not be compared: its key is enough.
        self.digest: bytes | None = None
        self.strong = False
        self.tries = 0  # poison acknowledgements tried
        self.copied = False  # the last one was a copy
        self.confirmed = False  # its dead letter is counted
        self.aside: float | None = None  # when to log that again

    def apart(self) -> Record:
        """Return what is known so far, for a handler that nobody waits for any longer."""
        other = Record(self.count)
        other.deferrals, other.deferred, other.due = self.deferrals, self.deferred, self.due
        other.cause, other.poisoned, other.exhausted = self.cause, self.poisoned, self.exhausted
        other.first_failure, other.last_failure = self.first_failure, self.last_failure
        other.tries, other.confirmed = self.tries, self.confirmed
        other.returns, other.name, other.digest = self.returns, self.name, self.digest
        other.strong, other.aside, other.spared = self.strong, self.aside, self.spared
        other.failed_at, other.idle = self.failed_at, self.idle
        return other


class Delivery:
    """One arrival of one message, for one consumer, on one connection (`epoch`).

    `seq`, `state`, `outcome` and `record` belong to the engine; it also drops `body` once it is accepted.
    """

    __slots__ = ("attempt", "body", "consumer", "epoch", "outcome", "record", "seq", "state")

    digested: ClassVar[bool] = False
    """Whether it may be known again by its bytes after it was accepted; then its body is kept for a while."""

    attempt: tuple[bytes, int | None]
    """With a ledger, from its look-up on: its key there, and its mark while it runs."""

    def __init__(self, consumer: int, epoch: int, body: bytes) -> None:
        self.consumer = consumer
        self.epoch = epoch
        self.body = body
        self.seq = 0
        self.state: State = "ready"
        self.outcome: Outcome | None = None
        self.record: Record | None = None

    def let_go(self) -> Delivery:
        """Forget the body: the message is accepted. Return what its key can be read of later, and takes little room."""
        self.body = b""
        return self

    def slim(self) -> int:
        """Forget what its digest does not need; return how many bytes are kept."""
        return len(self.body)

    def stored(self) -> tuple[bytes, bytes | None]:
        """Return all bytes of the message: those before the body, and the body; None: it is among the first.

        A `Restore` makes an equal delivery of them. Asked before the body is let go of; changes nothing.
        """
        raise NotImplementedError

    @staticmethod
    def stored_all(deliveries: Sequence[Delivery]) -> tuple[list[bytes], list[bytes | None]]:
        """Return the same of deliveries of this class: what is before each body, and the bodies."""
        stored = [each.stored() for each in deliveries]
        return [head for head, _ in stored], [body for _, body in stored]

    def plain(self, now: float) -> bool:
        """True if the message has not expired at the wall-clock time `now`, and its body is there and arrived whole.

        Asked for each message: False may also mean that a quick look does not show it.
        """
        expires = self.expires_at
        return bool(self.body) and (expires is None or expires > now) and self.body_kind in WHOLE

    # What the adapter knows. All of it is lazy; none of it may raise.

    def read_ahead(self) -> None:
        """Learn that all of it will be asked for: to read it at once may cost less."""

    @property
    def key(self) -> Hashable | None:
        """Identity of the message over deliveries and connections, or None if the broker gives none."""
        return None

    @property
    def strong(self) -> bool:
        """Whether the broker made the id in `key`, and no producer can set it. Else two messages may have one key."""
        return False

    @property
    def dated(self) -> bool:
        """Whether `key` has the time at which the producer made the message."""
        return False

    def digest(self) -> bytes:
        """Return 16 bytes that tell it from other messages of its key: of all that the producer sent.

        The same at each delivery: nothing that a broker changes is in it. Asked before the body is let go of.
        """
        sent = sorted((str(name), repr(value)) for name, value in self.headers.items())
        whole = f"{sent!r}\0".encode("utf-8", "surrogatepass")
        return blake2b(whole + self.body, digest_size=DIGEST).digest()

    @property
    def proof(self) -> Hashable | None:
        """What no other message has: the key, with the digest if the key is the producer's; None as `key` is."""
        key = self.key
        return key if key is None or self.strong else (key, self.digest())

    @property
    def identity(self) -> str | None:
        """The id in `key` as text, the same at each delivery, or None as `key` is: a log knows the message by it."""
        return None

    @property
    def destination(self) -> str:
        """Where the message was sent, qualified: `queue://orders`."""
        raise NotImplementedError

    @property
    def origin(self) -> str | None:
        """Where a dead letter came from, qualified, if the broker says so in a way of its own."""
        return None

    @property
    def moved(self) -> bool:
        """True if the broker's own marks say that it dead-lettered the message itself, so it is no client's copy."""
        return False

    @property
    def died_of(self) -> str | None:
        """Why it is a dead letter, if the broker says so in a way of its own."""
        return None

    @property
    def redelivered(self) -> bool:
        """The broker's own mark."""
        return False

    @property
    def broker_count(self) -> int | None:
        """Earlier deliveries as the broker counts them, or None where it does not tell."""
        return None

    @property
    def expires_at(self) -> float | None:
        """When the message expires: seconds since the Unix epoch, or None for never."""
        return None

    @property
    def group(self) -> str | None:
        """The message group, or None."""
        return None

    @property
    def persistent(self) -> bool:
        """Whether the producer asked the broker to keep the message over a restart."""
        return True

    @property
    def body_kind(self) -> BodyKind:
        """How a copy must be typed."""
        return "bytes"

    @property
    def original(self) -> bool:
        """Whether the broker has the message; else it is in a log only, and leaves as a copy."""
        return True

    @property
    def readable(self) -> bool:
        """Whether a copy can be the same message; else its body is all that arrived, fit for a dead letter only."""
        return True

    @property
    def settleable(self) -> bool:
        """Whether the broker can carry out a settlement of it. Asked only where `Capabilities.unsettleable` says so."""
        return True

    @property
    def message_id(self) -> str | None:
        """The broker's or the producer's id of the message, as the application knows it."""
        return None

    @property
    def noted(self) -> Mapping[str, Any]:
        """What redelivery by the broker has noted on the message: properties of a delayed copy, or the broker's own."""
        return self.headers

    @property
    def headers(self) -> Mapping[str, Any]:
        """Application properties, without the protocol's own headers."""
        return {}

    @property
    def content_type(self) -> str | None:
        """MIME type, or None."""
        return None

    @property
    def correlation_id(self) -> str | None:
        """Correlation id, or None."""
        return None

    @property
    def reply_to(self) -> str | None:
        """Where an answer is expected, or None."""
        return None

    @property
    def message_type(self) -> str | None:
        """JMSType (AMQP subject), or None."""
        return None

    @property
    def priority(self) -> int:
        """0 to 9; 4 where none was given (JMS)."""
        return 4

    @property
    def timestamp(self) -> datetime | None:
        """When the message was sent, in UTC, or None."""
        return None

    @property
    def expiration(self) -> datetime | None:
        """When the message expires, in UTC, or None for never."""
        return None

    @property
    def value(self) -> Any:
        """The decoded body where the protocol types it (an AMQP map, list, number), else the bytes."""
        return self.body
