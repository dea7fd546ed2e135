"""A broker's frames, changed in a few places, over real sockets: a consumer always gets the message after them."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

from tests.stomp.peer import ScriptedPeer
from tests.stomp.test_hostile_broker import LONG, message, quick

import redelivery

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 25
TOKENS = (
    b"\0", b"\n", b"\r\n", b"\n\n", b":", b"\\", b"\0\nMESSAGE", b"\0GARBAGE\nk:v\n\n\0", b"MESSAGE\n",
    b"content-length:", b"\ncontent-length:99999999999", b"\ncontent-length:%b" % (b"9" * 5000), b"\ncontent-length:-1",
    b"\nsubscription:\xff\xfe", b"\nsubscription:1", b"\nack:7", b"\nmessage-id:9,9",
    b"\ntimestamp:99999999999999999999", b"\ndestination:/topic/%ff", b"\nreceipt-id:r1-1",
)  # fmt: skip


def others(rnd: random.Random) -> bytes:
    """Return a frame other than a MESSAGE."""
    return rnd.choice(
        [
            b"RECEIPT\nreceipt-id:q1-1\n\n\0\n",
            b"RECEIPT\n\n\0",
            b"ERROR\nmessage:bad\ncontent-length:5\n\nab\0de\0\n",
            b"MESSAGE\nsubscription:\xff\xfe\nmessage-id:1\nack:1\n\nx\0",
            b"\n",
        ]
    )


def mutated(rnd: random.Random, identity: bytes, name: bytes) -> bytes:
    """Return a few frames that were changed."""
    frames = [
        message(identity, b"%b-%d" % (name, number), b"content-length:3\n", rnd.choice([b"abc", b"a\0c"]))
        for number in range(rnd.randrange(1, 4))
    ]
    frames.insert(rnd.randrange(len(frames) + 1), others(rnd))
    data = bytearray(b"".join(frames))
    for _ in range(rnd.choice([0, 1, 1, 2, 3, 6])):
        at = rnd.randrange(len(data) + 1)
        match rnd.randrange(4):
            case 0:
                data[at : at + 1] = bytes([rnd.randrange(256)])
            case 1:
                del data[at : at + rnd.randrange(1, 8)]
            case 2:
                data[at:at] = rnd.choice(TOKENS)
            case _:
                del data[at:]
    return bytes(data)


def test_a_consumer_comes_to_what_is_behind_it() -> None:
    """A message on the third connection is received after two connections with any bytes, in all rounds."""
    rnd, numbers = random.Random(1), count(1)

    def script(identity: bytes) -> Iterator[bytes]:
        if (number := next(numbers)) % 3 == 0:
            yield message(identity, b"end-%d" % number, body=b"end")
            return
        data = mutated(rnd, identity, b"m%d" % number)
        step = rnd.choice([1, 7, len(data) or 1])
        yield from (data[at : at + step] for at in range(0, len(data), step))
        # This end of the connection is closed.
        raise ConnectionResetError

    with ScriptedPeer(script) as peer:
        for _ in range(ROUNDS):
            with redelivery.connect(quick(peer)) as connection, connection.consumer("q") as consumer:
                while (received := consumer.receive(timeout=LONG)) is not None:
                    received.accept()
                    if received.body == b"end":
                        break
                assert received is not None, f"connection {peer.connections}"
