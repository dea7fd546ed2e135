"""Dead-letter places by Artemis' own settings: asked before a consumer begins, followed by its copies."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import PATIENCE, ScriptedPeer, proton
from tests.eventually import eventually

import redelivery
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.amqp.peer import Conversation

NO_RETRY = redelivery.RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))
OWN = "DLA::DLQ.orders"


class Artemis(ScriptedPeer):
    """Artemis with a queue for the dead letters of each address; it sends one message to each consumer."""

    def __init__(self) -> None:
        super().__init__(self._sent_to)
        self.manages = self._told
        self.asked: list[str] = []
        # Addresses of the links to the broker, and the application properties of the messages that came.
        self.targets: list[str] = []
        self.copies: list[dict[str, Any]] = []
        self.attaches = self._attached
        self.management = 0  # links of it that are attached
        self.address = "DLA"
        self.silent = False

    def _sent_to(self, conversation: Conversation, link: Any) -> None:
        conversation.send(link, proton.Message(id="1", body="x", durable=True).encode())

    def _attached(self, link: Any) -> bool:
        if link.is_receiver and link.remote_target.type != proton.Terminus.COORDINATOR:
            self.targets.append(str(link.remote_target.address))
        return True

    def _told(self, operation: str, arguments: list[Any]) -> object:
        self.asked.append(operation)
        if self.silent:
            return ...
        if operation == "getAddressSettingsAsJSON":
            return json.dumps(
                {
                    "deadLetterAddress": self.address,
                    "autoCreateDeadLetterResources": self.address == "DLA",
                }
            )
        if operation == "createQueue":
            return "{}"
        return json.dumps({"data": [], "count": 0})


@pytest.fixture
def peer() -> Iterator[Artemis]:
    """Return such a broker."""
    with Artemis() as broker:
        yield broker


def fail(message: redelivery.Message) -> None:
    """Handle no message."""
    raise ValueError(message.text)


def test_copies_go_where_the_broker_would_put_them(peer: Artemis) -> None:
    """The place is asked before the consumer begins, its link is attached before it, and the copy goes there."""
    with redelivery.connect(peer.uri, policies=NO_RETRY) as connection:
        connection.listen("orders", fail)
        connection.start()
        assert peer.targets == ["activemq.management", OWN]
        assert peer.consumers == [(1, "orders")]
        eventually(lambda: connection.report().poisoned == 1)
    before = ["getAddressSettingsAsJSON", "listQueues", "listQueues", "createQueue"]
    assert peer.asked == [*before, "listQueues"], "and its queue, before the copy"
    assert peer.targets == ["activemq.management", OWN], "no other place"


def test_the_brokers_place_is_not_asked_for_beside_one_of_the_user(peer: Artemis) -> None:
    """With a place for the connection, the listener, or each queue, the broker's settings are not asked for."""
    given = "redelivery.deadLetterDestination=mine"
    with redelivery.connect(f"{peer.uri}&{given}") as connection, connection.consumer("orders"):
        pass
    with redelivery.connect(peer.uri) as connection, connection.consumer("orders", dead_letter="mine"):
        pass
    each = "redelivery.deadLetterStrategy=individual&redelivery.queuePrefix=dead."
    with redelivery.connect(f"{peer.uri}&{each}") as connection, connection.consumer("orders"):
        pass
    assert set(peer.asked) == {"listQueues"}
    assert [each for each in peer.targets if "management" not in each] == ["mine", "mine", "dead.orders"]


def test_without_the_right_the_place_is_the_usual_one_with_one_warning(
    peer: Artemis, caplog: pytest.LogCaptureFixture
) -> None:
    """A user who may not ask gets one warning with the rights and the option, and nothing is asked again."""
    peer.manages = None
    with redelivery.connect(peer.uri, policies=NO_RETRY) as connection:
        for name in ("orders", "other", "third"):
            connection.listen(name, fail)
        connection.start()
        eventually(lambda: connection.report().poisoned == 3)
    (warning,) = [each.message for each in caplog.records if "own settings" in each.message]
    assert "no right to manage" in warning
    assert "topic://redelivery.management" in warning
    assert "redelivery.deadLetterDestination" in warning
    assert peer.targets == ["activemq.management", "DLQ"]


