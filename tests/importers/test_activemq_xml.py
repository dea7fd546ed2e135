"""ActiveMQ Classic's XML, of a broker and of a client."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from redelivery import ConfigurationError, DeadLetterMap, Destination, RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.importers.activemq_xml import PolicyReader

if TYPE_CHECKING:
    from pathlib import Path

CORE = 'xmlns="http://activemq.apache.org/schema/core"'
BEANS = (
    'xmlns="http://www.springframework.org/schema/beans" xmlns:p="http://www.springframework.org/schema/p"'
)
ENTRIES = """
 <redeliveryPolicyEntries>
  <redeliveryPolicy queue="SpecialQueue" maximumRedeliveries="4" redeliveryDelay="10000"/>
  <redeliveryPolicy queue="FRED.JOE" maximumRedeliveries="4"/>
  <redeliveryPolicy topic="PRICES.*" useExponentialBackOff="true" backOffMultiplier="2"/>
  <redeliveryPolicy tempQueue="true" maximumRedeliveries="0"/>
 </redeliveryPolicyEntries>
 <defaultEntry>
  <redeliveryPolicy maximumRedeliveries="4" initialRedeliveryDelay="5000" redeliveryDelay="10000"/>
 </defaultEntry>"""
PLUGIN = f"""<broker {CORE} schedulerSupport="true"><plugins>
 <redeliveryPlugin fallbackToDeadLetter="true" sendToDlqIfMaxRetriesExceeded="true">
 <redeliveryPolicyMap><redeliveryPolicyMap>{ENTRIES}</redeliveryPolicyMap></redeliveryPolicyMap>
 </redeliveryPlugin></plugins></broker>"""
FACTORY = f"""<beans xmlns:amq="http://activemq.apache.org/schema/core">
 <amq:connectionFactory id="f" brokerURL="tcp://localhost:61616">
 <amq:redeliveryPolicyMap><amq:redeliveryPolicyMap>{ENTRIES.replace("<", "<amq:").replace("<amq:/", "</amq:")}
 </amq:redeliveryPolicyMap></amq:redeliveryPolicyMap></amq:connectionFactory></beans>"""
SPRING = f"""<beans {BEANS}>
 <bean id="base" class="org.apache.activemq.RedeliveryPolicy" abstract="true" p:maximumRedeliveries="4"/>
 <bean id="special" parent="base" class="org.apache.activemq.RedeliveryPolicy" p:queue="SpecialQueue">
  <property name="redeliveryDelay" value="10000"/></bean>
 <bean id="default" parent="base" class="org.apache.activemq.RedeliveryPolicy">
  <property name="initialRedeliveryDelay"><value>5000</value></property>
  <property name="redeliveryDelay" value=" 10000 "/></bean>
 <bean class="org.apache.activemq.camel.component.ActiveMQComponent">
  <property name="redeliveryPolicyMap">
   <bean class="org.apache.activemq.broker.region.policy.RedeliveryPolicyMap">
    <property name="defaultEntry" ref="default"/>
    <property name="redeliveryPolicyEntries"><list>
     <ref bean="special"/>
     <bean class="org.apache.activemq.RedeliveryPolicy" parent="base">
      <property name="destination"><bean class="org.apache.activemq.command.ActiveMQQueue">
       <constructor-arg value="FRED.JOE"/></bean></property></bean>
     <bean class="org.apache.activemq.RedeliveryPolicy" p:topic="PRICES.*" p:useExponentialBackOff="yes"
      p:backOffMultiplier="2"/>
     <bean class="org.apache.activemq.RedeliveryPolicy" p:tempQueue="1" p:maximumRedeliveries="0"/>
    </list></property></bean></property></bean></beans>"""
EXPECTED = RedeliveryPolicyMap(
    {
        "SpecialQueue": RedeliveryPolicy(maximum_redeliveries=4, redelivery_delay=10),
        "FRED.JOE": RedeliveryPolicy(maximum_redeliveries=4),
        "topic://PRICES.*": RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=2),
        "temp-queue://>": RedeliveryPolicy(maximum_redeliveries=0),
    },
    default=RedeliveryPolicy(maximum_redeliveries=4, initial_redelivery_delay=5, redelivery_delay=10),
)


@pytest.mark.parametrize("text", [PLUGIN, FACTORY, SPRING], ids=["plugin", "factory", "spring"])
def test_one_map_however_it_is_written(imported: Any, text: str) -> None:
    """A broker's plugin, ActiveMQ's own elements and Spring's beans give the same map."""
    found = imported(text)
    assert found.policies == EXPECTED
    assert found.policies.policy_for("FRED.JOE").maximum_redeliveries == 4
    assert [note.what for note in found.notes] == (["redeliveryPlugin"] if text is PLUGIN else [])


