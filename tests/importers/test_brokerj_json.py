"""Qpid Broker-J's JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redelivery import ConfigurationError, DeadLetterStrategy, RedeliveryPolicy, RedeliveryPolicyMap


def at_once(deliveries: int) -> RedeliveryPolicy:
    """Return Broker-J's policy: this number of deliveries, without delay."""
    return RedeliveryPolicy(
        maximum_redeliveries=deliveries - 1, initial_redelivery_delay=0, redelivery_delay=0
    )


QUEUES = [
    {"name": "orders", "type": "standard", "maximumDeliveryAttempts": 3,
     "alternateBinding": {"destination": "DLQ", "attributes": {}}},
    {"name": "DLQ", "type": "standard"},
]  # fmt: skip
HOST = {"type": "BDB", "queues": QUEUES}
DOCUMENTS: list[Any] = [
    QUEUES,
    HOST,
    {"name": "probe", "modelVersion": "9.0", "virtualhostnodes": [
        {"name": "default", "type": "JSON", "virtualHostInitialConfiguration": json.dumps(HOST)}]},
    {"name": "probe", "virtualhostnodes": [{"name": "default", "virtualhosts": [HOST]}]},
]  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS, ids=["rest", "host", "inside a text", "broker"])
@pytest.mark.parametrize("indent", [None, 2])
def test_queues(imported: Any, document: Any, indent: int | None) -> None:
    """Three delivery attempts are two redeliveries at once, at any depth of a configuration."""
    found = imported(json.dumps(document, indent=indent))
    assert found.kind == "Broker-J JSON"
    assert found.policies == RedeliveryPolicyMap({"orders": at_once(3)})
    assert found.dead_letters == {"redelivery.deadLetterMap.orders.destination": "queue://DLQ"}
    assert [note.what for note in found.notes] == ["DLQ: no maximumDeliveryAttempts"]


def test_queues_that_are_made_when_needed(imported: Any) -> None:
    """A policy for all names is the default, one for a name is an entry, other expressions are notes."""
    nodes = [
        {"pattern": "DLQ", "nodeType": "queue", "attributes": {"maximumDeliveryAttempts": 0}},
        {"pattern": "a\\..*", "nodeType": "queue", "attributes": {"maximumDeliveryAttempts": 4}},
        {"pattern": "t\\..*", "nodeType": "exchange", "attributes": {"type": "topic"}},
        {"pattern": ".*", "nodeType": "queue",
         "attributes": {"maximumDeliveryAttempts": 10, "alternateBinding": {"destination": "DLQ"}}},
    ]  # fmt: skip
    found = imported(json.dumps({"nodeAutoCreationPolicies": nodes}, indent=1))
    assert found.policies == RedeliveryPolicyMap({"DLQ": at_once(0)}, default=at_once(10))
    assert found.dead_letters == {
        "redelivery.deadLetterDestination": "queue://DLQ",
        "redelivery.deadLetterMap.DLQ.strategy": "shared",
    }
    assert [note.what for note in found.notes] == ["DLQ: maximumDeliveryAttempts=0", "pattern a\\..*"]


@pytest.mark.parametrize("own", [{}, {"alternateExchange": "old"}, {"alternateBinding": "${unknown}"}])
def test_a_queue_without_an_alternate_binding(imported: Any, own: dict[str, str]) -> None:
    """An alternate binding is of its queue only: one without it does not get that of the queues made when needed."""
    attributes = {"maximumDeliveryAttempts": 2, "alternateBinding": {"destination": "all.dead"}}
    node = {"pattern": ".*", "nodeType": "queue", "attributes": attributes}
    queue = {"name": "b", "maximumDeliveryAttempts": 3, **own}
    read = imported(json.dumps({"queues": [queue], "nodeAutoCreationPolicies": [node]})).dead_letter_map
    assert read.strategy_for("queue://b") == DeadLetterStrategy()
    assert read.strategy_for("queue://made").destination == "queue://all.dead"


def test_the_case_of_a_node_type(imported: Any) -> None:
    """The broker ignores the case of a node's type, and so does the reader."""
    node = {"pattern": ".*", "nodeType": "Queue ", "attributes": {"maximumDeliveryAttempts": 5}}
    assert imported(json.dumps({"nodeAutoCreationPolicies": [node]})).policies.default == at_once(5)


def test_queues_of_a_list(imported: Any) -> None:
    """A queue that is listed needs no type; of a name that is listed twice the last one counts, with a note."""
    queues = [
        {"name": "a"},
        {"name": "b", "maximumDeliveryAttempts": 2},
        {"name": "b", "maximumDeliveryAttempts": 3},
    ]
    found = imported(json.dumps({"context": {"queue.maximumDeliveryAttempts": 7}, "queues": queues}))
    assert found.policies == RedeliveryPolicyMap({"a": at_once(7), "b": at_once(3)})
    assert ("queue b", "given again; this one counts") in [(note.what, note.why) for note in found.notes]


