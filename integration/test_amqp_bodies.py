"""Bodies of AMQP producers that STOMP consumers cannot handle: they are copied whole, or stay on their queue."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import redelivery
from integration.eventually import eventually
from integration.raw_amqp import RawAmqp, proton
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from integration.brokers import Broker
    from integration.conftest import Session

pytestmark = [
    pytest.mark.ci("each type of body on each broker"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

VALUES: dict[str, Callable[[], Any]] = {
    "text": lambda: "Grüße",
    "empty text": lambda: "",
    "bytes": lambda: b"\0Sw*raw",
    "no text": lambda: b"\xff\xfe\x80abc",
    "empty bytes": lambda: b"",
    "integer": lambda: 42,
    "number": lambda: 1.5,
    "truth": lambda: True,
    "symbol": lambda: proton.symbol("s"),
    "uuid": lambda: uuid.UUID(int=7),
    "map": lambda: {"a": 1},
    "list": lambda: [1, "x"],
    "none": lambda: None,
}


@pytest.fixture(params=["activemq", "artemis"])
def broker(request: pytest.FixtureRequest, session: Session) -> Broker:
    """Each broker that sends most AMQP messages to STOMP consumers."""
    return session.broker(request.param)


def plain(value: object) -> object:
    """Return a body for comparison: a text or bytes as bytes."""
    value = bytes(value) if isinstance(value, memoryview) else value
    return value.encode() if isinstance(value, str) else value or b""


class Case(NamedTuple):
    """A message of an AMQP producer."""

    name: str
    durable: bool = True
    claim: str = ""

    @property
    def label(self) -> str:
        """Name in the assertion, and in a property of the message."""
        return (
            f"{self.name}, {'durable' if self.durable else 'not durable'}, {self.claim or 'nothing'} copied"
        )


# Headers by which the broker marks a body. A producer may have copied them, with all properties of a question.
CLAIMS: dict[str, dict[str, object]] = {
    "a JMS client's": {"__AMQ_CID": "ID:x"},
    "an encoding": {"JMS_AMQP_ORIGINAL_ENCODING": 6},
    "an encoding as text": {"JMS_AMQP_ORIGINAL_ENCODING": "6"},
    "a kind for Classic": {"amq-msg-type": "text"},
    "a length": {"content-length": "3"},
}
CLAIMED = ["integer", "symbol", "uuid", "map", "text", "bytes", "no text"]


def test_no_body_is_lost(broker: Broker, unique_queue: str) -> None:
    """A body is unchanged in the dead letter or on its queue, whatever part of it arrives over STOMP."""
    lost_nothing(broker, unique_queue, [Case(name, durable) for name in VALUES for durable in (True, False)])


def test_no_copied_property_hides_what_did_not_arrive(broker: Broker, unique_queue: str) -> None:
    """A body is unchanged even if the producer's properties have the names of the broker's headers."""
    cases = [Case(name, claim=claim) for name in CLAIMED for claim in CLAIMS]
    lost_nothing(broker, unique_queue, [case for case in cases if arrives(broker, case)])


def arrives(broker: Broker, case: Case) -> bool:
    """True unless the broker itself spoils such a message."""
    if broker.name == "activemq":
        return case.claim != "a length"  # such a frame has no end; test_forged_frames has it
    # It may arrive as another connection's bytes: docs/measured/artemis-stomp-messages.md
    return not (case.claim.startswith("an encoding") and case.name in ("integer", "symbol", "uuid"))


def lost_nothing(broker: Broker, queue: str, cases: Sequence[Case]) -> None:
    """Fail messages of an AMQP producer over STOMP, and check each body where it is after that, once."""
    dead, expected = f"{queue}.dead", dict[str, list[object]]()
    with RawAmqp(broker) as raw:
        for case in cases:
            value, properties = VALUES[case.name](), {"key": "bad", "case": case.label, "run": queue}
            expected[case.label] = [plain(value)]
            raw.send(queue, value, durable=case.durable, properties=properties | CLAIMS.get(case.claim, {}))
    policies = redelivery.RedeliveryPolicyMap(default=POLICY(maximum_redeliveries=0))
    uri = broker.uri(protocol="stomp", redelivery__deadLetterDestination=dead)
    with redelivery.connect(uri, policies=policies) as connection:
        connection.listen(queue, Work(), credit=len(cases), maximum_set_aside=len(cases))
        with Running(connection) as running:

            def done() -> bool:
                report = connection.report()
                return report.poisoned + report.set_aside == len(cases)

            eventually(done, message=f"all {len(cases)} are poison")
        assert running.error is None
    found = dict[str, list[object]]()
    with RawAmqp(broker) as raw:

        def look(timeout: float) -> bool:
            # Classic itself moves what cannot be copied; what was set aside returns to its queue when the broker has
            # noticed the end of its consumer.
            for place in (queue, dead, broker.dead_letter_queue):
                for each in raw.receive(place, limit=2 * len(cases), timeout=timeout):
                    if each.properties.get("run") == queue:
                        found.setdefault(str(each.properties["case"]), []).append(plain(each.body))
            return sum(map(len, found.values())) >= len(cases)

        eventually(lambda: look(0.2), message=f"all {len(cases)} are somewhere")
        # Longer than the messages themselves need: a second one of any would be among them.
        look(1.0)
    assert found == expected
