"""Schemes of connection URIs, their ports, and near misses of a mistyped one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import near_miss

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["JAVA_PORTS", "SCHEMES", "SPELLINGS", "near_scheme", "wants_tls"]

SCHEMES = {"memory": 0, "stomp": 61613, "stomp+ssl": 61614, "amqp": 5672, "amqps": 5671}
"""Our schemes, and their default ports; 0: no port."""
SPELLINGS = {"amqp+ssl": "amqps"}
"""Other names of our schemes: the console of Amazon MQ has this one."""
JAVA_PORTS = {
    "tcp": 61616, "nio": 61616, "ssl": 61617, "nio+ssl": 61617, "auto": 61616, "auto+ssl": 61617,
    "auto+nio": 61616, "auto+nio+ssl": 61617, "http": 80, "https": 443, "udp": 61616, "vm": 0,
}  # fmt: skip
"""Schemes of the Java client and their default ports: read to explain and convert their policies."""
_TLS = ("stomp+ssl", "amqps")


def wants_tls(scheme: str) -> bool:
    """True if a scheme, of any client, stands for TLS."""
    return scheme.endswith(("s", "ssl"))


def near_scheme(scheme: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the scheme of `known` that is nearest, or an empty text.

    For one with TLS only one with TLS is suggested.
    """
    if not wants_tls(scheme):
        return near_miss(scheme, known)
    secure = [each for each in known if each in _TLS]
    for each in secure:
        # The same protocol, in any spelling of TLS.
        if scheme.startswith(each.removesuffix("+ssl").removesuffix("s")):
            return f"; did you mean {each!r}?"
    return near_miss(scheme, secure)
