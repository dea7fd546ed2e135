"""Protocol poison: messages over which the broker closes the connection, or which it cannot deliver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from redelivery.core.commands import Stop
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from redelivery.errors import RedeliveryError

__all__ = ["HeadOfQueue", "ProtocolPoison"]

# Closings over the same message after which its consumer stops, each within so many seconds of the one before. Between
# two is the delay of reconnecting: 30 s at most by default.
TIMES, WITHIN = 3, 60.0


@dataclass(frozen=True, slots=True)
class HeadOfQueue:
    """Suspect where the broker ends a consumer over a message that it has not delivered, whose id is unknown here.

    An adapter names one only if the broker has subscribed this consumer on the lost connection, and has ended it when
    it was to deliver. So a broker that subscribes no consumer convicts no queue.

    Args:
        destination: Qualified destination of the consumer.
        cure: What the operator can do about that message, as the end of a sentence.
    """

    destination: str
    cure: str


class ProtocolPoison:
    """Counts closings per message: a message that breaks every connection must not do so for ever.

    Shared by all consumers of a connection: the message may be delivered to another one each time.
    """

    def __init__(self) -> None:
        self._closings: dict[Hashable, list[float]] = {}
        self.convicted: dict[Hashable, Stop] = {}
        """`Stop` for each consumer that gets such a message, by its `Delivery.proof`."""

    def accuse(self, suspect: Hashable | None, error: RedeliveryError, now: float) -> Stop | None:
        """Note a closing over `suspect`; return `Stop` for the consumer if it has happened too often."""
        self._forget(now)
        if suspect is None:
            return None
        times = self._closings[suspect] = [*self._closings.get(suspect, ()), now][-TIMES:]
        if len(times) < TIMES:
            return None
        stop = Stop(AdapterError(_sentence(suspect, error)))
        self.convicted = {**self.convicted, suspect: stop}
        return stop

    def verdict(self, proofs: Iterable[Hashable | None], now: float) -> Stop | None:
        """Return `Stop` for a consumer that gets these messages, if one of them must not be tried again yet."""
        self._forget(now)
        return next((stop for proof in proofs if (stop := self.convicted.get(proof))), None)

    def _forget(self, now: float) -> None:
        self._closings = {key: times for key, times in self._closings.items() if now - times[-1] < WITHIN}
        self.convicted = {key: stop for key, stop in self.convicted.items() if key in self._closings}


def _sentence(suspect: Hashable, error: RedeliveryError) -> str:
    # RabbitMQ's text has a stack trace behind its first line; the log of the loss has it.
    reason = str(error).partition("\n")[0]
    often = f"{TIMES} times, each within {WITHIN:.0f} s of the one before"
    if isinstance(suspect, HeadOfQueue):
        return (
            f"the broker ended the consumer of {suspect.destination} {often}: {reason}. No message that was delivered "
            "is the cause: one at the head of the queue cannot be delivered over this protocol; "
            f"{suspect.cure}"
        )
    return (
        f"the broker closed the connection {often}, right after the same message or its acknowledgement "
        f"({_named(suspect)}): {error}. The message stays on its queue, until it is moved, or removed with the "
        "broker's console"
    )


def _named(suspect: Hashable) -> str:
    """Return a suspect as text, without the digest that distinguishes messages with the same id."""
    if not isinstance(suspect, tuple):
        return str(suspect)
    known = cast("tuple[Hashable, ...]", suspect)
    return ": ".join(_named(part) for part in known if not isinstance(part, bytes | type | None))
