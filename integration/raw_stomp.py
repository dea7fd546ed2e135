"""A plain stomp.py connection that keeps every frame, to examine brokers, not to test the library."""

from __future__ import annotations

import importlib
import itertools
import queue
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from integration.eventually import PATIENCE, eventually
from integration.running import Running

if TYPE_CHECKING:
    from typing import Self

    from integration.brokers import Broker

# Imported by name: the type stubs of stomp.py have only the parts that the adapter uses, and others are needed here.
stomp: Any = importlib.import_module("stomp")
_Listener: Any = stomp.ConnectionListener
ConnectFailed: type[Exception] = stomp.exception.ConnectFailedException


class Frame(NamedTuple):
    """One frame from the broker."""

    command: str
    headers: dict[str, str]
    body: bytes


class RawStomp(Running, _Listener):  # type: ignore[misc]  # stomp.py has no types
    """One connection; `frames` has the frames other than RECEIPT, `receipts` the receipts."""

    def __init__(
        self, broker: Broker, version: str = "1.2", port: int | None = None, **connection: Any
    ) -> None:
        """Prepare; `connect()` connects."""
        kind = {"1.1": stomp.StompConnection11, "1.2": stomp.StompConnection12}[version]
        fixed = {"auto_decode": False, "reconnect_attempts_max": 1, "vhost": broker.stomp_host}
        options: dict[str, Any] = fixed | connection
        self.broker = broker
        self.connection = kind([(broker.host, port or broker.stomp_port)], **options)
        self.connection.set_listener("raw", self)
        self.frames: queue.Queue[Frame] = queue.Queue()
        self.receipts: set[str] = set()
        self.errors: list[Frame] = []
        self.closed = False
        self._ids = itertools.count(1)

    def start(self) -> Self:
        """Connect."""
        return self.connect()

    def connect(self, user: str | None = None, password: str | None = None, **headers: str) -> Self:
        """Log in and wait for CONNECTED; stomp.py itself would wait for ever."""
        self.connection.connect(
            self.broker.user if user is None else user,
            self.broker.password if password is None else password,
            headers=headers,
        )
        transport = self.connection.transport
        try:
            eventually(
                lambda: transport.is_connected() or transport.connection_error or not transport.running
            )
        except AssertionError:
            transport.disconnect_socket()
            raise
        if not transport.is_connected():
            raise ConnectFailed(f"no CONNECTED; closed={self.closed}; errors={self.errors}")
        return self

    def subscribe(self, queue: str, subscription: str = "1", **headers: str) -> None:
        """SUBSCRIBE to a queue with individual acknowledgement; a keyword's `__` is a dot, `_` a hyphen."""
        self.connection.subscribe(
            self.broker.destination(queue),
            subscription,
            "client-individual",
            {**self.broker.subscribe_headers, **_names(headers)},
        )

    def unsubscribe(self, subscription: str = "1") -> None:
        """UNSUBSCRIBE, and wait for the RECEIPT."""
        receipt = f"u{next(self._ids)}"
        self.connection.unsubscribe(subscription, headers={"receipt": receipt})
        self.confirmed(receipt)

    def send(self, queue: str, body: bytes | str = b"x", **headers: str) -> None:
        """SEND to a queue, persistent, and wait for the RECEIPT."""
        self.send_frame(queue, body, {"persistent": "true", **_names(headers)})

    def send_frame(self, queue: str, body: bytes | str, headers: dict[str, str]) -> None:
        """SEND with exactly these headers and a receipt, and wait for the RECEIPT."""
        receipt = f"r{next(self._ids)}"
        extra = {**self.broker.send_headers, **headers, "receipt": receipt}
        # stomp.py adds a content-length unless that is switched off; the caller decides with its own header.
        self.connection.send(self.broker.destination(queue), body, headers=extra)
        self.confirmed(receipt)

    def confirmed(self, receipt: str, timeout: float = PATIENCE) -> None:
        """Wait for a RECEIPT. Raises AssertionError with the last ERROR if none arrives."""
        eventually(
            lambda: receipt in self.receipts or self.closed or self.errors,
            timeout,
            0.005,
            f"RECEIPT {receipt}",
        )
        assert receipt in self.receipts, f"no RECEIPT {receipt}; closed={self.closed}; errors={self.errors}"

    def ack(self, frame: Frame, verb: str = "ack", *, wait: bool = True) -> None:
        """ACK or NACK a MESSAGE and, with `wait`, wait for the RECEIPT."""
        receipt = f"a{next(self._ids)}"
        handle = frame.headers["ack"]
        getattr(self.connection, verb)(handle, receipt=receipt)
        if wait:
            self.confirmed(receipt)

    def next(self, timeout: float = 60.0) -> Frame | None:
        """Return the next MESSAGE or ERROR; None if none arrives in time."""
        with suppress(queue.Empty):
            return self.frames.get(timeout=timeout)
        return None

    def messages(self, timeout: float = 1.0) -> list[Frame]:
        """Return all frames until none arrives for `timeout` seconds."""
        return list(iter(lambda: self.next(timeout), None))

    def close(self) -> None:
        """DISCONNECT, and wait until it is done."""
        with suppress(stomp.exception.StompException):
            self.connection.disconnect(receipt="bye")
            eventually(lambda: self.closed, message="disconnected")

    def on_message(self, frame: Any) -> None:
        """Keep the frame."""
        self.frames.put(_frame(frame))

    def on_error(self, frame: Any) -> None:
        """Keep the frame."""
        self.errors.append(_frame(frame))
        self.frames.put(_frame(frame))

    def on_receipt(self, frame: Any) -> None:
        """Remember."""
        self.receipts.add(frame.headers["receipt-id"])

    def on_connected(self, frame: Any) -> None:
        """Keep the broker's headers."""
        self.connected = _frame(frame)

    def on_disconnected(self) -> None:
        """Remember."""
        self.closed = True


def _frame(frame: Any) -> Frame:
    body = frame.body if isinstance(frame.body, bytes) else str(frame.body or "").encode()
    return Frame(frame.cmd, dict(frame.headers), body)


def _names(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", ".").replace("_", "-"): value for name, value in headers.items()}
