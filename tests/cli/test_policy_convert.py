"""`redelivery policy convert` of a URI, and of a file with a `brokerURL`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.needs import need

import redelivery
from redelivery import ConfigurationError, parse_uri
from redelivery.importers import read

FAILOVER = (
    "failover:(tcp://bob:hunter2@a:61616?soTimeout=3,tcp://bob:hunter2@b:61616)?jms.redeliveryPolicy.maximumRedeliveries=3"
    "&jms.prefetchPolicy.all=50&randomize=false&wireFormat.maxInactivityDuration=9"
)
SPRING = """<beans xmlns="http://www.springframework.org/schema/beans" xmlns:p="http://www.springframework.org/schema/p">
<bean id="first" class="org.apache.activemq.ActiveMQConnectionFactory">
 <property name="brokerURL"
  value="failover:(tcp://bob:hunter2@a:61616,tcp://b:61616)?randomize=false&amp;jms.prefetchPolicy.all=50&amp;jms.redeliveryPolicy.maximumRedeliveries=2"/>
</bean>
<bean class="org.apache.activemq.ActiveMQConnectionFactory" p:brokerURL="tcp://c:61616"/>
<bean class="org.apache.activemq.command.ActiveMQQueue"><constructor-arg value="orders?consumer.prefetchSize=1"/></bean>
</beans>"""


@pytest.mark.parametrize(
    ("uri", "converted"),
    [
        ("tcp://a:61616", "stomp://a:61613"),
        ("nio://a", "stomp://a:61613"),
        ("ssl://a:61617", "stomp+ssl://a:61614"),
        ("failover:(tcp://a:61616,tcp://b:61616)?randomize=false", "failover:(stomp://a:61613,stomp://b:61613)?randomize=false"),
        ("amqp://h:5673?jms.prefetchPolicy.all=4", "amqp://h:5673?jms.prefetchPolicy.all=4"),
        ("failover:(amqps://h)?failover.maxReconnectAttempts=3", "failover:(amqps://h:5671)?failover.maxReconnectAttempts=3"),
        ("amqp://h?amqp.vhost=v&jms.redeliveryPolicy.maxRedeliveries=2",
         "amqp://h:5672?redelivery.virtualHost=v&jms.redeliveryPolicy.maxRedeliveries=2"),
        ("vm://broker", "stomp://localhost:61613"),
        ("tcp://[::1]:61616", "stomp://[::1]:61613"),
        ("tcp://a?jms.prefetchPolicy.queuePrefetch=0", "stomp://a:61613?jms.prefetchPolicy.queuePrefetch=1"),
        ("stomp://h:1?redelivery.credit=4", "stomp://h:1?redelivery.credit=4"),
        ("(tcp://a:61616?sslEnabled=false,tcp://b:61616)?ha=true&consumerWindowSize=0&reconnectAttempts=-1&retryInterval=9",
         "failover:(stomp://a:61613,stomp://b:61613)"),
        ("tcp://a:61616?user=bob&password=hunter2&clientID=c", "stomp://a:61613?jms.userName=USER&jms.password=PASSWORD&jms.clientID=c"),
        ("tcp://a?userName=bob&password=hunter2", "stomp://a:61613?jms.userName=USER&jms.password=PASSWORD"),
    ],
)  # fmt: skip
def test_a_uri_is_converted(cli: Any, uri: str, converted: str) -> None:
    """A URI of a Java client is printed as one that `connect` takes."""
    if "amqp" in converted:
        need("proton")
    ended = cli("policy", "convert", uri)
    assert (ended.code, ended.out) == (0, f"{converted}\n")
    assert redelivery.connect(converted).settings
    assert "hunter2" not in ended.out + ended.err


def test_options_of_a_destination(cli: Any) -> None:
    """Options of one destination are known: a note says what is written instead, and the exit code is 0."""
    ended = cli(
        "policy",
        "convert",
        "tcp://a?jms.prefetchPolicy.queuePrefetch=7&consumer.prefetchSize=1&consumer.exclusive=true",
    )
    assert (ended.code, ended.out) == (0, "stomp://a:61613?jms.prefetchPolicy.queuePrefetch=7\n")
    assert (
        "consumer.prefetchSize=1 is of one destination in the Java client; write jms.prefetchPolicy.all"
        in ended.err
    )
    assert "consumer.exclusive=true is of one destination" in ended.err


def test_notes_on_a_uri_of_artemis_own_client(cli: Any) -> None:
    """Its options are named with their counterparts; differences of other Java clients are not claimed of it."""
    ended = cli("policy", "convert", "(tcp://a:61616,tcp://b:61616)?reconnectAttempts=-1")
    assert (
        "reconnectAttempts=-1 is an option of the Java client only; here maxReconnectAttempts of failover:"
        in ended.err
    )
    assert "tcp:// speaks Core" in ended.err
    assert not any(word in ended.err for word in ("for ever", "stops a consumer", "unknown"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("?randomize=false", "tries for ever to connect first; here connect fails after one round"),
        ("?maxReconnectAttempts=5", "tries up to 5 times to connect first; here connect fails after one round"),
        ("?maxReconnectAttempts=1", ""),
    ],
)  # fmt: skip
def test_how_long_the_java_client_tries_to_connect_first(cli: Any, options: str, said: str) -> None:
    """The note on the first connect follows `maxReconnectAttempts`, which limits it in the Java clients, too."""
    ended = cli("policy", "convert", f"failover:(tcp://a,tcp://b){options}")
    assert said in ended.err
    assert ("to connect first" in ended.err) is bool(said)


def test_the_protocol_is_chosen(cli: Any) -> None:
    """`--protocol` decides the scheme and its port; without it a note gives the reason of the choice."""
    assert cli("policy", "convert", "ssl://a", "--protocol", "amqp").out == "amqps://a:5671\n"
    assert cli("policy", "convert", "amqp://a", "--protocol", "stomp").out == "stomp://a:61613\n"
    assert "STOMP is chosen" in cli("policy", "convert", "tcp://a").err
    assert "is chosen" not in cli("policy", "convert", "tcp://a", "--protocol", "stomp").err
    assert "is chosen" not in cli("policy", "convert", "amqp://a").err


def test_notes_say_what_is_left_out_and_what_differs(cli: Any) -> None:
    """Each option without a meaning here is a note with its counterpart; no credential is shown."""
    ended = cli("policy", "convert", FAILOVER)
    assert ended.code == 0
    assert ended.out == (
        "failover:(stomp://USER:PASSWORD@a:61613,stomp://USER:PASSWORD@b:61613)?jms.redeliveryPolicy.maximumRedeliveries=3"
        "&jms.prefetchPolicy.all=50&randomize=false\n"
    )
    for said in (
        "note: soTimeout=3 is an option of the Java client only; left out",
        "wireFormat.maxInactivityDuration=9 is an option of the Java client only; here redelivery.heartbeat; left out",
        "here connect fails after one round (startupMaxReconnectAttempts=-1: for ever)",
        "redelivery.ordering=blocking: as the Java client",
        "write yours for USER and PASSWORD",
    ):
        assert said in ended.err
    assert "hunter2" not in ended.out + ended.err
    assert "for ever" not in cli("policy", "convert", "failover:(tcp://a)?startupMaxReconnectAttempts=2").err


def test_a_wrong_option_is_left_out(cli: Any) -> None:
    """A wrong value, and a name without a near one, are notes and exit code 3; a near name is taken for it."""
    ended = cli(
        "policy",
        "convert",
        "tcp://a?bogus=1&jms.redeliveryPolicy.redeliveryDelay=5s&jms.redeliveryPolicy.maximumRedelivery=2",
    )
    assert (ended.code, ended.out) == (3, "stomp://a:61613?jms.redeliveryPolicy.maximumRedeliveries=2\n")
    assert "bogus is unknown; left out" in ended.err
    assert "not '5s'; left out" in ended.err
    assert cli("policy", "convert", "failover:(stomp://a,amqp://b)").code == 78
    assert cli("policy", "convert", "tcp://a b").code == 78


def test_an_option_given_twice(cli: Any) -> None:
    """Of two values the Java client takes the last one: a note says so."""
    ended = cli("policy", "convert", "tcp://a?jms.redeliveryPolicy.maximumRedeliveries=3&"
                "jms.redeliveryPolicy.maximumRedeliveries=5")  # fmt: skip
    assert (ended.code, ended.out) == (0, "stomp://a:61613?jms.redeliveryPolicy.maximumRedeliveries=5\n")
    assert "note: jms.redeliveryPolicy.maximumRedeliveries is given more than once; the last" in ended.err


def test_nested_options_of_qpid_jms(cli: Any) -> None:
    """An option behind `failover.nested.` is named; the virtual host is carried over."""
    uri = "failover:(amqp://a)?failover.nested.amqp.vhost=v&failover.nested.amqp.idleTimeout=9&failover.amqpOpenServerListAction=ADD"
    ended = cli("policy", "convert", uri)
    assert (ended.code, ended.out) == (0, "failover:(amqp://a:5672)?redelivery.virtualHost=v\n")
    assert (
        "failover.nested.amqp.idleTimeout=9 is an option of the Java client only; here redelivery.heartbeat"
        in ended.err
    )
    assert "failover.amqpOpenServerListAction=*** is an option of the Java client only" in ended.err


def test_a_uri_as_toml_and_json(cli: Any) -> None:
    """TOML has the policies; JSON also the URI and the notes."""
    ended = cli("policy", "convert", FAILOVER, "--to", "toml", "--output", "json")
    found = json.loads(ended.out)
    assert found["toml"] == "[default]\nmaximumRedeliveries = 3\n"
    assert found["uri"].startswith("failover:(stomp://USER:PASSWORD@a:61613")
    assert len(found["notes"]) >= 4
    found = json.loads(cli("policy", "convert", "tcp://a?jms.prefetchPolicy.all=4", "--output", "jsonl").out)
    assert (found["uri"], found["options"]) == (
        "stomp://a:61613?jms.prefetchPolicy.all=4",
        "jms.prefetchPolicy.all=4",
    )


def test_a_broker_url_of_a_file_is_carried_over(cli: Any) -> None:
    """Addresses, order and prefetch of the first `brokerURL` are in the URI; each note has its line."""
    Path("client.xml").write_text(SPRING)
    ended = cli("policy", "convert", "client.xml")
    assert ended.code == 0
    assert ended.out == (
        "failover:(stomp://USER:PASSWORD@a:61613,stomp://b:61613)?randomize=false&jms.prefetchPolicy.all=50"
        "&jms.redeliveryPolicy.maximumRedeliveries=2\n"
    )
    assert "client.xml:6: brokerURL: a URI has one list of addresses" in ended.err
    assert "client.xml:7: consumer.prefetchSize=1 of orders: a URI has one for all" in ended.err
    assert "hunter2" not in ended.out + ended.err
    assert "hunter2" not in repr(read("client.xml"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("tcp://${host}:61616", "a placeholder's value is not known here; its addresses are left out"),
        ("nothing", "brokerURL: each address of a connection URI is written scheme://host:port; left out"),
    ],
)
def test_a_broker_url_that_cannot_be_read(cli: Any, url: str, said: str) -> None:
    """The options are written without addresses, and a note says why."""
    Path("a.xml").write_text(
        f'<beans><bean class="a.ActiveMQConnectionFactory"><property name="brokerURL" value="{url}"/></bean>'
        '<redeliveryPolicy maximumRedeliveries="2"/></beans>'
    )
    ended = cli("policy", "convert", "a.xml")
    assert (ended.code, ended.out) == (0, "jms.redeliveryPolicy.maximumRedeliveries=2\n")
    assert said in ended.err


def test_the_prefetch_of_a_files_destinations(cli: Any) -> None:
    """One `consumer.prefetchSize` for all destinations of a file becomes the URI's; different ones are notes."""
    bean = '<bean class="Q" name="a?consumer.prefetchSize=5"/>'
    text = f'<beans><redeliveryPolicy maximumRedeliveries="2"/>{bean}%s</beans>'
    Path("a.xml").write_text(text % '<bean class="Q" name="queue://b?x=1&amp;consumer.prefetchSize=5"/>')
    ended = cli("policy", "convert", "a.xml")
    assert ended.out.startswith("jms.prefetchPolicy.all=5&")
    Path("a.xml").write_text(text % '<bean class="Q" name="b?consumer.prefetchSize=6"/>')
    ended = cli("policy", "convert", "a.xml")
    assert "prefetch" not in ended.out
    assert "use listen('b', ..., credit=6); left out" in ended.err