@pytest.mark.parametrize(
    ("text", "default"),
    [
        (
            (
                f'<bean {BEANS} class="org.apache.activemq.ActiveMQConnectionFactory">'
                '<property name="brokerURL" value="failover:(tcp://a:1,tcp://b)?jms.useAsyncSend=true&amp;'
                'jms.redeliveryPolicy.maximumRedeliveries=9"/></bean>'
            ),
            RedeliveryPolicy(maximum_redeliveries=9),
        ),
        (
            f"""<beans {BEANS}><bean id="r" class="org.apache.activemq.RedeliveryPolicy"
             p:maximumRedeliveries="8"/><bean class="org.apache.activemq.ActiveMQConnectionFactory"
             p:brokerURL="tcp://a" p:redeliveryPolicy-ref="r"/></beans>""",
            RedeliveryPolicy(maximum_redeliveries=8),
        ),
        (
            (
                f'<amq:connectionFactory xmlns:amq="{CORE[7:-1]}" redeliveryPolicy="#r"><amq:x>'
                '<amq:redeliveryPolicy id="r" maximumRedeliveries="7"/></amq:x></amq:connectionFactory>'
            ),
            RedeliveryPolicy(maximum_redeliveries=7),
        ),
        (
            f'<redeliveryPolicy {CORE} maximumRedeliveries="5"/>',
            RedeliveryPolicy(maximum_redeliveries=5),
        ),
    ],
)
def test_a_factory_has_one_policy(imported: Any, text: str, default: RedeliveryPolicy) -> None:
    """The default is a factory's own policy, by reference, inside of it, or in its brokerURL."""
    found = imported(text)
    assert (found.policies, found.notes) == (RedeliveryPolicyMap(default=default), ())


def strategies(*entries: str) -> str:
    """Return a broker with policy entries."""
    lines = "\n".join(entries)
    inner = f"<policyMap><policyEntries>\n{lines}\n</policyEntries></policyMap>"
    return f"<broker {CORE}><destinationPolicy>{inner}</destinationPolicy></broker>"


def entry(place: str, strategy: str) -> str:
    """Return a policy entry with a dead-letter strategy."""
    return f"<policyEntry {place}><deadLetterStrategy>{strategy}</deadLetterStrategy></policyEntry>"


def test_dead_letter_strategies(imported: Any) -> None:
    """Each entry's strategy becomes options of its pattern; one that is not known is a note, and left out."""
    found = imported(
        strategies(
            entry('queue=">"', '<sharedDeadLetterStrategy processExpired="false" processNonPersistent="true" '
                  'expiration="300000" enableAudit="false"><deadLetterQueue><queue physicalName="LOST"/>'
                  "</deadLetterQueue></sharedDeadLetterStrategy>"),
            entry('topic="T.>"', '<sharedDeadLetterStrategy processExpired="false"/>'),
            entry('queue="X"', '<bean class="com.example.Own"/>'),
        )
    )  # fmt: skip
    assert found.dead_letters == {
        "redelivery.deadLetterMap.>.destination": "queue://LOST",
        "redelivery.deadLetterMap.>.processExpired": "false",
        "redelivery.deadLetterMap.>.expiration": "300000",
        "redelivery.deadLetterMap.topic://T.>.processExpired": "false",
    }
    assert [(note.line, note.what) for note in found.notes] == [
        (1, "redelivery policies"),
        (2, "enableAudit=false"),
        (4, "deadLetterStrategy of queue://X"),
    ]
    assert found.notes[-1].left_out


@pytest.mark.parametrize("place", ["${dlq.orders}", "#dlq", "#{systemProperties['dlq']}"])
@pytest.mark.parametrize("form", ["attribute", "bean"])
def test_a_place_that_only_the_broker_knows_is_left_out(imported: Any, place: str, form: str) -> None:
    """A placeholder without a default, and a reference without its bean, become no name of a queue."""
    written = f'<sharedDeadLetterStrategy deadLetterQueue="{place}"/>'
    if form == "bean":
        inner = f'<deadLetterQueue><queue physicalName="{place}"/></deadLetterQueue>'
        written = f"<sharedDeadLetterStrategy>{inner}</sharedDeadLetterStrategy>"
    found = imported(strategies(entry('queue="X"', written)))
    assert place not in str(found.dead_letters)
    assert any(note.left_out and place in note.what for note in found.notes)


