"""Claims of the brokers' documents that no other test shows; docs/claims.md lists all."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap

if TYPE_CHECKING:
    import pytest
    from tests.driver.twins import Twin

ONCE = "jms.redeliveryPolicy.maximumRedeliveries=0"


def fail(message: redelivery.Message) -> None:
    raise ValueError(message.text)


def starts(twin: Twin, connection: object, *queues: str) -> Counter[str]:
    """Return how often a message of each queue is handled, which always fails."""
    seen = Counter[str]()

    def handle(message: redelivery.Message) -> None:
        seen[message.text] += 1
        raise ValueError("no")

    for queue in queues:
        twin.broker.send(queue, queue)
        twin.listen(connection, queue, handle)
    twin.advance(100)
    return seen


def test_a_connection_has_its_own_policies(twin: Twin) -> None:
    """Two connections to one broker have different policies, by argument and by URI."""
    policies = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=1))
    one = twin.connect(policies=policies)
    two = twin.connect("?jms.redeliveryPolicy.maximumRedeliveries=3")
    assert starts(twin, one, "a") == {"a": 2}
    assert starts(twin, two, "b") == {"b": 4}


def test_one_destination_has_a_policy_of_its_own(twin: Twin) -> None:
    """FRED.JOE is redelivered 4 times; another queue, and a topic of that name, 6 times, by the default."""
    policies = RedeliveryPolicyMap({"FRED.JOE": RedeliveryPolicy(maximum_redeliveries=4)})
    connection = twin.connect(policies=policies)
    seen = starts(twin, connection, "FRED.JOE", "FRED.JIM")
    assert seen == {"FRED.JOE": 5, "FRED.JIM": 7}
    assert policies.policy_for("topic://FRED.JOE").maximum_redeliveries == 6


def test_a_dead_letter_that_expires_does_not_circulate(twin: Twin) -> None:
    """A dead letter that expires before its consumer gets it goes once to that consumer's own place, and stays."""
    expiring = f"&redelivery.deadLetterExpiration=1000&{ONCE}"
    twin.listen(twin.connect(f"?{expiring[1:]}"), "orders", fail)
    twin.broker.send("orders", "body")
    twin.advance(0.1)
    consumer = twin.call(twin.connect(f"?redelivery.deadLetterDestination=again{expiring}").consumer("DLQ"))
    message = twin.receive(consumer)
    assert message is not None
    message.release()
    twin.advance(5)
    assert twin.receive(consumer) is None
    twin.advance(60)
    assert twin.broker.messages("DLQ") == []
    assert [letter.cause for letter in twin.broker.messages("again")] == ["expired"]


def test_no_report_of_what_is_dropped(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """With `reportInterval=0` no line counts the dropped messages; each has its own."""
    caplog.set_level(logging.INFO, "redelivery")
    dropping = f"redelivery.deadLetterStrategy=discarding&redelivery.reportInterval=0&{ONCE}"
    connection = twin.connect(f"?{dropping}")
    assert starts(twin, connection, "a", "b") == {"a": 1, "b": 1}
    assert twin.call(connection.drain()) == redelivery.Report(discarded=2)
    assert not [record for record in caplog.records if "reportInterval" in record.message]
    assert sum("accepted and dropped" in record.message for record in caplog.records) == 2
