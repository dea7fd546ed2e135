"""docs/brokers.md has the results of the runs, and the library knows the versions that they have tested."""

from __future__ import annotations

import pytest

from integration.brokers import versions
from integration.compatibility.page import PAGE, drawn, in_page
from integration.compatibility.record import known
from redelivery.brokers import BROKERS

pytestmark = pytest.mark.ci("the table of versions")

# Brokers with another name in the tests than in the library.
OTHERWISE = {"brokerj": "qpid-broker-j"}


def test_the_page_has_the_tables_that_the_runs_have_made() -> None:
    """The page has the tables of the recorded runs; `python -m integration.compatibility --write` writes them."""
    assert in_page(PAGE.read_text(encoding="utf-8")) == drawn(known())


def test_the_library_counts_as_tested_what_the_tests_run_with() -> None:
    """The library counts exactly the tested versions as tested; `redelivery doctor` and the log report any other."""
    for broker, run in versions.tested_versions().items():
        assert set(run) <= set(BROKERS[OTHERWISE.get(broker, broker)].tested), broker


def test_every_tested_version_was_seen_by_the_conformance_suite() -> None:
    """Every tested version has passed the conformance suite on each of its protocols."""
    results = known()
    for name in versions.names():
        for version in BROKERS[OTHERWISE.get(name, name)].tested:
            for protocol in ("amqp",) if name == "brokerj" else ("amqp", "stomp"):
                seen = results[f"{name} {version} {protocol}"]["files"]["test_conformance.py"]
                assert (seen["failed"], seen["passed"] > 100) == ([], True), f"{name} {version} {protocol}"