def test_a_place_with_a_default(imported: Any) -> None:
    """The default of a placeholder is taken, as in a broker without another setting of that name."""
    found = imported(
        strategies(entry('queue="X"', '<sharedDeadLetterStrategy deadLetterQueue="${d:X.DLQ}"/>'))
    )
    assert found.dead_letters == {"redelivery.deadLetterMap.X.destination": "queue://X.DLQ"}


@pytest.mark.parametrize(("resource", "left_out"), [("policies.xml", True), ("jetty.xml", False)])
def test_an_import_leaves_policies_out(imported: Any, resource: str, left_out: bool) -> None:
    """Another file may have policies and strategies; the web console, which each distribution imports, has none."""
    found = imported(f'<beans {BEANS}><import resource="{resource}"/><broker {CORE}/></beans>')
    assert [note.left_out for note in found.notes if note.what.startswith("import")] == [left_out]


def test_the_audit_is_not_carried_over(imported: Any) -> None:
    """Each option of a strategy's audit is a note, whatever its value; the strategy is carried over."""
    audit = ("enableAudit=true", "maxAuditDepth=2048", "maxProducersToAudit=64")
    options = " ".join(f'{name}="{value}"' for name, _, value in (option.partition("=") for option in audit))
    found = imported(strategies(entry('queue=">"', f"<individualDeadLetterStrategy {options}/>")))
    assert found.dead_letters == {"redelivery.deadLetterMap.>.strategy": "individual"}
    notes = {note.what: note.why for note in found.notes if note.what in audit}
    assert notes == dict.fromkeys(audit, "a dead letter is not audited for duplicates here")


def test_discarding(imported: Any) -> None:
    """A strategy that discards everything is carried over, and a plugin that discards all, or names some."""
    found = imported(strategies(entry('queue=">"', "<discarding/>")))
    assert found.dead_letters == {"redelivery.deadLetterMap.>.strategy": "discarding"}
    plugin = "<broker {}><plugins><discardingDLQBrokerPlugin {}/></plugins></broker>"
    every = imported(plugin.format(CORE, 'dropAll="true"'))
    assert every.dead_letters == {"redelivery.deadLetterStrategy": "discarding"}
    some = imported(plugin.format(CORE, f'dropAll="false" dropOnly="A B" {KEPT}'))
    assert some.dead_letters == {"redelivery.deadLetterStrategy": "discarding", "redelivery.discard": "A B"}


TEMPORARY = ("temp-queue://t", "temp-topic://t")
KEPT = 'dropTemporaryQueues="false" dropTemporaryTopics="off"'


@pytest.mark.parametrize(
    ("plugin", "dropped"),
    [
        ("", ("queue://A", "queue://C", *TEMPORARY)),
        ('dropTemporaryQueues="false"', ("queue://A", "queue://C", *TEMPORARY)),
        ('dropAll="false"', TEMPORARY),
        ('dropAll="no" dropTemporaryQueues="true"', TEMPORARY),
        ('dropAll="false" dropTemporaryQueues="false"', ("temp-topic://t",)),
        ('dropAll="false" dropTemporaryTopics="false"', ("temp-queue://t",)),
        ('dropAll="false" dropOnly="A B" reportInterval="5"', ("queue://A", *TEMPORARY)),
        (f'dropAll="false" dropOnly="A B" {KEPT}', ("queue://A",)),
        (f'dropAll="false" {KEPT}', ()),
        ('dropAll="${unknown}"', ()),
        ('dropAll="false" dropTemporaryQueues="${unknown}"', ("temp-topic://t",)),
    ],
)
def test_what_the_plugin_drops(imported: Any, plugin: str, dropped: tuple[str, ...]) -> None:
    """The plug-in's flags are true where they are absent, as in Classic's class; only an unknown value has a note."""
    found = imported(f"<broker {CORE}><plugins><discardingDLQBrokerPlugin {plugin}/></plugins></broker>")
    strategies = found.dead_letter_map or DeadLetterMap()
    names = ("queue://A", "queue://C", *TEMPORARY)
    assert tuple(n for n in names if strategies.strategy_for(n).drops(Destination.parse(n))) == dropped
    assert [note.left_out for note in found.notes if "drop" in note.what] == [True] * plugin.count("$")


