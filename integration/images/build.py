"""Builds the brokers' images, on request with a base image of Debian's packages."""

from __future__ import annotations

import io
import platform
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from docker.errors import BuildError, DockerException, ImageNotFound

from integration.brokers import BROKERS
from integration.brokers.toolchain import BrokerError, cache_root, fetch, locked, progress, run

if TYPE_CHECKING:
    from docker import DockerClient

HERE = Path(__file__).resolve().parent
_PACKAGES = ("default-jre-headless", "rabbitmq-server")
_SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))


def tag(name: str) -> str:
    """Return the name of this broker's image that is built here."""
    return f"redelivery-test/{name}:{BROKERS[name].version}"


def build(client: DockerClient, name: str, base: str | None = None) -> str:
    """Build the image of this broker, on `base` or on its Dockerfile's own; return its name."""
    context = io.BytesIO()
    distribution = BROKERS[name].distribution
    with tarfile.open(fileobj=context, mode="w") as tar:
        tar.add(HERE / name / "Dockerfile", "Dockerfile")
        if distribution is not None:
            tar.add(fetch(distribution), "dist")
    context.seek(0)
    progress(f"building {tag(name)}")
    try:
        arguments = {"BASE": base} if base else {}
        client.images.build(fileobj=context, custom_context=True, tag=tag(name), buildargs=arguments, rm=True)
    except BuildError as error:
        log = "".join(str(line.get("stream", "")) for line in error.build_log if isinstance(line, dict))
        raise BrokerError(f"{tag(name)}: {error}\n{log[-4000:]}") from error
    except DockerException as error:
        raise BrokerError(f"{tag(name)}: {error}") from error
    return tag(name)


def debian_base(client: DockerClient) -> str | None:
    """Return a base image with Java and RabbitMQ, made by mmdebstrap and cached; None without mmdebstrap."""
    if shutil.which("mmdebstrap") is None:
        return None
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    name = f"debian-{suite}-{platform.machine()}-brokers"
    archive = cache_root() / f"{name}.tar"
    with locked(name):
        if not archive.exists():
            _bootstrap(suite, archive)
        image = f"redelivery-test/base:{suite}-{archive.stat().st_mtime_ns}"
        try:
            client.images.get(image)
        except ImageNotFound:
            progress(f"importing {image}")
            repository, _, version = image.partition(":")
            client.api.import_image(str(archive), repository=repository, tag=version)
    return image


def _bootstrap(suite: str, archive: Path) -> None:
    progress(f"making a base image of Debian's packages, {archive} (once; takes half a minute or more)")
    part = archive.with_suffix(".part.tar")
    mirrors = [str(path) for path in _SOURCES if path.exists() and path.read_text(encoding="utf-8").strip()][
        :1
    ]
    argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", suite, str(part), *mirrors]
    # Folders that are not needed. The manuals are not either, but Java's package needs their folder.
    argv[1:1] = [f"--dpkgopt=path-exclude=/usr/share/{what}/*" for what in ("doc", "locale", "info")]
    run(argv, "mmdebstrap")
    part.rename(archive)
