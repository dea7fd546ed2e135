"""Tests whose package is missing are skipped, or fail where all packages must be there."""

from __future__ import annotations

import json

import pytest
from tests import needs


def absent(_: str) -> None:
    """Find no module, as `importlib.util.find_spec` where it is not installed."""


@pytest.fixture(autouse=True)
def nothing_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """Require no package, also where CI requires all."""
    monkeypatch.delenv("REDELIVERY_REQUIRE_BROKERS", raising=False)


def test_a_package_that_is_there() -> None:
    """A module that is installed is returned."""
    assert needs.need("json") is json
    assert needs.missing("json", "json.decoder") is None


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the packages and the extra that has them."""
    monkeypatch.setattr(needs, "find_spec", absent)
    assert needs.missing("proton") == "python-qpid-proton is not installed (the extra amqp)"
    assert needs.missing("pyarrow.parquet") == "pyarrow is not installed (the extra test-all)"
    assert needs.missing("proton", "moto") == (
        "python-qpid-proton, moto are not installed (the extra test-all)"
    )
    with pytest.raises(pytest.skip.Exception, match="moto is not installed"):
        needs.need("moto")


@pytest.mark.parametrize("value", ["1", "artemis, packages"])
def test_a_package_that_is_required(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Where packages are required, a missing one is a failure."""
    monkeypatch.setenv("REDELIVERY_REQUIRE_BROKERS", value)
    monkeypatch.setattr(needs, "find_spec", absent)
    with pytest.raises(pytest.fail.Exception, match="asks for all packages, but: moto is not"):
        needs.need("moto")
    monkeypatch.setenv("REDELIVERY_REQUIRE_BROKERS", "artemis")
    with pytest.raises(pytest.skip.Exception, match="moto"):
        needs.need("moto")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", False),
        ("0", False),
        ("1", True),
        ("artemis", True),
        ("activemq", False),
        ("activemq, artemis", True),
        ("artemis,spark,chromium,packages", True),
    ],
)
def test_what_is_required(monkeypatch: pytest.MonkeyPatch, value: str, *, expected: bool) -> None:
    """REDELIVERY_REQUIRE_BROKERS requires all, nothing, or the named brokers and others."""
    monkeypatch.setenv("REDELIVERY_REQUIRE_BROKERS", value)
    assert needs.required("artemis") is expected


def test_a_misspelt_requirement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name is an error, for brokers and for packages: it would silently require nothing."""
    monkeypatch.setenv("REDELIVERY_REQUIRE_BROKERS", "artemys")
    monkeypatch.setattr(needs, "find_spec", absent)
    with pytest.raises(pytest.UsageError, match="artemys"):
        needs.required("artemis")
    with pytest.raises(pytest.UsageError, match="artemys"):
        needs.need("moto")
