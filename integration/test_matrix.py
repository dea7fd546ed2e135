"""Groups of tests of one process, and the pairs of each test."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from pathlib import Path

import pytest

from integration.brokers import BROKERS
from integration.groups import group_of, longest_first
from integration.own_skips import problem
from integration.rotation import kept_pairs, left_out, pairs_of_each_test
from integration.scheduling import ByGroup, next_scope

FOLDER = Path(__file__).parent


def test_each_pair_keeps_about_as_many_tests() -> None:
    """Two pairs of each test are kept, of two brokers where there are two, and each pair for about as many tests."""
    pairs = [(broker, protocol) for broker in "abc" for protocol in ("amqp", "stomp")]
    found = [kept_pairs(f"test_{number}", pairs, 2) for number in range(600)]
    assert all(len({broker for broker, _ in each}) == 2 for each in found)
    counts = Counter(pair for each in found for pair in each)
    assert set(counts) == set(pairs)
    assert all(150 <= count <= 250 for count in counts.values())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_test_of_more_pairs_loses_all_cases_of_the_others(count: int) -> None:
    """A test with as many pairs as asked for, or fewer, keeps all cases; of another one, all cases of that many."""
    pairs = [("a", "amqp"), ("b", "amqp"), ("c", "amqp")]
    cases = {
        f"test_{size}[{pair[0]}-{case}]": pair for size in (1, 2, 3) for pair in pairs[:size] for case in "xy"
    }
    gone = left_out(cases, count)
    for size in (1, 2, 3):
        own = {case: pair for case, pair in cases.items() if case.startswith(f"test_{size}[")}
        kept = {own[case] for case in own if case not in gone}
        assert len(kept) == min(size, count)
        assert {case for case in own if case in gone} == {case for case in own if own[case] not in kept}
    assert left_out(cases, None) == set()


@pytest.mark.parametrize(
    ("place", "broker", "variables", "fails"),
    [
        ("test_x.py", "artemis", {"REDELIVERY_REQUIRE_BROKERS": "1"}, True),
        ("test_x.py", "artemis", {"REDELIVERY_REQUIRE_BROKERS": "artemis,packages"}, True),
        ("test_x.py", "artemis", {"REDELIVERY_REQUIRE_BROKERS": "rabbitmq,packages"}, False),
        ("test_x.py", "artemis", {"REDELIVERY_REQUIRE_BROKERS": "1", "REDELIVERY_VERSIONS": "oldest"}, False),
        ("test_x.py", "artemis", {"REDELIVERY_VERSIONS": ""}, False),
        ("test_x.py", None, {"REDELIVERY_REQUIRE_BROKERS": "1"}, False),
        ("availability.py", "artemis", {"REDELIVERY_REQUIRE_BROKERS": "1"}, False),
    ],
)
def test_a_test_that_skips_itself_on_its_pair_fails(
    place: str, broker: str | None, variables: dict[str, str], *, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skip by the test itself is a failure if its broker and the packages are required, in their usual versions."""
    for name in [
        name for name in os.environ if name.startswith(("REDELIVERY_VERSION", "REDELIVERY_REQUIRE"))
    ]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    why = (str(FOLDER / place), 7, "Skipped: not on Artemis")
    report = pytest.TestReport("test_x.py::test_a", ("test_x.py", 3, "a"), {}, "skipped", why, "call")
    found = problem(report, FOLDER / "test_x.py", broker)
    assert (found is not None) is fails
    assert found is None or found.startswith("Skipped: not on Artemis, at line 7: artemis is required")


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_number_of_pairs_that_makes_no_sense_is_an_error(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REDELIVERY_PAIRS is a number of 1 or more, or all."""
    monkeypatch.setenv("REDELIVERY_PAIRS", text)
    with pytest.raises(pytest.UsageError, match="must be a number of pairs, or all"):
        pairs_of_each_test()


def test_each_test_of_a_broker_has_its_group(request: pytest.FixtureRequest) -> None:
    """A test's group is the broker and the protocol in its parameters, fixtures or class; other tests have none."""
    groups = {
        item.nodeid: group_of(item)
        for item in request.session.items
        # Unit tests also have names of brokers, but no broker.
        if isinstance(item, pytest.Function) and item.path.is_relative_to(FOLDER)
    }
    assert groups[request.node.nodeid] is None
    for nodeid, group in groups.items():
        named = [name for name in BROKERS if f"[{name}-" in nodeid or f"[{name}]" in nodeid]
        if named and not any(each in nodeid for each in ("test_spark", "test_clusters")):
            broker, protocol = [*(group or "").split("-"), ""][:2]
            assert broker == named[0], nodeid
            told = [name for name in ("stomp", "amqp") if f"[{broker}-{name}-" in nodeid]
            told = told or [name for name in ("stomp", "amqp") if f"-{name}]" in nodeid]
            assert protocol in ("own", *(told or ["stomp", "amqp"])), nodeid


def test_spark_is_dealt_out_first() -> None:
    """Groups stay together: Spark's first, of any size, then those with a broker of their own, then the larger ones."""
    groups = {
        "a": "rabbitmq-amqp-1",
        "b": "spark",
        "c": "artemis-amqp-own",
        "d": "rabbitmq-amqp-1",
        "f": "spark-queries",
    }
    assert sorted("abcdef", key=longest_first(groups)) == ["b", "f", "c", "a", "d", "e"]


def test_a_process_goes_on_with_its_broker() -> None:
    """A group that takes long is first, then the broker of the process; each third process begins without brokers."""
    scopes = ["artemis-amqp-1", "rabbitmq-stomp-2", "rabbitmq-amqp-own", "test_x.py"]
    assert next_scope(scopes, "artemis", computes=False) == "rabbitmq-amqp-own"
    assert next_scope(scopes[:2], "rabbitmq", computes=False) == "rabbitmq-stomp-2"
    assert next_scope(scopes, "rabbitmq", computes=True) == "test_x.py"
    assert next_scope(["test_x.py"], "rabbitmq", computes=False) == "test_x.py"


def test_a_test_that_ends_its_process_is_not_run_again() -> None:
    """The rest of its group, and the process' next group, are left to other processes; the test is reported."""
    scheduler = ByGroup.__new__(ByGroup)
    scheduler.workqueue = OrderedDict()
    scheduler.assigned_work = {"node": OrderedDict(one={"a": True, "b": False, "c": False}, two={"d": False})}
    assert scheduler.remove_node("node") == "b"
    assert scheduler.workqueue == {"one": {"a": True, "b": True, "c": False}, "two": {"d": False}}
    scheduler.assigned_work = {"node": OrderedDict(one={"a": True})}
    assert scheduler.remove_node("node") is None
