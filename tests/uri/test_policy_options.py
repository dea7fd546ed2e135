"""Policy options that the Java client does not have: a limit of time, and a list of delays."""

from __future__ import annotations

import pytest

from redelivery import ConfigurationError, RedeliveryPolicy, parse_uri


def test_our_options_of_a_policy() -> None:
    """A limit of time goes with the Java client's options or with a list of delays, by default and by pattern."""
    settings = parse_uri(
        "stomp://h?redelivery.policy.maximumElapsed=3600000&jms.redeliveryPolicy.maximumRedeliveries=-1"
        "&redelivery.policyMap.PRICES.>.delays=1000,5000,%2030000&redelivery.policyMap.PRICES.>.maximumElapsed=60000"
        "&redelivery.policyMap.a.maximumElapsed=5&jms.redeliveryPolicyMap.queue://a.redeliveryDelay=7"
        "&redelivery.policyMap.b.maximumElapsed=-1"
    )
    assert settings.policies.default == RedeliveryPolicy(maximum_redeliveries=-1, maximum_elapsed=3600)
    assert dict(settings.policies.entries) == {
        "queue://PRICES.>": RedeliveryPolicy.from_delays([1, 5, 30], maximum_elapsed=60),
        "queue://a": RedeliveryPolicy(redelivery_delay=0.007, maximum_elapsed=0.005),
        "queue://b": RedeliveryPolicy(),
    }
    assert parse_uri("stomp://h?redelivery.policy.delays=0").has_policies
    assert parse_uri("tcp://h?redelivery.policy.delays=7").policies.default == RedeliveryPolicy.from_delays(
        [0.007]
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("redelivery.policy.maximumElapsed=0", "must be 1 millisecond or more, or -1 for no limit, not '0'"),
        ("redelivery.policy.maximumElapsed=-2", "a whole number of milliseconds from -1 "),
        ("redelivery.policy.maximumElapsd=1", "did you mean 'redelivery.policy.maximumElapsed'"),
        ("redelivery.policy.maximumRedeliveries=1", ": write jms.redeliveryPolicy.maximumRedeliveries"),
        (
            "jms.redeliveryPolicy.delays=1",
            "unknown option jms.redeliveryPolicy.delays: write redelivery.policy.delays",
        ),
        ("redelivery.policy.delays=", "milliseconds with a comma between them, as 1000,5000,30000, not ''"),
        ("redelivery.policy.delays=1,,2", "redelivery.policy.delays must be milliseconds with a comma"),
        ("redelivery.policy.delays=1.5", "not '1.5'"),
        ("redelivery.policy.delays=-1", "not '-1'"),
        ("redelivery.policy.delays=9223372036854775808", "redelivery.policy.delays must be milliseconds"),
        ("redelivery.policy.delays=1s,2s", r"not \*\*\*"),
        ("redelivery.policy.delays=" + "1," * 10_000 + "1", "has 10001 delays; 10000 at most"),
        (
            "redelivery.policy.delays=1&jms.redeliveryPolicy.maximumRedeliveries=1",
            "its length is the maximum: remove jms.redeliveryPolicy.maximumRedeliveries",
        ),
        (
            "redelivery.policyMap.A.delays=1&jms.redeliveryPolicyMap.A.redeliveryDelay=1",
            "redelivery.policyMap.queue://A.delays is a whole schedule",
        ),
        ("redelivery.policyMap.A.delay=1", "has an unknown option delay; did you mean 'delays'"),
        ("redelivery.policyMap.A.zzz=1", "has an unknown option zzz; allowed: delays, maximumElapsed"),
        (
            "redelivery.policyMap.A.redeliveryDelay=1",
            "redeliveryDelay: write jms.redeliveryPolicyMap.<pattern>.redeliveryDelay",
        ),
        (
            "jms.redeliveryPolicyMap.A.maximumElapsed=1",
            "not the Java client's: write redelivery.policyMap.<pattern>.maximumElapsed",
        ),
        ("redelivery.policyMap.maximumElapsed=1", "redelivery.policyMap.<pattern>.<option> needs a pattern"),
        ("redelivery.policyMap.or*ers.delays=1", "redelivery.policyMap.<pattern>.<option>: "),
        ("redelivery.policyMap.A.delays=1&redelivery.policyMap.queue://A.delays=2", "twice"),
    ],
)
def test_options_refused(query: str, message: str) -> None:
    """A mistake is one sentence that names the option, and the right one if there is one."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        parse_uri(f"stomp://h?{query}")
    assert "\n" not in str(caught.value)
