"""Kinds of bodies over STOMP, and bodies that did not arrive whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stomp.test_deliveries import ARTEMIS, CLASSIC, delivery

from redelivery_stomp.profiles import StompArtemis, StompClassic

if TYPE_CHECKING:
    from redelivery_stomp.profile_base import StompProfile


@pytest.mark.parametrize(
    ("profile", "extra", "body", "kind"),
    [
        (StompClassic(), [], b"text", "text"),
        (StompClassic(), ["content-length:1"], b"x", "bytes"),
        (StompClassic(), ["content-length:0"], b"", "unknown-bytes"),
        (StompClassic(), [], b"", "unknown"),
        (StompClassic(), ["redeliveryId:1"], b"", "unknown"),
        (StompClassic(), ["amq-msg-type:text"], b"", "unknown"),
        (StompClassic(), ["amq-msg-type:bytes"], b"", "unknown-bytes"),
        (StompClassic(), ["amq-msg-type:text", "content-length:3"], b"a\0b", "text"),
        (StompClassic(), ["amq-msg-type:text", "content-length:3"], b"\xff\xfea", "bytes"),
        (StompArtemis(), ["content-length:4"], b"text", "text"),
        (StompArtemis(), ["content-length:4"], b"\0map", "partial"),
        (StompArtemis(), ["content-length:0"], b"", "bytes"),
        (StompArtemis(), [], b"", "text"),
        (StompArtemis(), ["__AMQ_CID:1"], b"", "unknown"),
        (StompArtemis(), ["JMS_AMQP_ORIGINAL_ENCODING:7"], b"", "unknown"),
        (StompArtemis(), ["JMS_AMQP_ORIGINAL_ENCODING:5", "content-length:4"], b"text", "text"),
        (StompArtemis(), ["content-length:0", "__AMQ_CID:1"], b"", "unknown-bytes"),
    ],
)
def test_body_kinds(profile: StompProfile, extra: list[str], body: bytes, kind: str) -> None:
    """Each kind of JMS message has the body kind of the measured table."""
    lines = CLASSIC if isinstance(profile, StompClassic) else ARTEMIS
    assert delivery(profile, [*lines, *extra], body).body_kind == kind


def test_bytes_on_artemis_have_their_length_in_front() -> None:
    """Only the place of `content-length` shows if a body is Bytes or Text; an AMQP number arrives as Bytes, encoded."""
    lines = ["subscription:1", "content-length:5", *ARTEMIS[1:]]
    for body, producer, kind in (
        (b"bytes", [], "bytes"),
        (b"\0SwT*", [], "partial"),
        (b"\0Sp\xc0\2", ["JMS_AMQP_HEADER:true"], "partial"),
        (b"\x17\3\3\0#", ["JMS_AMQP_MA_key:1"], "partial"),
        (b"\x17\3\3\0#", ["NATIVE_MESSAGE_ID:ID:1"], "partial"),
        (b"\x17\3\3\0#", ["timestamp:0", "ack:1"], "partial"),
        (b"\x17\3\3\0#", ["timestamp:1", "ack:1"], "bytes"),
        (b"\0\x80\0\0\0\0\0\0\0\x77T*", [], "partial"),
        (b"\0SwT*", ["JMS_AMQP_ORIGINAL_ENCODING:2"], "partial"),
        (b"\0SwT*", ["__AMQ_CID:1"], "partial"),
        (b"\x17\3\3\0#", ["JMS_AMQP_ORIGINAL_ENCODING:6", "timestamp:0", "ack:1"], "bytes"),
        (b"\x17\3\3\0#", ["__AMQ_CID:1", "timestamp:0", "ack:1"], "bytes"),
        (b"\1\0\0\0\6G\0r\0\xfc\0", ["JMS_AMQP_ORIGINAL_ENCODING:5"], "partial"),
        (b"\1\0\0\0\1", ["JMS_AMQP_ORIGINAL_ENCODING:7"], "partial"),
        (b"\1\0\0\0\6G\0r\0\xfc\0", ["__AMQ_CID:1"], "partial"),
        (b"\1\0\0\0\6G\0r\0\xfc", ["__AMQ_CID:1"], "bytes"),
        (b"\1\0\0\0\1G", ["__AMQ_CID:1"], "bytes"),
        (b"\x17\3\3\0#", ["__AMQ_CID:1", "NATIVE_MESSAGE_ID:ID:1"], "partial"),
    ):
        assert delivery(StompArtemis(), [*lines, *producer], body).body_kind == kind
