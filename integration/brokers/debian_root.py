"""RabbitMQ of another Debian suite than this machine's, unpacked into a folder of its own.

It needs only apt-get, dpkg-deb, and the right to enter the folder with chroot: nothing is installed, and apt's own
lists do not change. Packages whose maintainer scripts did not run lack a few files, which are written here: without
/etc/hosts, `localhost` is looked up by a name server, and rabbitmqctl waits for the answer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from integration.brokers.toolchain import LONGEST_FETCH, BrokerError, cache_root, locked, progress, run

__all__ = ["INSIDE", "DebianRoot", "installed"]

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# No package counts as installed, and essential packages are not added.
_PACKAGES = (
    "rabbitmq-server", "base-files", "bash", "coreutils", "dash", "grep", "gzip", "hostname", "libc-bin", "libc6",
    "mawk", "procps", "sed", "util-linux",
)  # fmt: skip
_FILES = {
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
}
_LINKS = {"usr/bin/awk": "mawk", "usr/bin/sh": "dash", "etc/mtab": "/proc/mounts"}

# Arguments: the root, a folder that has the same path inside, and the command. Mounts end with the process.
INSIDE = """set -e
exec unshare -m --propagation private /bin/sh -c '
set -e
root=$1; folder=$2; shift 2
mkdir -p "$root$folder"
mount --bind "$folder" "$root$folder"
mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
exec /usr/sbin/chroot "$root" "$@"' - "$@"
"""


class DebianRoot:
    """A RabbitMQ server of one suite."""

    def __init__(self, suite: str) -> None:
        """Name the suite: `trixie`."""
        self.suite = suite
        self.folder = cache_root() / f"debian-{suite}-rabbitmq"

    @staticmethod
    def problem() -> str | None:
        """Return why it is not possible on this machine, or None."""
        if os.geteuid() != 0:
            return "a RabbitMQ out of Debian's packages needs root, for chroot"
        absent = [
            tool
            for tool in ("apt-get", "dpkg-deb", "unshare", "chroot")
            if shutil.which(tool, path=_PATH) is None
        ]
        if not Path(_KEYS).exists():
            absent.append(_KEYS)
        return f"no {', '.join(absent)} (a Debian is needed)" if absent else None

    @property
    def version(self) -> str:
        """Version of the server; empty before it is fetched."""
        mark = self.folder / ".complete"
        return mark.read_text(encoding="utf-8").strip() if mark.exists() else ""

    @property
    def programs(self) -> str:
        """Folder of its programs, seen from inside. Other programs of the package change the user."""
        return f"/usr/lib/rabbitmq/lib/rabbitmq_server-{self.version}/sbin"

    def obtain(self) -> None:
        """Fetch and unpack it, if it is missing."""
        with locked(self.folder.name):
            if self.version:
                return
            progress(f"RabbitMQ of {self.suite}: downloading into {cache_root()} (once)")
            began = time.monotonic()
            with tempfile.TemporaryDirectory(dir=cache_root(), prefix="apt-") as scratch:
                work = Path(scratch)
                made = self._unpacked(work, self._fetched(work))
                shutil.rmtree(self.folder, ignore_errors=True)
                made.rename(self.folder)
            progress(f"RabbitMQ {self.version} of {self.suite}: {time.monotonic() - began:.0f} s")

    def _fetched(self, work: Path) -> list[Path]:
        lists, cache = work / "lists", work / "cache"
        for folder in (lists / "partial", cache / "archives" / "partial"):
            folder.mkdir(parents=True)
        (work / "sources").write_text(
            f"deb [signed-by={_KEYS}] {_mirror()} {self.suite} main\n", encoding="utf-8"
        )
        (work / "status").touch()
        settings = {
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "Dir::Etc::sourcelist": str(work / "sources"),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": str(lists),
            "Dir::State::status": str(work / "status"),
            "Dir::Cache": str(cache),
        }
        apt = ["apt-get", "-q", *(part for pair in settings.items() for part in ("-o", "=".join(pair)))]
        run([*apt, "update"], f"the package lists of {self.suite}", timeout=LONGEST_FETCH)
        run([*apt, "-y", "-d", "install", *_PACKAGES], f"RabbitMQ of {self.suite}", timeout=LONGEST_FETCH)
        return sorted((cache / "archives").glob("*.deb"))

    def _unpacked(self, work: Path, packages: list[Path]) -> Path:
        root = work / "root"
        for name in ("bin", "lib", "sbin", "lib64"):
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        for package in packages:
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as tar:
                unpack = ["tar", "-x", "--keep-directory-symlink", "-C", str(root)]
                if subprocess.run(unpack, stdin=tar.stdout, check=False).returncode or tar.wait():
                    raise BrokerError(f"{package.name} cannot be unpacked")
        for name in ("proc", "dev", "tmp", "etc", "var/lib/rabbitmq"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name, text in _FILES.items():
            (root / name).write_text(text, encoding="utf-8")
        for name, target in _LINKS.items():
            if not (root / name).is_symlink() and not (root / name).exists():
                (root / name).symlink_to(target)
        servers = _servers(root)
        if len(servers) != 1:
            raise BrokerError(f"{self.suite} has {len(servers)} versions of RabbitMQ: {servers}")
        (root / ".complete").write_text(servers[0], encoding="utf-8")
        return root


_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def installed() -> str:
    """Return the version of the RabbitMQ that is installed on this machine; that of Debian 12 if none is."""
    return next(iter(_servers(Path("/"))), "3.10.8")


def _servers(root: Path) -> list[str]:
    folders = (root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
    return [path.name.removeprefix("rabbitmq_server-") for path in folders]


def _mirror() -> str:
    """Return the mirror of this machine's own packages."""
    sites = run(["apt-get", "indextargets", "--format", "$(SITE)"], "the list of package sources").split()
    for site in sites:
        if "security" not in site:
            return site
    raise BrokerError("no mirror of Debian is known here: run apt-get update once")
