"""Measures with which texts brokers refuse: `python -m integration.measure_refusals [term_one …]`.

The source of docs/measured/refusals.md. On three nodes of RabbitMQ: what a consumer, a look-up and a send of other
nodes' clients are answered while a node stops and starts, or has no majority; then what is refused for good. On single
brokers: the refusals of a missing right.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import redelivery
from integration.brokers import BROKERS, Progress
from integration.clusters.rabbitmq import RabbitCluster
from integration.eventually import eventually
from integration.raw_amqp import RawAmqp, proton
from integration.raw_stomp import RawStomp
from redelivery.adapter_support.refusals import passes, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from integration.brokers import Broker
    from integration.clusters.rabbitmq import RabbitNode

SILENT = 100.0  # seconds that a broker may take to answer: without a majority RabbitMQ takes 65
PAUSE = 0.3  # seconds between two questions of one client
SERVED = "served"
QUEUES = {"classic": {}, "quorum": {"x-queue-type": "quorum"}}
# Of processes, nodes and queues: the same refusal has others each time.
_VARIES = re.compile(r"<\d+\.\d+\.\d+>|#Ref<[^>]*>|\d{4,}|q\.(classic|quorum)\.\w+")


class Answer(NamedTuple):
    """Answer of a broker."""

    what: str
    """consumer, look-up or send."""
    protocol: str
    queue: str
    condition: str
    """Condition of AMQP 1.0, status of its management, or the header `message` of an ERROR."""
    text: str

    @property
    def served(self) -> bool:
        """True if it was no refusal."""
        return self.condition == SERVED

    @property
    def judged(self) -> bool | None:
        """Return what the library takes it for."""
        if self.protocol == "amqp" and self.what != "look-up":
            return passes(self.text, self.condition.rpartition(", ")[2])
        return passes(f"{self.condition}: {self.text}")


class Notes:
    """Answers of all clients, with the time of the first and the last of each."""

    def __init__(self) -> None:
        self.counts: Counter[Answer] = Counter()
        self.times: dict[Answer, list[float]] = {}
        self.whole: dict[Answer, str] = {}
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def note(self, answer: Answer) -> None:
        """Count an answer."""
        plain = answer._replace(text=" ".join(_VARIES.sub("…", shortened(answer.text)).split()))
        # By the whole text: the shortened one may lack the words.
        key = plain._replace(text=f"{plain.text} [{answer.judged}]") if not plain.served else plain
        with self._lock:
            self.counts[key] += 1
            self.whole.setdefault(key, answer.text)
            times = self.times.setdefault(key, [])
            times[1:] = [round(time.monotonic() - self._began, 1)]

    def rows(self) -> list[str]:
        """Return the rows of a table."""
        ordered = sorted(self.counts, key=lambda key: (key.what, key.protocol, key.queue, self.times[key]))
        return [
            f"| {key.what} | {key.protocol} | {key.queue} | `{key.condition}` | {key.text.replace('|', '¦')} "
            f"| {self.counts[key]} | {self.times[key][0]} to {self.times[key][-1]} s |"
            for key in ordered
        ]

    def texts(self) -> list[str]:
        """Return the whole texts, those that the table does not show whole."""
        return [
            f"    {key.what} {key.protocol} {key.queue}: {' '.join(text.split())[:700]}"
            for key, text in self.whole.items()
            if len(text) > 300 or "{" in text
        ]


def over_amqp(
    node: Broker, what: str, queue: str, user: str = "", timeout: float = SILENT
) -> tuple[str, str]:
    """Ask one thing over a connection of its own; return condition and text."""
    try:
        raw = RawAmqp(node, user or None, timeout=timeout)
    except Exception as error:
        return "not connected", type(error).__name__
    try:
        if what == "look-up":
            status, body = raw.manage_rabbitmq("GET", node.address(queue))
            return (SERVED, "") if status == 200 else (str(status), str(body))
        if what == "send":
            return _sent(raw, node.address(queue))
        raw.connection.create_receiver(node.address(queue), credit=0)
    except Exception as error:
        return _told(error, raw)
    finally:
        with suppress(Exception):
            raw.close()
    return SERVED, ""


def _sent(raw: RawAmqp, address: str) -> tuple[str, str]:
    """Send a message; return the condition of its rejection."""
    link = raw.connection.create_sender(address).link
    delivery = link.delivery("probe")
    link.stream(proton.Message(body=b"probe", durable=True).encode())
    link.advance()
    raw.connection.wait(lambda: delivery.remote_state)
    condition = delivery.remote.condition
    if delivery.remote_state == proton.Delivery.ACCEPTED:
        return SERVED, ""
    what = {proton.Delivery.REJECTED: "rejected", proton.Delivery.RELEASED: "released"}
    state = what.get(delivery.remote_state, str(delivery.remote_state))
    return (f"{state}, {condition.name}", str(condition.description)) if condition else (state, "")


def _told(error: Exception, raw: RawAmqp) -> tuple[str, str]:
    """Return condition and text of the end of a link, or else of a session of the connection."""
    link: Any = getattr(error, "link", None)
    if link is not None and link.remote_condition:
        return link.remote_condition.name, str(link.remote_condition.description)
    link = raw.connection.conn.link_head(0)
    while link is not None:
        if (found := link.session.remote_condition) is not None:
            return f"end of the session, {found.name}", str(found.description)
        link = link.next(0)
    return type(error).__name__, str(error).partition(": ")[2]


def over_stomp(node: Broker, what: str, queue: str, user: str = "", **headers: str) -> tuple[str, str]:
    """Ask one thing over a connection of its own; return the `message` and the body of its first and last ERROR."""
    raw = RawStomp(node)
    try:
        raw.connect(user or None)
    except Exception as error:
        return "not connected", type(error).__name__
    place = queue if queue.startswith("/") else node.destination(queue)
    try:
        if what == "send":
            raw.connection.send(place, b"probe", headers={"persistent": "true", "receipt": "R", **headers})
        else:
            raw.connection.subscribe(place, "1", "client-individual", headers={"receipt": "R", **headers})
        eventually(lambda: raw.errors or raw.closed or "R" in raw.receipts, SILENT, message="an answer")
        with suppress(AssertionError):  # the reason may follow
            eventually(lambda: raw.errors and raw.closed, 0.6)
        if raw.errors:
            texts = [
                (frame.headers.get("message", ""), frame.body.decode(errors="replace"))
                for frame in raw.errors
            ]
            found = (
                texts[-1] if len(texts) == 1 else (texts[-1][0], f"{texts[-1][1]} (after `{texts[0][0]}`)")
            )
        else:
            found = (SERVED, "") if "R" in raw.receipts else ("closed", "")
    except Exception as error:
        return type(error).__name__, str(error)[:300]
    finally:
        with suppress(Exception):
            raw.connection.transport.disconnect_socket()
    return found


def ask(
    notes: Notes, node: RabbitNode, question: tuple[str, str, str], over: threading.Event, stem: str
) -> None:
    """Ask the same again and again."""
    what, protocol, kind = question
    while not over.wait(PAUSE):
        name = f"q.{kind}.{stem}"
        headers = QUEUES[kind] if protocol == "stomp" else {}
        found = over_amqp(node, what, name) if protocol == "amqp" else over_stomp(node, what, name, **headers)
        notes.note(Answer(what, protocol, kind, *found))


QUESTIONS = [
    *itertools.product(("consumer", "send"), ("amqp", "stomp"), QUEUES),
    *(("look-up", "amqp", kind) for kind in QUEUES),
]


def watched(cluster: RabbitCluster, name: str, act: Callable[[], None], asked: RabbitNode) -> list[str]:
    """Return the answers of a node while something is done to the cluster."""
    stem = f"{time.time_ns() // 1000 % 10**9:x}"
    for kind, arguments in QUEUES.items():
        path = f"queues/%2F/q.{kind}.{stem}"
        cluster.nodes[0].api(path, "PUT", {"durable": True, "arguments": arguments})
    notes, over = Notes(), threading.Event()
    threads = [
        threading.Thread(target=ask, args=(notes, asked, question, over, stem), daemon=True)
        for question in QUESTIONS
    ]
    for thread in threads:
        thread.start()
    try:
        time.sleep(2.0)
        act()
        time.sleep(5.0)
    finally:
        over.set()
        for thread in threads:
            thread.join(SILENT + 10.0)
    return [f"### {name}: asked {asked.node}", *notes.rows(), *notes.texts()]


def term(cluster: RabbitCluster) -> None:
    """TERM of the node of the queues, and its start."""
    first = cluster.nodes[0]
    first.stop()
    time.sleep(8.0)
    first.start()


def killed(cluster: RabbitCluster) -> None:
    """KILL of the node of the queues, and its start."""
    first = cluster.nodes[0]
    first.kill(at_once=True)
    time.sleep(8.0)
    first.start()


def rolling(cluster: RabbitCluster) -> None:
    """TERM and start of the other two nodes: the one that is asked stays."""
    for node in cluster.nodes[:2]:
        node.stop()
        time.sleep(2.0)
        node.start()
        time.sleep(3.0)


def long_minority(cluster: RabbitCluster) -> None:
    """KILL of the first two nodes for two minutes."""
    dead = cluster.nodes[:2]
    for node in dead:
        node.kill(at_once=True)
    time.sleep(120.0)
    cluster.start_nodes(dead)


FAULTS: dict[str, Callable[[RabbitCluster], None]] = {
    "term_one": term, "kill_one": killed, "rolling": rolling, "long_minority": long_minority,
}  # fmt: skip


def lasting(cluster: RabbitCluster) -> list[str]:
    """Return what RabbitMQ refuses for good."""
    node, notes = cluster.nodes[0], Notes()
    stem = f"{time.time_ns() // 1000 % 10**9:x}"
    classic = f"q.classic.{stem}"
    node.api(f"queues/%2F/{classic}", "PUT", {"durable": True, "arguments": {}})
    stranger = {"what": "consumer", "queue": classic}
    notes.note(Answer("no right", "stomp", "SUBSCRIBE", *over_stomp(node, **stranger, user=node.stranger)))
    notes.note(Answer("no right", "stomp", "SEND", *over_stomp(node, "send", classic, node.stranger)))
    other = {"x-queue-type": "quorum"}
    notes.note(
        Answer("other arguments", "stomp", "SUBSCRIBE", *over_stomp(node, "consumer", classic, **other))
    )
    notes.note(Answer("other arguments", "stomp", "SEND", *over_stomp(node, "send", classic, **other)))
    missing = f"missing.{stem}"
    notes.note(
        Answer("no such queue", "stomp", "SUBSCRIBE", *over_stomp(node, "consumer", f"/amq/queue/{missing}"))
    )
    notes.note(Answer("no such queue", "stomp", "SEND", *over_stomp(node, "send", f"/amq/queue/{missing}")))
    for what in ("consumer", "send", "look-up"):
        notes.note(Answer("no such queue", "amqp", what, *over_amqp(node, what, missing)))
    for what in ("consumer", "send", "look-up"):
        notes.note(Answer("no right", "amqp", what, *over_amqp(node, what, classic, node.stranger, 10.0)))
    notes.note(Answer("no right", "amqp", "declare", *_put(node, f"new.{stem}", node.stranger)))
    notes.note(Answer("other arguments", "amqp", "declare", *_put(node, classic, "", other)))
    return ["### refused for good", *notes.rows(), *notes.texts(), *strangers(node, classic), *deleted(node)]


def strangers(node: RabbitNode, queue: str) -> list[str]:
    """Return what the library says to a user without a right."""
    rows = ["### no right, by the library"]
    for protocol in ("amqp", "stomp"):
        uri = node.uri(protocol=protocol).replace(f"userName={node.user}", f"userName={node.stranger}")
        with redelivery.connect(uri) as connection:
            for what in ("consumer", "send"):
                try:
                    connection.consumer(queue) if what == "consumer" else connection.send(queue, "x")
                except redelivery.RedeliveryError as error:
                    told = f"{type(error).__name__}, passes {getattr(error, 'passes', '-')}: {error}"
                    rows.append(f"| {protocol} | {what} | {told} |")
                else:
                    rows.append(f"| {protocol} | {what} | {SERVED} |")
    return rows


def _put(node: RabbitNode, queue: str, user: str, arguments: dict[str, str] | None = None) -> tuple[str, str]:
    body = {"durable": True, "exclusive": False, "auto_delete": False, "arguments": arguments or {}}
    try:
        with RawAmqp(node, user or None, timeout=10.0) as raw:
            status, found = raw.manage_rabbitmq("PUT", node.address(queue), body)
            return str(status), str(found)
    except Exception as error:
        return type(error).__name__, str(error)


def deleted(node: RabbitNode) -> list[str]:
    """Return what the library says of a queue that is deleted while it is consumed, and never declared."""
    rows = ["### deleted while it is consumed, by the library"]
    for protocol, form in (("stomp", "native:///amq/queue/{}"), ("amqp", "native:///queues/{}")):
        name = f"gone.{protocol}.{time.time_ns() // 1000 % 10**9:x}"
        node.api(f"queues/%2F/{name}", "PUT", {"durable": True, "arguments": {}})
        with redelivery.connect(node.uri(protocol=protocol)) as connection:
            connection.listen(form.format(name), lambda message: None)
            found: list[BaseException] = []
            thread = threading.Thread(target=_ends, args=(connection, found), daemon=True)
            thread.start()
            eventually(partial(_ready, connection), message="it consumes")
            node.api(f"queues/%2F/{name}", "DELETE")
            thread.join(40.0)
            health = connection.health()
            last = (
                f"{type(found[0]).__name__}, passes {getattr(found[0], 'passes', '-')}: {found[0]}"
                if found
                else "goes on"
            )
            rows.append(
                f"| {protocol} | {form} | {last} | {health.consumers[0].state} | {health.consumers[0].refusal} |"
            )
            connection.stop()
    return rows


def _ready(connection: redelivery.Connection) -> bool:
    return connection.health().ready


def _ends(connection: redelivery.Connection, found: list[BaseException]) -> None:
    try:
        connection.run()
    except BaseException as error:
        found.append(error)


def rights() -> Iterable[str]:
    """Yield the refusals of a queue that the user may not use, on each single broker."""
    yield "### no right, by the library"
    for name, kind in BROKERS.items():
        if (reason := kind.unavailable()) is not None:
            yield f"| {name} | {reason} |"
            continue
        kind.obtain()
        with closing(kind()) as broker:
            broker.start()
            for protocol in ("amqp", "stomp"):
                if protocol in broker.services:
                    with redelivery.connect(broker.uri(protocol=protocol)) as connection, ExitStack():
                        try:
                            connection.consumer("denied.x")
                        except redelivery.RedeliveryError as error:
                            passing = getattr(error, "passes", "-")
                            yield f"| {name} {broker.version} | {protocol} | {passing} | {error} |"


def main() -> None:
    """Measure what is named, or all."""
    Progress.write = staticmethod(lambda text: None)
    wanted = sys.argv[1:] or [*FAULTS, "lasting", "rights"]
    if set(wanted) - {"rights"}:
        RabbitCluster.obtain()
        with closing(RabbitCluster()) as cluster:
            cluster.start()
            for name in wanted:
                if name in FAULTS:
                    act = FAULTS[name]
                    print(
                        "\n".join(watched(cluster, name, partial(act, cluster), cluster.nodes[2])),
                        flush=True,
                    )
                    cluster.start()
            if "lasting" in wanted:
                print("\n".join(lasting(cluster)), flush=True)
    if "rights" in wanted:
        for line in rights():
            print(line, flush=True)


if __name__ == "__main__":
    main()