def test_a_plugin_that_drops_all_against_its_words(imported: Any) -> None:
    """`dropOnly` beside `dropAll`, which is true by default, drops everything on Classic: no author means that."""
    found = imported(
        f'<broker {CORE}><plugins>\n<discardingDLQBrokerPlugin dropOnly="A B"/></plugins></broker>'
    )
    assert found.dead_letters == {}
    (note,) = [note for note in found.notes if note.left_out]
    assert (note.line, note.what) == (2, "dropOnly=A B")
    assert 'write dropAll="false" to drop these only' in note.why


def test_a_plugin_and_strategies(imported: Any) -> None:
    """Beside strategies a plugin's names are left out, with a note; its temporary destinations are entries."""
    own = entry('queue="X"', "<individualDeadLetterStrategy/>")
    plugin = f"<broker {CORE}><plugins><discardingDLQBrokerPlugin {{}}/></plugins>{own}</broker>"
    found = imported(plugin.format(f'dropAll="false" dropOnly="A B" {KEPT}'))
    assert found.dead_letters == {"redelivery.deadLetterMap.X.strategy": "individual"}
    assert [note.what for note in found.notes if note.left_out] == ["the discardingDLQBrokerPlugin"]
    found = imported(plugin.format('dropAll="false" dropTemporaryTopics="false"'))
    assert found.dead_letters == {
        "redelivery.deadLetterMap.X.strategy": "individual",
        "redelivery.deadLetterMap.temp-queue://>.strategy": "discarding",
    }
    assert [note for note in found.notes if note.left_out] == []


@pytest.mark.parametrize(
    ("text", "line", "what", "why"),
    [
        (f'<redeliveryPolicy {CORE}\n maximumRedeliveries="${{max}}"/>', 1, "maximumRedeliveries=${max}", "left out"),
        (f'<redeliveryPolicy {CORE} maximumRedeliveries="${{max:3}}"/>', 1, "maximumRedeliveries=${max:3}", "'3'"),
        (f'<redeliveryPolicy {CORE} queue="A.B*"/>', 1, "queue://A.B*", "one whole part"),
        (
            ('<routes>\n<redeliveryPolicy xmlns="http://camel.apache.org/schema/spring"/>'
            f"<redeliveryPolicy {CORE}/></routes>"),
            2, "redeliveryPolicy", "Camel",
        ),
        (
            f'<beans {BEANS}><import resource="other.xml"/></beans>',
            1, "import other.xml", "other files",
        ),
        (
            f'<beans {BEANS}><bean class="ActiveMQConnectionFactory" p:redeliveryPolicy-ref="away"/></beans>',
            1, "redeliveryPolicy=#away", "not in this file",
        ),
        (
            (f'<a {CORE}><connectionFactory brokerURL="tcp://a?jms.redeliveryPolicy.maximumRedeliveries=1"/>\n'
            '<connectionFactory brokerURL="tcp://a?jms.redeliveryPolicy.maximumRedeliveries=2"/></a>'),
            2, "redelivery policies", "line 1",
        ),
        (
            (f'<redeliveryPolicyMap {CORE}><redeliveryPolicyEntries>\n<redeliveryPolicy queue="A"/>\n'
            '<redeliveryPolicy queue="A"/></redeliveryPolicyEntries></redeliveryPolicyMap>'),
            2, "queue://A", "line 3",
        ),
    ],
)  # fmt: skip
def test_notes(imported: Any, text: str, line: int, what: str, why: str) -> None:
    """Each setting that is not carried over is named with its line and the reason."""
    notes = [note for note in imported(text).notes if note.what == what]
    assert [(note.file, note.line) for note in notes] == [("f", line)]
    assert why in notes[0].why
    assert str(notes[0]).startswith(f"f:{line}: {what}: ")


def test_a_pre_dispatch_check_that_is_off(imported: Any) -> None:
    """A check that is off is carried over if a connection URI supports it; if not, it is a note."""
    from redelivery.importers.dead_letter_uri import refusal  # noqa: PLC0415

    found = imported('<redeliveryPolicy preDispatchCheck="false"/>')
    supported = refusal({"jms.redeliveryPolicy.preDispatchCheck": "false"}) is None
    assert found.policies.default.pre_dispatch_check is not supported
    assert bool(found.notes) is not supported


def test_a_policy_of_the_url_beside_one_of_the_factory(imported: Any) -> None:
    """The factory's policy counts before that of its URL, with a note if they differ."""
    for maximum, notes in ((2, 0), (9, 1)):
        url = f"tcp://a?jms.redeliveryPolicy.maximumRedeliveries={maximum}"
        found = imported(
            f'<x {CORE}><connectionFactory brokerURL="{url}"><redeliveryPolicy maximumRedeliveries="2"/>'
            "</connectionFactory></x>"
        )
        assert found.policies.default.maximum_redeliveries == 2
        assert len([note for note in found.notes if "that of the URL is left out" in note.why]) == notes


