"""Log of frames on the wire, for adapters: without credentials, bodies shortened.

Its logger, `redelivery.wire`, writes nothing until its own level is DEBUG. A program that sets the root
logger to DEBUG does not get frames.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WIRE", "body_shown", "header_shown", "values_of"]


# ---- Wire log --------------------------------------------------------------------------------------------

WIRE = logging.getLogger("redelivery.wire")
if WIRE.level == logging.NOTSET:
    WIRE.setLevel(logging.INFO)

BODY = 40  # bytes of a body that are shown
VALUE = 120  # characters of a header's value
_SECRET = re.compile(r"pass|pwd|login|user|secret|token|cred|auth|session|key", re.IGNORECASE)


def header_shown(name: str, value: str) -> str:
    """Return a header as it may be logged. The value of a header that may be a secret is not shown."""
    if _SECRET.search(name):
        return f"{_plain(name)}=***"
    return f"{_plain(name)}={_plain(value if len(value) <= VALUE else value[: VALUE - 1] + '…')}"


def body_shown(body: bytes) -> str:
    """Return the size of a body and its beginning; an empty text for an empty body."""
    if not body:
        return ""
    end = "…" if len(body) > BODY else ""
    return f"{len(body)} bytes: {_plain(body[:BODY].decode('utf-8', 'replace'))}{end}"


def _plain(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()


# ---- Wire values -----------------------------------------------------------------------------------------
# Values of a wire description, from which an adapter restores deliveries.


def values_of(wire: Mapping[str, str], *names: str) -> list[str]:
    """Return the values of these names.

    Raises:
        ConfigurationError: one of them is missing.
    """
    missing = [name for name in names if name not in wire]
    if missing:
        raise ConfigurationError(
            f"wire has no {', '.join(missing)}: give what `wire()` of this protocol's adapter returned"
        )
    return [wire[name] for name in names]
