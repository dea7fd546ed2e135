"""Log of AMQP frames: proton's own trace, without the log-in and without the content of messages."""

from __future__ import annotations

import logging
import re

import proton

from redelivery.adapter_support.wire_log import WIRE

__all__ = ["line", "trace"]

_LOG_IN = re.compile(r"@sasl-(init|response|challenge)\b")
_CONTENT = re.compile(r"\] \((\d+)\) .*", re.DOTALL)
LONGEST = 400  # characters of a line


def trace(transport: proton.Transport) -> None:
    """Log the frames of a connection, if frame logging is enabled when it is created."""
    if WIRE.isEnabledFor(logging.DEBUG):
        transport.tracer = _traced
        transport.trace(proton.Transport.TRACE_FRM)


def line(text: str) -> str:
    """Return a line of proton's trace without credentials and content."""
    text = text.strip().removeprefix("FRAME:").strip()
    found = _LOG_IN.search(text)
    if found is not None:
        return f"{text[: found.end()]} not shown"
    text = _CONTENT.sub(r"] (\1 bytes)", text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _traced(_: proton.Transport, text: str) -> None:
    WIRE.debug("%s", line(text))
