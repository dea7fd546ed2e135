"""Policies that are written as TOML and as options of a URI, and read again."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redelivery import (
    ArtemisRedeliveryPolicy,
    ConfigurationError,
    DeadLetterStrategy,
    RedeliveryPolicy,
    RedeliveryPolicyMap,
    connect,
    parse_uri,
)
from redelivery.core.policy.redelivery_policy import DelayListPolicy
from redelivery.core.policy.wildcards import ARTEMIS, ArtemisWildcards
from redelivery.importers import read, to_uri_options
from redelivery.importers.toml_policies import read_toml, to_toml
from redelivery.uri.syntax import with_options

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery.core.policy.redelivery_policy import Policy

MS = st.integers(0, 2**63 - 1) | st.integers(0, 100_000)
COUNTS = st.integers(-1, 2**31 - 1) | st.integers(-1, 12)
FACTORS = st.floats(0, 1) | st.sampled_from([0.0, 0.15, 0.5, 1.0])
CLASSIC = st.fixed_dictionaries(
    {},
    optional={
        "maximumRedeliveries": COUNTS,
        "initialRedeliveryDelay": MS,
        "redeliveryDelay": MS,
        "maximumRedeliveryDelay": MS | st.just(-1),
        "useExponentialBackOff": st.booleans(),
        "backOffMultiplier": st.floats(0, 1e300),
        "useCollisionAvoidance": st.booleans(),
        "collisionAvoidanceFactor": FACTORS,
        "maximumElapsed": st.integers(1, 2**63 - 1) | st.just(-1),
    },
).map(RedeliveryPolicy.from_options)
ARTEMIS_POLICY = st.fixed_dictionaries(
    {},
    optional={
        "redelivery-delay": MS,
        "redelivery-delay-multiplier": st.floats(0, 1e300),
        "max-redelivery-delay": MS,
        "redelivery-collision-avoidance-factor": FACTORS,
        "max-delivery-attempts": COUNTS,
    },
).map(ArtemisRedeliveryPolicy.from_options)
DELAYS = st.builds(DelayListPolicy.from_ms, st.lists(MS, max_size=4), st.none() | st.integers(1, 2**63 - 1))
LISTED = DELAYS.filter(lambda policy: policy.delays)
WORDS = st.sampled_from(["a", "b", "cd"])
ODD = st.sampled_from(["a b", "ä", "a&b=c", "a+b", "50%", 'q"uote', "a#b", "😀", "a/b?", "topic:", "a@b"])


def patterns(one: str, many: str) -> Any:
    """Return patterns, some of which overlap."""
    words = st.lists(WORDS | st.just(one), min_size=1, max_size=3)
    tails = st.sampled_from([[], [], [many]])
    return st.tuples(words, tails).map(lambda parts: ".".join([*parts[0], *parts[1]])) | st.just(many)


KINDS = st.sampled_from(["", "queue://", "topic://", "temp-queue://", "temp-topic://"])
KEYS = st.tuples(KINDS, patterns("*", ">") | ODD.filter(lambda name: "?" not in name)).map("".join) | st.just(
    "native://x.y"
)
NAMES = [".".join(words) for n in (1, 2, 3) for words in product(["a", "b", "z"], repeat=n)]
ALL = [f"{kind}://{name}" for kind in ("queue", "topic", "temp-queue", "temp-topic") for name in NAMES]


def classic_map(policies: Any) -> Any:
    """Return maps with Classic's wildcards."""
    return st.builds(RedeliveryPolicyMap, st.dictionaries(KEYS, policies, max_size=5), default=policies)


def artemis_map(policies: Any, wildcards: ArtemisWildcards = ARTEMIS) -> Any:
    """Return maps with Artemis' wildcards, or others."""
    keys = patterns(wildcards.single_word, wildcards.any_words).map(
        lambda text: text.replace(".", wildcards.delimiter)
    )
    return st.builds(
        RedeliveryPolicyMap.from_artemis_settings,
        st.dictionaries(keys, policies, max_size=6),
        policies,
        st.just(wildcards),
    )


MAPS = (
    classic_map(CLASSIC | DELAYS | ARTEMIS_POLICY)
    | artemis_map(ARTEMIS_POLICY | CLASSIC)
    | artemis_map(ARTEMIS_POLICY, ArtemisWildcards("/", "+", "~"))
)
QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck))


@given(policies=MAPS)
@QUICK
def test_toml(policies: RedeliveryPolicyMap) -> None:
    """A map written as TOML is read as the same map, with any policies, patterns and wildcards."""
    last = dict(policies.entries)
    found, dead_letters = read_toml(to_toml(policies), "f")
    assert dead_letters == {}
    assert (found.entries, found.default, found.wildcards) == (
        tuple(last.items()),
        policies.default,
        policies.wildcards,
    )


