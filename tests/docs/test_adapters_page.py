"""The adapter that docs/adapters.md shows passes the conformance suite."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import redelivery.registry
from redelivery.errors import ConfigurationError

pytestmark = pytest.mark.ci("pages: each block, link and generated part")

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page() -> dict[str, Any]:
    """Return the names that the page's blocks define; the registry stays unchanged."""
    namespace: dict[str, Any] = {"__name__": "adapters_page"}
    before = dict(redelivery.registry._registered)
    try:
        for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            exec(block, namespace)
    finally:
        redelivery.registry._registered.clear()
        redelivery.registry._registered.update(before)
    return namespace


SHOWN = page()


Shown: Any = SHOWN["TestShelf"]


class TestShelf(Shown):  # type: ignore[misc]  # made from text
    """The class of the page, unchanged."""

    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Register the page's adapter during a test."""
        monkeypatch.setitem(redelivery.registry._registered, "shelf", SHOWN["ShelfAdapter"])


def test_a_registered_scheme_can_be_connected_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URI of a registered scheme parses with options, alone and in failover; it is not a Java URI."""
    monkeypatch.setattr(redelivery.registry, "_registered", {})
    redelivery.registry.register("shelf", SHOWN["ShelfAdapter"])
    assert "shelf" in redelivery.registry.schemes()
    for uri in (
        "shelf://here:1234?redelivery.credit=5&jms.userName=me",
        "failover:(shelf://a,shelf://b)?redelivery.credit=5",
    ):
        settings = redelivery.parse_uri(uri)
        assert (settings.scheme, settings.credit, settings.java) == ("shelf", 5, False)
    assert redelivery.parse_uri("shelf://here").endpoints[0].port == 0


def test_a_scheme_that_nobody_serves_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for an unknown scheme lists those that can connect."""
    monkeypatch.setattr(redelivery.registry, "_registered", {})
    with pytest.raises(ConfigurationError, match="unknown; those that can connect: "):
        redelivery.parse_uri("shelf://here")
