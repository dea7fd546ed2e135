"""The CONNECT frame, and the errors of a failed log-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError, TransportError, retold

if TYPE_CHECKING:
    from stomp.listener import HeartbeatListener

    from redelivery.adapter import Opening
    from redelivery.errors import AdapterError, RedeliveryError
    from redelivery.settings import Settings

__all__ = ["agreed_heartbeats", "connect_frame", "has_backslash", "not_logged_in"]


def connect_frame(settings: Settings, heartbeats: tuple[int, int], *, doubled: bool = False) -> bytes:
    """Return the CONNECT frame. It is not built by stomp.py, which would log the password at DEBUG.

    `doubled`: each backslash is written twice. RabbitMQ 3.10.8 and 4.3.6 read escapes in CONNECT, too, and end the
    connection, without an ERROR, over one that they do not know.
    """
    headers = {
        "accept-version": "1.1,1.2",
        # The virtual host on RabbitMQ, whose default is "/". The others accept any name.
        "host": settings.virtual_host or "/",
        "heart-beat": "{},{}".format(*heartbeats),
        "client-id": settings.client_id,
        "login": settings.user_name,
        "passcode": None if settings.password is None else settings.password.reveal(),
    }
    options = {"client-id": "jms.clientID", "login": "jms.userName", "passcode": "jms.password"}
    # CONNECT is the only frame whose headers are not escaped (STOMP 1.2: for brokers of 1.0).
    lines = [f"{n}:{_plain(options.get(n, n), v)}\n" for n, v in headers.items() if v is not None]
    text = "".join(lines)
    return f"CONNECT\n{_doubled(text) if doubled else text}\n\0".encode()


def has_backslash(settings: Settings) -> bool:
    """True if the CONNECT frame has a backslash: how the broker reads it is unknown before its answer."""
    return connect_frame(settings, (0, 0), doubled=True) != connect_frame(settings, (0, 0))


def _doubled(text: str) -> str:
    return text.replace("\\", "\\\\")


def agreed_heartbeats(listener: HeartbeatListener) -> tuple[float | None, float | None]:
    """Return the agreed seconds between two heart-beats: those sent here, and the broker's. None: no heart-beats."""
    sends, expects = listener.heartbeats if listener.running else (0, 0)
    return sends / 1000 or None, expects / 1000 or None


def _plain(option: str, text: str) -> str:
    if any(c in text for c in "\r\n\0"):
        raise ConfigurationError(
            f"{option} contains a line break or NUL, which STOMP cannot carry", option=option
        )
    return text


def not_logged_in(
    opening: Opening, error: AdapterError | None, *, garbled: bool, lost: bool
) -> RedeliveryError:
    """Return the error of a failed log-in: refused, not STOMP, closed, or no answer in time."""
    endpoint = opening.endpoint
    if error is not None:
        return retold(error, f"{endpoint}: the broker refused the log-in: {error}")
    if garbled:
        return TransportError(f"{endpoint}: the answer is not STOMP; is this another protocol's port?")
    if lost:
        return TransportError(
            f"{endpoint}: the connection was closed before the broker answered; is this the port of another "
            "protocol, or of TLS?"
        )
    return TransportError(
        f"{endpoint}: no answer within {opening.settings.connect_timeout:g} s; is this the port of another protocol, "
        "or of TLS?"
    )
