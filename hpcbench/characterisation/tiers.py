"""On which tier of storage a folder lies: memory of the node, storage of the node, or a filesystem that nodes share."""

from __future__ import annotations

from pathlib import Path

from hpcbench.characterisation.model import Tier
from staging.storage.space import MEMORY_FILESYSTEMS, existing_parent, filesystem_type

SHARED = frozenset({
    "afs", "beegfs", "ceph", "cifs", "cvmfs2", "dfuse", "dvs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2",
    "orangefs", "panfs", "pvfs2", "quobyte", "smb3", "wekafs",
})  # fmt: skip
"""Types of filesystems that several nodes share, as Linux names them; also with ``fuse.`` before them."""


def tier_of(folder: Path) -> Tier | None:
    """The tier of ``folder``, which need not exist yet; ``None`` where the system does not tell.

    A filesystem in user space that is not in ``SHARED`` may be either.
    """
    return tier_of_type(filesystem_type(existing_parent(folder)))


def tier_of_type(kind: str) -> Tier | None:
    """The tier of a type of filesystems; see ``tier_of``."""
    if kind in MEMORY_FILESYSTEMS:
        return "memory"
    if kind.removeprefix("fuse.") in SHARED:
        return "shared"
    return None if not kind or kind.startswith("fuse") else "node-local"
