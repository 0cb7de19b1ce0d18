"""Finds rank and size of this process from the variables that its launcher set.

Sources, in order: PMI (MPICH, Intel MPI, Cray, Flux), PMIX and Open MPI, torchrun (and ``--parallel.devices``, which
sets the same names), Slurm. Sources that disagree stop the run, since ranks that assume different worlds silently
train several copies of one model.

What a process sees was recorded on Slurm 22.05 with MPICH 4 (tests/staging/recorded_environments.json):

- ``srun``: ``SLURM_PROCID``, ``SLURM_LOCALID``, ``SLURM_NODEID`` and ``SLURM_STEP_*`` describe the process itself.
- ``srun --mpi=pmi2``: ``PMI_RANK`` and ``PMI_SIZE`` in addition; local rank and node are known from Slurm alone.
- the script of ``sbatch``: ``SLURM_PROCID=0`` with the job's ``SLURM_NTASKS`` but no ``SLURM_STEP_ID``: no launcher.
- ``mpiexec`` inside ``sbatch``: Hydra starts one proxy per node with ``srun``, and its children inherit the proxy's
  ``SLURM_PROCID`` (0 for every rank of the first node), ``SLURM_NTASKS`` (the number of nodes) and ``SLURM_STEP_ID``.
  ``MPI_LOCALRANKID`` tells them apart. Children of Open MPI (``OMPI_COMM_WORLD_RANK``), torchrun
  (``TORCHELASTIC_RUN_ID``), Flux and our own spawn inherit them too, so for all of these Slurm is no source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from staging.errors import InputError

Environ = Mapping[str, str]

NESTED = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID", "FLUX_TASK_RANK", "HPCBENCH_SPAWNED")
"""Variables of launchers that may run inside a Slurm step, whose children inherit the step's Slurm variables."""

BATCH_STEP = 0xFFFFFFF0
"""Slurm numbers the steps of batch scripts and interactive shells from here on; they are not started by srun."""


