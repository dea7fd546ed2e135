"""Features of brokers over STOMP, through the library: topics, selectors, credit, kinds, headers, expiry, groups."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import PATIENCE, SLACK, eventually, never
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.java_client import JavaClient

pytestmark = pytest.mark.ci("STOMP in detail; conformance has the promises")

TTL = 5.0  # seconds: longer than a busy machine takes to look at a queue
HEADERS = {
    "colon": "a:b",
    "lines": "one\ntwo\r\nthree",
    "backslash": "\\n\\c\\\\",
    "unicode": "Grüße, 漢字",
    "empty": "",
    "blanks": "  x ",
    "content": "content-length:5",
}


def pull(consumer: redelivery.Consumer, timeout: float = PATIENCE) -> redelivery.Message:
    """Accept and return the next message."""
    message = consumer.receive(timeout=timeout)
    assert message is not None, "nothing came"
    message.accept()
    return message


def test_topics(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """Each of two consumers of a topic gets each message, in the kind that was sent; a queue of that name gets none."""
    with redelivery.connect(broker.uri()) as connection:
        both = [connection.consumer(f"topic://{unique_queue}") for _ in range(2)]
        connection.send(f"topic://{unique_queue}", "from Python")
        java.send(None, b"from Java", topic=unique_queue)
        for consumer in both:
            messages = [pull(consumer), pull(consumer)]
            assert [m.text for m in messages] == ["from Python", "from Java"]
            assert {m.destination for m in messages} == {f"topic://{unique_queue}"}


def test_a_failing_topic_message_is_redelivered_to_who_failed(broker: Broker, unique_queue: str) -> None:
    """A message of a topic that fails is redelivered to the failed consumer only."""
    topic = f"topic://{unique_queue}"
    policies = redelivery.RedeliveryPolicyMap({topic: POLICY(initial_redelivery_delay=0.05)})
    fails, fine = Work(), Work()
    with redelivery.connect(broker.uri(), policies=policies) as connection:
        connection.listen(topic, fails)
        connection.listen(topic, lambda message: fine.attempts[message.text].append(None))  # type: ignore[arg-type]
        connection.start()
        connection.send(topic, "once")
        eventually(lambda: fails.done["once"] and fine.attempts["once"])
        assert len(fine.attempts["once"]) == 1


def test_a_durable_subscription_keeps_what_comes_while_away(broker: Broker, unique_queue: str) -> None:
    """A durable subscription keeps messages while its consumer is away, and redelivers unacknowledged ones."""
    topic, uri = f"topic://{unique_queue}", broker.uri(jms__clientID=f"client-{unique_queue}")
    with redelivery.connect(broker.uri()) as sender:
        with redelivery.connect(uri) as connection:
            consumer = connection.consumer(topic, subscription="s1")
            sender.send(topic, "0")
            assert pull(consumer).text == "0"
            sender.send(topic, "1")
            assert (held := consumer.receive(timeout=PATIENCE)) is not None
            assert held.text == "1"
        sender.send(topic, "2")
        with redelivery.connect(uri) as connection:
            consumer = connection.consumer(topic, subscription="s1")
            assert [pull(consumer).text for _ in range(2)] == ["1", "2"]


def test_selectors(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """A selector lets only matched messages arrive; the rest stays. RabbitMQ would send all: refused."""
    for colour in ("red", "blue", "red"):
        java.send(unique_queue, colour.encode(), properties={"colour": colour, "size": 3})
    with redelivery.connect(broker.uri()) as connection:
        if broker.name == "rabbitmq":
            with pytest.raises(redelivery.ConfigurationError, match=r"selector=.*ignores"):
                connection.consumer(unique_queue, selector="colour = 'red' AND size > 2")
            return
        consumer = connection.consumer(unique_queue, selector="colour = 'red' AND size > 2")
        assert [pull(consumer).text for _ in range(2)] == ["red", "red"]
        assert consumer.receive(timeout=0.3) is None
    assert [message.body for message in java.drain(unique_queue, expected=1)] == [b"blue"]


@pytest.mark.parametrize("credit", [1, 3])
def test_small_credit(broker: Broker, java: JavaClient, unique_queue: str, credit: int) -> None:
    """No more messages than the credit are handled at a time, for any number of workers."""
    java.send(unique_queue, b"x", copies=9)
    lock, running, most = threading.Lock(), 0, 0

    def handle(message: redelivery.Message) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        never(lambda: False, within=0.03, interval=0.03)
        with lock:
            running -= 1

    with redelivery.connect(broker.uri()) as connection:
        connection.listen(unique_queue, handle, workers=4, credit=credit)
        with Running(connection):
            eventually(lambda: connection.report().accepted == 9)
    assert most == min(credit, 4)


def test_large_credit(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """Hundreds of messages may be unsettled; Classic's limit is for messages from before the consumer's start."""
    with redelivery.connect(broker.uri()) as connection:
        consumer = connection.consumer(unique_queue, credit=2000)
        java.send(unique_queue, b"x", persistent=False, copies=600)
        held = [consumer.receive(timeout=PATIENCE) for _ in range(600)]
        for message in held:
            assert message is not None
            message.accept()
    assert java.count(unique_queue) == 0


def test_bodies_of_a_megabyte(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """Bodies of a megabyte arrive byte for byte, in both directions and kinds."""
    content = bytes(range(256)) * 4096
    text = ("Grüße " * 150_000).encode()
    with redelivery.connect(broker.uri()) as connection:
        connection.send(unique_queue, content)
        connection.send(unique_queue, text.decode())
        seen = java.drain(unique_queue, expected=2)
        assert [(m.kind, m.body) for m in seen] == [("bytes", content), ("text", text)]
        java.send(unique_queue, content, kind="bytes")
        java.send(unique_queue, text)
        consumer = connection.consumer(unique_queue)
        assert [pull(consumer, 20).body, pull(consumer, 20).body] == [content, text]


@pytest.mark.parametrize(
    "body", ["text", "", "a\nb\r\n", "x\0y", b"bytes", b"", b"\0\n\0", bytes(range(256))]
)
def test_str_is_text_and_bytes_are_bytes_for_java(
    broker: Broker, java: JavaClient, unique_queue: str, body: str | bytes
) -> None:
    """A str is Text and bytes are Bytes for Java, also if empty; a text with NUL can only be Bytes on Artemis."""
    kind = "text" if isinstance(body, str) else "bytes"
    if broker.name == "artemis" and body == "x\0y":
        kind = "bytes"
    with redelivery.connect(broker.uri()) as connection:
        connection.send(unique_queue, body)
    (seen,) = java.drain(unique_queue, expected=1)
    assert (seen.kind, seen.body) == (kind, body.encode() if isinstance(body, str) else body)


def test_headers_both_ways(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """Headers arrive unchanged in both directions: characters that STOMP escapes, and JMS headers."""
    with redelivery.connect(broker.uri()) as connection:
        identity = connection.send(
            unique_queue, "x", headers={**HEADERS, "number": 3, "flag": True}, correlation_id="c:\\1",
            reply_to="answers", priority=8, content_type="text/plain",
        )  # fmt: skip
        (seen,) = java.drain(unique_queue, expected=1)
        assert {
            **HEADERS,
            "number": "3",
            "flag": "true",
            "redeliveryId": identity,
        }.items() <= seen.properties.items()
        assert (seen.correlation_id, seen.priority) == ("c:\\1", 8)
        assert seen.reply_to in {"queue://answers", "ActiveMQQueue[answers]", "/queue/answers"}
        names = {name: value for name, value in HEADERS.items() if name != "content"}
        java.send(
            unique_queue, b"x", properties=names, correlation_id="c:\\1", reply_to="answers", priority=8
        )
        message = pull(connection.consumer(unique_queue))
        assert names.items() <= message.headers.items()
        assert (message.correlation_id, message.reply_to, message.priority) == ("c:\\1", "queue://answers", 8)


def test_an_answer_reaches_a_temporary_queue_of_another_connection(
    activemq: Broker, unique_queue: str
) -> None:
    """An answer to `message.reply_to` reaches the temporary queue of another connection."""
    with redelivery.connect(activemq.uri()) as asking, redelivery.connect(activemq.uri()) as answering:
        answers = asking.consumer("temp-queue://answers")
        asking.send(unique_queue, "question", reply_to="temp-queue://answers")
        question = pull(answering.consumer(unique_queue))
        assert question.reply_to is not None
        answering.send(question.reply_to, "answer")
        assert pull(answers).text == "answer"


@pytest.mark.own_broker("reads its dead-letter queue")
@pytest.mark.parametrize("process", [True, False])
def test_expired_messages_are_never_dispatched(
    broker: Broker, java: JavaClient, unique_queue: str, *, process: bool
) -> None:
    """A message that expires while prefetched, behind a slow handler, is dead-lettered as `expired`, or dropped."""
    work, gate = Work(), threading.Event()

    def handle(message: redelivery.Message) -> None:
        gate.wait(20)
        work(message)

    with redelivery.connect(broker.uri(redelivery__processExpired=str(process).lower())) as connection:
        connection.listen(unique_queue, handle)
        with Running(connection):
            connection.send(unique_queue, "slow")
            connection.send(unique_queue, "late", ttl=4.0, headers={"queue": unique_queue}, persistent=False)
            eventually(lambda: connection.report().running == 1)
            never(lambda: work.done["late"], 4.5)
            gate.set()
            eventually(lambda: work.done["slow"])
            eventually(lambda: connection.report().poisoned + connection.report().discarded == 1)
    assert work.counts() == {"slow": 1}
    dead = java.drain(broker.dead_letter_queue, selector=f"queue = '{unique_queue}'", expected=int(process))
    assert [m.properties["redeliveryCause"] for m in dead] == ["expired"] * process
    assert java.count(unique_queue) == 0


def test_ttl_of_a_message_that_nobody_takes(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """The broker itself delivers no expired message to a later consumer."""
    with redelivery.connect(broker.uri()) as connection:
        before = time.time()
        connection.send(unique_queue, "late", ttl=TTL)
        after = time.time()
        (seen,) = java.browse(unique_queue)
        assert before - 0.5 <= seen.expiration / 1000 - TTL <= after + 0.5
        eventually(lambda: time.time() > seen.expiration / 1000 + 0.2)
        assert connection.consumer(unique_queue).receive(timeout=0.3) is None


def test_delay(broker: Broker, unique_queue: str) -> None:
    """A message with `delay=` arrives after the delay, not before; RabbitMQ has none, and refuses it."""
    with redelivery.connect(broker.uri()) as connection:
        if broker.name == "rabbitmq":
            with pytest.raises(redelivery.AdapterError, match="delay="):
                connection.send(unique_queue, "later", delay=0.8)
            return
        consumer, began = connection.consumer(unique_queue), time.monotonic()
        connection.send(unique_queue, "later", delay=2.0)
        connection.send(unique_queue, "now")
        assert pull(consumer).text == "now"
        assert pull(consumer).text == "later"
        assert 2.0 <= time.monotonic() - began < 2.0 + SLACK


@pytest.mark.parametrize("end", ["*", ">"])
def test_a_wildcard_of_classic_gets_what_is_there(activemq: Broker, unique_queue: str, end: str) -> None:
    """A consumer of several queues gets the messages from before its start, with a window of any size."""
    with redelivery.connect(activemq.uri()) as connection:
        for queue in "abc":
            connection.send(f"{unique_queue}.{queue}", queue)
    for credit in (2, 1000):
        with redelivery.connect(activemq.uri()) as connection:
            consumer = connection.consumer(f"{unique_queue}.{end}", credit=credit)
            got = [consumer.receive(timeout=PATIENCE) for _ in range(2)]
            assert None not in got, credit


def test_priority(artemis: Broker, unique_queue: str) -> None:
    """Messages on the broker arrive by priority (Classic keeps the order unless its policy says otherwise)."""
    with redelivery.connect(artemis.uri()) as connection:
        for priority in (0, 9, 4):
            connection.send(unique_queue, str(priority), priority=priority)
        consumer = connection.consumer(unique_queue)
        assert [pull(consumer).text for _ in range(3)] == ["9", "4", "0"]


def test_groups_on_artemis(artemis: Broker, unique_queue: str) -> None:
    """A parked message blocks its group with `per_group`, and the other group flows."""
    work = Work()
    policies = redelivery.RedeliveryPolicyMap(default=POLICY(initial_redelivery_delay=2.0))
    with redelivery.connect(artemis.uri(), policies=policies) as connection:
        for key, group in (("once-a", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")):
            connection.send(unique_queue, key, group=group)
        connection.listen(unique_queue, work, workers=3, ordering="per_group")
        with Running(connection):
            eventually(lambda: len(work.done) == 5)
    began = {key: attempts[-1].began for key, attempts in work.attempts.items()}
    assert began["once-a"] < began["a2"] < began["a3"]
    assert max(began["b1"], began["b2"]) < began["once-a"]
    assert began["b1"] < began["b2"]


def test_groups_on_classic_are_refused(activemq: Broker, new_queue: Callable[[], str]) -> None:
    """Groups are refused on Classic, which sends no group to a STOMP consumer: the order cannot be kept."""
    with (
        redelivery.connect(activemq.uri()) as connection,
        pytest.raises(redelivery.ConfigurationError, match=r"per_group.*activemq"),
    ):
        connection.consumer(new_queue(), ordering="per_group")
