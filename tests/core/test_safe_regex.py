"""Regular expressions on destination names: their matches, and their bounded time."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery.core.dead_lettering.safe_regex import LONGEST_NAME, SafeRegex
from redelivery.errors import ConfigurationError

NAMES = st.text("ABab.09-", min_size=1, max_size=12)
ATOMS = st.sampled_from(["A", "b", r"\.", ".", "[AB]", "[^a-b.]", r"\d", "(?:A|b)", "(0.)", r"\\", "[]a]"])
REPEATED = st.builds(str.__add__, ATOMS, st.sampled_from(["", "", "", "?", "+?", "*", "{2}", "{1,3}", "+"]))
PATTERNS = st.lists(REPEATED, min_size=1, max_size=6).map("".join)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("MY.EXAMPLE.TOPIC.29 MY.EXAMPLE.QUEUE.87", ["MY.EXAMPLE.QUEUE.87"], ["MY.EXAMPLE.QUEUE.870"]),
        ("MY.EXAMPLE.TOPIC.[0-9]{3} MY.EXAMPLE.QUEUE.[0-9]{3}", ["MY.EXAMPLE.QUEUE.007"], ["MY.EXAMPLE.QUEUE.07"]),
        (r"FRED\..* \d+", ["FRED.JOE", "12"], ["FREDXJOE", "12a"]),
        ("(A|B)C? x+", ["A", "BC", "xxx"], ["ABC", ""]),
    ],
)  # fmt: skip
def test_one_pattern_must_match_the_whole_name(text: str, matching: list[str], others: list[str]) -> None:
    """As in Classic's plugin, blanks separate patterns, and each must match the whole name."""
    patterns = SafeRegex.parse(text)
    assert [name for name in (*matching, *others) if patterns.match(name)] == matching


def test_what_could_take_for_ever_is_refused() -> None:
    """Nested repetitions, too many of them, back-references, and texts that are no pattern are refused."""
    refused = [
        r"(a+)+", r"(a*)*b", r"(a|aa)+", r"(a|b|ab)*c", r"(?:x+x+)+y", r"([a-z]+)*", r"((ab)*)*", r"(a?){20}",
        r".*.*.*.*x", r".*a.*b.*c.*d", "a?" * 30, "(a|a)" * 30, r"(a)\1", "(?=a)b", "(?P<n>a)", "(?i)a",
        "a{0,9999}", "[", "(", "a**b", "FRED.>", "queue://A", "(" * 50 + ")" * 50, "a{99999999999999999999}", "",
        " ".join("a" * 101),
    ]  # fmt: skip
    for text in refused:
        with pytest.raises(ConfigurationError):
            SafeRegex.parse(text)
    assert SafeRegex.parse(".*a.*b.*").match("x" * 250) is False
    assert SafeRegex.parse(".*").match("x" * (LONGEST_NAME + 1)) is False, "it is kept"


@given(PATTERNS, NAMES)
def test_what_is_taken_matches_as_python_does(text: str, name: str) -> None:
    """A pattern is refused, or matches as `re.fullmatch` does."""
    try:
        patterns = SafeRegex.parse(text)
    except ConfigurationError:
        return
    assert patterns.match(name) is (re.fullmatch(text, name) is not None)


@given(st.text("ab()[]{}|?*+\\^$.,09", max_size=24))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    """Any text is a pattern, or is refused with ConfigurationError."""
    with suppress(ConfigurationError):
        SafeRegex.parse(text).match("ab.09")