@dataclass(frozen=True)
class Launch:
    """The place of this process among all ranks. If unknown, ``nodes`` and ``node_rank`` assume ranks in blocks."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node_rank: int = 0
    nodes: int = 1
    source: str = "none"


@dataclass(frozen=True)
class Claim:
    """What one source says; ``None`` for what it does not say."""

    source: str
    rank: int
    world_size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    node_rank: int | None = None
    nodes: int | None = None


def detect(environ: Environ) -> Launch:
    """The launch that ``environ`` describes; one process if there was no launcher.

    Raises ``InputError`` if two sources disagree, a value is not a whole number in range, or the number of ranks or
    the rank within the node is unknown.
    """
    claims = _claims(environ)
    if not claims:
        return Launch()
    first = claims[0]
    world_size = _first(claims, "world_size")
    if world_size is None:
        raise InputError(
            f"{first.source} gives a rank ({first.rank}) but no variable gives the number of ranks; "
            "start with mpiexec, torchrun, srun or --parallel.devices"
        )
    if not 0 <= first.rank < world_size:
        raise InputError(
            f"{first.source} gives rank {first.rank} of {world_size}; ranks are 0 to {world_size - 1}, "
            "so start all ranks with one launcher"
        )
    if world_size == 1:
        return Launch(source=first.source)
    return _complete(claims, first.rank, world_size, environ)


def is_first_rank(environ: Environ) -> bool:
    """Whether this process is rank 0, or does not know its rank and so should report errors."""
    try:
        claim = claimed(environ)
    except InputError:
        return True
    return claim is None or claim.rank == 0


def claimed(environ: Environ) -> Claim | None:
    """What the launcher says, with the number of ranks from any source that gives it; ``None`` without a launcher.

    Raises ``InputError`` when two sources disagree or a value is not a whole number.
    """
    claims = _claims(environ)
    return replace(claims[0], world_size=_first(claims, "world_size")) if claims else None


def started_by_srun(environ: Environ) -> bool:
    """Whether Slurm itself started this process as a rank, rather than an MPI launcher within a job."""
    return _slurm(environ) is not None


def _claims(environ: Environ) -> list[Claim]:
    claims = [claim for read in (_pmi, _pmix, _open_mpi, _torchrun, _slurm) if (claim := read(environ))]
    _require_agreement(claims)
    return claims


def _complete(claims: list[Claim], rank: int, world_size: int, environ: Environ) -> Launch:
    local_rank = _first(claims, "local_rank")
    local_size = _first(claims, "local_size")
    if local_rank is None:
        local_rank = _number(environ, "LOCAL_RANK")
    if local_size is None:
        local_size = _number(environ, "LOCAL_WORLD_SIZE")
    if local_rank is None or local_size is None:
        raise InputError(
            f"{claims[0].source} gives rank {rank} of {world_size} but not the rank within the node; "
            "set LOCAL_RANK and LOCAL_WORLD_SIZE for each process"
        )
    if not 0 <= local_rank < local_size <= world_size:
        raise InputError(
            f"{claims[0].source} gives local rank {local_rank} of {local_size} in a world of {world_size}; "
            "the local rank must be below the local size and that at most the number of ranks"
        )
    nodes = _first(claims, "nodes")
    node_rank = _first(claims, "node_rank")
    return Launch(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_size=local_size,
        node_rank=rank // local_size if node_rank is None else node_rank,
        nodes=-(-world_size // local_size) if nodes is None else nodes,
        source=claims[0].source,
    )


def _require_agreement(claims: list[Claim]) -> None:
    for name in ("rank", "world_size", "local_rank", "local_size"):
        said = [(claim, getattr(claim, name)) for claim in claims if getattr(claim, name) is not None]
        for claim, value in said[1:]:
            if value != said[0][1]:
                raise InputError(
                    f"{said[0][0].source} and {claim.source} disagree on {name} ({said[0][1]} and {value}); "
                    "start the ranks with one launcher only, or unset the variables of the other"
                )


def _first(claims: list[Claim], name: str) -> int | None:
    for claim in claims:
        value: int | None = getattr(claim, name)
        if value is not None:
            return value
    return None


def _number(environ: Environ, *names: str) -> int | None:
    for name in names:
        text = environ.get(name, "").strip()
        if text:
            if not re.fullmatch(r"-?\d+", text):
                raise InputError(f"{name} ('{text}') must be a whole number; it is set by the launcher of the ranks")
            return int(text)
    return None


def _pmi(environ: Environ) -> Claim | None:
    rank = _number(environ, "PMI_RANK")
    if rank is None:
        return None
    nodes = _number(environ, "FLUX_JOB_NNODES")
    return Claim(
        source="PMI",
        rank=rank,
        world_size=_number(environ, "PMI_SIZE"),
        local_rank=_number(environ, "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"),
        local_size=_number(environ, "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
        nodes=nodes,
    )


def _pmix(environ: Environ) -> Claim | None:
    rank = _number(environ, "PMIX_RANK")
    return None if rank is None else Claim(source="PMIX", rank=rank)


def _open_mpi(environ: Environ) -> Claim | None:
    rank = _number(environ, "OMPI_COMM_WORLD_RANK")
    if rank is None:
        return None
    return Claim(
        source="Open MPI",
        rank=rank,
        world_size=_number(environ, "OMPI_COMM_WORLD_SIZE"),
        local_rank=_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size=_number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE"),
    )


def _torchrun(environ: Environ) -> Claim | None:
    rank, world_size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    if rank is None or world_size is None:
        return None
    return Claim(
        source="torchrun",
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "LOCAL_RANK"),
        local_size=_number(environ, "LOCAL_WORLD_SIZE"),
        node_rank=_number(environ, "GROUP_RANK"),
        nodes=_number(environ, "GROUP_WORLD_SIZE"),
    )


def _slurm(environ: Environ) -> Claim | None:
    step = _number(environ, "SLURM_STEP_ID")
    rank = _number(environ, "SLURM_PROCID")
    if step is None or rank is None or step >= BATCH_STEP or any(name in environ for name in NESTED):
        return None
    node_rank = _number(environ, "SLURM_NODEID")
    per_node = expand_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    known = node_rank is not None and 0 <= node_rank < len(per_node)
    return Claim(
        source="Slurm",
        rank=rank,
        world_size=_number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        local_rank=_number(environ, "SLURM_LOCALID"),
        local_size=per_node[node_rank] if known and node_rank is not None else None,
        node_rank=node_rank,
        nodes=_number(environ, "SLURM_STEP_NUM_NODES"),
    )


def expand_counts(text: str) -> list[int]:
    """Tasks of each node from Slurm's short form: ``2(x3),1`` is [2, 2, 2, 1]; empty for any other text."""
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def expand_nodes(text: str) -> list[str]:
    """Host names from Slurm's short form: ``gpu[08-10,12],login`` is gpu08, gpu09, gpu10, gpu12, login."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text):
        names += _expand_brackets(part)
    return names


def _expand_brackets(pattern: str) -> list[str]:
    match = re.match(r"([^\[]*)\[([^\]]*)\](.*)", pattern)
    if match is None:
        return [pattern]
    prefix, ranges, rest = match.groups()
    tails = _expand_brackets(rest)
    names = []
    for item in ranges.split(","):
        low, _, high = item.partition("-")
        for number in range(int(low), int(high or low) + 1):
            names += [f"{prefix}{number:0{len(low)}d}{tail}" for tail in tails]
    return names
