"""Pair of links to RabbitMQ's management node: one request at a time, and their fates when the pair ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.amqp.peer import proton

from redelivery.errors import AdapterError, TransportError
from redelivery_amqp.management_link import Management, ManagementLink, RabbitNode, Reply

LOST = TransportError("lost")
REFUSED = AdapterError("refused")


class Link:
    """One link of the pair, as far as it is used."""

    def __init__(self) -> None:
        self.source, self.target = SimpleNamespace(address=None), SimpleNamespace(address=None)
        self.properties: dict[Any, Any] = {}
        self.snd_settle_mode: int | None = None
        self._impl = "handle"
        self.credit = 1
        self.sent: list[bytes] = []
        self.open_ = False

    def open(self) -> None:
        self.open_ = True

    def delivery(self, tag: str) -> Any:
        return SimpleNamespace(tag=tag, settle=lambda: None)

    def stream(self, data: bytes) -> None:
        self.sent.append(data)

    def advance(self) -> None:
        """Record that the message is complete."""


class Wire:
    """proton's connection, without a socket."""

    def __init__(self) -> None:
        self.granted = 0
        self.forgotten = 0
        self.came: list[tuple[bytes, str]] = []

    def flow(self, handle: str, credit: int) -> None:
        assert handle == "handle"
        self.granted += credit

    def forget(self, handle: str) -> None:
        del handle
        self.forgotten += 1

    def take(self, handle: str, begun: bytearray) -> list[tuple[bytes, str]]:
        assert handle == "handle"
        assert begun == b""
        came, self.came = self.came, []
        return came


class Node:
    """The other end: the requests that it got, and its replies."""

    def __init__(self, *, attached: int = 2) -> None:
        self.wire = Wire()
        self.links: list[ManagementLink] = []
        self.senders: list[Link] = []
        self.receivers: list[Link] = []
        self.replies: list[tuple[str, Reply]] = []
        self._attached = attached
        self.management = Management(cast("Any", self.wire), self._make)

    def _make(self) -> ManagementLink:
        link = ManagementLink(cast("Any", self.wire), "pair", RabbitNode())
        sender, receiver = Link(), Link()
        session = SimpleNamespace(open=lambda: None, sender=lambda _: sender, receiver=lambda _: receiver)
        link.attach(cast("Any", SimpleNamespace(session=lambda: session)))
        self.links.append(link)
        self.senders.append(sender)
        self.receivers.append(receiver)
        for _ in range(self._attached):
            link.on_attached()
        return link

    def ask(self, method: str, path: str, body: Any = None) -> None:
        """Send a request."""
        self.management.ask(method, path, body, lambda reply: self.replies.append((path, reply)))

    @property
    def requests(self) -> list[Any]:
        """Requests over all pairs."""
        found = []
        for data in (data for sender in self.senders for data in sender.sent):
            message = proton.Message()
            message.decode(data)
            found.append(message)
        return found

    def answer(self, status: object = "200", body: Any = None, to: Any = None) -> None:
        """Answer the last request, or one with another number."""
        number = self.requests[-1].id if to is None else to
        reply = proton.Message(subject=status, correlation_id=number, body=body)
        self.wire.came = [(reply.encode(), "delivery")]
        self.management.take()


def test_both_links_are_one_pair_to_the_node() -> None:
    """Both links have one name, the property `paired`, and settled messages, as the broker requires."""
    node = Node()
    node.ask("GET", "/queues/a")
    (sender,), (receiver,) = node.senders, node.receivers
    assert (sender.target.address, receiver.source.address) == ("/management", "/management")
    for link in (sender, receiver):
        assert link.properties == {proton.symbol("paired"): True}
        assert link.snd_settle_mode == proton.Link.SND_SETTLED
        assert link.open_
    assert node.management.holds(cast("Any", "handle"))
    assert not node.management.holds(cast("Any", "another"))


def test_a_request_says_what_is_wanted_and_where_the_answer_goes() -> None:
    """A request has a number, a method, a path, a reply address, and credit for its reply."""
    node = Node()
    node.ask("PUT", "/queues/a", {"durable": True})
    (request,) = node.requests
    assert (request.subject, request.address, request.reply_to) == ("PUT", "/queues/a", "$me")
    assert request.body == {"durable": True}
    assert node.wire.granted == 1
    node.answer("201", {"type": "quorum"})
    assert node.replies == [("/queues/a", Reply(201, {"type": "quorum"}))]
    assert node.wire.forgotten == 1
    node.ask("GET", "/queues/a")
    assert node.wire.granted == 2
    assert node.requests[0].id != node.requests[1].id


