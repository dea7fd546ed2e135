"""The page on embedding has the programs of `examples/embedding` word by word; its unit and manifest are correct."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from redelivery.cli.app import cli
from redelivery.cli.health_endpoint import address
from redelivery.health.probes import ProbeAnswers

pytestmark = pytest.mark.ci("pages: each block, link and generated part")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "embedding"
PAGE = (ROOT / "docs" / "embed.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(
    r"^<!-- not run: [^\n]* as examples/embedding/(\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
CLOSING = 5
"""Most seconds that `close` takes."""
WORDS = 900


def unit() -> configparser.ConfigParser:
    """Return the systemd unit."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(FOLDER / "redelivery-orders.service", encoding="utf-8")
    return parser


def manifest() -> Any:
    """Return the Kubernetes manifest."""
    return yaml.safe_load((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8"))


def options(words: list[str]) -> dict[str, Any]:
    """Return the options of `redelivery consume` in these arguments, as text; an unknown one is an error."""
    group = click.Context(cli, **cli.context_settings)
    command = cli.get_command(group, "consume")
    assert command is not None
    # Not the group's context, which would set up logging.
    context = click.Context(command, parent=group)
    return dict(command.make_parser(context).parse_args(words)[0])


def test_programs_stand_on_the_page() -> None:
    """Each program on the page is a file of the examples, word by word, as are unit and manifest."""
    shown = dict(NAMED.findall(PAGE))
    assert len(shown) == PAGE.count("<!-- not run") == 4
    for name, text in shown.items():
        assert text == (FOLDER / name).read_text(encoding="utf-8"), name
    blocks = dict(BLOCK.findall(PAGE))
    assert blocks["ini"] == (FOLDER / "redelivery-orders.service").read_text(encoding="utf-8")
    assert blocks["yaml"] == (FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")


def test_the_page_is_short() -> None:
    """The prose of the page has at most 900 words."""
    assert len(BLOCK.sub("", PAGE).split()) <= WORDS


def test_every_program_is_shown() -> None:
    """The README of the examples names each program, and each is short."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for path in FOLDER.rglob("*.py"):
        name = path.relative_to(FOLDER).parts[0]
        assert f"embedding/{name}" in text, name
        code = path.read_text(encoding="utf-8")
        assert len(code.splitlines()) <= 70, path.name
        assert ast.get_docstring(ast.parse(code))


def test_unit() -> None:
    """The systemd unit has the keys that the page explains, waits for the drain, and uses the watchdog."""
    service = dict(unit()["Service"])
    words = shlex.split(service["ExecStart"])
    assert words[0].endswith("/redelivery")
    assert words[1] == "consume"
    given = options(words[2:])
    assert (given["systemd"], given["handler"]) == (True, "shop:handle")
    assert int(service["TimeoutStopSec"]) >= int(given["drain_timeout"]) + 2 * CLOSING
    expected = {
        "Type": "notify",
        "Restart": "on-failure",
        "RestartPreventExitStatus": "77 78",
        "SuccessExitStatus": "143",
        "KillSignal": "SIGTERM",
        "KillMode": "mixed",
        "WatchdogSec": "30",
    }
    assert {name: service.get(name) for name in expected} == expected
    assert unit()["Install"]["WantedBy"] == "multi-user.target"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` reports nothing about the unit if its program exists."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("this machine has no systemd-analyze")
    text = (FOLDER / "redelivery-orders.service").read_text(encoding="utf-8")
    (tmp_path / "redelivery-orders.service").write_text(
        text.replace("/opt/orders/.venv/bin/redelivery", sys.executable), encoding="utf-8"
    )
    ended = subprocess.run(
        [tool, "verify", str(tmp_path / "redelivery-orders.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    # Reports about other units depend on the machine.
    assert "redelivery-orders" not in ended.stderr


def test_manifest() -> None:
    """The manifest's probes use port and paths of the program, and its grace period is enough for a drain."""
    spec = manifest()["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["command"][:2] == ["redelivery", "consume"]
    given = options(container["command"][2:])
    host, port = address(given["health"])
    assert host == "0.0.0.0"
    assert [each["containerPort"] for each in container["ports"]] == [port]
    assert spec["terminationGracePeriodSeconds"] >= int(given["drain_timeout"]) + 2 * CLOSING
    liveness, readiness = container["livenessProbe"], container["readinessProbe"]
    assert (liveness["httpGet"], readiness["httpGet"]) == (
        {"path": "/livez", "port": port},
        {"path": "/readyz", "port": port},
    )
    assert (liveness["periodSeconds"], liveness["failureThreshold"]) == (10, 3)
    assert "lifecycle" not in container


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe"])
def test_the_paths_of_the_probes_are_answered(probe: str) -> None:
    """A connection that is not open yet is live and not ready: neither path of the probes is 404."""
    import redelivery  # noqa: PLC0415 - of this test alone

    (container,) = manifest()["spec"]["template"]["spec"]["containers"]
    answers = ProbeAnswers(redelivery.connect("memory://x"), None, "consuming")
    assert answers.answer("GET", container[probe]["httpGet"]["path"]).status in (200, 503)
