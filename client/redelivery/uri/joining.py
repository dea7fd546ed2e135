"""Options joined, and added to a connection URI: the one place that writes `?`, `&` and escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["option_text", "with_options"]

# These need no escape in our URIs.
_PLAIN = "/:*>,-_.~"


def option_text(options: Mapping[str, str]) -> str:
    """Return options as they are written behind the `?` of a connection URI."""
    return "&".join(
        f"{quote(name, safe=_PLAIN)}={quote(value, safe=_PLAIN)}" for name, value in options.items()
    )


def with_options(uri: str, options: Mapping[str, str]) -> str:
    """Return a connection URI with more options."""
    if not options:
        return uri
    # Behind a failover list, whose members may have options too.
    head, question, query = uri.rpartition("?")
    if not question or ")" in query:
        return f"{uri}?{option_text(options)}"
    query = query.rstrip("&")
    return f"{head}?{query}{'&' if query else ''}{option_text(options)}"
