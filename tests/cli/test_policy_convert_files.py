"""`redelivery policy convert` of a file with mistakes, or with values that are not in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

STRATEGY = (
    '<broker><policyEntry queue=">"><deadLetterStrategy><individualDeadLetterStrategy queuePrefx="D."/>'
    "</deadLetterStrategy></policyEntry></broker>"
)
ADDRESS = (
    '<configuration xmlns="urn:activemq"><core><address-setting match="#">{}</address-setting></core>'
    "</configuration>"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<beans><redeliveryPolicy maximumRedeliveries="${n}"/></beans>', "a placeholder's value is not known here"),
        (STRATEGY, "did you mean 'queuePrefix'?"),
        ('<broker><redeliveryPlugin fallbackToDeadletter="true"/></broker>', "did you mean 'fallbackToDeadLetter'?"),
        ('<beans><connectionFactory redeliveryPolicy="#gone"/></beans>', "not in this file"),
        (ADDRESS.format("<max-delivery-attempt>3</max-delivery-attempt>"), "did you mean 'max-delivery-attempts'?"),
        ('{"queues": [{"name": "a.*", "maximumDeliveryAttempts": 3}]}', "its name would be a pattern here"),
        (ADDRESS.format("<max-delivery-attempts>${n}</max-delivery-attempts>"), "value is not known here"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["uri", "toml"])
def test_a_wrong_option_of_a_file_is_left_out(cli: Any, text: str, said: str, form: str) -> None:
    """An option of a file that is misspelled, or has no known value, is a note and exit code 3."""
    Path("a.xml").write_text(text)
    ended = cli("policy", "convert", "a.xml", "--to", form)
    assert ended.code == 3
    assert said in ended.err


def test_placeholders_in_a_broker_url(cli: Any) -> None:
    """A placeholder in an option does not hide the addresses; its default is taken, if it has one."""
    url = "failover:(tcp://h)?timeout=${t:3000}&amp;jms.clientID=${c}&amp;jms.redeliveryPolicy.maximumRedeliveries=${n:3}"
    Path("a.xml").write_text(f'<beans><connectionFactory brokerURL="{url}"/></beans>')
    ended = cli("policy", "convert", "a.xml")
    assert (ended.code, ended.out) == (
        0, "failover:(stomp://h:61613)?timeout=3000&jms.redeliveryPolicy.maximumRedeliveries=3\n",
    )  # fmt: skip
    assert "brokerURL: timeout: a placeholder's default is taken" in ended.err
    assert "brokerURL: jms.clientID: a placeholder's value is not known here; left out" in ended.err


@pytest.mark.parametrize("name", ["application.properties", "application.yml"])
def test_settings_of_spring_boot(cli: Any, name: str) -> None:
    """Settings of Spring Boot are no policy file: the error says what to convert instead."""
    Path(name).write_text("spring.activemq.broker-url=tcp://a:61616\n")
    ended = cli("policy", "convert", name)
    assert ended.code == 78
    assert f"{name}: Java properties and YAML are not read; give the broker URL" in ended.err


def test_an_element_given_twice(cli: Any) -> None:
    """Of two equal elements of Artemis' file the last one counts, with a note."""
    Path("b.xml").write_text(ADDRESS.format("<max-delivery-attempts>3</max-delivery-attempts>" * 2))
    assert "max-delivery-attempts of #: given again; this one counts" in cli("policy", "convert", "b.xml").err
