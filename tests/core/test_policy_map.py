"""Policy map: choice of the policy for a destination."""

from __future__ import annotations

import json
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each

from redelivery.core.destination import Destination, _parse
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import Policy, RedeliveryPolicy
from redelivery.core.policy.wildcards import _tokens
from redelivery.errors import ConfigurationError

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "redelivery_policy_map.json").read_text()
)["vectors"]
DEFAULT = RedeliveryPolicy(maximum_redeliveries=99)


def numbered(patterns: list[str]) -> dict[str, Policy]:
    return {pattern: RedeliveryPolicy(maximum_redeliveries=n) for n, pattern in enumerate(patterns)}


def of_a_message(lookup: str) -> bool:
    """Return True if `lookup` names one destination, as a message does: no pattern, no composite."""
    name = Destination.parse(lookup).name
    return "," not in name and not any(token in ("*", ">") for token in name.split("."))


@for_each(VECTORS)
def test_winners_are_the_references(vector: dict[str, Any]) -> None:
    """Every look-up gives Classic's winner, or one of those that it picks at random.

    Entries that Classic registered without their own destination (`put`) are not filtered there for a look-up that is
    itself a pattern. Entries here always have theirs, and those few look-ups are left out.
    """
    policies = numbered(vector["entries"])
    policy_map = RedeliveryPolicyMap(policies, default=DEFAULT if vector["default_entry"] else None)
    for lookup in vector["lookups"]:
        name = lookup["lookup"]
        if vector["registration"] == "put" and not of_a_message(name):
            continue
        pattern = policy_map.pattern_for(name)
        found = pattern or ("<default>" if vector["default_entry"] else "<none>")
        allowed = lookup.get("indeterminate") or [lookup["winner"]]
        assert found in allowed, name
        expected = policy_map.default if pattern is None else policies[pattern]
        assert policy_map.policy_for(name) is expected


@pytest.mark.parametrize(
    ("patterns", "lookup", "winner"),
    [
        (["A.>", "A.*"], "A.B", "queue://A.*"),
        (["A.*", "A.>"], "A.B", "queue://A.*"),
        (["*.*", "A.>"], "A.B", "queue://A.>"),
        (["A.>", "*.*"], "A.B", "queue://A.>"),
        (["A", "queue://A"], "A", "queue://A"),
        (["A,B", "A"], "A", "queue://A"),
        (["A", "A,B"], "A", "queue://A"),
        (["A,B", "A,C"], "A", "queue://A,C"),
        (["A?x=1"], "A?y=2", "queue://A?x=1"),
        (["temp-queue://>"], "temp-queue://ID:1", "temp-queue://>"),
        (["queue://>"], "temp-queue://ID:1", None),
        (["queue://>"], "topic://A", None),
        (["native:///queue/a", ">"], "native:///queue/a", "native:///queue/a"),
        (["native://a.*"], "native://a.b", None),
        (["A,topic://B"], "topic://B", "queue://A,topic://B"),
        (["A.B>"], "A.Bc", None),
        (["a"], "A", None),
    ],
)
def test_our_own_rules(patterns: list[str], lookup: str, winner: str | None) -> None:
    """Where Classic gives no answer, or none that is defined, the winner does not depend on chance."""
    assert RedeliveryPolicyMap(numbered(patterns)).pattern_for(lookup) == winner


token = st.sampled_from(["A", "B", "C", "*"])
pattern_names = st.builds(
    lambda path, tail: ".".join([*path, ">"] if tail else path),
    st.lists(token, min_size=1, max_size=3),
    st.booleans(),
)
patterns_of = st.builds(
    lambda kind, name: f"{kind}://{name}", st.sampled_from(["queue", "topic"]), pattern_names
)
names_of = st.builds(
    lambda kind, path: f"{kind}://{'.'.join(path)}",
    st.sampled_from(["queue", "topic"]),
    st.lists(st.sampled_from(["A", "B", "C", "D"]), min_size=1, max_size=4),
)


def covers(pattern: str, name: str) -> bool:
    """Naive oracle: token by token, `*` is one token, a last `>` is any number of further ones."""
    kind, _, path = pattern.partition("://")
    other_kind, _, other = name.partition("://")
    mine, theirs = path.split("."), other.split(".")
    if kind != other_kind:
        return False
    while mine and theirs and mine[0] != ">":
        if mine.pop(0) not in ("*", theirs.pop(0)):
            return False
    return mine == [">"] or (mine == [] and theirs == [])


@given(st.lists(patterns_of, unique=True, max_size=6), names_of)
def test_look_ups_agree_with_a_naive_oracle(patterns: list[str], name: str) -> None:
    """The pattern found matches; none is found only if none matches; an exact name always wins."""
    found = RedeliveryPolicyMap(numbered(patterns)).pattern_for(name)
    matching = {pattern for pattern in patterns if covers(pattern, name)}
    assert found in matching or (found is None and not matching)
    if name in patterns:
        assert found == name


EVERY_NAME = [".".join(path) for length in range(1, 5) for path in product("ABCD", repeat=length)]


@given(st.lists(pattern_names, unique=True, min_size=2, max_size=4), st.sampled_from(EVERY_NAME))
def test_the_narrower_pattern_wins(patterns: list[str], name: str) -> None:
    """A pattern all of whose names another one covers wins over that one."""
    found = RedeliveryPolicyMap(numbered(patterns)).pattern_for(name)
    matching = [pattern for pattern in patterns if covers(f"queue://{pattern}", f"queue://{name}")]
    covered = {
        pattern: {each for each in EVERY_NAME if covers(f"queue://{pattern}", f"queue://{each}")}
        for pattern in matching
    }
    if found is not None:
        winner = found.removeprefix("queue://")
        assert not any(covered[pattern] < covered[winner] for pattern in matching)


