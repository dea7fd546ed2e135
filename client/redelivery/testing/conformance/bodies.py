"""Bodies and headers: they arrive unchanged, here and in the dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.testing.conformance.bench import Suite, as_text
from redelivery.testing.conformance.broker_under_test import KINDS, Kind

if TYPE_CHECKING:
    from redelivery.testing.conformance.bench import Bench
    from redelivery.testing.conformance.broker_under_test import Found

__all__ = ["BODIES_BY_KIND", "Bodies"]

NONE = redelivery.RedeliveryPolicy(maximum_redeliveries=0)
EVERY_BYTE = bytes(range(256)) + b"\0\n\0MESSAGE\n\n\0"
BODIES: dict[str, str | bytes] = {
    "text": "plain",
    "unicode": "Grüße, Żółć, 漢字, 🚚\nMESSAGE\n\n: \\n\r\n",
    "empty text": "",
    "every byte": EVERY_BYTE,
    "empty bytes": b"",
    "200 kB": EVERY_BYTE * 750,
    "200 kB of text": "Grüße " * 25_000,
}
BODIES_BY_KIND: dict[Kind, Any] = {
    "text": "Grüße",
    "bytes": EVERY_BYTE,
    "map": {"text": "Grüße", "number": 42, "flag": True},
    "object": "Grüße",
    "stream": ["Grüße", 42, True],
}
HEADERS: dict[str, Any] = {
    "colon": "a:b::c",
    "lines": "first\nsecond",
    "backslash": "a\\b\\n\\c\\\\",
    "unicode": "Grüße, 漢字",
    "empty": "",
    "number": 42,
    "flag": True,
    "ratio": 0.5,
}


def has_content(found: Found, kind: Kind) -> None:
    """Check that the other client finds the body that it has sent; a map may have further entries."""
    body = BODIES_BY_KIND[kind]
    assert found.kind == kind
    if kind == "map":
        assert body.items() <= found.value.items()
    elif kind in ("object", "stream"):
        assert found.value == body
    else:
        assert found.body == (body.encode() if isinstance(body, str) else body)


class Bodies(Suite):
    """Bodies of all kinds, and application properties."""

    @pytest.mark.parametrize("name", BODIES)
    def test_a_body_arrives_whole_and_is_copied_whole(self, bench: Bench, name: str) -> None:
        """A body arrives byte for byte on each delivery, and in the copy.

        In the copy, text is text and bytes are bytes.
        """
        body = BODIES[name]
        data = body.encode() if isinstance(body, str) else body
        # Some protocols do not show that a body was empty from the start.
        connection = bench.connect(redelivery__deadLetter="forward", redelivery__emptyBody="forward")
        consumer = connection.consumer(bench.queue)
        bench.post(connection, body)
        for _ in range(3):
            message = bench.pull(consumer)
            assert message.body == data
            message.fail("no")
        (letter,) = bench.buried(connection, 1)
        assert (letter.kind, letter.body) == ("text" if isinstance(body, str) else "bytes", data)
        assert bench.left() == []

    @pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_kinds_of_bodies(self, bench: Bench, kind: Kind, *, persistent: bool) -> None:
        """A body that arrives whole is whole in the dead letter; no other is copied, and no message is lost.

        A message that arrived without its content leaves by the broker's own acknowledgement if that keeps
        it. Otherwise it is set aside: the next message is handled, and this one is on its queue after the
        connection has closed.
        """
        arrival = bench.broker.kinds.get(kind)
        if arrival is None:
            with pytest.raises(ValueError, match=kind):
                bench.send(BODIES_BY_KIND[kind], kind=kind)
            return
        bench.send(BODIES_BY_KIND[kind], kind=kind, persistent=persistent)
        persistent = persistent or not bench.broker.persistence
        connection = bench.connect(NONE)
        consumer = connection.consumer(bench.queue)
        capabilities = bench.capabilities
        kept = capabilities.poisons(persistent=persistent)
        if arrival == "never":
            bench.nothing(consumer)
        else:
            message = bench.pull(consumer)
            if kind == "map" and arrival == "whole":
                assert BODIES_BY_KIND["map"].items() <= message.value.items()
            message.fail("no")
        if arrival == "whole" or (arrival == "partial" and kept):
            (letter,) = bench.buried(connection, 1)
            has_content(letter, kind)
            assert bench.left() == []
            return
        if arrival == "partial":
            bench.eventually(lambda: connection.report().set_aside == 1, "it is set aside")
            bench.send("next")
            message = bench.pull(consumer)
            assert (message.text, message.delivery_count) == ("next", 1)
            message.accept()
            assert connection.report().poisoned == 0
        (left,) = bench.eventually(bench.left, "it is on its queue again")
        has_content(left, kind)
        assert bench.letters() == []

    def test_headers_arrive_and_are_copied(self, bench: Bench) -> None:
        """Each application property arrives on each delivery, typed or as text, and is in the copy."""
        bench.send("bad", headers=HEADERS)
        connection = bench.connect(redelivery__deadLetter="forward")
        consumer = connection.consumer(bench.queue)
        wanted = HEADERS if bench.broker.typed_headers else {k: as_text(v) for k, v in HEADERS.items()}
        for _ in range(3):
            message = bench.pull(consumer)
            found = dict(message.headers)
            assert {name: found.get(name) for name in wanted} == wanted
            assert all(isinstance(found[name], type(value)) for name, value in wanted.items())
            message.fail("no")
        (letter,) = bench.buried(connection, 1)
        for name, value in HEADERS.items():
            assert as_text(letter.headers[name]) == as_text(value), name
