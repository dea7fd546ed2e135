"""`redelivery send`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URI = "memory://post"


@pytest.fixture
def post() -> Iterator[MemoryBroker]:
    """Broker that gets the messages."""
    with MemoryBroker("post") as broker:
        yield broker


def test_every_option(cli: Any, post: MemoryBroker) -> None:
    """Every option arrives with the message, and its id is printed once the broker has it."""
    ended = cli(
        "send", URI, "orders", "body", "--header", "a=1=2", "--header", "b=", "--group", "g", "--ttl", "60000",
        "--non-persistent", "--content-type", "text/plain", "--correlation-id", "c", "--reply-to", "answers",
        "--priority", "9",
    )  # fmt: skip
    (held,) = post.messages("orders")
    assert (ended.code, ended.out) == (0, f"{held.message_id}\n")
    assert (held.text, held.group, held.persistent) == ("body", "g", False)
    assert held.headers == {"a": "1=2", "b": "", "redeliveryId": held.message_id}
    assert held.expires_at is not None
    assert held.expires_at - held.timestamp == pytest.approx(60, abs=1)
    shown = json.loads(cli("consume", URI, "orders", "--count", "1", "--output", "jsonl").out)
    assert {
        k: shown[k] for k in ("content_type", "correlation_id", "reply_to", "priority", "persistent")
    } == {
        "content_type": "text/plain",
        "correlation_id": "c",
        "reply_to": "queue://answers",
        "priority": 9,
        "persistent": False,
    }


def test_bodies(cli: Any, post: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body comes from the argument, a file, stdin, or line by line; the URI from the environment."""
    (tmp_path / "data").write_bytes(b"\xff\n")
    assert cli("send", URI, "a", "--file", "data").code == 0
    assert cli("send", URI, "a", stdin=b"in\n").code == 0
    monkeypatch.setenv("REDELIVERY_URL", URI)
    assert cli("send", "a", "x", "--count", "2").out.count("\n") == 2
    assert cli("send", "queue://a", "stomp:is a body").code == 0
    assert cli("send", "a", "--lines", stdin=b"one\r\n\ntwo").code == 0
    bodies = [held.body for held in post.messages("a")]
    assert bodies == [b"\xff\n", b"in\n", b"x", b"x", b"stomp:is a body", b"one", b"", b"two"]


def test_output(cli: Any, post: MemoryBroker) -> None:
    """Ids as JSON: one object, or a line each."""
    ids = [held.message_id for held in post.messages("a")]
    data = json.loads(cli("send", URI, "a", "x", "--count", "2", "--output", "json").out)
    ids = [held.message_id for held in post.messages("a")]
    assert data == {"sent": 2, "destination": "queue://a", "message_ids": ids}
    lines = cli("send", URI, "b", "x", "--count", "2", "--output", "jsonl").out.splitlines()
    assert [json.loads(line)["message_id"] for line in lines] == [
        held.message_id for held in post.messages("b")
    ]


def test_refused(cli: Any, post: MemoryBroker) -> None:
    """A refusal is exit code 1 where nothing was sent."""
    post.refuse_sends(1)
    ended = cli("send", URI, "a", "x")
    assert ended.code == 1
    assert "the broker refused the message" in ended.err


def test_partly_sent(cli: Any, post: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal after some were sent is exit code 3, and says how many."""
    from redelivery.cli import send  # noqa: PLC0415

    show = send._show  # pyright: ignore[reportPrivateUsage]

    def refuse_next(*args: Any) -> None:
        show(*args)
        post.refuse_sends(1)

    monkeypatch.setattr(send, "_show", refuse_next)
    ended = cli("send", URI, "a", "x", "--count", "3")
    assert (ended.code, ended.out.count("\n")) == (3, 1)
    assert "sent 1 of 3, then:" in ended.err
