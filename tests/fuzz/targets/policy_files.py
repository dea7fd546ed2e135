"""Policy files of each kind: they are read, or refused with one sentence.

A map that was read is written as TOML and as a URI, which are read again: the map is the same, the URI is accepted.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path

from tests.fuzz.target import Target

from redelivery.errors import ConfigurationError
from redelivery.importers import Imported, read, to_uri_options
from redelivery.importers.toml_policies import read_toml, to_toml
from redelivery.uri.parser import parse_uri

__all__ = ["TARGETS"]

_CLASSIC = b"""<beans xmlns="http://www.springframework.org/schema/beans" xmlns:p="http://www.springframework.org/schema/p">
<bean class="org.apache.activemq.RedeliveryPolicy" id="a"><property name="maximumRedeliveries" value="3"/></bean>
<bean class="org.apache.activemq.RedeliveryPolicy" p:queue="B" parent="a" p:useExponentialBackOff="${x:yes}"/>
<broker xmlns="http://activemq.apache.org/schema/core"><destinationPolicy><policyMap><policyEntries>
<policyEntry queue=">"><deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ."
useQueueForQueueMessages="true"/></deadLetterStrategy></policyEntry><policyEntry topic="T.>">
<deadLetterStrategy><sharedDeadLetterStrategy
processExpired="false"><deadLetterQueue><queue physicalName="D"/></deadLetterQueue></sharedDeadLetterStrategy>
</deadLetterStrategy></policyEntry></policyEntries></policyMap></destinationPolicy><plugins>
<discardingDLQBrokerPlugin dropAll="false" dropOnly="X.* Y" reportInterval="5"/>
<redeliveryPlugin fallbackToDeadLetter="true"><redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
<redeliveryPolicy queue="A" maximumRedeliveries="4" redeliveryDelay="100"/></redeliveryPolicyEntries><defaultEntry>
<redeliveryPolicy maximumRedeliveries="4" backOffMultiplier="2.5"/></defaultEntry></redeliveryPolicyMap>
</redeliveryPolicyMap></redeliveryPlugin></plugins></broker></beans>"""
_ARTEMIS = b"""<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><wildcard-addresses>
<delimiter>.</delimiter>
<single-word>*</single-word></wildcard-addresses><address-settings><address-setting match="#">
<redelivery-delay>5000</redelivery-delay><redelivery-delay-multiplier>1.5</redelivery-delay-multiplier>
<redelivery-collision-avoidance-factor>0.15</redelivery-collision-avoidance-factor>
<max-redelivery-delay>50000</max-redelivery-delay><max-delivery-attempts>5</max-delivery-attempts>
<dead-letter-address>DLQ</dead-letter-address></address-setting><address-setting match="a.*"><max-delivery-attempts>-1
</max-delivery-attempts><auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>
</address-setting><address-setting match="a.b"><redelivery-delay>7</redelivery-delay></address-setting>
</address-settings></core></configuration>"""
_BROKERJ = json.dumps({
    "name": "b", "modelVersion": "9.0", "context": {"queue.maximumDeliveryAttempts": "5"},
    "virtualhostnodes": [{
        "type": "JSON",
        "virtualHostInitialConfiguration": json.dumps({
            "type": "BDB",
            "nodeAutoCreationPolicies": [{
                "pattern": ".*", "nodeType": "queue",
                "attributes": {"alternateBinding": {"destination": "DLQ"}, "maximumDeliveryAttempts": 3},
            }],
        }),
        "virtualhosts": [{"queues": [
            {"name": "q", "maximumDeliveryAttempts": 3, "alternateBinding": '{"destination": "DLQ"}'},
            {"name": "r", "type": "standard", "maximumDeliveryAttempts": "${x:7}"},
        ]}],
    }],
}).encode()  # fmt: skip
_TOML = b"""wildcards = "activemq"
[default]
maximumRedeliveries = 3
initialRedeliveryDelay = 500
[policies."FRED.>"]
useExponentialBackOff = true
backOffMultiplier = 2.5
[policies.a]
delays = [1, 2, 3]
[policies."A.*"]
max-delivery-attempts = 3
redelivery-delay = 7
[deadLetters]
deadLetter = "forward"
deadLetterDestination = "queue://D"
"""
_TOML_ARTEMIS = b"""wildcards = {delimiter = "/", singleWord = "+", anyWords = "#"}
[default]
max-delivery-attempts = 3
[policies."a/+/#"]
redelivery-delay-multiplier = 1.5
"""
_XML_TOKENS = (
    b"<", b"</", b">", b"/>", b'"', b"&amp;", b"&x;", b"&#0;", b"<!DOCTYPE a [<!ENTITY x 'y'>]>", b"<![CDATA[", b"]]>",
    b"<!--", b"-->", b"<?xml version='1.0' encoding='utf-16'?>", b"<?xml version='1.0' encoding='rot13'?>", b"<?x?>",
    b"xmlns:a='b'", b" xmlns=''", b"${x}", b"${x:1}", b"#{y}", b"9" * 400, b"-1", b"NaN", b"<a>" * 110, b"<bean/>",
    b' ref="a"', b" parent='a'", b" id='a'", b"<list>", b"<ref bean='a'/>", b"\xc3\xa9", b"queue='A'", b"topic='>'",
    b"<redeliveryPolicy/>", b"<redeliveryPolicy>", b"</redeliveryPolicy>", b"<property name='", b" value='",
    b"\xed\xa0\x80", b"true", b"false", b"*", b"#", b"match=''",
)  # fmt: skip
_JSON_TOKENS = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\udc00", b"null", b"true", b"NaN",
    b"1e999", b"9" * 5000, b"[" * 400, b'{"a":' * 300, b'"a":', b"${x}", b"${x:1}", b"-", b"\xc3\xa9", b"\\\\", b'\\"',
    b'"queues":', b'"context":', b'"pattern":', b'"attributes":', b'"type":"standard"', b'"name":', b"\\u2028",
    b'"nodeAutoCreationPolicies":', b'"alternateBinding":', b'"maximumDeliveryAttempts":', b"0", b"-1", b"2.0",
)  # fmt: skip
_TOML_TOKENS = (
    b"[", b"]", b"=", b'"', b"'", b"\n", b"#", b".", b"{", b"}", b"inf", b"nan", b"-1", b"9" * 5000,
    b"0x" + b"f" * 5000, b"0b" + b"1" * 20000, b"-inf", b"1979-05-27", b"07:32:00", b"true", b"[[a]]",
    b"a.b.c=1\n", b'"""', b"\\u0000", b"\\ud800", b"\xc3\xa9", b"[policies.", b"delays = ", b"[" * 300,
    b"{a=" * 300, b"x." * 500, b"1e400", b"1_000", b"maximumRedeliveries = ", b"max-delivery-attempts = ",
    b"wildcards = ", b"deadLetterStrategy = ", b"*", b">", b"queue://", b"native://",
)  # fmt: skip


