"""A pattern of dead-letter queues where the broker's wildcards are other queues: its own list of queues decides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pytest

import redelivery
from redelivery import AdapterError, ConfigurationError, TransportError
from redelivery.clock import SystemClock
from redelivery.core.capabilities import Capabilities
from redelivery.core.dead_lettering.artemis_places import ANSWERS, PAGE
from redelivery.core.destination import Destination
from redelivery.dlq.dead_letter_places import ReachedQueues, queues_matching

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.outgoing import Outgoing
    from redelivery.testing import MemoryBroker

ARTEMIS = Capabilities("artemis", copies_by_wildcard=True, management_address="activemq.management")
COMMON = {
    "temporary": "false", "durable": "true", "internalQueue": "false", "messageCount": "1", "routingType": "ANYCAST",
    "filter": "",
}  # fmt: skip


def row(name: str, address: str | None = None, **more: str) -> dict[str, str]:
    """One queue in the broker's answer."""
    return {**COMMON, "name": name, "address": address or name, **more}


class Answer:
    """A message of the management address."""

    def __init__(self, mark: str | None, value: object, *, succeeded: object = "true") -> None:
        self.correlation_id = mark
        self.body = json.dumps([value]).encode()
        self.headers = {"_AMQ_OperationSucceeded": succeeded}


class Port:
    """Connection to a broker that answers with these queues, a page at a time."""

    def __init__(
        self,
        queues: Sequence[dict[str, str]] = (),
        *,
        able: Capabilities = ARTEMIS,
        error: str = "",
        refuses: str = "",
    ) -> None:
        self.capabilities = able
        self.settings = redelivery.parse_uri("stomp://x?redelivery.connectTimeout=100")
        self.asked: list[Any] = []
        self.plans: list[str] = []
        # Number of requests that fail with `error`.
        self.stumbles = 1000
        self._queues, self._error, self._refuses = queues, error, refuses
        self._answers: list[Answer] = [Answer("another's", "nonsense")]

    def plan(self, destination: str, options: object, *, route: object) -> str:
        del options, route
        self.plans.append(destination)
        return destination

    def consume(self, plan: str) -> Port:
        assert plan == f"topic://{ANSWERS}"
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.plans.append("end")

    def send_connected(self, message: Outgoing) -> Port:
        if self._refuses:
            raise AdapterError(self._refuses)
        operation, arguments = message.headers["_AMQ_OperationName"], json.loads(message.body)
        if operation != "listQueues":
            self._answers.append(Answer(message.correlation_id, self.told(operation, arguments)))
            return self
        _, page, size = arguments
        self.asked.append(
            (message.destination, message.reply_to, message.headers["_AMQ_OperationName"], page)
        )
        part = self._queues[(page - 1) * size : page * size]
        self.stumbles -= 1
        error = self._error if self.stumbles >= 0 else ""
        told = error or json.dumps({"data": part, "count": len(self._queues)})
        if error != "silent":
            self._answers.append(Answer(message.correlation_id, told, succeeded=not error))
        return self

    def told(self, operation: str, arguments: Sequence[Any]) -> object:
        """Answer another question."""
        raise AssertionError((operation, arguments))

    def wait(self) -> None: ...

    def take(self, *, timeout: float) -> Answer | None:
        assert timeout == 0.1
        return self._answers.pop(0) if self._answers else None


@pytest.mark.parametrize(("lost", "dropped"), [(1, [True, True]), (2, [False, False])])
def test_one_lost_answer_ends_no_check(
    monkeypatch: pytest.MonkeyPatch, lost: int, dropped: list[bool]
) -> None:
    """An origin is asked for once more after a lost answer; a broker silent twice is believed to keep all."""
    port = Port([row("q", filter="region = 'eu'")], error="silent")
    port.stumbles = lost
    monkeypatch.setattr(ReachedQueues, "connected", lambda _: port)
    reached = ReachedQueues("stomp://x", SystemClock())
    found = [reached.of("native://q::q", ARTEMIS) for _ in range(2)]
    assert [bool(each.dropped) for each in found] == dropped
    assert {each.destination for each in found} == {"native://q::q"}


def matching(port: Port, pattern: str) -> tuple[str, ...]:
    """The queues that match."""
    return queues_matching(port, Destination.parse(pattern)).names  # type: ignore[arg-type]


def test_the_queues_of_subscribers_are_named() -> None:
    """A pattern does not look at a subscriber's queue, which can be an operator's for dead letters: it is named."""
    port = Port([row("Z.all", "Z", routingType="MULTICAST"), row("Z.b"), row("Z.#", routingType="MULTICAST")])
    found = queues_matching(port, Destination.parse("Z.>"))  # type: ignore[arg-type]
    assert found == (("queue://Z.b",), ("native://Z::Z.all",))


