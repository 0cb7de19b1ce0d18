"""What a run asks of its job's nodes, known before the job is submitted, against what the site's machine has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from hpcbench.application import Application
from hpcbench.batch.job import Job
from hpcbench.batch.machine import MEMORY_PATH, Machine, Storage
from hpcbench.batch.shell_quoting import clock
from hpcbench.batch.site import Site
from hpcbench.config.schema import RunConfig
from hpcbench.optim.lr_scaling import peak_learning_rate, rate_note
from hpcbench.optim.recipes import RECIPES
from hpcbench.parallel.mesh_shape import MeshShape, mesh_shape
from hpcbench.planning.dataset_size import dataset_size
from hpcbench.planning.fits import NEAR, Finding, Room, judge_batch, judge_memory, judge_staging
from hpcbench.planning.rank_memory import rank_memory
from hpcbench.planning.staged_bytes import StagedBytes, staged_bytes
from hpcbench.results.tables import wrapped
from hpcbench.results.units import significant
from staging.errors import InputError

GIB = 2**30


@dataclass(frozen=True)
class Fit:
    """The figures of a job, and the findings about them."""

    global_batch: int
    batch: str
    """Global batch, and what it is made of, in words."""
    peak: float
    """Learning rate at the top of the schedule."""
    rate: str
    """The same in words, with the batch that it applies to where that differs."""
    recipe: str
    staged: StagedBytes | None
    """``None`` where nothing is staged, or where the amount is unknown."""
    staging: Finding
    memory: Finding
    node_hours: float
    cost: str
    others: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings that may refuse a job or warn about it."""
        return (*self.others, self.staging, self.memory)

    @property
    def lines(self) -> list[str]:
        """The figures for people, one or a few lines each."""
        rows = {
            "batch": f"{self.batch}; {self.rate}", "recipe": self.recipe, "staging": self.staging.text,
            "memory": self.memory.text, "cost": self.cost,
        }  # fmt: skip
        marked = {"staging": self.staging, "memory": self.memory}
        return [
            wrapped(f"{name:9}{'warning: ' if name in marked and marked[name].level == 'warn' else ''}{text}", 9)
            for name, text in rows.items()
        ]

    @property
    def cells(self) -> list[str]:
        """The figures for a table: peak rate, staged bytes, memory of a rank, node-hours."""
        return [f"{self.peak:g}", self.staging.short, self.memory.short, significant(self.node_hours)]

    @property
    def warnings(self) -> list[str]:
        """What comes close to a limit."""
        return [finding.text for finding in self.findings if finding.level == "warn"]

    def check(self, what: str = "") -> None:
        """Raise ``InputError`` with one line, which begins with ``what``, if something does not fit."""
        refused = [finding.text for finding in self.findings if finding.level == "refuse"]
        if refused:
            raise InputError(f"{what}{'; and '.join(refused)}")


def job_fit(application: Application, config: RunConfig, job: Job, site: Site) -> Fit:
    """The figures of a job that trains ``config``. Raises ``InputError`` where its ranks cannot form a mesh."""
    shape = mesh_shape(job.ranks, config.parallel.spatial)
    batch = global_batch(config, shape)
    staged = staged_by(application, config, job)
    scaled = replace(config.optim, lr=peak_learning_rate(config.optim, batch))
    dataset = staged.dataset if staged is not None else dataset_size(application, config)
    known = dataset is not None and dataset.basis != "preset"
    too_large = judge_batch(batch, dataset.train_samples if dataset is not None and known else None)
    staging = staging_finding(config, job, site, staged)
    refused = "refuse" in (staging.level, too_large.level if too_large is not None else "")
    # A count takes seconds, and a job that is refused needs none.
    memory = Finding("ok", "not counted") if refused else memory_finding(application, config, job, site, staged)
    return Fit(
        global_batch=batch, batch=batch_words(config, shape, batch), peak=scaled.lr, rate=rate_note(scaled, batch),
        recipe=recipe_words(application.name, batch), staged=staged,
        staging=staging, memory=memory, node_hours=job.node_hours, cost=cost_words(job, site.machine),
        others=() if too_large is None else (too_large,),
    )  # fmt: skip


