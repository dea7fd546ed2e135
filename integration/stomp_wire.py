"""STOMP frames on a plain socket, for `integration.measure_windows`, which counts single messages.

`RawStomp` reads on a thread of its own; here the measurement reads frames when it needs them.
"""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from integration.brokers import Broker

# Bytes of a MESSAGE frame here, which Artemis counts: `filled` pads each body to it.
SIZE = 1024
# Seconds without a frame after which none is expected.
QUIET = 0.6
NAMES = itertools.count(1)


class Frame(NamedTuple):
    """A frame of the broker: its command, its header block, its body."""

    command: bytes
    head: bytes
    body: bytes

    def header(self, name: bytes) -> bytes:
        """Return a header's value, empty if there is none."""
        at = self.head.find(b"\n%b:" % name)
        return b"" if at < 0 else self.head[at + len(name) + 2 :].partition(b"\n")[0]


class Wire:
    """One connection, whose frames are read on demand, and written unchanged."""

    def __init__(self, broker: Broker, client: str = "") -> None:
        """Connect; `client`: the `client-id` of CONNECT."""
        self.broker = broker
        self._socket = socket.create_connection((broker.host, broker.stomp_port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""
        login = f"login:{broker.user}\npasscode:{broker.password}\n" + (
            f"client-id:{client}\n" if client else ""
        )
        self.write(f"CONNECT\naccept-version:1.2\nhost:/\n{login}\n\0".encode())
        assert self.wait(b"CONNECTED"), "it connects"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.write(b"DISCONNECT\nreceipt:bye\n\n\0")
        self.wait(b"RECEIPT")
        self._socket.close()

    def write(self, data: bytes) -> None:
        """Write whole frames."""
        self._socket.sendall(data)

    def read(self, timeout: float) -> list[Frame]:
        """Return the frames of one read; none after `timeout` seconds."""
        ready, _, _ = select.select([self._socket], [], [], timeout)
        if not ready:
            return []
        data = self._left + self._socket.recv(262144)
        *whole, self._left = data.split(b"\0")
        return [_parsed(one) for one in whole]

    def quiet(self, seconds: float = QUIET) -> list[Frame]:
        """Return all frames until none arrives for this time."""
        found: list[Frame] = []
        while more := self.read(seconds):
            found += more
        return found

    def wait(self, command: bytes, timeout: float = 20.0) -> list[Frame]:
        """Return all frames up to the read with a frame of this command."""
        found: list[Frame] = []
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found += self.read(end - time.monotonic())
            if any(each.command in (command, b"ERROR") for each in found):
                break
        return found

    def subscribe(
        self, queue: str, identity: str, messages: int, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return a SUBSCRIBE with a window of this number of messages."""
        lines = {
            "destination": address(self.broker, queue),
            "id": identity,
            "ack": "client-individual",
            **self.broker.subscribe_headers,
            **window(self.broker, messages),
            **(headers or {}),
        }
        return b"SUBSCRIBE\n%b\n\0" % "".join(f"{k}:{v}\n" for k, v in lines.items()).encode()


def window(broker: Broker, messages: int) -> dict[str, str]:
    """Return the header of SUBSCRIBE for a window of this number of messages of `SIZE`."""
    name, value = {
        "activemq": ("activemq.prefetchSize", messages),
        "artemis": ("consumer-window-size", messages * SIZE - SIZE // 2),
        "rabbitmq": ("prefetch-count", messages),
    }[broker.name]
    return {name: str(value)}


def ack(frames: Iterable[Frame], verb: bytes = b"ACK", more: bytes = b"") -> bytes:
    """Return an acknowledgement for each message."""
    return b"".join(b"%b\nid:%b\n%b\n\0" % (verb, one.header(b"ack"), more) for one in frames)


def end(identity: str, more: bytes = b"") -> bytes:
    """Return an UNSUBSCRIBE."""
    return b"UNSUBSCRIBE\nid:%b\n%b\n\0" % (identity.encode(), more)


def messages(frames: Iterable[Frame]) -> list[Frame]:
    """Return the MESSAGEs among frames."""
    return [one for one in frames if one.command == b"MESSAGE"]


def by(frames: Iterable[Frame]) -> dict[str, int]:
    """Return the number of messages of each subscription."""
    return dict(sorted(Counter(one.header(b"subscription").decode() for one in messages(frames)).items()))


def number(frame: Frame) -> int:
    """Return the number of a message that `filled` has sent."""
    return int(frame.body.split(b" ", 1)[0])


def errors(frames: Iterable[Frame]) -> list[str]:
    """Return the texts of ERRORs."""
    found = [one for one in frames if one.command == b"ERROR"]
    return [b": ".join([one.header(b"message"), *one.body.splitlines()[:1]]).decode()[:160] for one in found]


def filled(broker: Broker, count: int, stem: str, *, group: Callable[[int], str] | None = None) -> str:
    """Return a queue with this number of numbered persistent messages."""
    queue = f"w.{stem}.{next(NAMES)}"
    put(broker, queue, range(count), group=group)
    return queue


def put(
    broker: Broker,
    queue: str,
    numbers: Iterable[int],
    *,
    group: Callable[[int], str] | None = None,
    topic: bool = False,
    more: str = "",
) -> None:
    """Send numbered persistent messages, and wait until they are confirmed."""
    lines = f"destination:{address(broker, queue, topic=topic)}\npersistent:true\n"
    if broker.name == "artemis":
        lines += f"destination-type:{'MULTICAST' if topic else 'ANYCAST'}\n"
    data: list[bytes] = []
    for each in numbers:
        own = lines + more + ("" if group is None else f"JMSXGroupID:{group(each)}\n")
        body = f"{each} ".encode().ljust(SIZE - 340, b"x")
        data.append(b"SEND\n%bcontent-length:%d\n\n%b\0" % (own.encode(), len(body), body))
    with Wire(broker) as wire:
        wire.write(b"".join([*data[:-1], data[-1].replace(b"\n", b"\nreceipt:r\n", 1)]))
        assert not errors(wire.wait(b"RECEIPT")), "they are sent"


def address(broker: Broker, name: str, *, topic: bool = False) -> str:
    """Return the `destination` header of a queue or topic."""
    if not topic:
        return name if name.startswith("/") else broker.destination(name)
    return name if broker.name == "artemis" else f"/topic/{name}"


def drained(broker: Broker, queue: str, seconds: float = QUIET) -> list[Frame]:
    """Return the messages that another connection receives and acknowledges until none arrives."""
    found: list[Frame] = []
    with Wire(broker) as wire:
        wire.write(wire.subscribe(queue, "drain", 150))
        while more := wire.read(seconds):
            found += messages(more)
            wire.write(ack(messages(more)))
    return found


def _parsed(data: bytes) -> Frame:
    data = data.lstrip(b"\r\n")
    head, _, body = data.partition(b"\n\n")
    command = head.partition(b"\n")[0]
    return Frame(command, head, body)
