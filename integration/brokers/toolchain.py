"""Java and Maven: checks for them, fetching of jars, and the cache, with which a second run needs no network."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A JVM that compiles little and collects with one thread: for tests, which run for minutes, not for measurements.
LIGHT_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LONGEST_FETCH = 120.0  # seconds
JAVA_SOURCES = Path(__file__).resolve().parent.parent / "java"


class BrokerError(Exception):
    """A broker, or one of its tools, could not be fetched, started or stopped."""


def _to_stderr(text: str) -> None:
    print(f"[brokers] {text}", file=sys.stderr, flush=True)


class Progress:
    """Output of long work. The test run replaces `write`, which pytest's capturing would hide."""

    write: Callable[[str], None] = staticmethod(_to_stderr)


def progress(text: str) -> None:
    """Report long work on stderr."""
    Progress.write(text)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Files from Maven: jars with their dependencies, or one archive, which is unpacked."""

    name: str
    artifacts: tuple[str, ...]  # group:artifact:version[:type[:classifier]]
    archive: bool = False


def cache_root() -> Path:
    """Return the cache folder: REDELIVERY_BROKER_CACHE, or ~/.cache/redelivery-brokers."""
    chosen = os.environ.get("REDELIVERY_BROKER_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "redelivery-brokers"


def missing_java() -> str | None:
    """Return why Java programs cannot be built and run here, or None."""
    absent = [tool for tool in ("java", "javac", "keytool") if shutil.which(tool) is None]
    return f"no {', '.join(absent)} on the PATH (a JDK, 17 or later, is needed)" if absent else None


def missing(distribution: Distribution) -> str | None:
    """Return why this distribution cannot be used here, or None."""
    reason = missing_java()
    if reason is None and not _home(distribution).is_dir() and shutil.which("mvn") is None:
        return f"no mvn (Maven) on the PATH, and {distribution.name} is not in the cache {cache_root()}"
    return reason


def fetch(distribution: Distribution) -> Path:
    """Return the folder of this distribution, which Maven fetches unless the cache has it."""
    home = _home(distribution)
    with locked(distribution.name):
        if home.is_dir():
            return home
        with tempfile.TemporaryDirectory(dir=cache_root(), prefix="fetch-") as scratch:
            jars = _download(distribution, Path(scratch))
            # A rename is atomic: an interrupted run leaves no incomplete cache.
            (_unpack(jars) if distribution.archive else jars).rename(home)
    return home


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock for `name`: two test runs do not fetch the same files at the same time."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def compiled(distribution: Distribution, main: str) -> Path:
    """Return the folder with the classes of `main` of integration/java, compiled with a distribution's jars."""
    home = fetch(distribution)
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    needed = [source for source in sources if source.stem in {main, "Json"}]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in needed)).hexdigest()[:12]
    target = cache_root() / f"classes-{distribution.name}-{main}-{digest}"
    with locked(target.name.rsplit("-", 1)[0]):
        if not target.is_dir():
            progress(f"compiling {main} against {distribution.name}")
            with tempfile.TemporaryDirectory(dir=cache_root(), prefix="javac-") as scratch:
                out = Path(scratch) / "out"
                argv = ["javac", "--release", "17", "-d", str(out), "-cp", f"{home}/*", *map(str, needed)]
                run(argv, "javac")
                out.rename(target)
    return target


def classes(distribution: Distribution, main: str) -> str:
    """Return the class path that runs `main` of integration/java with the jars of a distribution."""
    return f"{compiled(distribution, main)}:{fetch(distribution)}/*"


def run(
    argv: list[str],
    what: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
) -> str:
    """Run a tool to its end and return its output. Raises BrokerError with the output if it fails or is late."""
    pipes: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen(argv, cwd=cwd, env=env, text=True, start_new_session=True, **pipes) as tool:
        try:
            printed, errors = tool.communicate(timeout=timeout)
        except BaseException as error:  # also Ctrl-C, which does not reach it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(tool.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise BrokerError(f"{what}: not within {timeout:g} s") from None
            raise
    if tool.returncode:
        raise BrokerError(f"{what} failed ({tool.returncode}):\n{printed[-4000:]}{errors[-4000:]}")
    return str(printed)


def _home(distribution: Distribution) -> Path:
    return cache_root() / distribution.name


def _download(distribution: Distribution, scratch: Path) -> Path:
    progress(f"{distribution.name}: downloading into {cache_root()} (once; {LONGEST_FETCH:g} s at most)")
    began = time.monotonic()
    (scratch / "pom.xml").write_text(_pom(distribution), encoding="utf-8")
    jars = scratch / "jars"
    argv = ["mvn", "-B", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    run(argv, f"fetching {distribution.name}", cwd=scratch, timeout=LONGEST_FETCH)
    progress(f"{distribution.name}: {time.monotonic() - began:.0f} s")
    return jars


def _unpack(jars: Path) -> Path:
    archive = next(jars.glob("*.tar.gz"))
    out = jars.parent / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="data")
    while len(inside := list(out.iterdir())) == 1:
        (out,) = inside
    return out


def _pom(distribution: Distribution) -> str:
    entries = "".join(_dependency(spec, alone=distribution.archive) for spec in distribution.artifacts)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>redelivery.integration</groupId><artifactId>{escape(distribution.name)}</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{entries}</dependencies></project>"
    )


def _dependency(spec: str, *, alone: bool) -> str:
    names = ("groupId", "artifactId", "version", "type", "classifier")
    fields = "".join(
        f"<{tag}>{escape(text)}</{tag}>" for tag, text in zip(names, spec.split(":"), strict=False)
    )
    # An archive has its own jars: without the exclusion Maven would fetch each of them again.
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    exclusions = f"<exclusions>{every}</exclusions>" if alone else ""
    return f"<dependency>{fields}{exclusions}</dependency>"
