"""Skips of tests whose broker, client or session cannot be had: with the reason. Faults of the tests' own code fail.

The first failure of a broker, a client or a session is remembered in the run's folder, and no process of the run tries
again: a broker that does not start within two minutes would cost each of its tests two minutes.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tarfile
import zlib
from typing import TYPE_CHECKING, TypeVar

import pytest
from tests.needs import required

from integration.brokers import BrokerError
from integration.run_folder import run_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from integration.brokers import Broker


__all__ = ["CANNOT_BE_HAD", "fetched", "had", "own_settings", "remember", "started"]

T = TypeVar("T")
B = TypeVar("B", bound="Broker")
CANNOT_BE_HAD = (
    *(BrokerError, OSError, subprocess.SubprocessError),
    *(tarfile.TarError, EOFError, zlib.error),  # half an archive
)
"""Errors of downloads, programs and brokers. Others, such as a TypeError, are faults of the tests' own code."""
LONGEST = 300  # characters of a reason; the failure of a required broker has the whole text


def had(name: str, what: str, get: Callable[[], T]) -> T:
    """Return what `get` returns. If it cannot be had, now or before in this run, skip the test with the reason.

    If REDELIVERY_REQUIRE_BROKERS has `name`, the first test that needs it fails, and the others are skipped.
    """
    known = _file("failed", what)
    if not known.exists():
        try:
            return get()
        except CANNOT_BE_HAD as error:
            remember(what, error)
    text = known.read_text(encoding="utf-8")
    reason = f"{what}: {_shortened(text)}"
    if required(name):
        told = _file("told", what)
        if _written(
            told, os.environ.get("PYTEST_CURRENT_TEST", "the collection of tests").partition(" (")[0]
        ):
            pytest.fail(f"REDELIVERY_REQUIRE_BROKERS asks for {name}, but: {what}: {text}", pytrace=False)
        reason += f" (required: {told.read_text(encoding='utf-8')} fails)"
    pytest.skip(reason, allow_module_level=True)


def remember(what: str, error: Exception) -> None:
    """Keep a failure for all processes of the run, unless another one was first."""
    _written(_file("failed", what), str(error) or type(error).__name__)


def fetched(kind: type[Broker]) -> None:
    """Skip unless this kind of broker can run here; fetch its missing files."""

    def get() -> None:
        reason = kind.unavailable()
        if reason is not None:
            raise BrokerError(reason)
        kind.obtain()

    had(kind.name, kind.name, get)


def started(broker: Broker, what: str = "") -> Broker:
    """Start a broker, or skip. `what`: its name in the reason, if it has settings of its own."""

    def get() -> Broker:
        try:
            return broker.start()
        except BaseException:
            broker.close()
            raise

    return had(broker.name, what or broker.name, get)


@contextlib.contextmanager
def own_settings(kind: type[B], **settings: Any) -> Iterator[B]:
    """Run a broker of a test's own, with settings that the others do not have, or to be killed."""
    fetched(kind)
    words = " ".join(f"{name}={value}" for name, value in settings.items())
    broker = kind(**settings)
    with contextlib.closing(broker):
        started(broker, f"{kind.name} {words}".strip())
        yield broker


def _file(kind: str, what: str) -> Path:
    return run_folder() / f"{kind}-{re.sub(r'[^a-z0-9]+', '-', what.lower())}"


def _written(file: Path, text: str) -> bool:
    """Write a file; False if another process was first."""
    own = file.with_name(f"{file.name}.{os.getpid()}")
    own.write_text(text, encoding="utf-8")
    try:
        file.hardlink_to(own)  # unlike a write it is whole at once, and fails if the file is there
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


def _shortened(text: str) -> str:
    """Return the first and the last line: what failed, and the end of its output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ... ".join(dict.fromkeys((lines[0], lines[-1])))[:LONGEST] if lines else text