@given(policies=classic_map(CLASSIC | LISTED))
@QUICK
def test_uri(policies: RedeliveryPolicyMap) -> None:
    """The options of a URI give every destination the same policy."""
    text, differences, _ = to_uri_options(policies)
    found = parse_uri(f"memory://x?{text}").policies
    assert differences == ()
    for name in (*ALL, *dict(policies.entries), "native://x.y"):
        assert found.policy_for(name) == policies.policy_for(name), name


@given(
    policies=artemis_map(
        st.builds(
            ArtemisRedeliveryPolicy,
            redelivery_delay=st.sampled_from([0, 1, 5]),
            redelivery_delay_multiplier=st.sampled_from([1, 2, 3]),
            max_redelivery_delay=st.sampled_from([None, 2, 15]),
            max_delivery_attempts=st.integers(-1, 4),
        )
    )
)
@QUICK
def test_uri_of_artemis(policies: RedeliveryPolicyMap) -> None:
    """Artemis' settings without jitter, and with whole milliseconds, give every destination the same schedule."""
    text, differences, _ = to_uri_options(policies)
    found = parse_uri(f"memory://x?{text}").policies
    assert differences == ()
    exact = [f"native://{match}" for match, _ in policies.entries if "*" not in match and "#" not in match]
    for name in (*ALL, *exact):
        mine, theirs = found.policy_for(name), policies.policy_for(name)
        count = 12 if theirs.maximum_redeliveries < 0 else theirs.maximum_redeliveries
        assert mine.maximum_redeliveries == theirs.maximum_redeliveries, name
        assert mine.delays_ms(count) == theirs.delays_ms(count), name


@given(policies=artemis_map(ARTEMIS_POLICY) | classic_map(ARTEMIS_POLICY | DELAYS))
@QUICK
def test_what_a_uri_cannot_say(policies: RedeliveryPolicyMap) -> None:
    """Each schedule that differs in the URI is named; its maximum never differs, and the URI can be read."""
    text, differences, _ = to_uri_options(policies)
    found = parse_uri(f"memory://x?{text}").policies
    for name in ALL[:40]:
        mine, theirs = found.policy_for(name), policies.policy_for(name)
        assert mine.maximum_redeliveries == theirs.maximum_redeliveries
        count = 8 if theirs.maximum_redeliveries < 0 else min(theirs.maximum_redeliveries, 8)
        assert differences or mine.delays_ms(count) == theirs.delays_ms(count)


@pytest.mark.parametrize(
    ("policy", "difference"),
    [
        (ArtemisRedeliveryPolicy(redelivery_delay=1, redelivery_delay_multiplier=0.5, max_delivery_attempts=-1),
         "redelivery 3 is after"),
        (ArtemisRedeliveryPolicy(redelivery_delay=1, redelivery_collision_avoidance_factor=0.5), "varies the first"),
        (ArtemisRedeliveryPolicy(redelivery_delay=0.007, redelivery_delay_multiplier=1.1, max_delivery_attempts=52),
         "not after"),
    ],
)  # fmt: skip
def test_differences(policy: Policy, difference: str) -> None:
    """An endless shrinking delay, Artemis' jitter, and its rounding in a long schedule are named as differences."""
    (line,) = to_uri_options(RedeliveryPolicyMap(default=policy)).differences
    assert difference in line


def test_an_address_of_artemis_has_one_note() -> None:
    """A difference of an address setting is named once, not for each kind of destination that it is written for."""
    policy = ArtemisRedeliveryPolicy(redelivery_delay=1, redelivery_collision_avoidance_factor=0.5)
    (line,) = to_uri_options(RedeliveryPolicyMap.from_artemis_settings({"a.#": policy})).differences
    assert line.startswith("a.>: Artemis varies the first delay")


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (RedeliveryPolicy.from_delays([1, 5, 30]), "redelivery.policy.delays=1000,5000,30000"),
        (RedeliveryPolicy.from_delays([]), "jms.redeliveryPolicy.maximumRedeliveries=0"),
        (RedeliveryPolicy.from_delays([1], maximum_elapsed=9),
         "redelivery.policy.delays=1000&redelivery.policy.maximumElapsed=9000"),
        (RedeliveryPolicy(maximum_elapsed=9),
         "jms.redeliveryPolicy.maximumRedeliveries=6&redelivery.policy.maximumElapsed=9000"),
        (ArtemisRedeliveryPolicy(redelivery_delay=1, redelivery_delay_multiplier=0.5, max_delivery_attempts=4),
         "redelivery.policy.delays=1000,500,250"),
    ],
)  # fmt: skip
def test_lists_and_limits_in_a_uri(policy: Policy, text: str) -> None:
    """A short schedule that no formula of the Java client has is written as a list.

    A limit of time is written beside both.
    """
    assert to_uri_options(RedeliveryPolicyMap(default=policy)) == (text, (), ())
    found = parse_uri(f"memory://x?{text}").policies.default
    assert found.delays_ms(policy.maximum_redeliveries) == policy.delays_ms(found.maximum_redeliveries)
    assert getattr(found, "maximum_elapsed", None) == getattr(policy, "maximum_elapsed", None)


