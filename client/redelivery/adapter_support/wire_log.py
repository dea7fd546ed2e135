"""The log of what goes over the wire, for adapters: frames without credentials, bodies cut short.

Its logger, `redelivery.wire`, is silent until its own level is DEBUG: whoever asks for all of a program's debugging
does not ask for frames.
"""

from __future__ import annotations

import logging
import re

__all__ = ["WIRE", "body_shown", "header_shown"]

WIRE = logging.getLogger("redelivery.wire")
if WIRE.level == logging.NOTSET:
    WIRE.setLevel(logging.INFO)

BODY = 40  # bytes of a body that are shown
VALUE = 120  # characters of a header's value
_SECRET = re.compile(r"pass|pwd|login|user|secret|token|cred|auth|session|key", re.IGNORECASE)


def header_shown(name: str, value: str) -> str:
    """Return a header as it may be logged: the value of one that may be a secret is not shown."""
    if _SECRET.search(name):
        return f"{_plain(name)}=***"
    return f"{_plain(name)}={_plain(value if len(value) <= VALUE else value[: VALUE - 1] + '…')}"


def body_shown(body: bytes) -> str:
    """Return the size of a body and its beginning; nothing of an empty one."""
    if not body:
        return ""
    end = "…" if len(body) > BODY else ""
    return f"{len(body)} bytes: {_plain(body[:BODY].decode('utf-8', 'replace'))}{end}"


def _plain(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()
