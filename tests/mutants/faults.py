"""Planted faults of this folder's TOML files, and the tests that belong to each area.

A fault is found by `at`, the name of a function or a class: code that moves to another file needs no new text here.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["AREAS", "ROOT", "Area", "Fault", "faults", "files_of", "lines_of"]

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "client", ROOT / "adapters")
FOLDER = Path(__file__).parent / "faults"


@dataclass(frozen=True)
class Area:
    """Tests of one part of the library, and the tests of other parts that use it."""

    own: tuple[str, ...]
    related: tuple[str, ...]


@dataclass(frozen=True)
class Fault:
    """One fault: each `old` text becomes its `new` text, in the function or class `at`, or in a whole file.

    `path` is the file of what has no name of its own; of the others it is looked up.
    """

    id: str
    area: str
    at: str
    path: str
    what: str
    edits: tuple[tuple[str, str], ...]

    @property
    def file(self) -> str:
        """The file of the fault.

        Raises:
            ValueError: No file, or more than one, has a function or class of this name.
        """
        if self.path:
            return self.path
        found = files_of().get(self.at, [])
        if len(found) != 1:
            raise ValueError(f"{self.id}: {self.at} is in {len(found)} files, not in one: {', '.join(found)}")
        return found[0]

    def planted(self, text: str) -> str:
        """Return the text of the file with the fault.

        Raises:
            ValueError: An old text does not occur exactly once.
        """
        first, last = lines_of(text, self.at) if self.at else (0, len(text))
        before, part, after = text[:first], text[first:last], text[last:]
        for old, new in self.edits:
            if (times := part.count(old)) != 1:
                where = f"{self.at or 'the file'} ({self.file})"
                raise ValueError(f"{self.id}: {where} has the old text {times} times, not once: {old!r}")
            part = part.replace(old, new)
        return before + part + after


_CLASS = re.compile(r"class (\w+)")
_FUNCTION = re.compile(r"( *)(?:async )?def (\w+)")


@cache
def files_of() -> dict[str, list[str]]:
    """Return the files of each function, class and method (`Class.method`) of the sources."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (path for folder in SOURCES for path in sorted(folder.rglob("*.py"))):
        shown, owner = path.relative_to(ROOT).as_posix(), ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if (new := _CLASS.match(line)) is not None:
                owner = new[1]
                found[owner].append(shown)
            elif (new := _FUNCTION.match(line)) is not None and len(new[1]) in (0, 4):
                name = f"{owner}.{new[2]}" if new[1] else new[2]
                owner = owner if new[1] else ""
                if shown not in found[name]:
                    found[name].append(shown)
    return found


def lines_of(text: str, name: str) -> tuple[int, int]:
    """Return where the lines of a function, a class or a method begin and end, with its decorators.

    Raises:
        ValueError: There is none of this name.
    """
    nodes: list[ast.stmt] = ast.parse(text).body
    for each in name.split("."):
        named = [node for node in nodes if getattr(node, "name", None) == each]
        if not named:
            raise ValueError(f"the file has no {name}")
        # Of overloads, the last one is the function.
        node: Any = named[-1]
        nodes = node.body
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return starts[first - 1], starts[node.end_lineno]


