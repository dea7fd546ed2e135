"""The library as users see it, as text: names and signatures, options, the command line, the log.

`python -m tests.house.surface` writes the golden texts of the tests. Their diff shows the effect of a change on users.
"""

from __future__ import annotations

import enum
import inspect
import io
import logging
import os
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, ClassMethodDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, get_origin
from unittest.mock import patch

from tests.house.scenes import FAST, log

from redelivery.uri.option_table import option_rows

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GOLDEN", "SURFACES"]

GOLDEN = Path(__file__).parent / "golden"
PACKAGES = [
    "redelivery",
    "redelivery.testing",
    "redelivery.testing.conformance",
    "redelivery.importers",
    "redelivery.ledger",
    "redelivery.adapter",
    "redelivery.clock",
    "redelivery.errors",
    "redelivery.health",
    "redelivery.otel",
    "redelivery.prometheus",
    "redelivery.settings",
    "redelivery.core.capabilities",
    "redelivery.core.commands",
    "redelivery.core.delivery",
    "redelivery.core.events",
    "redelivery.core.outgoing",
    "redelivery.core.destination",
    "redelivery_memory",
    "redelivery_stomp",
    "redelivery_amqp",
]
MADE_FOR_USERS = {"AsyncConsumer", "AsyncSession", "Consumer", "Message", "Session"}
"""Classes that only the library instantiates: users do not see their arguments."""
_OF_C = (BuiltinFunctionType, ClassMethodDescriptorType, MethodDescriptorType, WrapperDescriptorType)
"""Functions of C, as `time.monotonic`: whether they have a signature, and which one, depends on Python's version."""
COMMANDS: list[list[str]] = [
    ["--help"],
    ["consume", "--help"],
    ["send", "--help"],
    ["demo", "--help"],
    ["doctor", "--help"],
    ["policy", "--help"],
    ["policy", "explain", "--help"],
    ["policy", "convert", "--help"],
    ["dlq", "--help"],
    *(["dlq", each, "--help"] for each in ("summary", "list", "show", "redrive", "purge", "export")),
    ["policy", "explain", f"memory://shop?{FAST}", "--destination", "orders"],
    ["policy", "explain", f"memory://shop?{FAST}", "--destination", "orders", "--output", "json"],
    ["policy", "explain", "tcp://broker:61616?jms.useAsyncSend=true", "--destination", "orders"],
    [
        "policy",
        "explain",
        "memory://shop?jms.redeliveryPolicy.maximumRedelivery=3",
        "--destination",
        "orders",
    ],
    ["policy", "explain"],
    ["consume", "memory://shop", "orders", "--handler", "nowhere:handle"],
    ["consume", "nothing://shop", "orders", "--exec", "true"],
    ["consume", "stomp://127.0.0.1:1", "orders", "--exec", "true"],
    ["dlq", "summary", "stomp://127.0.0.1:1", "DLQ"],
    ["dlq", "purg"],
    ["nothing"],
]


def api() -> str:
    """Return each public name, with its signature if it can be called."""
    lines: list[str] = []
    for package in PACKAGES:
        lines.append(f"# {package}")
        module = import_module(package)
        for name in sorted(module.__all__):
            lines += _shown(name, getattr(module, name))
    return "\n".join(lines)


def _shown(name: str, value: object) -> list[str]:
    if inspect.isclass(value):
        return [f"class {name}{_bases(value)}", *_members(value)]
    if get_origin(value) is not None:  # an alias of types; it can be called as its origin
        return [f"{name}: type"]
    if callable(value):
        return [f"{name}{_signature(value)}"]
    return [f"{name}: {type(value).__name__}"]


def _bases(kind: type) -> str:
    if issubclass(kind, BaseException):
        return f"({', '.join(each.__name__ for each in kind.__mro__[1:-1])})"
    return ""


def _members(kind: type) -> list[str]:
    lines: list[str] = []
    if not issubclass(kind, BaseException | enum.Enum) and kind.__name__ not in MADE_FOR_USERS:
        lines.append(f"    {_signature(kind)}")
    for name, value in sorted(inspect.getmembers(kind)):
        if name.startswith("_") or (issubclass(kind, BaseException) and hasattr(Exception, name)):
            continue
        lines.append(f"    {name}{_signature(value) if callable(value) else ''}")
    return lines


def _signature(value: Callable[..., Any]) -> str:
    if isinstance(value, _OF_C):
        return "(...)"
    text = str(inspect.signature(value))
    return re.sub(r"\b(?:redelivery|redelivery_\w+)\.[\w.]*\.(\w+)", r"\1", re.sub(r" at 0x\w+", "", text))


def options() -> str:
    """Return each option of a URI: name, values, default, meaning."""
    return "\n".join(" | ".join(row) for row in option_rows())


def command_line() -> str:
    """Return the output and the exit codes of commands: help, explanations, mistakes."""
    from redelivery.cli.app import run  # noqa: PLC0415 - it needs click

    lines: list[str] = []
    environment = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    loggers = [logging.getLogger(name) for name in ("redelivery", "redelivery.wire", "stomp.py", None)]
    before = [(logger, logger.level, [*logger.handlers]) for logger in loggers]
    with patch.dict(os.environ, environment):
        os.environ.pop("REDELIVERY_URL", None)
        for arguments in COMMANDS:
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = run(arguments)
            lines += [
                f"$ redelivery {shlex.join(arguments)}",
                # The brackets are of click 8.2 and later.
                (out.getvalue() + err.getvalue()).replace(" [COMMAND] ", " COMMAND ") + f"exit {code}",
            ]
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
    return "\n".join(lines)


SURFACES: dict[str, Callable[[], str]] = {
    "api": api,
    "options": options,
    "command_line": command_line,
    "log": log,
}

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each, make in SURFACES.items():
        (GOLDEN / f"{each}.txt").write_text(make() + "\n", encoding="utf-8")
