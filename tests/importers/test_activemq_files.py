"""Files of ActiveMQ Classic's users that differ from its examples: suffixes, placeholders, Qpid JMS."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from redelivery import RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.uri.parser import parse_uri
from redelivery.uri.syntax import with_options

if TYPE_CHECKING:
    from pathlib import Path

CORE = 'xmlns="http://activemq.apache.org/schema/core"'


@pytest.mark.parametrize(
    ("prefix", "queue"), [('queuePrefix=""', ""), ("", None)], ids=["an empty prefix", "no prefix"]
)
def test_a_suffix_without_a_prefix(imported: Any, prefix: str, queue: str | None) -> None:
    """`queuePrefix=""` with a suffix names `orders.DLQ`; without the attribute the broker's own prefix is kept."""
    strategy = f'<individualDeadLetterStrategy {prefix} queueSuffix=".DLQ"/>'
    entry = f'<policyEntry queue=">"><deadLetterStrategy>{strategy}</deadLetterStrategy></policyEntry>'
    found = imported(f"<broker {CORE}><policyEntries>{entry}</policyEntries></broker>")
    assert found.dead_letters.get("redelivery.deadLetterMap.>.queuePrefix") == queue
    assert found.dead_letters["redelivery.deadLetterMap.>.queueSuffix"] == ".DLQ"


def test_a_map_has_no_dead_letters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`from_activemq_xml` warns of the file's dead-letter options, which only the URI can have."""
    strategy = '<deadLetterStrategy><individualDeadLetterStrategy queuePrefix="D."/></deadLetterStrategy>'
    path = tmp_path / "a.xml"
    path.write_text(f"<broker {CORE}><policyEntry>{strategy}</policyEntry></broker>")
    with caplog.at_level(logging.WARNING, "redelivery"):
        RedeliveryPolicyMap.from_activemq_xml(path)
    said = "add redelivery.deadLetterStrategy=individual&redelivery.queuePrefix=D. to the URI"
    assert said in caplog.text


def test_a_broker_url_of_qpid_jms(imported: Any) -> None:
    """The policy in the URL of a Qpid JMS factory is read with the options of that client."""
    found = imported(
        '<beans><bean class="org.apache.qpid.jms.JmsConnectionFactory"><constructor-arg '
        'value="failover:(amqp://a)?jms.redeliveryPolicy.maxRedeliveries=3"/></bean></beans>'
    )
    assert found.policies.default == RedeliveryPolicy(maximum_redeliveries=3)


def test_placeholders_in_the_policy_of_a_broker_url(imported: Any) -> None:
    """A default is taken, and only the option whose value is not known is left out."""
    url = "tcp://a?jms.redeliveryPolicy.maximumRedeliveries=${n:3}&amp;jms.redeliveryPolicy.redeliveryDelay=${d}"
    found = imported(f'<beans><connectionFactory brokerURL="{url}"/></beans>')
    assert found.policies.default == RedeliveryPolicy(maximum_redeliveries=3)
    assert [note.left_out for note in found.notes] == [False, True]


ONE = (
    "<policyEntry {}><deadLetterStrategy><individualDeadLetterStrategy queuePrefix='D.'/>"
    "</deadLetterStrategy></policyEntry>"
)


@pytest.mark.parametrize(
    ("entries", "strategies"),
    [
        ('<policyEntry><deadLetterStrategy><sharedDeadLetterStrategy deadLetterQueue="X"/></deadLetterStrategy>'
         "</policyEntry>" + ONE.format('queue=">"'), {"orders": "D.", "topic://prices": "X"}),
        (ONE.format('queue=">"') + '<policyEntry queue="A.>" memoryLimit="1mb"/>', {"orders": "D.", "A.b": None}),
        (ONE.format("") + '<policyEntry queue=">"/>', {"orders": None, "topic://prices": "D."}),
        (ONE.format('queue="A"') + '<policyEntry queue=">"/>', {"orders": None, "A": "D."}),
        (ONE.format('queue="A"') + ONE.format('queue="A"').replace("D.", "E."), {"orders": None, "A": "E."}),
        ('<policyEntry queue="A"/>' + ONE.format('queue="A"'), {"orders": None, "A": "D."}),
    ],
    ids=["the default first", "an entry without", "queues without", "one queue", "twice", "first without"],
)  # fmt: skip
def test_which_strategy_counts(imported: Any, entries: str, strategies: dict[str, str | None]) -> None:
    """An entry of queues precedes the default entry; an entry without a strategy has the default one, as in Classic."""
    found = imported(f"<broker {CORE}>{entries}</broker>")
    read = parse_uri(with_options("stomp://h", found.dead_letters)).dead_letters
    for name, expected in strategies.items():
        one = read.strategy_for(name)
        assert (one.queue_prefix or (one.destination or "").removeprefix("queue://") or None) == expected, (
            name
        )
