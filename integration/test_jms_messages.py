"""JMS messages of Java clients: they are redelivered by their policies, and are whole as dead letters."""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pytest

import redelivery
from integration.eventually import SLACK, eventually, never
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Client, Session
    from integration.java_client import JmsMessage

pytestmark = pytest.mark.ci("messages of Java clients")

POLICIES = {
    "none": POLICY(maximum_redeliveries=0),
    "one": POLICY(maximum_redeliveries=1, initial_redelivery_delay=0.3),
    "fixed": POLICY(maximum_redeliveries=3, initial_redelivery_delay=0.2, redelivery_delay=0.45),
    "growing": POLICY(
        maximum_redeliveries=3,
        initial_redelivery_delay=0.15,
        use_exponential_back_off=True,
        back_off_multiplier=2.5,
    ),
}
PROPERTIES: dict[str, str | int | bool | float] = {
    "colon": "a:b::c",
    "lines": "first\nsecond\r\nthird",
    "backslash": "a\\b\\n\\c\\\\",
    "unicode": "Grüße, Żółć, 漢字",
    "empty": "",
    "blanks": " outer blanks\t",
    "number": 42,
    "flag": True,
    "ratio": 0.5,
}
HEADERS = {"correlation_id": "c:1\\2", "type": "order:new", "reply_to": "answers.here", "priority": 7}


class Shape(NamedTuple):
    """One message that a JMS client sends."""

    kind: str
    body: bytes
    persistent: bool

    def key(self, policy: str) -> str:
        """Return a key that fails always."""
        return f"bad-{policy}-{self.kind}-{len(self.body)}-{'kept' if self.persistent else 'fleeting'}"


CONTENTS = [
    ("text", b"plain"),
    ("text", "Grüße, Żółć, 漢字, 🚚\nMESSAGE\n\n: \\n".encode()),
    ("text", b""),
    ("bytes", bytes(range(256)) + b"\0\0\n\0MESSAGE\n\n\0"),
    ("bytes", b""),
    ("bytes", b"\n"),
    ("empty", b""),
]
SHAPES = [Shape(kind, body, persistent) for persistent in (True, False) for kind, body in CONTENTS]


@pytest.fixture(params=[("activemq", "openwire"), ("artemis", "core"), ("artemis", "openwire")], ids="-".join)
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, Client]:
    """Each broker with each of its JMS clients."""
    name, kind = request.param
    broker = session.broker(name)
    return broker, session.java(broker, kind)


def send(java: Client, queue: str, shape: Shape, key: str, run: str) -> None:
    """Send a message with all kinds of values in JMS headers and properties."""
    java.send(
        queue,
        shape.body,
        kind=shape.kind,
        persistent=shape.persistent,
        properties={**PROPERTIES, "key": key, "run": run},
        correlation_id="c:1\\2",
        type="order:new",
        reply_to="answers.here",
        priority=7,
    )


class Flow:
    """Messages that succeed at once, sent to every queue while the others are being redelivered."""

    def __init__(self, connection: redelivery.Connection, queues: list[str], work: Work) -> None:
        """Begin without messages."""
        self._connection = connection
        self._queues = queues
        self._work = work
        self._sent: dict[str, float] = {}

    def send(self) -> None:
        """Send one message to each queue."""
        for queue in self._queues:
            key = f"good-{len(self._sent)}"
            self._sent[key] = time.monotonic()
            self._connection.send(queue, b"flows", headers={"key": key})

    def slowest(self) -> float:
        """Return the longest time between sending a message and its handler."""
        eventually(lambda: self._sent.keys() <= self._work.done.keys(), message="all flow")
        return max(self._work.attempts[key][0].began - sent for key, sent in self._sent.items())