def test_a_request_that_is_rejected_is_no_right(peer: Artemis, caplog: pytest.LogCaptureFixture) -> None:
    """Artemis rejects the request itself, if the user may send to the address and not manage."""
    peer.manages = lambda *_: None
    with redelivery.connect(peer.uri) as connection:
        for name in ("orders", "other"):
            with connection.consumer(name):
                assert peer.targets[-1] == "DLQ"
    assert sum("own settings" in each.message for each in caplog.records) == 1


def test_without_an_answer_no_consumer_begins(peer: Artemis) -> None:
    """No answer: no place is guessed. The next connection asks again, and then the consumer begins."""
    peer.silent = True
    with redelivery.connect(peer.uri, policies=NO_RETRY) as connection:
        # No public way waits for less than 30 s.
        beginning = connection._driver.subscribe(connection._dispatcher("orders", {}))
        eventually(lambda: peer.asked == ["getAddressSettingsAsJSON", "listQueues"])
        assert (peer.consumers, beginning.done()) == ([], False)
        peer.silent = False
        peer.cut()
        beginning.result(PATIENCE)
        assert [address for _, address in peer.consumers] == ["orders"]


def test_a_consumer_of_its_own_place_is_refused(peer: Artemis) -> None:
    """A consumer of the queue where the broker puts its dead letters is refused, and gets no message."""
    peer.address = "orders"
    with (
        redelivery.connect(peer.uri, policies=NO_RETRY) as connection,
        pytest.raises(
            redelivery.ConfigurationError, match="gets its own dead letters, by the dead-letter-address"
        ),
    ):
        connection.consumer("orders")


def test_the_place_can_change_with_a_reconnect(peer: Artemis, caplog: pytest.LogCaptureFixture) -> None:
    """After a reconnect the broker is asked again, and copies go to the new place."""
    caplog.set_level(logging.INFO)
    with redelivery.connect(peer.uri, policies=NO_RETRY) as connection:
        connection.listen("orders", fail)
        connection.start()
        eventually(lambda: connection.report().poisoned == 1)
        peer.address = "elsewhere"
        peer.cut()
        eventually(lambda: len(peer.consumers) == 2 and connection.report().poisoned == 2)
    assert [each for each in peer.targets if "management" not in each] == [OWN, "elsewhere"]


def test_each_question_is_asked_once(peer: Artemis) -> None:
    """A second consumer of the queue asks nothing; one of another queue asks for its own, and not for the shared."""
    peer.address = "shared"
    with redelivery.connect(peer.uri) as connection:
        with connection.consumer("orders"):
            asked = len(peer.asked)
        with connection.consumer("orders"):
            assert peer.asked[asked:] == ["createQueue"], "the queue may be gone again"
        with connection.consumer("other"):
            assert peer.asked[asked + 1 :] == ["getAddressSettingsAsJSON", "listQueues", "createQueue"]


def test_a_management_link_that_ends_is_no_refusal(peer: Artemis, caplog: pytest.LogCaptureFixture) -> None:
    """The broker ends the link during a question: the next connection asks again, and no place is guessed."""
    peer.ends_answers = 1
    with redelivery.connect(peer.uri, policies=NO_RETRY) as connection:
        connection.listen("orders", fail)
        connection.start()
        eventually(lambda: connection.report().poisoned == 1)
    assert [each for each in peer.targets if "management" not in each] == [OWN]
    assert "own settings" not in caplog.text


@pytest.mark.parametrize("operation", ["createQueue", "listQueues"])
def test_a_known_place_that_cannot_be_used(peer: Artemis, operation: str) -> None:
    """If its queue cannot be made, or is another's, the consumer is refused: the place is known, and no other right."""
    told = peer.manages
    assert told is not None

    def answers(asked: str, arguments: list[Any]) -> object:
        if asked == operation == "createQueue":
            return RuntimeError("no right to make queues")
        if asked == operation and "DLQ.orders" in str(arguments):
            other = {"name": "DLQ.orders", "address": "other", "filter": "", "routingType": "ANYCAST"}
            return json.dumps({"data": [other], "count": 1})
        return told(asked, arguments)

    peer.manages = answers
    with (
        redelivery.connect(peer.uri) as connection,
        pytest.raises(
            redelivery.AdapterError, match=r"by the dead-letter-address of orders.*redelivery\.deadLetterD"
        ),
    ):
        connection.consumer("orders")
    assert peer.consumers == []
