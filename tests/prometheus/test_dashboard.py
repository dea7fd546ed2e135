"""Dashboard for Grafana: it can be loaded, and its queries name exported metrics only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from redelivery.prometheus.metrics import Families

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "grafana" / "redelivery.json"
PAGE = ROOT / "docs" / "metrics.md"
METRIC = re.compile(r"\b(?:redelivery|messaging)_\w+")
LABELS = {"messaging_destination_name"}
ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def exported() -> set[str]:
    """Return the names of all samples that may be exported."""
    return {family.name + ending for family in Families().all for ending in ENDINGS[family.type]}


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def named(text: str) -> set[str]:
    """Return the metrics that a text names."""
    return set(METRIC.findall(text)) - LABELS


def test_every_metric_of_the_dashboard_is_exported() -> None:
    """The dashboard's queries name exported samples, and each family but the broker's description is in a panel."""
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    asked = set().union(*(named(query) for query in queries))
    assert asked - exported() == set()
    families = {family.name for family in Families().all}
    shown = {name for name in families if any(each.startswith(name) for each in asked)}
    assert families - shown == {"redelivery_info"}


def test_the_dashboard_has_what_grafana_needs() -> None:
    """The panels have different ids and do not overlap; their data source is chosen by the reader."""
    found = dashboard()
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells), panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    assert [each["name"] for each in found["templating"]["list"]] == ["datasource", "destination"]


def test_the_page_names_what_is_exported() -> None:
    """The page's tables and alerts name exported metrics only, and each metric is in a table."""
    page = PAGE.read_text(encoding="utf-8")
    assert named(page) - exported() - {family.name for family in Families().all} == set()
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    suffixed = {f.name + "_total" if f.type == "counter" else f.name for f in Families().all}
    assert suffixed - named(rows) == set()
