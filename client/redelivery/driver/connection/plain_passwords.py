"""A warning of a password that leaves this host unencrypted: STOMP's CONNECT and AMQP's SASL PLAIN both show it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from redelivery.log import logger

if TYPE_CHECKING:
    from redelivery.settings import Endpoint, Settings

__all__ = ["PlainPasswords", "is_loopback"]

# What encrypts the same protocol. Of others' adapters nothing is known.
_ENCRYPTED = {"stomp": "stomp+ssl", "amqp": "amqps"}


def is_loopback(host: str) -> bool:
    """Whether nothing that is sent to a host leaves this one. No name is looked up."""
    try:
        address = ip_address(host)
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


class PlainPasswords:
    """Warns once for each address of one connection."""

    def __init__(self, settings: Settings) -> None:
        self._has_password = settings.password is not None
        self._warned: set[Endpoint] = set()

    def before(self, endpoint: Endpoint) -> None:
        """Say it before the password is sent there for the first time; never who logs in, nor with what."""
        encrypted = _ENCRYPTED.get(endpoint.scheme)
        if (
            not self._has_password
            or encrypted is None
            or endpoint in self._warned
            or is_loopback(endpoint.host)
        ):
            return
        self._warned.add(endpoint)
        logger.warning(
            "%s: the password is sent unencrypted, readable on the network; use %s://", endpoint, encrypted
        )