@functools.cache
def _folder(pid: int) -> Path:
    """Return a folder of this process, in memory if the system has such a folder."""
    del pid
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="redelivery-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def check(data: bytes) -> None:
    """Read a file; write its policies, and read them again."""
    path = _folder(os.getpid()) / "f"
    path.write_bytes(data)
    try:
        found = read(path)
    except ConfigurationError as error:
        said = str(error)
    else:
        _write(found)
        said = "\n".join(map(str, found.notes[:20]))
    said.encode()
    assert len(said) < 40_000, "the error repeats the file"


def _write(found: Imported) -> None:
    try:
        toml = to_toml(found.policies, found.dead_letters)
    except ConfigurationError:
        toml = ""
    if toml:
        toml.encode()
        policies, dead_letters = read_toml(toml, "written")
        assert (policies.default, policies.wildcards) == (found.policies.default, found.policies.wildcards)
        assert (policies.entries, dead_letters) == (found.policies.entries, dict(found.dead_letters))
    try:
        options = to_uri_options(found.policies, found.dead_letters)
    except ConfigurationError:
        return
    parse_uri(f"memory://x?{options.text}")


def _target(name: str, dictionary: tuple[bytes, ...], *seeds: bytes) -> Target:
    return Target(
        name=name, check=check, seeds=lambda: seeds, dictionary=dictionary, quick=100, longest=32768
    )


TARGETS = (
    _target("policy-activemq-xml", _XML_TOKENS, _CLASSIC),
    _target("policy-artemis-xml", _XML_TOKENS, _ARTEMIS),
    _target("policy-brokerj-json", _JSON_TOKENS, _BROKERJ),
    _target("policy-toml", _TOML_TOKENS, _TOML, _TOML_ARTEMIS),
)
