"""Questions of the doctor about a destination, and findings on the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from redelivery.core.commands import Accept, Credit, Send, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from tests.cli.doctor_script import Script


from tests.cli.doctor_script import AMQP, RABBIT, REFUSED, STOMP, URI, levels


def test_a_log_in_and_what_may_be_done(cli: Any, script: Script) -> None:
    """Over STOMP a consumer begins with a selector that matches nothing, then with its dead-letter destination."""
    ended = cli("doctor", "--create", URI, "orders")
    assert (ended.code, ended.err) == (0, "")
    assert "the broker is ActiveMQ Classic 6.1.7; TEST 1, heart-beats each 10 s both ways" in ended.out
    assert "may be consumed; credit: auto, begins with 4 (one worker), at most 1,000" in ended.out
    assert "go to queue://DLQ, which takes messages of this user" in ended.out
    assert "password       it is sent to b1 unencrypted" in ended.out
    begun = [command for command in script.commands if isinstance(command, Subscribe)]
    assert [(one.selector, one.window, one.room, one.dead_letters) for one in begun] == [
        ("1=0", 1, 0, ()),
        ("1=0", 1, 0, ("queue://DLQ",)),
    ]
    ended_too = [command.consumer for command in script.commands if isinstance(command, Unsubscribe)]
    assert ended_too == [one.consumer for one in begun]
    assert script.closed == 1
    assert not {"bob", "hunter2"} & set(ended.out.replace(":", " ").split())


def test_the_brokers_own_settings_are_named(cli: Any, script: Script) -> None:
    """Where the default place takes copies, the settings of the broker that do not count are named; else nothing is."""
    script.able = replace(STOMP, broker="activemq")
    past = "a copy goes past the broker's own dead-letter strategies"
    assert past in cli("doctor", "--create", URI, "orders").out
    chosen = cli(
        "doctor",
        "--create",
        f"{URI}{'&' if '?' in URI else '?'}redelivery.deadLetterDestination=dead",
        "orders",
    )
    assert "go to queue://dead" in chosen.out
    assert past not in chosen.out


FOLLOWING = replace(AMQP, broker="artemis", tells_dead_letters=True)
DLA = replace(
    FOLLOWING, dead_letter_destination="queue://DLA", own_dead_letters="the dead-letter-address of orders"
)


@pytest.mark.parametrize(
    ("of_queue", "level", "text"),
    [
        (DLA, "ok", "go to queue://DLA, by the dead-letter-address of orders"),
        (
            FOLLOWING,
            "note",
            "go to queue://DLQ: this queue has no dead-letter-address; its own would be dropped",
        ),
        (replace(FOLLOWING, caution="no right to ask"), "warn", "no right to ask"),
    ],
    ids=["told", "none", "no right"],
)
def test_the_brokers_own_place_is_asked(
    cli: Any, script: Script, of_queue: Any, level: str, text: str
) -> None:
    """Where the broker can be asked, its own place is shown, with the setting; or why it is not known."""
    script.able, script.queues = FOLLOWING, {"queue://orders": of_queue}
    ended = cli("doctor", "--create", URI, "orders")
    assert (levels(ended.out)["dead letters"], text in ended.out) == (level, True), ended.out
    asking = [one for one in script.commands if isinstance(one, Subscribe) and one.own_place]
    assert [(one.window, one.dead_letters) for one in asking] == [(0, ())]


def test_a_place_of_the_options_beside_the_brokers(cli: Any, script: Script) -> None:
    """An option wins, and the broker's own place is named beside it, if it is another one."""
    script.able, script.queues = FOLLOWING, {"queue://orders": DLA}
    for place, named in (("mine", True), ("DLA", False)):
        ended = cli("doctor", "--create", f"{URI}&redelivery.deadLetterDestination={place}", "orders")
        assert f"go to queue://{place} (by redelivery.deadLetterDestination), which takes" in ended.out
        wins = (
            "the options win; without them they would go to queue://DLA, by the dead-letter-address of orders"
        )
        assert (wins in ended.out) is named


def test_a_place_of_the_options_for_a_user_who_may_not_ask(cli: Any, script: Script) -> None:
    """A note says that a queue there may drop dead letters, and which rights the question for that needs."""
    script.able = replace(FOLLOWING, management_address="activemq.management")
    script.queues = {"queue://orders": replace(script.able, caution="the broker does not tell: no right")}
    ended = cli("doctor", "--create", f"{URI}&redelivery.deadLetterDestination=mine", "orders")
    assert "go to queue://mine (by redelivery.deadLetterDestination), which takes messages" in ended.out
    assert "whether one takes each is asked only if this user has the right to manage" in ended.out


