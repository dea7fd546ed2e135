"""Warning before a password leaves this host unencrypted, in STOMP's CONNECT or AMQP's SASL PLAIN."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from redelivery.log import logger

if TYPE_CHECKING:
    from redelivery.settings import Endpoint, Settings

__all__ = ["PlainPasswords", "is_loopback"]

# Scheme of a URI that encrypts the same protocol. Protocols of other adapters are not known here.
_ENCRYPTED = {"stomp": "stomp+ssl", "amqp": "amqps"}


def is_loopback(host: str) -> bool:
    """True if data for this host does not leave this machine. No name is looked up."""
    try:
        address = ip_address(host)
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


class PlainPasswords:
    """Warnings of one connection: one for each name, whichever of its addresses is used."""

    def __init__(self, settings: Settings) -> None:
        self._has_password = settings.password is not None
        self._warned: set[Endpoint] = set()

    def before(self, endpoint: Endpoint) -> None:
        """Log a warning before the password is first sent to this name; never the user name or the password."""
        encrypted, name = _ENCRYPTED.get(endpoint.scheme), endpoint.name
        if not self._has_password or encrypted is None or name in self._warned or is_loopback(endpoint.host):
            return
        self._warned.add(name)
        logger.warning(
            "%s: the password is sent unencrypted, readable on the network; use %s://", name, encrypted
        )