def test_the_context(imported: Any) -> None:
    """A limit in a context applies to the queues of that context."""
    queue = {"name": "a", "type": "standard", "alternateBinding": {"destination": "D"}}
    found = imported(json.dumps({"context": {"queue.maximumDeliveryAttempts": "5"}, "queues": [queue]}))
    assert (found.policies, found.notes) == (RedeliveryPolicyMap({"a": at_once(5)}), ())


def test_notes(imported: Any) -> None:
    """Discarding, and queue names that would be patterns here, are noted; each queue has its own alternate."""
    lines = [
        '{"queues": [',
        '{"name": "a", "maximumDeliveryAttempts": 2},',
        '{"name": "b.*", "maximumDeliveryAttempts": 2},',
        '{"name": "c", "maximumDeliveryAttempts": 2, "alternateBinding": {"destination": "x"}},',
        '{"name": "d", "maximumDeliveryAttempts": "${n}", "alternateBinding": {"destination": "y"}}',
        '], "virtualhostnodes": [{"virtualHostInitialConfiguration": "host.json"}]}',
    ]
    found = imported("\n".join(lines))
    assert [(note.line, note.what) for note in found.notes] == [
        (2, "a: no alternateBinding"),
        (3, "queue b.*"),
        (5, "maximumDeliveryAttempts=${n}"),
        (5, "d: no maximumDeliveryAttempts"),
        (6, "virtualHostInitialConfiguration=host.json"),
    ]
    assert [note.what for note in found.notes if note.left_out] == [
        "queue b.*", "maximumDeliveryAttempts=${n}", "virtualHostInitialConfiguration=host.json",
    ]  # fmt: skip
    assert found.dead_letters == {
        "redelivery.deadLetterMap.c.destination": "queue://x",
        "redelivery.deadLetterMap.d.destination": "queue://y",
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"queues": [\n{"name": "a",\n "maximumDeliveryAttempts": -1}]}', "f:3: maximumDeliveryAttempts must be"),
        ('{"queues": [\n{"name": "a", "maximumDeliveryAttempts": true}]}', "f:2: maximumDeliveryAttempts must be"),
        ('{"queues": [\n{"name": a}]}', "f:2:10: the JSON is not well-formed: Expecting value"),
        ('{"virtualHostInitialConfiguration":\n "{,}"}', "f:1: the JSON is not well-formed"),
        ('{"a": 1}', "f: the JSON is not Broker-J's"),
        ("[]", "f: the JSON is not Broker-J's"),
        ('{"rabbit_version": "3.10", "queues": []}', "f: the JSON is not Broker-J's"),
        ('{"queues": ' + "[" * 100_000 + "]" * 100_000 + "}", "f: the JSON is too deep"),
        ('{"queues": ' + "9" * 5000 + "}", "f: the JSON is too deep, or has too long a number"),
    ],
)  # fmt: skip
def test_mistakes(imported: Any, text: str, error: str) -> None:
    """A file that is not Broker-J's, or has a value out of range, is one sentence, with the line if it is known."""
    with pytest.raises(ConfigurationError) as caught:
        imported(text)
    assert str(caught.value).startswith(error)


def test_an_alternate_exchange_is_left_out(imported: Any) -> None:
    """Where an exchange of an old version leads is not in the file: it is not said that letters are discarded."""
    queue = {"name": "orders", "maximumDeliveryAttempts": 3, "alternateExchange": "orders_DLE"}
    found = imported(json.dumps([queue]))
    assert found.dead_letters == {}
    assert [(note.what, note.left_out) for note in found.notes] == [
        ("orders: alternateExchange=orders_DLE", True)
    ]


def test_a_binding_that_is_a_text(imported: Any) -> None:
    """Attributes of a node that is made when needed can be texts in JSON."""
    attributes = {"maximumDeliveryAttempts": "3", "alternateBinding": '{"destination": "p.dead"}'}
    node = {"pattern": "p", "nodeType": "queue", "attributes": attributes}
    found = imported(json.dumps({"nodeAutoCreationPolicies": [node]}))
    assert found.dead_letters == {"redelivery.deadLetterMap.p.destination": "queue://p.dead"}


@pytest.mark.parametrize(
    ("target", "left_out"), [("dead.fanout", True), ("amq.topic", True), ("DLQ", False), ("elsewhere", False)]
)
def test_an_alternate_binding_to_an_exchange(imported: Any, target: str, *, left_out: bool) -> None:
    """An exchange of the virtual host is no queue, in which letters could be found: it is left out with a note."""
    queue = {"name": "orders", "maximumDeliveryAttempts": 3, "alternateBinding": {"destination": target}}
    host = {"name": "default", "exchanges": [{"name": "dead.fanout", "type": "fanout"}], "queues": [queue]}
    found = imported(json.dumps(host))
    assert ("redelivery.deadLetterMap.orders.destination" in found.dead_letters) is not left_out
    assert [note.left_out for note in found.notes if target in str(note)] == [True] * left_out