def test_a_dead_letter_exchange_of_the_queue(cli: Any, script: Script) -> None:
    """A dead-letter exchange of RabbitMQ's queue is named, and what goes there."""
    own = replace(AMQP, own_dead_letters="the queue's dead-letter exchange dlx")
    script.able, script.queues = AMQP, {"queue://orders": own}
    ended = cli("doctor", "--create", URI, "orders")
    assert (
        "the queue's dead-letter exchange dlx gets what the broker itself gives up; a copy wins" in ended.out
    )
    script.queues = {"queue://orders": replace(own, poison_persistent=True)}
    assert (
        "poison goes there too, unless an option names a place"
        in cli("doctor", "--create", URI, "orders").out
    )


def test_an_alternate_binding_of_the_queue(cli: Any, script: Script) -> None:
    """An alternate binding of Broker-J's queue is named beside the copy; without one, or an answer, that is said."""
    script.able = replace(AMQP, broker="qpid-broker-j")
    own = replace(script.able, own_dead_letters="the queue's alternateBinding dead (after 3 deliveries)")
    cases = {
        "alternateBinding dead (after 3 deliveries) gets what the broker itself gives up; a copy wins": own,
        "the broker does not report this queue's alternateBinding, and a copy goes past it": None,
    }
    for text, of_queue in cases.items():
        script.queues = {} if of_queue is None else {"queue://orders": of_queue}
        ended = cli("doctor", "--create", URI, "orders")
        assert "go to queue://DLQ, which is there" in ended.out
        assert [each in ended.out for each in cases] == [each == text for each in cases]
    script.queues = {"queue://orders": replace(script.able, caution="a message is dropped")}
    ended = cli("doctor", "--create", URI, "orders")
    assert ("alternateBinding" in ended.out, levels(ended.out)["queue://orders"]) == (False, "warn")


def test_the_brokers_own_place_is_refused(cli: Any, script: Script) -> None:
    """A place that the user may not send to is a FAIL: the consumer would not start."""
    script.able, script.refuses = FOLLOWING, {"own place": REFUSED}
    ended = cli("doctor", "--create", URI, "orders")
    assert (ended.code, levels(ended.out)["dead letters"]) == (1, "FAIL")
    assert "poison could not leave; set another redelivery.deadLetterDestination: no permission" in ended.out


def test_the_dead_letters_of_another_projects_adapter(cli: Any, script: Script) -> None:
    """Of an adapter of another project it is not known that it asked for the right to send dead letters."""
    script.able = replace(STOMP, broker="shelf")
    ended = cli("doctor", "--create", URI, "orders")
    assert "go to queue://DLQ, unless the broker refuses this user's first message to it" in ended.out
    assert levels(ended.out)["dead letters"] == "note"


def test_groups_that_no_consumer_owns(cli: Any, script: Script) -> None:
    """With per_group on a broker that binds no group to a consumer, a note says that one process keeps the order."""
    per_group = f"{URI}&redelivery.ordering=per_group"
    assert "ordering" not in levels(cli("doctor", "--create", per_group, "orders").out)
    script.able = replace(RABBIT, binds_groups=False)
    ended = cli("doctor", "--create", per_group, "orders")
    assert levels(ended.out)["ordering"] == "note"
    assert "RabbitMQ sends the messages of a group to all consumers" in ended.out
    assert "ordering" not in levels(cli("doctor", "--create", URI, "orders").out)


def test_over_amqp_no_credit_is_granted(cli: Any, script: Script) -> None:
    """Over AMQP no credit is granted: no message is prefetched when the consumer ends."""
    script.able = AMQP
    assert cli("doctor", "--create", URI, "orders").code == 0
    assert {one.window for one in script.commands if isinstance(one, Subscribe)} == {0}
    assert not [one for one in script.commands if isinstance(one, Credit | Accept | Send)]