def global_batch(config: RunConfig, shape: MeshShape) -> int:
    """Samples of an optimizer step."""
    return (
        config.train.local_batch_size * config.train.accumulation * shape.data * (config.parallel.simulated_ranks or 1)
    )


def batch_words(config: RunConfig, shape: MeshShape, batch: int) -> str:
    """Such as ``256 = 64 ranks x 4``."""
    data_parallel_size = shape.data * (config.parallel.simulated_ranks or 1)
    ranks = "rank" if shape.spatial_size == 1 else "group"
    ranks += "s" if data_parallel_size != 1 else ""
    ranks += f" of {shape.spatial_size} ranks" if shape.spatial_size > 1 else ""
    accumulation = f" x {config.train.accumulation} micro-batches" if config.train.accumulation > 1 else ""
    return f"{batch:,} = {data_parallel_size:,} {ranks} x {config.train.local_batch_size}{accumulation}"


def recipe_words(application: str, batch: int) -> str:
    """Which preset is the published recipe of a batch, or the nearest ones."""
    published: dict[int, list[str]] = {}
    for recipe in RECIPES:
        if recipe.application == application:
            published.setdefault(recipe.global_batch_size, []).append(recipe.preset)
    if not published:
        return "none published for this application"
    if batch in published:
        return f"published for batch {batch:,}: {', '.join(published[batch])}"
    below, above = [size for size in published if size < batch], [size for size in published if size > batch]
    sizes = ([max(below)] if below else []) + ([min(above)] if above else [])
    nearest = [min(published[size], key=len) for size in sizes]  # of two presets, not that of older rules
    return f"none published for batch {batch:,}; the nearest: {', '.join(nearest)}"


def staged_by(application: Application, config: RunConfig, job: Job) -> StagedBytes | None:
    """What the job brings to each node; ``None`` where it stages nothing, or where the amount is unknown."""
    if not (job.stages or config.staging.destination):
        return None
    return staged_bytes(application, config, *staging_nodes(job, storage_path(config, job)))


def staging_nodes(job: Job, path: str) -> tuple[int, int, int]:
    """Number of nodes that get a part or a copy in ``path``, ranks on each, and how many of the nodes share a place."""
    if job.simulated_nodes is not None:
        return job.simulated_nodes, job.ranks // job.simulated_nodes, job.simulated_nodes
    return (job.ranks, 1, job.ranks_per_node) if "{rank}" in path else (job.nodes, job.ranks_per_node, 1)


def storage_path(config: RunConfig, job: Job) -> str:
    """Where on a node the job stages to: the job's own place, else the run's."""
    return job.local_path if job.stages else config.staging.destination


def staging_finding(config: RunConfig, job: Job, site: Site, staged: StagedBytes | None) -> Finding:
    """Whether what is staged fits the node-local storage."""
    if not (job.stages or config.staging.destination):
        return Finding("ok", "none; the dataset is read where it lies", "none")
    if staged is None:
        return Finding("ok", "unknown, since nothing states the size of the dataset")
    path, machine = storage_path(config, job), site.machine
    storage = storage_of(site, path)
    others = [
        room_of(other, site, job) for other in (machine.storage if machine is not None else ()) if other != storage
    ]
    return judge_staging(staged, room_of(storage, site, job) if storage is not None else Room(path, None), others)


def storage_of(site: Site, path: str) -> Storage | None:
    """The storage that a folder of a node lies on; ``None`` where it is unknown.

    On Linux, ``MEMORY_PATH`` is in memory, whether or not the machine's file says so.
    """
    known = site.machine.storage_at(path) if site.machine is not None else None
    if known is None and PurePosixPath(path).is_relative_to(MEMORY_PATH):
        return Storage(MEMORY_PATH, in_memory=True)
    return known


