"""Tiers of the tests. The tier of a test stands at the test; `--tier` chooses how far a run goes.

No marker: quick, which a person runs before and after each change. `@pytest.mark.ci("why")`: before a merge as well
(`.ci/run`). `@pytest.mark.full("why")`: each night as well (`.ci/full`). The reason is what the test costs, or what it
proves only rarely; each run counts what it leaves out by these reasons. A number that grows with the tier, such as the
schedules of the simulator, is `amount(...)`. Cases of a matrix are chosen by `tests/matrix.py`.

Without `--tier` the environment variable REDELIVERY_TIER decides, and without it the tier is quick. `--all-of` takes
each test of some kinds, in the cases and with the numbers of the tier: `.ci/run` takes the kinds that a change touches.

PYTEST_DONT_REWRITE: the plugin of the planted faults imports this module before pytest knows of it.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from tests.plugins import PLUGINS, REGISTERED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "DEAD_LETTERS",
    "KINDS",
    "TIERS",
    "amount",
    "chosen",
    "kind_of",
    "leave_out",
    "left_out",
    "runs_all_of",
    "tier_of",
]

TIERS = ("quick", "ci", "full")
VARIABLE = "REDELIVERY_TIER"
KINDS = {
    "amqp": "tests of the tier over AMQP, on each broker",
    "dead-letters": "integration tests of dead letters, on each broker",
    "schedules": "schedules of the simulator",
    "site": "the site of the documentation",
    "spark": "tests of Spark",
    "stomp": "tests of the tier over STOMP, on each broker",
}
"""Kinds of tests that `--all-of` takes whole."""
DEAD_LETTERS = (
    "test_amqp_bodies",
    "test_artemis_named_places",
    "test_artemis_own_places",
    "test_artemis_subscribers",
    "test_artemis_wildcards",
    "test_client_killed",
    "test_copies",
    "test_dead_letter",
    "test_fan_out",
    "test_frame_limits",
    "test_imported_places",
    "test_jms_messages",
    "test_nonsense",
    "test_operators_settings",
    "test_pills",
    "test_places_looked_at",
    "test_redrive_by_hand",
    "test_refused_dead_letters",
    "test_release_limit",
    "test_set_aside",
    "test_ten_places",
)
"""Beginnings of the names of integration tests of dead letters: what they have, where they are, and the tools."""
ALL_OF = "REDELIVERY_ALL_OF"
_COUNTS = pytest.StashKey[Counter[str]]()
_SENT = "redelivery_left_out"

# Each process would compile a thousand files anew: two thirds of the time that collection takes.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def chosen() -> str:
    """Return the tier of this run."""
    return os.environ.get(VARIABLE) or TIERS[0]


def runs_all_of(kind: str | None) -> bool:
    """Return True if this run takes all tests of a kind."""
    return chosen() == "full" or kind in os.environ.get(ALL_OF, "").split(",")


def amount(
    variable: str = "", *, quick: float, ci: float, full: float, all_of: tuple[str, float] | None = None
) -> int:
    """Return a number that grows with the tier. The environment variable overrides it.

    `all_of`: a kind of `--all-of`, and the number for `.ci/run` of a change that touches it.
    """
    text = os.environ.get(variable) if variable else None
    if text:
        return int(text)
    by_tier = {"quick": quick, "ci": ci, "full": full}
    if all_of is not None and runs_all_of(all_of[0]):
        by_tier["ci"] = by_tier["quick"] = all_of[1]
    return int(by_tier[chosen()])


def tier_of(item: pytest.Item, *, case: bool = False) -> tuple[str, str]:
    """Return the tier of a test and the reason: of its own marker, its class's, its module's, or its case's.

    The highest one counts: a case of all nights stays one in a module that has the marker `ci`. `case`: look only at
    the marker of the case of a matrix.
    """
    callspec: Any = getattr(item, "callspec", None)
    of_case = {mark.name: mark for mark in callspec.marks} if callspec is not None else {}
    for tier in reversed(TIERS[1:]):
        mark = of_case.get(tier) if case else item.get_closest_marker(tier)
        if mark is not None:
            if len(mark.args) != 1 or not isinstance(mark.args[0], str) or not mark.args[0] or mark.kwargs:
                raise pytest.UsageError(
                    f"{item.nodeid}: the marker {tier} needs one reason, in words: {tier}('why')"
                )
            return tier, mark.args[0]
    return TIERS[0], ""


def left_out(items: Iterable[pytest.Item]) -> dict[str, str]:
    """Return the ids of the tests that this run leaves out, each with its reason."""
    limit = TIERS.index(chosen())
    found = {item.nodeid: tier_of(item, case=runs_all_of(kind_of(item))) for item in items}
    return {name: f"{why} ({tier})" for name, (tier, why) in found.items() if TIERS.index(tier) > limit}


def kind_of(item: pytest.Item) -> str | None:
    """Return the kind of a test that `--all-of` may name, as far as its file decides it."""
    name = item.path.name
    if name.startswith("test_spark") or item.path.parent.name == "spark":
        return "spark"
    if name.startswith(DEAD_LETTERS):
        return "dead-letters"
    return "site" if name == "test_site.py" else None


def examples_of(tier: str) -> settings:
    """Return the settings of property tests: `.ci/run` draws the same examples on each machine, the nights others.

    `--hypothesis-seed`, which `.ci/full` chooses and prints, repeats a night.
    """
    count = {"quick": 10, "ci": 100, "full": 300}[tier]
    # A busy machine is slow: that is not a failure of the code.
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=tier == "ci",
        suppress_health_check=[HealthCheck.too_slow],
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this module."""
    REGISTERED.extend(PLUGINS)
    group = parser.getgroup("redelivery", "tiers of the tests")
    default = chosen()
    whole = "; ".join(f"{kind}, {what}" for kind, what in KINDS.items())
    group.addoption(
        "--tier",
        choices=TIERS,
        default=default,
        help="quick: for each change; ci: before a merge; full: each night",
    )
    group.addoption(
        "--all-of",
        default=os.environ.get(ALL_OF, ""),
        metavar="KINDS",
        help=f"kinds of tests to take whole, separated by commas: {whole}",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set the tier for the modules of tests, for the other processes of this run, and for hypothesis."""
    for tier in TIERS[1:]:
        config.addinivalue_line("markers", f"{tier}(why): a test that quick leaves out, with the reason")
    kinds = [kind for kind in config.getoption("--all-of").split(",") if kind]
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise pytest.UsageError(
            f"--all-of: no such kind of tests: {', '.join(unknown)}; there are {', '.join(KINDS)}"
        )
    os.environ[VARIABLE] = config.getoption("--tier")
    os.environ[ALL_OF] = ",".join(kinds)
    settings.register_profile("tier", examples_of(chosen()))
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "tier")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of higher tiers."""
    leave_out(config, items, left_out(items))


def leave_out(config: pytest.Config, items: list[pytest.Item], gone: Mapping[str, str]) -> None:
    """Take tests out of a run, and count their reasons for its end."""
    counts = config.stash.setdefault(_COUNTS, Counter())
    counts.update(gone.values())
    dropped = [item for item in items if item.nodeid in gone]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item.nodeid not in gone]
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output[_SENT] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a process of the run has left out; all of them leave out the same."""
    counts: dict[str, int] = getattr(node, "workeroutput", {}).get(_SENT, {})
    if counts:
        node.config.stash[_COUNTS] = Counter(counts)


def counts_of(config: pytest.Config) -> Counter[str]:
    """Return the reasons why tests are not run, with the number of tests of each."""
    return config.stash.get(_COUNTS, Counter())
