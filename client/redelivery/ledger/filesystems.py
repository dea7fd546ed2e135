"""Check that a file is on a local disk: locks and shared memory do not work across hosts."""

from __future__ import annotations

from pathlib import Path

from redelivery.errors import LedgerError

__all__ = ["check_local", "kind_of"]

_REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.s3fs",
    "fuse.sshfs", "gfs2", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs",
})  # fmt: skip
MOUNTS = Path("/proc/self/mountinfo")


def check_local(path: Path) -> None:
    """Refuse a file that is known to be on another host's disk. Raises LedgerError."""
    kind = kind_of(path, MOUNTS)
    if kind in _REMOTE:
        raise LedgerError(f"the ledger {path} is on a network file system ({kind}); it needs a local disk")


def kind_of(path: Path, mounts: Path) -> str | None:
    """Return the type of the file system that a file is on; None: the system does not report it."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        parents = {str(parent) for parent in path.absolute().parent.resolve().parents}
        parents.add(str(path.absolute().parent.resolve()))
    except OSError:
        return None
    found: tuple[int, str] | None = None
    for line in lines:
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        if len(fields) > 4 and tail:
            point = fields[4].encode("latin-1", "surrogateescape").decode("unicode_escape")
            if point in parents and (found is None or len(point) >= found[0]):
                found = len(point), tail.split(" ")[0]
    return None if found is None else found[1]