def room_of(storage: Storage, site: Site, job: Job) -> Room:
    """How much a job may put on a storage: in memory, at most the job's share of its node's memory."""
    limits = [] if storage.gb is None else [int(storage.gb * 1e9)]
    memory = node_memory(site, job)
    if storage.in_memory and memory is not None:
        limits.append(memory)
    words = (storage.path or "storage of the node") + (" (memory of the node)" if storage.in_memory else "")
    return Room(words, min(limits, default=None))


def node_memory(site: Site, job: Job) -> int | None:
    """Bytes of a node's memory that the job has; ``None`` where they are unknown."""
    known = [gib for gib in (job.memory_gib, site.node.memory_gib) if gib is not None]
    return min(known) * GIB if known else None


def memory_finding(
    application: Application, config: RunConfig, job: Job, site: Site, staged: StagedBytes | None
) -> Finding:
    """Whether a rank fits its accelerator, or its share of the node's memory."""
    if site.scheduler == "local":
        return Finding("ok", "that of this machine, which the run checks as it starts", "this machine's")
    if not job.gpus_per_rank:
        config = on_processors(config)
    need = rank_memory(application, config, job.nodes, job.ranks_per_node)
    if need is None:
        return Finding("ok", f"unknown, since {application.name} has no module `shapes`")
    room = rank_room(job, site, memory_taken(config, job, site, staged))
    local = config.train.local_batch_size
    too_much = room.limit is not None and need > room.limit
    smaller = largest_batch(application, config, job, room.limit) if too_much and room.limit is not None else None
    return judge_memory(need, room, local, smaller, processor=not job.gpus_per_rank)


def on_processors(config: RunConfig) -> RunConfig:
    """The same run on processors."""
    return replace(config, parallel=replace(config.parallel, accelerator="cpu"))


def memory_taken(config: RunConfig, job: Job, site: Site, staged: StagedBytes | None) -> int:
    """Bytes of a node's memory that staged files take."""
    storage = storage_of(site, storage_path(config, job))
    return staged.per_node if staged is not None and storage is not None and storage.in_memory else 0


def rank_room(job: Job, site: Site, taken: int = 0) -> Room:
    """The memory of one accelerator, or a rank's share of its node's less the ``taken`` bytes of staged files."""
    machine = site.machine
    if job.gpus_per_rank:
        gib = machine.memory_of_accelerator(job.constraint) if machine is not None else None
        return Room("an accelerator", None if gib is None else int(gib * GIB))
    memory = node_memory(site, job)
    where = "a rank's share of its node's memory"
    return Room(where, None if memory is None else max(0, memory - taken) // job.ranks_per_node)


def largest_batch(application: Application, config: RunConfig, job: Job, limit: int) -> int:
    """The largest half, quarter, ... of the local batch whose memory fits ``limit`` with room to spare, else 0."""
    local = config.train.local_batch_size // 2
    while local:
        smaller = replace(config, train=replace(config.train, local_batch_size=local))
        need = rank_memory(application, smaller, job.nodes, job.ranks_per_node)
        if need is not None and need <= NEAR * limit:
            return local
        local //= 2
    return 0


def cost_words(job: Job, machine: Machine | None) -> str:
    """Node-hours at most, and what they are charged as."""
    words = f"at most {significant(job.node_hours)} node-hours an attempt of {clock(job.time_s)}"
    if machine is None or machine.charge is None or (machine.charge_unit or "node-hours") == "node-hours":
        return words
    return f"{words}, charged as {significant(machine.charge * job.node_hours)} {machine.charge_unit}"


def doctor_gib(staged: StagedBytes | None) -> float:
    """GiB that must be free on each node when the job starts; 0 where only a guess is known."""
    if staged is None or staged.dataset.basis == "preset":
        return 0.0
    return staged.per_node / GIB


def settings_of_script(job: Job) -> dict[str, str]:
    """Settings that the job's script adds to those of a run; the run's own must be compatible with them."""
    if not job.stages:
        return {}
    folder = job.local_path.rstrip("/") + "/hpcbench"
    if job.simulated_nodes is None:
        return {"staging.destination": folder}
    return {"staging.destination": f"{folder}/{{node}}", "parallel.simulated_nodes": str(job.simulated_nodes)}