FACTORY = (
    '<beans xmlns:amq="http://activemq.apache.org/schema/core"><amq:connectionFactory brokerURL="{url}"'
    ' userName="{user}" password="hunter2" nonBlockingRedelivery="true" useAsyncSend="true" clientID="${{id}}"'
    ' taskRunner="x"><amq:prefetchPolicy><amq:prefetchPolicy queuePrefetch="7"/></amq:prefetchPolicy>'
    '<amq:redeliveryPolicy maximumRedeliveries="2"/></amq:connectionFactory></beans>'
)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("tcp://a:61616", "stomp://a:61613?"),
        ("failover:tcp://a:1,tcp://b:2", "failover:(stomp://a:61613,stomp://b:61613)?"),
        ("tcp://a:61616?jms.prefetchPolicy.queuePrefetch=50", "stomp://a:61613?"),
        ("${broker.url}", ""),
    ],
)
def test_properties_of_a_factory_are_carried_over(cli: Any, url: str, address: str) -> None:
    """A property of a connection factory is the `jms.` option of its URL; each that is left out is a note."""
    Path("a.xml").write_text(FACTORY.format(url=url, user="bob"))
    ended = cli("policy", "convert", "a.xml")
    head, _, options = ended.out.strip().rpartition("?")
    assert (head + "?" if head else "") == address
    assert sorted(options.split("&")) == [
        "jms.nonBlockingRedelivery=true",
        "jms.password=PASSWORD",
        "jms.prefetchPolicy.queuePrefetch=7",
        "jms.redeliveryPolicy.maximumRedeliveries=2",
        "jms.userName=USER",
    ]
    assert "a.xml:1: clientID: a placeholder's value is not known here; left out" in ended.err
    assert "a.xml:1: taskRunner: a property of the Java client only; left out" in ended.err
    assert "jms.useAsyncSend=true is an option of the Java client only; left out" in ended.err
    assert "stops a consumer while a message waits" not in ended.err
    assert "hunter2" not in ended.out + ended.err
    assert "bob" not in ended.out + ended.err