def test_patterns_that_a_uri_cannot_say() -> None:
    """Matches with another delimiter are named; addresses without wildcards are written in any case."""
    attempts = ArtemisRedeliveryPolicy(max_delivery_attempts=2)
    policies = RedeliveryPolicyMap.from_artemis_settings(
        {"a/#": attempts, "b/c": attempts, "d>": attempts}, None, ArtemisWildcards("/")
    )
    text, differences, _ = to_uri_options(policies)
    assert [line.partition(":")[0] for line in differences] == ["a/#", "d>"]
    assert parse_uri(f"memory://x?{text}").policies.policy_for("b/c").maximum_redeliveries == 1


def test_a_policy_made_of_code_is_refused() -> None:
    """Strategies of tenacity are code, and cannot be written as TOML."""
    import tenacity  # noqa: PLC0415

    policy = RedeliveryPolicy.from_tenacity(wait=tenacity.wait_fixed(1), stop=tenacity.stop_after_attempt(3))
    with pytest.raises(ConfigurationError, match="the policy for queue://a is made of code"):
        to_toml(RedeliveryPolicyMap({"a": policy}))


TOML = """# comment
wildcards = "activemq"
[default]
maximumRedeliveries = 4
[policies."FRED.>"]
useExponentialBackOff = true
backOffMultiplier = "2"
[policies.listed]
delays = [
  1000,
  5000,
]
[policies.artemis]
max-delivery-attempts = 3
[deadLetters]
deadLetterDestination = "LOST"
processExpired = false
[deadLetters.map."topic://prices.*"]
strategy = "individual"
topicPrefix = "D."
"""


def test_toml_by_hand(tmp_path: Path) -> None:
    """Names and units in TOML are those of the URI and of broker.xml; it is written as it was read."""
    path = tmp_path / "policies.toml"
    path.write_text(TOML)
    expected: dict[str, Policy] = {
        "FRED.>": RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=2),
        "listed": RedeliveryPolicy.from_delays([1, 5]),
        "artemis": ArtemisRedeliveryPolicy(max_delivery_attempts=3),
    }
    found = RedeliveryPolicyMap.from_toml(path)
    assert found == RedeliveryPolicyMap(expected, default=RedeliveryPolicy(maximum_redeliveries=4))
    assert read_toml(TOML, "f")[1] == {
        "redelivery.deadLetterDestination": "LOST",
        "redelivery.processExpired": "false",
        "redelivery.deadLetterMap.topic://prices.*.strategy": "individual",
        "redelivery.deadLetterMap.topic://prices.*.topicPrefix": "D.",
    }
    assert read_toml(to_toml(*read_toml(TOML, "f")), "f") == read_toml(TOML, "f")