def test_queues_that_match_by_their_own_names() -> None:
    """Queues with messages whose names match are found, in order; the request is one, and its queue ends."""
    port = Port([row("Z.b"), row("Z.a.c"), row("Y.a"), row("Z"), row("Z.odd,name"), row("other", "Z.x")])
    assert matching(port, "Z.>") == (
        "queue://Z",
        "queue://Z.a.c",
        "queue://Z.b",
        "native://Z.odd,name::Z.odd,name",
    )
    assert port.asked == [("native://activemq.management", f"native://{ANSWERS}", "listQueues", 1)]
    assert port.plans == [f"topic://{ANSWERS}", "end"]
    assert matching(port, "Z.*") == ("queue://Z.b", "native://Z.odd,name::Z.odd,name")


@pytest.mark.parametrize(
    "queue",
    [
        row("Z.a", messageCount="0"),
        row("Z.a", temporary="true"),
        row("Z.a", internalQueue="true"),
        row("Z.#"),
        row("Z.*.a"),
        row("Z.subscriber", "news", routingType="MULTICAST"),
        row("Z.subscriber", "news", routingType="MULTICAST", filter="colour = 'red'"),
    ],
    ids=lambda queue: str({**queue}),
)
def test_queues_that_are_nobodys_dead_letters(queue: dict[str, str]) -> None:
    """Empty, temporary and internal queues, those of subscribers, and those with a wildcard's copies are left out."""
    assert matching(Port([queue, row("Z.b")]), "Z.>") == ("queue://Z.b",)


def test_queues_that_artemis_has_made_for_dead_letters() -> None:
    """A queue that Artemis itself makes for the dead letters of one address is named with the address it is at."""
    own = row("DLQ.orders", "DLQ", routingType="MULTICAST", filter="_AMQ_ORIG_ADDRESS = 'orders'")
    assert matching(Port([own, row("DLQ")]), "DLQ.>") == ("queue://DLQ", "native://DLQ::DLQ.orders")


def test_more_queues_than_one_answer_has() -> None:
    """The broker is asked until all queues are listed."""
    port = Port([row(f"Z.{number:05}") for number in range(PAGE + 1)])
    assert len(matching(port, "Z.>")) == PAGE + 1
    assert [page for *_, page in port.asked] == [1, 2]


def test_a_list_over_which_the_broker_stumbles_is_asked_for_again() -> None:
    """Artemis fails where a queue ends while it makes the list: it is asked again, a few times."""
    port = Port([row("Z.a")], error='Cannot invoke "Queue.isPaused()" because "q" is null')
    port.stumbles = 3
    assert matching(port, "Z.>") == ("queue://Z.a",)
    assert [page for *_, page in port.asked] == [1, 1, 1, 1]
    port.stumbles = 1000
    with pytest.raises(AdapterError, match="isPaused"):
        matching(port, "Z.>")


@pytest.mark.parametrize(
    ("port", "pattern", "error", "told"),
    [
        (
            Port(error="AMQ229213: no right"),
            "Z.>",
            AdapterError,
            "(?s)AMQ229213.*right to manage.*name each queue",
        ),
        (Port(refuses="no permission"), "Z.>", AdapterError, "(?s)no permission.*right to manage"),
        (Port(error="silent"), "Z.>", TransportError, "activemq.management has not answered within 0.1 s"),
        (
            Port(able=replace(ARTEMIS, management_address=None)),
            "Z.>",
            ConfigurationError,
            "does not list its queues",
        ),
        (Port(), "Z*", ConfigurationError, "one whole part"),
    ],
    ids=["operation refused", "send refused", "silent", "no management", "no pattern"],
)
def test_a_list_that_cannot_be_had(port: Port, pattern: str, error: type[Exception], told: str) -> None:
    """Without a list of queues no queue is looked at: the error has the right to give, or the way without it."""
    with pytest.raises(error, match=told):
        matching(port, pattern)


def test_the_tools_of_several_queues(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command goes through all queues that match, and its counts are their sums."""
    for queue in ("Z.a", "Z.b"):
        for number in range(2):
            broker.send(
                queue, f"{queue} {number}", headers={"redeliveryOriginalDestination": "queue://orders"}
            )
    monkeypatch.setattr(
        "redelivery.dlq.dlq_connection.DeadLetterConnection.queues",
        lambda _, name: ("queue://Z.a", "queue://Z.b") if name == "queue://Z.>" else (name,),
    )
    told: list[int] = []
    with redelivery.dead_letters(broker.uri, "Z.>") as tools:
        assert [one.body for one in tools] == [b"Z.a 0", b"Z.a 1", b"Z.b 0", b"Z.b 1"]
        assert tools.contents().count == 4
        with pytest.raises(ConfigurationError, match="or one of them"):
            tools.redrive(to="Z.b")
        assert tools.redrive(dry_run=True).redriven == 4
        done = tools.redrive(progress=told.append, to="orders", rate=1000)
        assert (done.redriven, done.destinations, done.incomplete) == (4, {"queue://orders": 4}, None)
        assert told == sorted(told)
        assert told[-1] == 4
        assert tools.purge().purged == 0
        assert tools.limit is None
