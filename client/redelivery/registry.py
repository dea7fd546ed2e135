"""Adapters by URI scheme: entry points of the group `redelivery.adapters`, and registered factories."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError
from redelivery.uri.schemes import SCHEMES, near_scheme, wants_tls

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from redelivery.adapter import Adapter, AdapterFactory

__all__ = ["GROUP", "adapter_for", "register", "schemes"]

GROUP = "redelivery.adapters"
NEEDS = {"stomp": "stomp", "stomp+ssl": "stomp", "amqp": "amqp", "amqps": "amqp"}
"""Extra of the package that installs the adapter's protocol library, by scheme."""
_COMPILED = {
    "amqp": ", which on Linux compiles it: on Debian, first apt install build-essential pkg-config libssl-dev "
    "python3-dev"
}
_OPENWIRE = ("tcp", "nio", "ssl", "nio+ssl", "auto", "auto+ssl", "auto+nio", "auto+nio+ssl")
_registered: dict[str, AdapterFactory] = {}


def register(scheme: str, factory: AdapterFactory) -> None:
    """Register an adapter for a URI scheme in this process, as an installed entry point would.

    Args:
        scheme: Scheme without `://`.
        factory: Callable that returns an adapter, not yet open.
    """
    _registered[scheme] = factory


def schemes() -> list[str]:
    """Return the URI schemes that an adapter serves, installed or registered in this process, in order."""
    return sorted({point.name for point in _installed()} | _registered.keys())


@cache
def _installed() -> EntryPoints:
    """Return the entry points; once in a process, because each look-up reads all installed packages."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - 10 ms that only a connection needs

    return entry_points(group=GROUP)


def adapter_for(scheme: str) -> Adapter:
    """Return an unopened adapter for a URI scheme.

    Args:
        scheme: Scheme without `://`.

    Returns:
        The adapter.

    Raises:
        ConfigurationError: No adapter serves the scheme, or the protocol library of its adapter is not
            installed.
    """
    if scheme in _registered:
        return _registered[scheme]()
    for point in _installed().select(name=scheme):
        try:
            factory = point.load()
            adapter: Adapter = factory()
        except ImportError as error:
            extra = NEEDS.get(scheme, scheme)
            raise ConfigurationError(
                f"{scheme}:// needs a package that is not installed ({error.name or error}): "
                f"pip install 'redelivery[{extra}]'{_COMPILED.get(extra, '')}"
            ) from error
        return adapter
    raise unknown(scheme)


def unknown(scheme: str) -> ConfigurationError:
    """Return the error for a scheme that no adapter serves."""
    known = schemes()
    if scheme in _OPENWIRE:
        ours = ("stomp://host:61613", "amqp://host:5672")
        if wants_tls(scheme):
            ours = ("stomp+ssl://host:61614", "amqps://host:5671")
        return ConfigurationError(
            f"{scheme}:// is OpenWire, of the Java client only: use {ours[0]} or {ours[1]}; "
            f"these schemes can connect: {', '.join(known)}"
        )
    why = f"{scheme}:// is not supported yet" if scheme in SCHEMES else f"no adapter serves {scheme}://"
    return ConfigurationError(
        f"{why}; these schemes can connect: {', '.join(known)}{near_scheme(scheme, known)}"
    )