def test_a_limit_of_time_in_toml() -> None:
    """A limit of time is read beside the Java client's options, and beside a list of delays.

    With Artemis' options it is refused.
    """
    text = "[default]\nmaximumElapsed = 1000\n[policies.a]\ndelays = [1]\nmaximumElapsed = {}\n"
    found, _ = read_toml(text.format(60000), "f")
    assert found.default == RedeliveryPolicy(maximum_elapsed=1)
    assert found.policy_for("a") == RedeliveryPolicy.from_delays([0.001], maximum_elapsed=60)
    with pytest.raises(
        ConfigurationError, match=r"^f:5: maximumElapsed must be 1 millisecond or more, or -1"
    ):
        read_toml(text.format(0), "f")
    with pytest.raises(
        ConfigurationError, match=r"^f:3: unknown option maximumElapsed; allowed: redelivery-delay"
    ):
        read_toml("[default]\nredelivery-delay = 5\nmaximumElapsed = 1", "f")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("= 4", "= -4"), "f:4: maximumRedeliveries must be a whole number from -1"),
        (("= 4", "="), "f:4:22: the TOML is not well-formed"),
        (("maximumRedeliveries", "maximumRedelivery"), "f:4: unknown option maximumRedelivery; did you mean"),
        (("FRED.>", "FRED.>.X"), "f:5: the pattern queue://FRED.>.X"),
        (("FRED.>", "queu://FRED"), "f:5: the destination 'queu://FRED' must start"),
        (("5000", "-1"), "f:9: delays[1] must be a whole number"),
        (("]\n[policies.artemis]", "]\nx = 1\n[policies.artemis]"), "f:13: delays cannot be combined with x"),
        (("= 3", "= 3.5"), "f:14: max-delivery-attempts must be"),
        (("max-delivery-attempts", "max-delivery-attempt"), "f:14: unknown option max-delivery-attempt; did"),
        (('"LOST"', '"a.*"'), "f:16: redelivery.deadLetterDestination must be one queue"),
        (("processExpired", "processExpire"), "f:17: unknown option redelivery.processExpire; did you mean"),
        (
            ('"D."', '"D.*."'),
            "f:20: redelivery.deadLetterMap.topic://prices.*.topicPrefix must make the name",
        ),
        (
            ("topicPrefix", "topicPrefx"),
            "f:20: redelivery.deadLetterMap.<pattern>.<option> has an unknown option",
        ),
        (
            ('"LOST"', '["LOST"]'),
            "f:16: deadLetters.deadLetterDestination must be a text, a number, true or false",
        ),
        (
            ("= false", "= 1979-05-27"),
            "f:17: deadLetters.processExpired must be a text, a number, true or false",
        ),
        (('"D."', '["D."]'), "f:20: deadLetters.map.topic://prices.*.topicPrefix must be a text, a number"),
        (
            ('"topic://prices.*"', "topic.prices"),
            "f:18: deadLetters.map.topic.prices must be a text, a number",
        ),
        (('."topic://prices.*"]', "]"), "f:19: deadLetters.map.strategy must be a table"),
        (('"activemq"', '"rabbit"'), "f:2: wildcards must be activemq, artemis, or a table"),
        (('"activemq"', '{delimiter = "**"}'), "f:2: an address' delimiter and wildcards must be three"),
        (('"activemq"', '"artemis"'), ""),
        (("[default]", "[defaults]"), "f:3: unknown key defaults; did you mean 'default'?"),
        (("[default]\nmaximumRedeliveries", "default"), "f:3: default must be a table"),
        (("false", "false\n'"), "f:21"),
    ],
)
def test_mistakes(change: tuple[str, str], error: str) -> None:
    """A mistake in a TOML file is one sentence, with the line."""
    text = TOML.replace(*change)
    assert text != TOML
    if error:
        with pytest.raises(ConfigurationError) as caught:
            read_toml(text, "f")
        assert str(caught.value).startswith(error)
    else:
        with pytest.raises(ConfigurationError, match=r"^f:5: .*as|^f:5"):
            read_toml(text.replace("FRED.>", "FRED.#.x"), "f")


def test_the_order_of_dead_letter_options_does_not_matter() -> None:
    """Options that need each other may stand in any order, also in different tables."""
    text = '[deadLetters]\nreportInterval = 5\n[deadLetters.map."noise"]\ndiscard = "a"\nstrategy = "discarding"\n'
    assert read_toml(text, "f")[1] == {
        "redelivery.reportInterval": "5",
        "redelivery.deadLetterMap.noise.discard": "a",
        "redelivery.deadLetterMap.noise.strategy": "discarding",
    }
    with pytest.raises(
        ConfigurationError, match=r"^f:4: redelivery.deadLetterMap.queue://noise.discard needs"
    ):
        read_toml(text.replace('strategy = "discarding"', ""), "f")


@pytest.mark.parametrize("file", ["f.toml", "f.xml"])
def test_a_map_of_dead_letters(tmp_path: Path, file: str) -> None:
    """A file's strategies are a map for `connect(dead_letters=…)`: the one that its options of a URI make."""
    text = {
        "f.toml": TOML,
        "f.xml": (
            '<core xmlns="urn:activemq:core"><address-settings><address-setting match="orders.#">'
            "<dead-letter-address>D</dead-letter-address></address-setting></address-settings></core>"
        ),
    }
    (tmp_path / file).write_text(text[file])
    found = read(tmp_path / file)
    assert found.dead_letter_map == parse_uri(with_options("memory://x", found.dead_letters)).dead_letters
    with connect("memory://x", dead_letters=found.dead_letter_map) as connection:
        strategies = connection.settings.dead_letters
    name = "topic://prices.eur" if file == "f.toml" else "orders.eu"
    assert strategies.strategy_for(name) != DeadLetterStrategy()


def test_no_map_of_dead_letters(tmp_path: Path) -> None:
    """A file without a strategy has no map, also if it has an option of the whole connection."""
    path = tmp_path / "f.toml"
    for text in (
        "[default]\nmaximumRedeliveries = 1",
        "[deadLetters]\nsendToDlqIfMaxRetriesExceeded = false",
    ):
        path.write_text(text)
        assert read(path).dead_letter_map is None