def test_a_request_without_a_body_has_a_body_section() -> None:
    """A request without a body has a body section: the broker ends the session over a message without one."""
    node = Node()
    node.ask("GET", "/queues/a")
    assert node.senders[0].sent[0].endswith(b"\x00\x53\x77\x40")


def test_nothing_is_sent_before_both_links_are_there() -> None:
    """Nothing is sent before both links are attached: the reply would have no way back."""
    node = Node(attached=1)
    node.ask("GET", "/queues/a")
    assert node.requests == []
    node.links[0].on_attached()
    assert len(node.requests) == 1


def test_nothing_is_sent_without_credit() -> None:
    """A request without credit is sent when the broker gives credit."""
    node = Node(attached=0)
    node.ask("GET", "/queues/a")
    node.senders[0].credit = 0
    node.links[0].on_attached()
    node.links[0].on_attached()
    assert node.requests == []
    node.senders[0].credit = 1
    node.links[0].pump()
    assert len(node.requests) == 1


def test_one_request_is_under_way_at_a_time() -> None:
    """One request is sent at a time: the broker does not name the one over which it ends the session."""
    node = Node()
    node.ask("GET", "/queues/a")
    node.ask("GET", "/queues/b")
    assert [request.address for request in node.requests] == ["/queues/a"]
    node.answer("404")
    assert [request.address for request in node.requests] == ["/queues/a", "/queues/b"]
    node.answer()
    assert [(path, reply.status) for path, reply in node.replies] == [("/queues/a", 404), ("/queues/b", 200)]


@pytest.mark.parametrize("number", ["0", "2", "x"])
def test_an_answer_to_another_request_is_passed_over(number: str) -> None:
    """A reply to another request is ignored; the right one is still awaited."""
    node = Node()
    node.ask("GET", "/queues/a")
    node.answer(to=number)
    assert node.replies == []
    node.answer()
    assert [reply.status for _, reply in node.replies] == [200]
    node.answer("500")
    assert len(node.replies) == 1, "nothing is under way any more"


@pytest.mark.parametrize(
    ("status", "number", "done"),
    [("200", 200, True), ("201", 201, True), ("204", 204, True), ("299", 299, True), ("300", 300, False),
     ("199", 199, False), ("404", 404, False), ("", 0, False), ("ok", 0, False), ("\u0662\u0660\u0660", 0, False)],
)  # fmt: skip
def test_what_counts_as_carried_out(status: str, number: int, done: bool) -> None:
    """A status in the two hundreds is a success, as in HTTP; one that is not a number is not."""
    node = Node()
    node.ask("GET", "/queues/a")
    node.answer(status)
    ((_, reply),) = node.replies
    assert (reply.status, reply.done) == (number, done)


def test_the_end_of_the_pair_is_the_answer_to_the_request_under_way() -> None:
    """The end of the pair is the reply to the request that was sent; later requests go over another pair."""
    node = Node()
    for name in "abc":
        node.ask("GET", name)
    node.management.ended(node.links[0], REFUSED)
    assert node.replies == [("a", Reply(0, error=REFUSED))]
    assert not node.replies[0][1].done
    node.answer()
    node.answer()
    assert [path for path, _ in node.replies] == ["a", "b", "c"]
    assert len(node.links) == 2
    assert node.senders[0].sent == node.senders[0].sent[:1]


def test_a_pair_that_is_refused_answers_the_first_request() -> None:
    """A refused pair answers the first request with the error; each later one tries another pair."""
    node = Node(attached=0)
    for name in "ab":
        node.ask("GET", name)
    node.management.ended(node.links[0], REFUSED)
    assert node.replies == [("a", Reply(0, error=REFUSED))]
    node.management.ended(node.links[1], REFUSED)
    assert [path for path, _ in node.replies] == ["a", "b"]


def test_a_pair_that_ends_idle_is_replaced_when_it_is_needed() -> None:
    """A pair that ends idle is replaced when the next request is sent."""
    node = Node()
    node.ask("GET", "a")
    node.answer()
    node.management.ended(node.links[0], REFUSED)
    assert len(node.links) == 1
    node.ask("GET", "b")
    assert len(node.links) == 2
    assert node.senders[1].sent


def test_a_lost_connection_answers_all() -> None:
    """A lost connection answers the request that was sent, and all queued ones, with the error."""
    node = Node()
    for name in "abc":
        node.ask("GET", name)
    node.links[0].fail(LOST)
    assert node.replies == [(name, Reply(0, error=LOST)) for name in "abc"]
    node.links[0].fail(LOST)
    assert len(node.replies) == 3
