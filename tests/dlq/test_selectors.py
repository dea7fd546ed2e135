"""Selectors: the part of the filters that a broker evaluates."""

from __future__ import annotations

from typing import Any

from redelivery.dlq.selection import Selection


def test_a_selector_lets_through_what_is_meant() -> None:
    """A selector passes all that matches: quotes are doubled, and wildcards of LIKE pass more, never less."""
    given: Any
    for given, selector in (
        ({}, None),
        ({"cause": "Value*"}, None),
        ({"id": "x", "older_than": 5}, None),
        # A senseless property counts as unknown, too.
        ({"cause": ["unknown", "a"]}, None),
        ({"destination": "unknown"}, None),
        (
            {"cause": "it's"},
            "(redeliveryCause IS NULL OR redeliveryCause = 'it''s' OR redeliveryCause LIKE 'it''s:%')",
        ),
        (
            {"cause": "my_error"},
            "(redeliveryCause IS NULL OR redeliveryCause = 'my_error' OR redeliveryCause LIKE 'my%')",
        ),
        (
            {"destination": "a"},
            (
                "(redeliveryOriginalDestination IS NULL OR redeliveryOriginalDestination = 'queue://a' "
                "OR _AMQ_ORIG_MESSAGE_ID IS NOT NULL)"
            ),
        ),
    ):
        assert Selection.of(given).selector() == selector
    both = Selection.of({"cause": "a", "destination": "b"}).selector()
    assert both is not None
    assert ") AND (" in both
