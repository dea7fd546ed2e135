"""Writer of a connection URI's options, with `?`, `&` and escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from redelivery.core.destination import Destination

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["option_text", "shortest", "with_options"]

# These need no escape in our URIs.
_PLAIN = "/:*>,-_.~"


def option_text(options: Mapping[str, str]) -> str:
    """Return options as text for behind the `?` of a connection URI."""
    return "&".join(
        f"{quote(name, safe=_PLAIN)}={quote(value, safe=_PLAIN)}" for name, value in options.items()
    )


def shortest(pattern: str) -> str:
    """Return a qualified pattern as briefly as `Destination.parse` reads it: a queue needs no `queue://`."""
    parsed = Destination.parse(pattern)
    return parsed.name if Destination.parse(parsed.name) == parsed else pattern


def with_options(uri: str, options: Mapping[str, str]) -> str:
    """Return a connection URI with more options."""
    if not options:
        return uri
    # The ? behind a failover list: its members can have options of their own.
    head, question, query = uri.rpartition("?")
    if not question or ")" in query:
        return f"{uri}?{option_text(options)}"
    query = query.rstrip("&")
    return f"{head}?{query}{'&' if query else ''}{option_text(options)}"