def test_the_plugin_counts_where_the_client_does_not_redeliver(imported: Any) -> None:
    """A factory with maximumRedeliveries=0 leaves redelivery to the plugin, whose schedule is read.

    Other factories have their own schedule. A note warns of the plugin in both cases: the broker still has it.
    """
    factory = '<connectionFactory brokerURL="tcp://a?jms.redeliveryPolicy.maximumRedeliveries={}"/></plugins>'
    for maximum, expected in ((0, EXPECTED.default), (2, RedeliveryPolicy(maximum_redeliveries=2))):
        found = imported(PLUGIN.replace("</plugins>", factory.format(maximum)))
        assert found.policies.default == expected
        assert any("use redelivery.deadLetter=forward" in note.why for note in found.notes)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('<redeliveryPolicy queue="A"\n maximumRedeliveries="-2"/>', "f:2: maximumRedeliveries must be a whole number"),
        ('<redeliveryPolicy redeliveryDelays="1"/>', "f:2: unknown option redeliveryDelays; did you mean"),
        ('<redeliveryPolicy useExponentialBackOff="perhaps"/>', "f:2: useExponentialBackOff must be true or false"),
        (("<redeliveryPolicyMap><redeliveryPolicyEntries><redeliveryPolicy/></redeliveryPolicyEntries>"
         "</redeliveryPolicyMap>"), "f:2: a redelivery policy entry needs a queue"),
        ('<connectionFactory brokerURL="tcp://u:hunter2@a?jms.redeliveryPolicy.maximumRedelivery=1"/>',
         "f:2: unknown option jms.redeliveryPolicy.maximumRedelivery; did you mean"),
        (entry('queue=">"', '<sharedDeadLetterStrategy expiration="-1"/>'), "f:2: redelivery.deadLetterMap.queue://>.exp"),
        (entry('queue=">"', '<sharedDeadLetterStrategy deadLetterQueue="a.*"/>'), "f:2: redelivery.deadLetterMap.queue://>.dest"),
    ],
)  # fmt: skip
def test_mistakes(imported: Any, text: str, error: str) -> None:
    """A value out of range, an unknown option, or an entry without a destination is an error with its line."""
    with pytest.raises(ConfigurationError) as caught:
        imported(f"<x {CORE}>\n{text}</x>")
    assert str(caught.value).startswith(error)
    assert "hunter2" not in str(caught.value)


def test_a_map_that_many_factories_share_is_read_once(imported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared map is read once: 300 factories and a map of 3000 entries took most of a minute."""
    read: list[Any] = []
    once = PolicyReader.entry

    def counted(*given: Any) -> None:
        read.append(given)
        once(*given)

    monkeypatch.setattr(PolicyReader, "entry", counted)
    policy = '<bean class="a.RedeliveryPolicy"><property name="queue" value="A"/></bean>'
    shared = f'<bean id="m" class="a.RedeliveryPolicyMap"><property name="entries">{policy}</property></bean>'
    factory = '<bean class="a.ConnectionFactory"><property name="redeliveryPolicyMap" ref="m"/></bean>'
    found = imported(f"<beans>{shared}{factory * 3}</beans>")
    assert [place for place, _ in found.policies.entries] == ["queue://A"]
    assert len(read) == 1


def test_the_classmethod_logs_the_notes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`from_activemq_xml` returns the map, and logs each note as a warning."""
    path = tmp_path / "activemq.xml"
    path.write_text(PLUGIN)
    with caplog.at_level(logging.WARNING, "redelivery"):
        assert RedeliveryPolicyMap.from_activemq_xml(path) == EXPECTED
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["redeliveryPlugin"]


def test_an_entry_that_is_given_again_stands_last(imported: Any) -> None:
    """The last entry for a destination counts, at its last place, as in the broker's own map."""
    entries = "".join(
        f'<redeliveryPolicy queue="{name}" maximumRedeliveries="{most}"/>'
        for name, most in (("A", 1), ("B", 2), ("A", 3))
    )
    text = f"<redeliveryPolicyEntries>{entries}</redeliveryPolicyEntries>"
    found = imported(f"<redeliveryPolicyMap {CORE}>{text}</redeliveryPolicyMap>").policies.entries
    assert [(name, policy.maximum_redeliveries) for name, policy in found] == [
        ("queue://B", 2),
        ("queue://A", 3),
    ]