def test_no_match_and_no_default_is_a_plain_policy() -> None:
    """Without a match the default is used; without a default a plain RedeliveryPolicy."""
    policy_map = RedeliveryPolicyMap({"A": DEFAULT})
    assert policy_map.policy_for("B") == RedeliveryPolicy() == policy_map.default
    assert policy_map.pattern_for("B") is None
    assert RedeliveryPolicyMap({}, default=DEFAULT).policy_for("B") is DEFAULT


@pytest.mark.parametrize(
    "build",
    [
        lambda: RedeliveryPolicyMap({"": DEFAULT}),
        lambda: RedeliveryPolicyMap({"A\nB": DEFAULT}),
        lambda: RedeliveryPolicyMap(["A"]),  # type: ignore[arg-type]  # what is tested
        lambda: RedeliveryPolicyMap(DEFAULT),  # type: ignore[arg-type]  # what is tested
        lambda: RedeliveryPolicyMap({"A": 3}),  # type: ignore[arg-type]  # what is tested
        lambda: RedeliveryPolicyMap({"A": RedeliveryPolicy}),  # type: ignore[arg-type]  # what is tested
        lambda: RedeliveryPolicyMap({}, default="6"),  # type: ignore[arg-type]  # what is tested
        lambda: RedeliveryPolicyMap({"A": DEFAULT}).policy_for(""),
        lambda: RedeliveryPolicyMap.from_artemis_settings({"a.#.b": DEFAULT}),
        lambda: RedeliveryPolicyMap.from_artemis_settings({"a#": DEFAULT}),
        lambda: RedeliveryPolicyMap.from_artemis_settings({"a*.b": DEFAULT}),
        lambda: RedeliveryPolicyMap.from_artemis_settings({"": DEFAULT}),
        lambda: RedeliveryPolicyMap.from_artemis_settings({"queue://a": DEFAULT}),
        lambda: RedeliveryPolicyMap.from_artemis_settings({"a": None}),  # type: ignore[dict-item]  # what is tested
    ],
)
def test_what_makes_no_sense_is_refused(build: Any) -> None:
    """A key that is no destination or a value that is no policy raises ConfigurationError."""
    with pytest.raises(ConfigurationError):
        build()


def test_a_map_is_immutable_and_a_value() -> None:
    """Changes of the mapping afterwards have no effect; equal maps are equal, and pickle."""
    mapping = {"A": DEFAULT}
    policy_map = RedeliveryPolicyMap(mapping, default=DEFAULT)
    mapping["B"] = RedeliveryPolicy()
    assert policy_map.entries == (("queue://A", DEFAULT),)
    assert policy_map == RedeliveryPolicyMap({"queue://A": DEFAULT}, default=DEFAULT)
    assert policy_map != RedeliveryPolicyMap.from_artemis_settings({"queue.A": DEFAULT}, default=DEFAULT)
    assert policy_map != 3
    assert hash(policy_map) == hash(pickle.loads(pickle.dumps(policy_map)))
    assert "queue://A" in repr(policy_map)


def test_the_cache_is_bounded() -> None:
    """New names again and again do not make the cache grow without bound, and later look-ups are right."""
    policy_map = RedeliveryPolicyMap({"temp-queue://>": DEFAULT})
    for n in range(20_000):
        assert policy_map.policy_for(f"temp-queue://ID:{n}") is DEFAULT
    assert len(policy_map._patterns._cache) <= 8192


@pytest.mark.parametrize(
    ("matches", "lookup", "winner"),
    [
        (["#"], "queue://anything.at.all", "#"),
        (["news.europe.#"], "topic://news.europe", "news.europe.#"),
        (["news.europe.#"], "topic://news.europe.politics.fr", "news.europe.#"),
        (["news.europe.#"], "topic://news.usa", None),
        (["news.*"], "news.europe", "news.*"),
        (["news.*"], "news.europe.sport", None),
        (["news.*.sport"], "news.europe.sport", "news.*.sport"),
        (["#", "news.#", "news.*", "news.europe"], "news.europe", "news.europe"),
        (["#", "news.#", "news.*"], "news.europe", "news.*"),
        (["#", "news.#"], "news.europe", "news.#"),
        (["news.#", "news.europe.#"], "news.europe.sport", "news.europe.#"),
        (["*.europe", "news.*"], "news.europe", "news.*"),
        (["news.*", "*.europe"], "news.europe", "news.*"),
        (["*.#", "#"], "news", "*.#"),
        (["my"], "my.queue", None),
    ],
)
def test_artemis_matches(matches: list[str], lookup: str, winner: str | None) -> None:
    """Address settings match by Artemis' words; the most specific one wins, in any order of registration."""
    for order in (matches, matches[::-1]):
        assert RedeliveryPolicyMap.from_artemis_settings(numbered(order)).pattern_for(lookup) == winner


def test_long_names_are_not_kept() -> None:
    """Long names that producers make up are not cached, and their policy is found all the same."""
    policy_map = RedeliveryPolicyMap({"a.>": RedeliveryPolicy(maximum_redeliveries=9)})
    before = _parse.cache_info().currsize, _tokens.cache_info().currsize
    for number in range(10):
        name = f"a.{number}.{'x' * 5000}"
        assert policy_map.pattern_for(name) == "queue://a.>"
        assert Destination.parse(name).name == name
    assert policy_map._patterns._cache == {}
    assert (_parse.cache_info().currsize, _tokens.cache_info().currsize) == before
