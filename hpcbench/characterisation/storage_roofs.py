"""Roofs of storage: what all ranks read from and write to each folder at once, from the staging probe."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from hpcbench.characterisation.model import Roof, Tier
from hpcbench.characterisation.tiers import tier_of
from staging.errors import InputError
from staging.options import StageOptions
from staging.probing.ceilings import Ceilings
from staging.probing.probe import probe
from staging.ranks.collective_errors import together
from staging.ranks.world import World
from staging.units import counted

FILES, FILE_BYTES = 4, 8 << 20


def storage_roofs(folders: Sequence[Path], world: World, budget_s: float) -> list[Roof]:
    """Probe each folder for about ``budget_s`` seconds; collective. What is written there is removed afterwards.

    Raises ``InputError`` on all ranks for a path that is not a folder, or that cannot be written.
    """
    roofs = []
    for folder in folders:
        name = world.broadcast(f"hpcbench-characterize-{secrets.token_hex(4)}")
        probe_folder = folder / name
        try:
            together(world, lambda probe_folder=probe_folder: make_files(probe_folder, world))  # type: ignore[misc]
            world.barrier()
            options = StageOptions(probe_folder / "source", str(probe_folder / "destination"))
            ceilings = probe(options, world, budget_s=budget_s, quiet=True)
            roofs += roofs_of(ceilings, str(folder), world.place.size, tier_of(folder))
            world.barrier()
        finally:
            if world.place.local_rank == 0:
                shutil.rmtree(probe_folder, ignore_errors=True)
    return roofs


def make_files(folder: Path, world: World) -> None:
    """Make files to read, once on each node. Raises ``InputError`` where they cannot be written."""
    if world.place.local_rank != 0:
        return
    try:
        (folder / "source").mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            (folder / "source" / f"{number}.bin").write_bytes(secrets.token_bytes(FILE_BYTES))
    except OSError as error:
        raise InputError(f"--storage {folder.parent} cannot be written ({error.strerror}); name another") from None


def roofs_of(ceilings: Ceilings, name: str, ranks: int, tier: Tier | None = None) -> list[Roof]:
    """The fastest reads and writes, per rank."""
    roofs = []
    read, write = ceilings.best("read", "cold"), ceilings.best("write_flushed") or ceilings.best("write")
    if read is not None:
        where = "from the page cache" if read.note == "warm" else read.note
        how = f"{counted(read.threads, 'thread')}, {read.block_bytes >> 10} KiB at a time, {where}"
        roofs.append(Roof("read", name, read.total / ranks, "B/s", how, tier))
    if write is not None:
        how = f"{counted(write.threads, 'thread')}, {write.note or 'buffered'}" + (
            ", flushed" if write.part == "write_flushed" else ""
        )
        roofs.append(Roof("write", name, write.total / ranks, "B/s", how, tier))
    return roofs
