"""Measures what copies of messages lack: `python -m integration.measure_copies [BROKER …] [--write]`.

The source of the table in docs/measured/copies.md. `--write` replaces the rows of the measured brokers and versions.
"""

from __future__ import annotations

import argparse
import re
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.house.source import ROOT

import redelivery
from integration.brokers import ALL_BROKERS
from integration.eventually import PATIENCE, eventually
from integration.producers import producers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from integration.brokers import Broker
    from integration.producers import Producer

__all__ = ["PAGE", "Row", "measured", "recorded"]

PAGE = ROOT / "docs" / "measured" / "copies.md"
BEGIN = "<!-- measured: python -m integration.measure_copies --write -->"
END = "<!-- end of what is measured -->"
NAMES = {
    "activemq": "Classic", "artemis": "Artemis", "brokerj": "Broker-J", "rabbitmq": "RabbitMQ, classic queue",
    "rabbitmq4": "RabbitMQ, quorum queue",
}  # fmt: skip
# Seconds: of a redelivery, and after which a copy will not come.
DELAY, LONGEST = 0.3, 20.0
NOT_COPIED = "set aside, not copied"
UNREADABLE = "never delivered to such a reader"
# What a handler has under another name than the reader of the same protocol. `body`: all have it.
ATTRIBUTES = {
    "content-type": "content_type", "content-encoding": "content_encoding", "correlation-id": "correlation_id",
    "reply-to": "reply_to", "JMSXGroupID": "group", "group-id": "group", "durable": "persistent",
    "delivery-mode": "persistent", "kind": "body", "type": "message_type", "subject": "message_type",
    "app-id": "group",
}  # fmt: skip


class Row(NamedTuple):
    """Parts that are missing or changed, for one producer on one broker over one protocol of the library."""

    where: str
    producer: str
    handler: str
    letter: str
    redriven: str
    delayed: str

    def line(self) -> str:
        """Return it as a line of the table."""
        return f"| {' | '.join(self)} |"


class _Pair:
    """The library on one broker over one protocol."""

    def __init__(self, broker: Broker, protocol: str) -> None:
        self.broker = broker
        self.protocol = protocol
        self.where = f"{NAMES[broker.name]} {broker.version}, {protocol.upper()}"
        self._run = uuid.uuid4().hex[:8]

    def row(self, producer: Producer) -> Row:
        """Measure one producer."""
        queues = [f"copies.{self._run}.{name}" for name in ("plain", "dead", "again", "late", "dlq", "dlq2")]
        plain, dead, again, late, *letters = queues
        for queue in queues[:4]:
            producer.send(queue)
        sent = producer.read(plain, PATIENCE)
        assert sent is not None, f"{self.where}: {producer.name} does not read its own message"
        try:
            seen = self._kill(dead, letters[0])
        except TimeoutError:
            return Row(self.where, producer.name, "nothing: the broker ends the consumer", *["no copy"] * 3)
        letter = _difference(sent, producer.read(letters[0], LONGEST)) if seen else NOT_COPIED
        others = self._redriven(producer, again, letters[1], sent), self._delayed(producer, late, sent)
        return Row(
            self.where,
            producer.name,
            _unseen(sent, seen),
            letter,
            *("the same" if each == letter and letter != "all" else each for each in others),
        )

    def _uri(self, **options: Any) -> str:
        names = ("redelivery__queueArguments", "redelivery__deadLetterArguments")
        kind = "x-queue-type:quorum"
        own: dict[str, Any] = dict.fromkeys(names, kind) if self.broker.name == "rabbitmq4" else {}
        return self.broker.uri(protocol=self.protocol, **own, redelivery__connectTimeout=60_000, **options)

    def _kill(self, queue: str, letters: str) -> list[redelivery.Message]:
        """Dead-letter the message on a queue; return it as its handler saw it: nothing if it was set aside.

        Raises TimeoutError if the broker does not deliver it.
        """
        uri = self._uri(redelivery__deadLetterDestination=letters, redelivery__deadLetter="forward")
        with redelivery.connect(uri, policies=_policies(0)) as connection:
            try:
                message = connection.consumer(queue).receive(timeout=LONGEST)
            except redelivery.AdapterError as error:
                # The third time that the broker ends the consumer over it, the library stops it.
                raise TimeoutError(queue) from error
            if message is None and not connection.report().set_aside:
                raise TimeoutError(queue)
            if message is None:
                return []
            message.fail(ValueError("x"))
            eventually(lambda: connection.report().poisoned + connection.report().set_aside)
            return [message] if connection.report().poisoned else []

    def _redriven(self, producer: Producer, queue: str, letters: str, sent: Mapping[str, str]) -> str:
        if not self._kill(queue, letters):
            return NOT_COPIED
        back = f"{queue}.back"
        with redelivery.dead_letters(self._uri(), letters, take=True) as dead:
            dead.redrive(to=back)
        return _difference(sent, producer.read(back, LONGEST))

    def _delayed(self, producer: Producer, queue: str, sent: Mapping[str, str]) -> str:
        if (self.broker.name, self.protocol) == ("rabbitmq4", "amqp"):
            return "no copy: the message itself"
        try:
            with redelivery.connect(
                self._uri(redelivery__scheduler="broker"), policies=_policies(1)
            ) as connection:
                consumer = connection.consumer(queue)
                message = consumer.receive(timeout=LONGEST)
                if message is None:
                    return NOT_COPIED
                message.fail("later")
                dispatcher = consumer._dispatcher
                eventually(lambda: not dispatcher.engine.load.unconfirmed, message="the broker has the copy")
                parked = dispatcher.engine.load.parked
        except (redelivery.AdapterError, redelivery.ConfigurationError):
            return "no delayed copies"
        return "parked, not copied" if parked else _difference(sent, producer.read(queue, LONGEST))


