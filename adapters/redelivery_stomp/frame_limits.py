"""SENDs that are too large for the broker: each is tried until two connections ended because of one, then refused.

RabbitMQ closes the connection on such a frame without an ERROR, and Classic with an ERROR that names no request. A
poison message with such a large copy would end one connection after the other: all other messages would be redelivered
each time. The broker does not report its limit, which its administrator may have raised. A single end may have another
cause.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from redelivery.errors import AdapterError, TransportError
from redelivery_stomp.profile_base import FrameLimit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.errors import RedeliveryError
    from redelivery_stomp.ports import StompIo
    from redelivery_stomp.receipts import Answer

__all__ = ["CLASSIC_LIMITS", "CLASSIC_SAYS", "RABBITMQ_LIMITS", "FrameTooLarge", "LearnedLimits"]

# docs/measured/rabbitmq-stomp-errors.md, "Frames that are too large".
# Headers: 4.2.6, 4.3.0 and later. Bytes: 3.12.2 and later.
RABBITMQ_LIMITS = (
    FrameLimit("headers", 100, "use fewer headers"),
    FrameLimit("bytes", 4 * 1024 * 1024, "raise stomp.max_frame_size there and restart this program"),
)
# `StompWireFormat`, 6.1.7 and 6.3.1. Bytes: of the configuration that it is shipped with since 5.19.9 and 6.2.8.
CLASSIC_LIMITS = (
    FrameLimit("headers", 1001, "use fewer headers"),
    FrameLimit("bytes in one header", 10 * 1024 + 1, "shorten it"),
    FrameLimit(
        "bytes",
        10 * 1024 * 1024,
        "raise wireFormat.maxFrameSize of its STOMP connector and restart this program",
    ),
)
# Classic's ERROR. "Command": it has refused a frame, and reads the rest of it as the next one (6.1.7).
CLASSIC_SAYS = re.compile(
    "maximum (frame size|header length|number of headers|(data|command) length) was exceeded"
)
# Number of connections in a row that ended while such a frame had no answer. One end may have another cause.
PROOF = 2


class FrameTooLarge(AdapterError):
    """The broker would end the connection over this SEND."""


class LearnedLimits:
    """Limits of SENDs that one adapter has found out, on all its connections. By kind of broker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By broker and kind: the largest value that the broker accepted, if that is above the default.
        self._taken: dict[tuple[str, str], int] = {}
        # By broker and kinds that a frame exceeds: how many connections ended because of such frames, and the epoch of
        # the last one.
        self._ends: dict[tuple[str, frozenset[str]], tuple[int, int]] = {}

    def check(self, io: StompIo, receipt: tuple[str, str], data: bytes) -> FrameTooLarge | None:
        """Return the error of a SEND that is refused here; None if it can be written.

        Args:
            io: The connection.
            receipt: The `receipt` header of the frame.
            data: The frame.
        """
        limits = io.profile.frame_limits
        if not limits:
            return None
        broker = io.profile.capabilities.broker
        over = self._over(broker, limits, data)
        if not over:
            return None
        with self._lock:
            known = [
                kinds for (whose, kinds), (ends, _) in self._ends.items() if whose == broker and ends >= PROOF
            ]
        for kinds in known:
            if kinds <= over.keys():
                return FrameTooLarge(self._refusal(broker, limits, over, kinds))
        io.receipts.wrap(receipt[1], lambda answer: _Tried(self, io, over, answer))
        return None

    def _over(self, broker: str, limits: Sequence[FrameLimit], data: bytes) -> Mapping[str, int]:
        """Return the values of a frame that are above their limits, by kind."""
        head = data[: data.find(b"\n\n")]
        lines = head.count(b"\n")
        over: dict[str, int] = {}
        for limit in limits:
            most = max(limit.most, self._taken.get((broker, limit.kind), 0))
            found = 0
            if limit.kind == "bytes":
                found = len(data)
            elif limit.kind == "headers" and lines > most:
                # Headers with the same name count as one.
                found = len({line.partition(b":")[0] for line in head.split(b"\n")[1:]})
            elif limit.kind == "bytes in one header" and len(head) > most:
                found = max(map(len, head.split(b"\n")))
            if found > most:
                over[limit.kind] = found
        return over

    def _refusal(
        self, broker: str, limits: Sequence[FrameLimit], over: Mapping[str, int], kinds: frozenset[str]
    ) -> str:
        limit = next(each for each in limits if each.kind in kinds)
        most = max(limit.most, self._taken.get((broker, limit.kind), 0))
        return (
            f"{broker} closes the connection on a STOMP frame of more than {most:,} {limit.kind}, and this message "
            f"needs {over[limit.kind]:,}: {limit.cure}, or use AMQP"
        )

    def taken(self, io: StompIo, over: Mapping[str, int]) -> None:
        """Record that the broker accepted a frame: it accepts all that are not larger."""
        broker = io.profile.capabilities.broker
        with self._lock:
            for kind, found in over.items():
                self._taken[broker, kind] = max(found, self._taken.get((broker, kind), 0))
            for key in [key for key in self._ends if key[0] == broker and key[1] <= over.keys()]:
                del self._ends[key]

    def ended(self, io: StompIo, over: Mapping[str, int]) -> None:
        """Record that a connection ended before the answer to a frame; once for each connection."""
        profile, text = io.profile, io.disconnect_cause.ended_with
        said = profile.frame_error
        # An end without a text counts: the ERROR is lost if the broker closes while the frame is still being written.
        if text is None or (text and (said is None or not said.search(text))):
            return
        key = profile.capabilities.broker, frozenset(over)
        with self._lock:
            ends, last = self._ends.get(key, (0, -1))
            if last != io.epoch:
                self._ends[key] = ends + 1, io.epoch


class _Tried:
    """Callback of a frame above a limit: records its result, and passes the answer on."""

    def __init__(self, limits: LearnedLimits, io: StompIo, over: Mapping[str, int], answer: Answer) -> None:
        self._limits, self._io, self._over, self._answer = limits, io, over, answer

    def __call__(self, error: RedeliveryError | None) -> None:
        if error is None:
            self._limits.taken(self._io, self._over)
        elif isinstance(error, TransportError):
            self._limits.ended(self._io, self._over)
        self._answer(error)
