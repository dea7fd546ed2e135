"""Near misses of a mistyped scheme. For one with TLS only one with TLS is suggested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import near_miss

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["near_scheme", "wants_tls"]

_TLS = ("stomp+ssl", "amqps")


def wants_tls(scheme: str) -> bool:
    """True if a scheme, of any client, stands for TLS."""
    return scheme.endswith(("s", "ssl"))


def near_scheme(scheme: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the scheme of `known` that is nearest, or an empty text."""
    if not wants_tls(scheme):
        return near_miss(scheme, known)
    secure = [each for each in known if each in _TLS]
    for each in secure:
        # The same protocol, in any spelling of TLS.
        if scheme.startswith(each.removesuffix("+ssl").removesuffix("s")):
            return f"; did you mean {each!r}?"
    return near_miss(scheme, secure)
