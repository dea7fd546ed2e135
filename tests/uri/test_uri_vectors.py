"""Connection URIs of the reference: their meaning here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each

from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import ConfigurationError
from redelivery.uri.option_table import OPTIONS
from redelivery.uri.parser import parse_uri

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "connection_uri.json").read_text()
)["vectors"]
POLICY, PREFETCH = "jms.redeliveryPolicy.", "jms.prefetchPolicy."


def options_of(uri: str) -> dict[str, str]:
    return dict(item.partition("=")[::2] for item in uri.rpartition("?")[2].split("&") if item)


def senseless(vector: dict[str, Any]) -> bool:
    """True if a value that the reference took makes no sense, by the rules of the library."""
    policy, prefetch = vector["redeliveryPolicy"], vector["prefetchPolicy"]
    return bool(
        policy["maximumRedeliveries"] < -1
        or min(policy["initialRedeliveryDelay"], policy["redeliveryDelay"]) < 0
        or policy["maximumRedeliveryDelay"] < -1
        or not float(policy["backOffMultiplier"]) >= 0
        or float(policy["backOffMultiplier"]) == float("inf")
        or not 0 <= policy["collisionAvoidancePercent"] <= 100
        or min(prefetch["queuePrefetch"], prefetch["topicPrefetch"], prefetch["durableTopicPrefetch"]) < 1
    )


def refused_by_rule(vector: dict[str, Any]) -> bool:
    """True if a URI that the reference accepts is refused here by a rule."""
    options = options_of(vector["uri"])
    booleans = [
        value for name, value in options.items() if OPTIONS.get(name) and OPTIONS[name].kind == "boolean"
    ]
    # Options that the reference ignores: in a member, without a parenthesis, without a "?".
    misplaced = any(prefix in vector["remaining_url"] for prefix in (POLICY, PREFETCH))
    contradictory = f"{PREFETCH}all" in options and sum(name.startswith(PREFETCH) for name in options) > 1
    unconvertible = any(value.lower() not in ("true", "false") for value in booleans)
    return senseless(vector) or misplaced or contradictory or unconvertible


def accepted_by_reference(vector: dict[str, Any]) -> bool:
    return bool(vector["result"] == "ok" and vector.get("create_transport", "ok") == "ok")


ACCEPTED = [v for v in VECTORS if accepted_by_reference(v) and not refused_by_rule(v)]
# The one option of the reference's documentation that its code does not know is accepted here.
REFUSED = [
    v
    for v in VECTORS
    if v not in ACCEPTED and (accepted_by_reference(v) or "collisionAvoidanceFactor" not in v["uri"])
]


@for_each(ACCEPTED)
def test_reads_what_the_reference_reads(vector: dict[str, Any]) -> None:
    """A URI that the Java client accepts gives the same policy, prefetch, order and identity."""
    settings = parse_uri(vector["uri"])
    policy, prefetch, factory = vector["redeliveryPolicy"], vector["prefetchPolicy"], vector["factory"]
    known = {name: value for name, value in policy.items() if name != "destination"}
    assert settings.policies.default == RedeliveryPolicy.from_options(known)
    options = options_of(vector["uri"])
    if {PREFETCH + "queuePrefetch", PREFETCH + "all"} & options.keys():
        assert settings.credit == prefetch["queuePrefetch"]
    else:
        # The one default that differs: docs/configuration.md.
        assert settings.credit is None
    for name, credit in (
        ("topicPrefetch", settings.topic_credit),
        ("durableTopicPrefetch", settings.durable_topic_credit),
    ):
        if {PREFETCH + name, PREFETCH + "all"} & options.keys():
            assert credit == prefetch[name]
    assert settings.ordering == ("non_blocking" if factory["nonBlockingRedelivery"] else "blocking")
    assert (settings.client_id, settings.user_name) == (factory["clientID"], factory["userName"])
    assert settings.java


@for_each(REFUSED)
def test_refuses_what_the_reference_refuses_or_ignores(vector: dict[str, Any]) -> None:
    """A URI that fails in the Java client, at once or on connecting, or that it ignores in part, is refused."""
    with pytest.raises(ConfigurationError):
        parse_uri(vector["uri"])


@for_each(VECTORS)
def test_the_factor_of_the_references_documentation_is_accepted(vector: dict[str, Any]) -> None:
    """collisionAvoidanceFactor, which the reference documents and does not know, works."""
    if "collisionAvoidanceFactor" in vector["uri"]:
        policy = parse_uri(vector["uri"]).policies.default
        assert isinstance(policy, RedeliveryPolicy)
        assert policy.collision_avoidance_factor == 0.2
