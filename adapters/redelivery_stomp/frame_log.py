"""STOMP frames in the wire log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from redelivery.adapter_support.wire_log import WIRE, body_shown, header_shown
from redelivery_stomp.frames import frame_end, read_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["show_answer", "show_messages", "show_written", "watched"]

# Headers of an ERROR that are not logged: brokers repeat the user's name in its message.
_HIDDEN = frozenset({"message"})


def watched() -> bool:
    """True if frames are logged."""
    return WIRE.isEnabledFor(logging.DEBUG)


def show_written(data: bytes) -> None:
    """Log the frames of one write."""
    at = 0
    while (end := frame_end(data, at)) > 0:
        head, _, body = data[at : end - 1].partition(b"\n\n")
        _show("->", head, _headers(head), body)
        at = end


def show_messages(messages: Iterable[tuple[bytes, bytes]]) -> None:
    """Log MESSAGE frames that arrived, each as header block and body."""
    for head, body in messages:
        _show("<-", head, _headers(head), body)


def show_answer(command: str, headers: Mapping[str, str]) -> None:
    """Log another frame that arrived. The text of an ERROR is hidden: the error that follows has it, masked."""
    kept = {name: value for name, value in headers.items() if name not in _HIDDEN}
    _show("<-", command.encode(), kept, b"")


def _headers(head: bytes) -> dict[str, str]:
    # In the order of the frame.
    return dict(reversed(read_headers(head).items()))


def _show(direction: str, head: bytes, headers: Mapping[str, str], body: bytes) -> None:
    command = head.partition(b"\n")[0].decode("utf-8", "replace").strip()
    shown = [header_shown(name, value) for name, value in headers.items()]
    WIRE.debug("%s %s", direction, " ".join(filter(None, [command, *shown, body_shown(body)])))