def test_rabbitmq_over_stomp_is_not_asked_for_a_message(cli: Any, script: Script) -> None:
    """On RabbitMQ over STOMP the queue is not consumed; dead letters are checked with a queue of the doctor's own."""
    script.able = RABBIT
    ended = cli("doctor", "--create", URI, "orders")
    assert levels(ended.out)["queue://orders"] == "note"
    assert "RabbitMQ hands out a message to each consumer" in ended.out
    assert "and 1000 parked ones" in ended.out
    assert "RabbitMQ looks at the right to send to it with the first message only" in ended.out
    begun = [command for command in script.commands if isinstance(command, Subscribe)]
    assert {one.destination.rpartition(".")[0] for one in begun} == {"queue://redelivery.doctor"}
    assert all(one.private for one in begun)
    script.late = {"queue://DLQ": REFUSED}
    ended = cli("doctor", "--create", URI, "orders")
    assert (ended.code, levels(ended.out)["dead letters"]) == (1, "FAIL")


def test_a_queue_without_permission(cli: Any, script: Script) -> None:
    """A refused queue is a FAIL with a remedy; a connection that the broker closes with it is opened again."""
    script.refuses, script.loses = {"queue://orders": REFUSED}, True
    ended = cli("doctor", "--create", URI, "orders", "other")
    assert ended.code == 1
    assert (
        "FAIL  queue://orders no permission: let this user consume from queue://orders, or make the queue"
        in ended.out
    )
    assert "queue://DLQ: not asked, for no consumer could begin" in ended.out
    assert "ok    queue://other  may be consumed" in ended.out
    assert script.opened == 2


def test_the_option_that_names_a_place_is_told(cli: Any, script: Script) -> None:
    """A place of the map is named with its pattern, which is also what to change where the place cannot be used."""
    uri = f"{URI}&redelivery.deadLetterMap.orders.%3E.destination=LOST"
    named = "redelivery.deadLetterMap.queue://orders.>.destination"
    assert f"go to queue://LOST (by {named}), which takes" in cli("doctor", "--create", uri, "orders.eu").out
    assert f"go to queue://LOST (by {named}); not asked" in cli("doctor", uri, "orders.eu").out
    script.refuses = {"queue://LOST": REFUSED}
    ended = cli("doctor", "--create", uri, "orders.eu")
    assert f"make queue://LOST, let this user send to it, or change {named}" in ended.out
    own = cli("doctor", "--create", uri.replace("LOST", "orders.dead"), "orders.dead").out
    assert f"is the dead-letter destination of this connection ({named})" in own
    assert "or add redelivery.deadLetterMap.queue://orders.dead.destination=<another queue> to the map" in own


def test_a_dead_letter_queue_that_cannot_be_used(cli: Any, script: Script) -> None:
    """A dead-letter queue that cannot be used is a FAIL: the consumer would not start."""
    script.refuses = {"queue://LOST": REFUSED}
    ended = cli("doctor", "--create", f"{URI}&redelivery.deadLetterDestination=LOST", "orders")
    assert ended.code == 1
    assert "FAIL  dead letters   no permission: poison could not leave; make queue://LOST" in ended.out
    assert levels(ended.out)["queue://orders"] == "ok"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("redelivery.deadLetter=discard", "dropped, as the URI says"),
        ("redelivery.deadLetterStrategy=discarding", "dropped, as the URI says"),
        (
            "redelivery.deadLetter=ack",
            "the broker moves them itself (poison acknowledgement), to queue://DLQ",
        ),
    ],
)
def test_dead_letters_without_a_copy(cli: Any, script: Script, options: str, text: str) -> None:
    """Without copies the broker is not asked about dead letters."""
    script.able = replace(STOMP, poison_persistent=True)
    assert text in cli("doctor", "--create", f"{URI}&{options}", "orders").out


def test_what_the_brokers_own_acknowledgement_may_lose(cli: Any, script: Script) -> None:
    """With `deadLetter=ack` doctor warns of dead letters that the broker would drop, of a queue and not of a topic."""
    script.able = replace(STOMP, poison_persistent=True, own_poison="asked", ack_caution="one of two is lost")
    ack = f"{URI}&redelivery.deadLetter=ack"
    out = cli("doctor", "--create", ack, "orders").out
    (line,) = [line for line in out.splitlines() if "one of two is lost" in line]
    assert line.split()[:2] == ["warn", "queue://orders"]
    assert "one of two" not in cli("doctor", "--create", ack, "topic://orders").out
    assert "one of two" not in cli("doctor", "--create", URI, "orders").out


def test_the_way_out_of_what_stomp_cannot_consume(cli: Any, script: Script) -> None:
    """Where STOMP cannot consume some messages, doctor names the command that moves one away."""
    script.able = replace(STOMP, unsettleable=True)
    assert (
        "redelivery dlq redrive AMQP-URI orders --id ID --to PLACE"
        in cli("doctor", "--create", URI, "orders").out
    )
    script.able = STOMP
    assert "AMQP-URI" not in cli("doctor", "--create", URI, "orders").out