@pytest.mark.own_broker("reads its dead-letter queue")
def test_each_jms_message_is_delivered_as_its_policy_says(
    pair: tuple[Broker, Client], new_queue: Callable[[], str]
) -> None:
    """A JMS message is redelivered as its policy says, never early, while others flow; then Java finds it whole."""
    broker, java = pair
    stem, work, run = new_queue(), Work(), uuid.uuid4().hex
    queues = {name: f"{stem}.{name}" for name in POLICIES}
    ids: dict[str, tuple[Shape, str]] = {}
    for name, queue in queues.items():
        for shape in SHAPES:
            key = shape.key(name)
            ids[key] = shape, name
            send(java, queue, shape, key, run)
    policies = redelivery.RedeliveryPolicyMap({queues[name]: policy for name, policy in POLICIES.items()})
    uri = broker.uri(redelivery__emptyBody="forward")
    with redelivery.connect(uri, policies=policies) as connection:
        for queue in queues.values():
            connection.listen(queue, work)
        flow = Flow(connection, list(queues.values()), work)
        with Running(connection) as running:
            wanted = {key: POLICIES[name].maximum_redeliveries + 1 for key, (_, name) in ids.items()}

            def all_delivered() -> bool:
                flow.send()
                counts = work.counts()
                return all(counts.get(key, 0) >= count for key, count in wanted.items())

            eventually(all_delivered, 60, message="every delivery that the policies allow")
            never(lambda: any(work.counts()[key] > count for key, count in wanted.items()), 0.3)
            slowest = flow.slowest()
        assert running.error is None
    late = [x for key in wanted for x in work.lateness(key, delays(ids[key][1]))]
    print(f"\n{broker.name}/{java.kind}: late {min(late):.4f}..{max(late):.4f} s, flow {slowest:.3f} s")
    assert min(late) >= 0, "never early"
    assert max(late) <= SLACK
    assert slowest <= SLACK, "no message waits for a parked one"
    for key, (shape, _) in ids.items():
        assert {attempt.body for attempt in work.attempts[key]} == {shape.body}
    check_dead_letters(broker, java, ids, queues, run)
    assert [java.count(queue) for queue in queues.values()] == [0] * len(queues), "the queues end empty"


def delays(name: str) -> list[int]:
    """Return the delays of a policy, in milliseconds."""
    return POLICIES[name].delays_ms(POLICIES[name].maximum_redeliveries)


def check_dead_letters(
    broker: Broker,
    java: Client,
    ids: dict[str, tuple[Shape, str]],
    queues: dict[str, str],
    run: str,
) -> None:
    """Check that exactly these are in the dead-letter queue, as a JMS client gets them."""
    dead = java.drain(broker.dead_letter_queue, selector=f"run = '{run}'", expected=len(ids))
    assert sorted(m.properties["key"] for m in dead) == sorted(ids)
    for message in dead:
        shape, name = ids[message.properties["key"]]
        kind = copied_kind(broker, shape)
        assert (message.kind, message.body or b"") == (kind, shape.body), message.properties["key"]
        assert (message.correlation_id, message.type, message.priority) == ("c:1\\2", "order:new", 7)
        assert message.reply_to is not None
        assert message.reply_to.removeprefix("queue://") in {"answers.here", "ActiveMQQueue[answers.here]"}, (
            "a queue"
        )
        assert message.persistent
        check_copy(message, shape, queues[name], POLICIES[name].maximum_redeliveries + 1)


def copied_kind(broker: Broker, shape: Shape) -> str:
    """Return the JMS type of a copy: an empty body has the type of a text, except Bytes on Classic."""
    if shape.body or (broker.name == "activemq" and shape.kind == "bytes"):
        return shape.kind
    return "text"


def check_copy(message: JmsMessage, shape: Shape, queue: str, deliveries: int) -> None:
    """Check that the copy has the properties, as text, and its cause."""
    found = message.properties
    texts = {
        name: value if isinstance(value, str) else str(value).lower() for name, value in PROPERTIES.items()
    }
    assert texts.items() <= found.items()
    assert found["redeliveryCause"].startswith("ValueError: attempt "), found
    assert found["redeliveryCount"] == str(deliveries)
    assert found["redeliveryOriginalDestination"] == f"queue://{queue}"
    assert found["redeliveryOriginalId"]
    mode = "PERSISTENT" if shape.persistent else "NON_PERSISTENT"
    assert found["redeliveryOriginalDeliveryMode"] == mode
    first, last = (datetime.fromisoformat(found[f"redelivery{which}Failure"]) for which in ("First", "Last"))
    assert first <= last
