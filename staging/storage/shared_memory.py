"""Finds shared memory that killed jobs have left on this node: it takes memory that a staging or a run could use.

A process that ends normally removes its segments. A killed process leaves them until someone removes them or the node
restarts; some batch systems clean up after a job, others do not.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # where POSIX shared memory is on Linux, shm_overview(7)
SEGMENTS = (
    "mpich_shm_*", "mpich_shar_tmp*", "vader_segment.*", "sm_segment.*", "open_mpi.*", "psm2_shm.*", "psm3_shm.*",
    "ucx_shm_*", "nccl-*", "torch_*", "cmx*", "sem.cmx*",
)  # fmt: skip
"""Names that MPICH, Open MPI, PSM, UCX, NCCL, PyTorch and Global Arrays give their segments."""
FIRST_NAMESPACE = 0xEFFFFFFC
"""Number of the kernel's first namespace of processes (PROC_PID_INIT_INO); containers have others."""


@dataclass(frozen=True)
class LeftOver:
    """Segments that no process has open."""

    files: int
    bytes: int
    example: str
    """The name of the largest segment."""

    def __str__(self) -> str:
        more = f" and {self.files - 1} more" if self.files > 1 else ""
        return f"{self.bytes / 2**20:.0f} MiB of shared memory of processes that are gone ({self.example}{more})"


def left_over(folder: Path = SHARED_MEMORY, processes: Path = Path("/proc")) -> LeftOver | None:
    """Segments of this user that no process holds, for root those of all users; ``None`` if there are none.

    Only its owner and root see who uses a segment. Root of a container does not see all processes: it counts its own
    alone.
    """
    segments: dict[str, tuple[int, int]] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not any(fnmatchcase(entry.name, pattern) for pattern in SEGMENTS):
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and os.getuid() in (0, status.st_uid):
                    segments[entry.name] = status.st_uid, status.st_blocks * 512
    if not segments:
        return None
    used, saw_all = in_use(folder, processes)
    left = {
        name: size for name, (owner, size) in segments.items() if name not in used and (saw_all or owner == os.getuid())
    }
    if not left:
        return None
    return LeftOver(len(left), sum(left.values()), max(left, key=lambda name: (left[name], name)))


def in_use(folder: Path, processes: Path) -> tuple[set[str], bool]:
    """Names in ``folder`` that a process has mapped or open, and whether this user may look at all processes."""
    before, names, saw_all = f"{folder}/", set[str](), sees_all(processes)
    for process in processes.glob("[0-9]*"):
        try:
            for line in (process / "maps").read_text(errors="replace").splitlines():
                _, matched, name = line.partition(before)
                names |= {name} if matched else set()
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    path = str(descriptor.readlink())
                    names |= {path[len(before) :]} if path.startswith(before) else set()
        except PermissionError:
            saw_all = False
        except OSError:
            pass  # it has ended
    return names, saw_all


def sees_all(processes: Path) -> bool:
    """Whether all processes of the machine are below ``processes``, not only those of a container."""
    try:
        return str((processes / "self/ns/pid").readlink()) == f"pid:[{FIRST_NAMESPACE}]"
    except OSError:
        return False
