"""Texts of a producer that are written for people, and into commands."""

from __future__ import annotations

import pytest

from redelivery.core.shown_values import move_command


@pytest.mark.parametrize(
    ("destination", "identity", "arguments"),
    [
        ("queue://orders", "ID:vm-1:2", "orders --id ID:vm-1:2"),
        ("queue://or ders", "$(reboot)", "'or ders' --id '$(reboot)'"),
        ("topic://news", None, "topic://news --id ID"),
        ("queue://orders", "a\nb", "orders --id ID"),
        ("queue://orders", "x" * 121, "orders --id ID"),
    ],
)
def test_a_command_is_safe_to_copy(destination: str, identity: str | None, arguments: str) -> None:
    """No name and no id of a producer is more than one argument of the command that moves its message."""
    assert move_command(destination, identity) == f"redelivery dlq redrive AMQP-URI {arguments} --to PLACE"
