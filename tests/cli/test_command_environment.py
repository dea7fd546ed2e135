"""Environment of a shell command: what cannot be passed on is left out, and named."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from hypothesis import given, settings
from tests.tiers import amount

import redelivery
from redelivery.cli import shell_handler
from redelivery.cli.shell_handler import environment_for
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    import pytest

LEFT_OUT = "REDELIVERY_LEFT_OUT"


def environment(headers: dict[str, Any], **properties: Any) -> dict[str, str]:
    """Return the environment for a message with these headers."""
    with MemoryBroker() as broker, redelivery.connect(broker.uri) as connection:
        broker.send("orders", "x", headers=headers, **properties)
        with connection.consumer("orders") as consumer:
            message = consumer.receive(5)
            assert message is not None
            return environment_for(message, "true")


def test_what_cannot_be_passed_on_is_named() -> None:
    """A property that no environment can carry is left out, and `REDELIVERY_LEFT_OUT` names it."""
    found = environment({"odd name": "x", "nul": "a\0b", "long": "x" * 100_000, "n": 5, "lone": "\ud800"})
    assert json.loads(found[LEFT_OUT]) == ["HEADER_odd name", "HEADER_nul", "HEADER_long"]
    assert (found["REDELIVERY_HEADER_n"], found["REDELIVERY_HEADER_lone"]) == ("5", "?")
    assert not {"REDELIVERY_HEADER_nul", "REDELIVERY_HEADER_long"} & found.keys()


def test_nothing_is_named_if_all_is_passed_on() -> None:
    """There is no `REDELIVERY_LEFT_OUT` if every property is there."""
    found = environment({"customer": "42"}, correlation_id="c")
    assert found["REDELIVERY_HEADER_customer"] == "42"
    assert LEFT_OUT not in found


def test_the_names_themselves_are_bounded() -> None:
    """Of many or long names of what is left out, the list has some, and how many more there are."""
    found = environment({f"{number} {'x' * 1000}": "" for number in range(50)})
    names = json.loads(found[LEFT_OUT])
    assert (len(names), names[-1], max(map(len, names))) == (21, "and 30 more", 80)


def test_the_password_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own `REDELIVERY_` variables are not passed on, all others are."""
    monkeypatch.setenv("REDELIVERY_URL", "stomp://user:secret@host")
    monkeypatch.setenv("SHOP", "1")
    found = environment({})
    assert "REDELIVERY_URL" not in found
    assert found["SHOP"] == "1"


def test_an_environment_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """If our own environment leaves no room, no property is passed on, and the names still are."""
    monkeypatch.setattr(shell_handler, "MOST", 1)
    found = environment({"a": "1"})
    assert {name for name in found if name.startswith("REDELIVERY_")} == {LEFT_OUT}


@settings(max_examples=amount(quick=5, ci=25, full=100), deadline=None)
@given(
    st.dictionaries(
        st.one_of(st.text(max_size=20), st.sampled_from(["x" * 200_000, "y" * 65_000])),
        st.one_of(st.text(max_size=50), st.sampled_from([60_000, 65_600, 140_000]).map("v".__mul__)),
        max_size=60,
    )
)
def test_every_message_can_be_given_to_a_command(headers: dict[str, str]) -> None:
    """Whatever properties a message has, the system starts its command, and the command can start others."""
    headers |= {f"filler{number}": "f" * 65_000 for number in range(len(headers))}
    found = environment(headers)
    size = sum(len(os.fsencode(name + value)) for name, value in found.items())
    assert size < os.sysconf("SC_ARG_MAX")
    ran = subprocess.run("/bin/true " + "a" * 60_000, shell=True, env=found, check=False)
    assert ran.returncode == 0