def measured(broker: Broker, protocol: str, chosen: Callable[[Producer], bool] = lambda _: True) -> list[Row]:
    """Return the rows of one broker over one protocol."""
    found: list[Row] = []
    for producer in producers_of(broker):
        if chosen(producer):
            with producer:
                found.append(_Pair(broker, protocol).row(producer))
    return found


def recorded() -> dict[tuple[str, str], str]:
    """Return the recorded lines, by broker and protocol, and producer."""
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return {(cells[0], cells[1]): line for line in lines for cells in [line.strip("| ").split(" | ")]}


def _policies(redeliveries: int) -> redelivery.RedeliveryPolicyMap:
    policy = redelivery.RedeliveryPolicy(
        maximum_redeliveries=redeliveries, initial_redelivery_delay=DELAY, redelivery_delay=DELAY
    )
    return redelivery.RedeliveryPolicyMap(default=policy)


def _difference(sent: Mapping[str, str], copy: Mapping[str, str] | None) -> str:
    """Return what a copy lacks, and what is another one than what was sent."""
    if copy is None:
        return UNREADABLE
    kinds: dict[str, list[str]] = {"without": [], "as text": [], "other": []}
    for name in sorted(sent):
        if name not in copy:
            kinds["without"].append(name)
        elif copy[name] != sent[name]:
            # Numbers and booleans, which a STOMP frame has as text.
            value = re.sub(r"^\w+ (\w+\()?|[L)]$", "", sent[name]).lower()
            kinds["as text" if copy[name].removeprefix("string ") == value else "other"].append(name)
    return "; ".join(words for word, names in kinds.items() if (words := _words(names, word))) or "all"


def _unseen(sent: Mapping[str, str], seen: list[redelivery.Message]) -> str:
    if not seen:
        return "nothing: set aside"
    message = seen[0]
    known = {_bare(each) for each in (*message.headers, *message.annotations)}
    lost = sorted(name for name in sent if not _visible(name, message, known))
    return _words(lost, "without") or "all"


def _visible(name: str, message: redelivery.Message, known: set[str]) -> bool:
    kind, _, bare = name.partition(" ")
    if _bare(bare if kind in ("header", "property", "annotation") else name) in known:
        return True
    plain = re.sub("[ _]", "-", name.removeprefix("property "))
    found: Any = getattr(message, ATTRIBUTES.get(plain, plain), None) if plain != "text" else None
    return found is not None


def _bare(name: str) -> str:
    """Return a name as all spellings of it have it: Artemis and Classic show parts of AMQP as `JMS_AMQP_…`."""
    return re.sub("[^a-z0-9]", "", name.removeprefix("JMS_AMQP_").removeprefix("MA_").lower())


def _words(names: list[str], word: str) -> str:
    """Return names in a few words: all of one kind behind its name."""
    if not names:
        return ""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kind, _, bare = name.partition(" ")
        own = kind in ("header", "property", "annotation")
        kinds.setdefault(kind if own else "", []).append(f"`{bare if own else name}`")
    return f"{word} " + ", ".join(
        f"{kind} {', '.join(found)}".strip() for kind, found in sorted(kinds.items())
    )


def main() -> None:
    """Measure, print the rows, and write them into the page if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers", nargs="*", default=list(ALL_BROKERS), help="default: all")
    parser.add_argument("--write", action="store_true", help="replace these rows of the page")
    given = parser.parse_args()
    rows: list[Row] = []
    for name in given.brokers:
        ALL_BROKERS[name].obtain()
        with ALL_BROKERS[name]() as broker:
            for protocol in ("stomp", "amqp"):
                if protocol in broker.services:
                    rows += measured(broker, protocol)
                    print("\n".join(row.line() for row in rows), flush=True)
    if given.write:
        known = recorded() | {(row.where, row.producer): row.line() for row in rows}
        table = "\n".join(
            [
                Row("where", "producer", "a handler sees", "dead letter", "redriven", "delayed copy").line(),
                "|---|---|---|---|---|---|",
                *(known[key] for key in sorted(known)),
            ]
        )
        page = PAGE.read_text(encoding="utf-8")
        start, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{start}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
