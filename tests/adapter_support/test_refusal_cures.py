"""The cure of a refusal is said beside the broker's own text."""

from __future__ import annotations

import pytest

from redelivery.adapter_support.refusals import with_cure


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        (
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'a.b' in vhost '/': received 'true'",
            "name it native:///amq/queue/a.b, which declares nothing",
        ),
        ("Address news is not configured for queue support", "consume topic://news, or give it anycast too"),
        ("Address any is not configured for topic support", "consume queue://any, or give it multicast too"),
    ],
)
def test_a_refusal_has_its_cure(text: str, cure: str) -> None:
    """The broker's text comes first, and then what works."""
    assert with_cure(text).startswith(f"{text}; ")
    assert cure in with_cure(text)


@pytest.mark.parametrize("text", ["", "access refused", "inequivalent arg", "\\1 \\g<name>"])
def test_any_other_text_is_as_the_broker_wrote_it(text: str) -> None:
    """Without a known cure the text stays as it is."""
    assert with_cure(text) == text