_EVERYWHERE = (
    "tests/testing/test_conformance.py",
    "tests/driver/test_consumer_scenarios.py",
    "tests/driver/test_storm.py",
    "tests/memory",
)
# The tests of the house style are in no list: they find a changed text, not a changed behaviour.
AREAS = {
    "core": Area(
        ("tests/core", "tests/uri/test_uri_vectors.py"),
        (
            "tests/driver",
            *_EVERYWHERE[:1],
            "tests/memory",
            "tests/ledger",
            "tests/dlq",
            "tests/cli",
            "tests/spark",
        ),
    ),
    "breaker": Area(
        (
            "tests/core/test_breaker.py",
            "tests/core/test_breaker_long.py",
            "tests/core/test_dispatch_gate.py",
            "tests/core/test_suspects.py",
            "tests/core/test_rate.py",
        ),
        (
            "tests/core",
            "tests/driver/test_breaker.py",
            "tests/driver/test_pause.py",
            "tests/driver/test_ledger.py",
        ),
    ),
    "driver": Area(
        ("tests/driver", "tests/adapter_support"),
        (*_EVERYWHERE, "tests/ledger", "tests/dlq", "tests/cli", "tests/stomp", "tests/amqp"),
    ),
    "observers": Area(
        (
            "tests/driver/test_observers.py",
            "tests/driver/test_observer_choices.py",
            "tests/driver/test_attached_observers.py",
            "tests/driver/test_observed_attempts.py",
            "tests/driver/test_observed_sessions.py",
            "tests/driver/test_consumer_events.py",
            "tests/driver/test_listener_hooks.py",
            "tests/driver/test_hook_calls.py",
            "tests/driver/test_message_log.py",
            "tests/driver/test_log_groups.py",
            "tests/driver/test_credit_plan.py",
            "tests/events",
        ),
        ("tests/driver", "tests/otel", "tests/prometheus", *_EVERYWHERE),
    ),
    "telemetry": Area(("tests/prometheus", "tests/otel"), ("tests/docs", "tests/driver/test_observers.py")),
    "health": Area(
        ("tests/health", "tests/driver/test_health.py", "tests/driver/test_handler_watch.py"),
        ("tests/driver", "tests/cli/test_health_endpoint.py"),
    ),
    "session": Area(("tests/driver",), (*_EVERYWHERE, "tests/cli")),
    "ledger": Area(
        ("tests/ledger", "tests/driver/test_ledger.py", "tests/core"),
        (*_EVERYWHERE, "tests/driver", "tests/dlq"),
    ),
    "dlq": Area(
        ("tests/dlq", "tests/core/test_redrive.py", "tests/cli/test_dlq.py"),
        (*_EVERYWHERE, "tests/cli", "tests/core", "tests/driver"),
    ),
    "importers": Area(
        ("tests/importers", "tests/uri", "tests/core/test_policy.py", "tests/docs/test_generated_pages.py"),
        (*_EVERYWHERE, "tests/cli", "tests/core/test_policy_refusals.py", "tests/stomp", "tests/amqp"),
    ),
    "stomp": Area(("tests/stomp",), (*_EVERYWHERE, "tests/adapter_support")),
    "amqp": Area(("tests/amqp",), (*_EVERYWHERE, "tests/adapter_support")),
    "rabbitmq4": Area(
        (
            "tests/core/test_taken_back.py",
            "tests/core/test_rescheduled.py",
            "tests/core/test_native_redelivery.py",
            "tests/amqp/test_queue_facts.py",
            "tests/amqp/test_given_back.py",
            "tests/amqp/test_management_link.py",
            "tests/amqp/test_declarations.py",
            "tests/amqp/test_topic_queues.py",
            "tests/amqp/test_refused_declarations.py",
            "tests/amqp/test_profiles.py",
            "tests/amqp/test_odd_notes.py",
        ),
        ("tests/amqp", "tests/core"),
    ),
    "cli": Area(("tests/cli",), ("tests/docs/test_help.py", "tests/docs/test_examples.py")),
    "spark": Area(("tests/spark",), _EVERYWHERE),
}


def _edits(entry: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((each["old"], each["new"]) for each in entry.get("edits", [entry]))


@cache
def faults() -> tuple[Fault, ...]:
    """Return all faults, area by area."""
    return tuple(
        Fault(entry["id"], area, entry.get("at", ""), entry.get("file", ""), entry["what"], _edits(entry))
        for area in AREAS
        for entry in tomllib.loads((FOLDER / f"{area}.toml").read_text(encoding="utf-8"))["fault"]
    )