def test_individual_dead_letters_of_a_wildcard(cli: Any, script: Script) -> None:
    """Individual dead letters of a wildcard are not checked: they depend on the message."""
    ended = cli(
        "doctor",
        "--create",
        f"{URI}&redelivery.deadLetterStrategy=individual&redelivery.queuePrefix=X.",
        "orders.*",
    )
    assert "go to a destination of each queue" in ended.out


def test_a_policy_that_is_longer_than_the_broker_allows(cli: Any, script: Script) -> None:
    """A policy that is too long for the broker is a FAIL, and the other checks go on."""
    script.able = replace(RABBIT, flow=True)
    uri = "stomp://b1?redelivery.policy.delays=1000,1500000"
    ended = cli("doctor", "--create", uri, "orders")
    assert ended.code == 78
    assert "holds a message for 1501 s, but rabbitmq lets a consumer hold one for 1800 s" in ended.out
    assert "give redelivery.policy.maximumElapsed, or let the broker hold" in ended.out
    assert levels(ended.out)["queue://orders"] == "ok"
    assert cli("doctor", "--create", f"{uri}&redelivery.policy.maximumElapsed=600000", "orders").code == 0


@pytest.mark.parametrize("place", ["queu://orders", "DLQ", ""])
def test_a_destination_that_cannot_be_consumed(cli: Any, script: Script, place: str) -> None:
    """A destination that a consumer refuses by itself is a FAIL, without a question to the broker."""
    ended = cli("doctor", "--create", URI, place)
    assert ended.code == 78
    assert not script.commands


def test_how_the_dead_letter_queue_drops_messages(cli: Any, script: Script) -> None:
    """The dead-letter queue is looked at as well: how it may drop a message is a warning that names its option."""
    script.able = replace(AMQP, broker="rabbitmq", version="4.0.5", release_limit=20)
    caution = "a message is dropped after 20 releases; declare it otherwise: redelivery.queueArguments=x"
    script.queues = {"queue://orders": script.able, "queue://DLQ": replace(script.able, caution=caution)}
    ended = cli("doctor", "--create", URI, "orders")
    assert (
        "warn  dead letters   queue://DLQ: a message is dropped after 20 releases; declare it otherwise: "
        "redelivery.deadLetterArguments=x; a queue that exists keeps its arguments"
    ) in ended.out
    plain = replace(script.able, caution="a message is dropped after 3 deliveries")
    script.queues["queue://DLQ"] = plain
    said = cli("doctor", "--create", URI, "orders").out
    assert "queue://DLQ: a message is dropped after 3 deliveries\n" in said
    look = [one for one in script.commands if isinstance(one, Subscribe)][-1]
    assert (look.destination, look.window, look.existing) == ("queue://DLQ", 0, True)
    script.refuses["queue://DLQ"] = None
    script.queues = {}
    assert "warn  dead letters" not in cli("doctor", "--create", URI, "orders").out


def test_over_stomp_the_dead_letter_queue_cannot_be_asked(cli: Any, script: Script) -> None:
    """Where a look may count, and the broker does not report whether, a note says so."""
    script.able = replace(RABBIT, version="4.0.5", release_limit=20)
    said = "over STOMP RabbitMQ 4.0.5 does not report whether it is a quorum queue, which drops a message after 20"
    assert said in cli("doctor", "--create", URI, "orders").out
    script.able = RABBIT
    assert said not in cli("doctor", "--create", URI, "orders").out


def test_a_wildcard_that_means_copies(cli: Any, script: Script) -> None:
    """A wildcard on Artemis is a FAIL with the option that allows it; allowed, the doctor begins no consumer of it."""
    script.able = replace(AMQP, copies_by_wildcard=True)
    ended = cli("doctor", "--create", URI, "orders.>")
    assert ended.code == 78
    assert "name each queue, or add redelivery.wildcards=address to get those copies" in ended.out
    assert levels(ended.out)["queue://orders.>"] == "FAIL"
    ended = cli("doctor", "--create", f"{URI}&redelivery.wildcards=address", "orders.>")
    assert ended.code == 0
    assert levels(ended.out)["queue://orders.>"] == "note"
    assert "the first consumer makes its queue" in ended.out
    begun = [command.destination for command in script.commands if isinstance(command, Subscribe)]
    assert begun
    assert all(each.startswith("queue://redelivery.doctor.") for each in begun)
