"""Check a job from inside, on all its ranks, before it does anything: did it get what it asked for?

Each rank reports what it sees, and a pure function decides from all the reports what is wrong. If a rank does not
answer, the check ends after ``MEET_S`` instead of using up the job's time. ``hpcbench doctor --job`` checks with
processes of its own, ``hpcbench train --check-job`` with those that then train, and ``hpcbench study execute
--check-job`` with the one process that then makes the packed runs of a job.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.config.schema import MOST_RANKS
from hpcbench.exits import ABORTED, Aborted
from hpcbench.frame_lookups import cheap_frame_lookups
from hpcbench.results.units import counted
from staging.bounds import Bounds, shown
from staging.cores import cores_allowed
from staging.errors import InputError
from staging.number_options import MOST_NODES, MOST_PER_NODE, bounded
from staging.print_line import print_line
from staging.ranks.launch import Launch, detect

if TYPE_CHECKING:
    from hpcbench.parallel.group import Group

MEET_S = 60.0
CLOCKS_S = 1.0
"""If the clocks of two nodes are further apart than this, the times in their logs are not comparable."""
PROBE_BYTES = 1 << 20
"""Bytes that are written to node-local storage, flushed, and removed."""


@dataclass(frozen=True)
class Asked:
    """What the job asked for."""

    ranks: int
    nodes: int = 1
    cores: int = 1
    """Per rank."""
    gpus: int = 0
    """Per rank."""
    local: str = ""
    """Node-local folder; fields in braces and variables are filled in on each node."""
    local_gib: float = 0.0


WHOLE = {"ranks": (1, MOST_RANKS), "nodes": (1, MOST_NODES), "cores": (1, MOST_PER_NODE), "gpus": (0, MOST_PER_NODE)}
"""Numbers of ``Asked`` with their bounds."""


def parse_asked(option: str, text: str) -> Asked:
    """Parse a text such as ``ranks=16,nodes=4,cores=16,gpus=1,local_gib=35``; ``ranks`` is required.

    Raises ``InputError``, which names ``option``, for anything else.
    """
    names = [*WHOLE, "local_gib"]
    given: dict[str, float] = {}
    for word in text.split(","):
        name, _, number = word.partition("=")
        if name not in names or name in given:
            raise InputError(f"{option} ({shown(word)}) must be NAME=NUMBER, each name once; names: {', '.join(names)}")
        which = f"{option} {name}"
        if name in WHOLE:
            given[name] = bounded(which, int, "whole", Bounds(*WHOLE[name]))(number)
        else:
            given[name] = bounded(which, float, "finite", Bounds(0, 1e12))(number)
    if "ranks" not in given:
        raise InputError(f"{option} ({shown(text)}) lacks ranks=N, the number that the launcher was asked to start")
    return Asked(**given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Seen:
    """What one rank sees."""

    rank: int
    node: str
    cores: tuple[int, ...]
    """Numbers of the cores that it may run on."""
    gpus: int
    clock_s: float
    """The clock of its node, at a moment that all ranks share to within the time of a message."""
    trouble: str = ""
    """Why node-local storage cannot be used, if this rank tried it."""
    free_gib: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What is wrong (the job ends), what is worth knowing, and what is as it should be."""

    wrong: tuple[str, ...]
    notes: tuple[str, ...]
    summary: str


def check_job(asked: Asked, environ: Mapping[str, str]) -> None:
    """Check with processes that do nothing else, and report the result.

    Raises what ``check_ranks`` and ``check_group`` raise, and ``InputError`` if the ranks do not meet in time.
    """
    launch = detect(environ)
    check_ranks(asked, launch)
    with cheap_frame_lookups():
        from hpcbench.parallel.group import connect

    group = connect(launch, "cpu", timeout_s=MEET_S)
    try:
        check_group(asked, group, environ)
    finally:
        group.close()


def check_alone(asked: Asked, environ: Mapping[str, str], count_gpus: Callable[[], int]) -> None:
    """Check with this process, the only rank of its job, and report, without torch.

    Raises ``Aborted`` if something is wrong. ``check_ranks`` comes before.
    """
    conclude(judge(asked, [look(asked, detect(environ), environ, count_gpus() if asked.gpus else 0)]))


def check_ranks(asked: Asked, launch: Launch) -> None:
    """Raise ``InputError`` if the launcher reports a different number of ranks than was asked for."""
    if launch.world_size == asked.ranks:
        return
    seen = "a process that no launcher started" if launch.source == "none" else f"{launch.source} gives"
    raise InputError(
        f"{seen}: {counted(launch.world_size, 'rank')} instead of {asked.ranks}; the launcher's variables do not "
        "arrive, or it belongs to another MPI"
    )


def check_group(asked: Asked, group: Group, environ: Mapping[str, str]) -> None:
    """Check on all ranks of ``group``; rank 0 reports. Raises ``Aborted`` on all ranks if something is wrong."""
    import torch

    seen_here = look(asked, group.launch, environ, torch.accelerator.device_count())
    group.barrier()
    everyone = group.all_gather_object((seen_here, time.time()))
    verdict = judge(asked, [Seen(**{**vars(seen), "clock_s": clock}) for seen, clock in everyone])
    conclude(verdict, speaks=group.is_main)


def conclude(verdict: Verdict, *, speaks: bool = True) -> None:
    """Report, if this rank speaks. Raises ``Aborted`` if something is wrong."""
    if speaks:
        tell(verdict)
    if verdict.wrong:
        error = Aborted(verdict.wrong[0], ABORTED, everywhere=True)
        error.speaks = False  # every line has been printed
        raise error