def test_credentials_of_the_url_count_before_those_of_the_factory(cli: Any) -> None:
    """A factory whose URL has credentials keeps these; a placeholder for a user name is no mistake."""
    Path("a.xml").write_text(FACTORY.format(url="tcp://al:hunter3@a:61616", user="${user}"))
    ended = cli("policy", "convert", "a.xml")
    assert ended.out.startswith("stomp://USER:PASSWORD@a:61613?jms.nonBlockingRedelivery=true&")
    assert "hunter" not in ended.out + ended.err


@pytest.mark.parametrize(("outcome", "route"), [("ACCEPTED", "discard"), ("rejected", "ack")])
def test_an_outcome_as_toml(cli: Any, tmp_path: Path, outcome: str, route: str) -> None:
    """The outcome of Qpid JMS becomes deadLetter in TOML: the same becomes of a poison message."""
    file = tmp_path / "policies.toml"
    file.write_text(
        cli("policy", "convert", f"amqp://h?jms.redeliveryPolicy.outcome={outcome}", "--to", "toml").out
    )
    assert read(file).dead_letters == {"redelivery.deadLetter": route}


def test_a_map_of_dead_letter_places_is_carried_over(cli: Any, tmp_path: Path) -> None:
    """Options of a pattern stay options of that pattern, in a URI, in TOML, and back; also from a URI of Java's."""
    options = "redelivery.deadLetterMap.noise.strategy=discarding&redelivery.deadLetterMap.orders.>.destination=dead"
    expected = parse_uri(f"stomp://h?{options}").dead_letters
    for scheme in ("stomp", "tcp"):
        ended = cli("policy", "convert", f"{scheme}://h?{options}", "--to", "uri")
        assert (ended.code, parse_uri(ended.out.strip()).dead_letters) == (0, expected)
    file = tmp_path / "policies.toml"
    file.write_text(cli("policy", "convert", f"stomp://h?{options}", "--to", "toml").out)
    back = cli("policy", "convert", str(file), "--to", "uri")
    assert parse_uri(f"stomp://h?{back.out.strip()}").dead_letters == expected
    with pytest.raises(ConfigurationError, match=r"deadLetterMap\.orders\.>\.destination=dead"):
        redelivery.connect(f"tcp://h?{options}")
