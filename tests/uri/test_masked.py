"""Credentials in a broker's messages."""

from __future__ import annotations

import pytest

from redelivery.uri.parser import parse_uri


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            "User shop is not authorized to write to queue://workshop",
            "User *** is not authorized to write to queue://workshop",
        ),
        ("Access refused for user 'shop'", "Access refused for user '***'"),
        ("no s3cret+ here", "no *** here"),
    ],
)
def test_credentials_are_taken_out_of_a_brokers_words(words: str, shown: str) -> None:
    """The user's name is masked as a word of its own, the password anywhere."""
    assert parse_uri("stomp://shop:s3cret%2B@h").masked(words) == shown