def tell(verdict: Verdict) -> None:
    """Print faults and notes on standard error; if nothing is wrong, print on standard output that all is as asked."""
    for line in verdict.wrong:
        print_line(f"hpcbench: error: {line}")
    for line in verdict.notes:
        print_line(f"hpcbench: note: {line}")
    if not verdict.wrong:
        print(f"hpcbench: the job is as asked: {verdict.summary}", flush=True)


def look(asked: Asked, launch: Launch, environ: Mapping[str, str], gpus: int) -> Seen:
    """Return what this rank sees; the first rank of each node tries the node's storage."""
    node = environ.get("SLURMD_NODENAME") or socket.gethostname()
    trouble, free = "", None
    if asked.local and launch.local_rank == 0:
        trouble, free = try_storage(asked, node, launch.rank, environ)
    return Seen(launch.rank, node, tuple(cores_allowed()), gpus, time.time(), trouble, free)


def try_storage(asked: Asked, node: str, rank: int, environ: Mapping[str, str]) -> tuple[str, float | None]:
    """Write to node-local storage, leaving nothing there; return what is wrong with it, and the GiB that are free."""
    from staging.storage.destination import expand

    try:
        folder = expand(asked.local, node, rank, environ)
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
            free = shutil.disk_usage(folder).free / 2**30
            if free < asked.local_gib:
                free += allocated_gib(folder)  # an earlier attempt may have staged the dataset, or a part of it
        finally:
            with suppress(OSError):  # another rank may be using the folder, too
                for path in made:
                    path.rmdir()
    except InputError as error:
        return str(error), None
    except OSError as error:
        return f"{asked.local} cannot be written ({error.strerror})", None
    if free < asked.local_gib:
        return f"{folder} has {free:.1f} GiB free of the {asked.local_gib:g} GiB that the dataset needs", free
    return "", free


def allocated_gib(folder: Path) -> float:
    """What the files below a folder occupy, in GiB, as far as they can be seen."""
    blocks = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                blocks += Path(path, name).lstat().st_blocks
    return blocks * 512 / 2**30


def judge(asked: Asked, seen: Sequence[Seen]) -> Verdict:
    """Compare what all ranks saw with what was asked for."""
    nodes: dict[str, list[Seen]] = {}
    for rank in seen:
        nodes.setdefault(rank.node, []).append(rank)
    wrong = []
    if len(nodes) != asked.nodes:
        wrong.append(
            f"the ranks are on {counted(len(nodes), 'node')} instead of {asked.nodes}: {', '.join(list(nodes)[:4])}"
        )
    uneven = {name: len(members) for name, members in nodes.items() if len(members) * asked.nodes != asked.ranks}
    if len(nodes) == asked.nodes and uneven:
        name, count = next(iter(uneven.items()))
        each_node = asked.ranks // asked.nodes
        wrong.append(f"node {name} has {counted(count, 'rank')} instead of {each_node}; start as many on every node")
    wrong += [f"node {rank.node}: {rank.trouble}" for rank in seen if rank.trouble]
    wrong += too_few("core", asked.cores, {rank: len(rank.cores) for rank in seen})
    wrong += too_few("GPU", asked.gpus, {rank: rank.gpus for rank in seen})
    notes = [note for name, members in nodes.items() for note in binding(name, members, asked)]
    apart = max(rank.clock_s for rank in seen) - min(rank.clock_s for rank in seen)
    if apart > CLOCKS_S:
        late, early = max(seen, key=lambda rank: rank.clock_s), min(seen, key=lambda rank: rank.clock_s)
        notes.append(f"the clocks of {early.node} and {late.node} are {apart:.1f} s apart; their logs do not compare")
    free = [rank.free_gib for rank in seen if rank.free_gib is not None]
    room = f", at least {min(free):.1f} GiB free at {asked.local}" if free else ""
    gpus = f" and {counted(asked.gpus, 'GPU')}" if asked.gpus else ""
    each = ", each" if len(seen) > 1 else ""
    where = f"{counted(len(seen), 'rank')} on {counted(len(nodes), 'node')}"
    summary = f"{where}{each} with {counted(asked.cores, 'core')}{gpus}{room}"
    return Verdict(tuple(wrong), tuple(notes), summary)


def too_few(what: str, asked: int, counts: Mapping[Seen, int]) -> list[str]:
    """Return a line for the first rank that has too few of something; it also counts the other such ranks."""
    short = [(rank, count) for rank, count in counts.items() if count < asked]
    if not short:
        return []
    (first, count), more = short[0], len(short) - 1
    others = f", and {counted(more, 'more rank')} too few" if more else ""
    where = f"rank {first.rank} on node {first.node}"
    return [f"{where} sees {counted(count, what)} instead of {asked}{others}; ask for more, or bind less"]


def binding(node: str, members: Sequence[Seen], asked: Asked) -> list[str]:
    """Return a note if the ranks of a node may get in each other's way."""
    sets = [set(rank.cores) for rank in members]
    everything = set().union(*sets)
    if len(members) < 2 or sum(len(cores) for cores in sets) == len(everything):
        return []
    if len(everything) < asked.cores * len(members):
        cores = counted(len(everything), "core")
        return [f"the {len(members)} ranks of node {node} share {cores}, fewer than they asked for"]
    return [f"the ranks of node {node} are not bound to cores of their own"]
