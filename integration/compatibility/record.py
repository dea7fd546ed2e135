"""Records the results of a run for each broker, version and protocol: REDELIVERY_RECORD=1.

Only whole files are recorded; each replaces its earlier results. `python -m integration.compatibility --write` draws
the page from them.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.brokers import ALL_BROKERS
from integration.groups import pair_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RESULTS", "Recorder", "known", "recorder"]

RESULTS = Path(__file__).with_name("results.json")
_KEY = "compatibility"
_OFFERS = "offers"
_CONFORMANCE = "test_conformance.py"


def recorder(config: pytest.Config) -> Recorder | None:
    """Return the recorder of this run if REDELIVERY_RECORD is set, or None."""
    if os.environ.get("REDELIVERY_RECORD", "") in ("", "0"):
        return None
    if config.option.keyword or any("::" in part for part in config.args):
        raise pytest.UsageError("REDELIVERY_RECORD takes whole files, without -k and ::")
    return Recorder()


def known() -> dict[str, Any]:
    """Return the results of earlier runs."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


class Recorder:
    """A plug-in of one run: marks tests in the processes that run them, and counts the reports in the main one."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        self._offers: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Add broker, version and protocol of each test to its report."""
        for item in items:
            pair = pair_of(item)
            if pair is None:
                continue
            broker, protocol = pair
            item.user_properties.append((_KEY, f"{broker} {ALL_BROKERS[broker].version} {protocol}"))
            declared = getattr(getattr(item, "cls", None), "pair", None)
            if declared is not None:
                item.user_properties.append((_OFFERS, dict(_offers(declared))))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst result of each test's three phases."""
        properties = dict(report.user_properties)
        key, file = properties.get(_KEY), report.nodeid.partition("::")[0].rpartition("/")[2]
        if not isinstance(key, str):
            return
        tests = self._outcomes[key, file]
        if tests.get(report.nodeid, "passed") == "passed":
            tests[report.nodeid] = report.outcome
        offers = properties.get(_OFFERS)
        if isinstance(offers, dict):
            self._offers[key] = offers

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Replace the earlier results of the same files."""
        if hasattr(session.config, "workerinput") or not self._outcomes:
            return
        results = known()
        today = dt.datetime.now(dt.UTC).date().isoformat()
        for (key, file), tests in self._outcomes.items():
            counts = Counter(tests.values())
            entry = results.setdefault(key, {"files": {}})
            entry["files"][file] = {
                **{name: counts[name] for name in ("passed", "skipped")},
                "failed": sorted(name.partition("::")[2] for name, how in tests.items() if how == "failed"),
                "on": today,
            }
            if file == _CONFORMANCE and key in self._offers:
                entry[_OFFERS] = self._offers[key]
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _offers(pair: Any) -> Iterator[tuple[str, Any]]:
    """Yield the requirements of the conformance suite for this pair."""
    for field in dataclasses.fields(pair.capabilities):
        value = getattr(pair.capabilities, field.name)
        if isinstance(value, (bool, str, int, float, type(None))):
            yield field.name, value
    yield "features", sorted(pair.features)
    yield "bodies", sorted(kind for kind, arrival in pair.kinds.items() if arrival == "whole")
    yield "persistence", pair.persistence
