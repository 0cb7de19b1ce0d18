"""The runs of a convergence study: pure functions of its definition and of how its runs stand."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpcbench.parallel.mesh_shape import spatial_sizes
from hpcbench.study.definition import Study
from hpcbench.study.run_status import RunStatus, Statuses
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError

SEARCH_SEED = 0
"""Of the runs that choose a rate; the study's own are 1, 2, ..."""


@dataclass(frozen=True)
class Point:
    """A row of the study: runs that differ in their seed alone."""

    batch: int
    optimizer: str
    placement: str = "replicate"
    source: str = ""
    """Where a borrowed recipe comes from: a batch size or a preset."""

    @property
    def name(self) -> str:
        """Such as ``b512-lars``, ``b512-lars-shard``, ``b512-lars-from32``."""
        placed = "" if self.placement == "replicate" else f"-{self.placement.removeprefix('shard+')}"
        return f"b{self.batch}-{self.optimizer}{placed}" + (f"-from-{self.source}" if self.source else "")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a point; ``seed`` is ``SEARCH_SEED`` for those that choose the rate."""

    point: Point
    multiplier: float
    seed: int

    @property
    def name(self) -> str:
        """Such as ``b512-lars-x0.5-seed1`` or ``b512-lars-x0.5-search``."""
        which = "search" if self.seed == SEARCH_SEED else f"seed{self.seed}"
        return f"{self.point.name}-x{self.multiplier:g}-{which}"


@dataclass(frozen=True)
class Choice:
    """The multiplier chosen for a point; ``None`` while it is searched, or where (``failed``) no run was of use."""

    multiplier: float | None
    failed: bool = False


def points(study: Study) -> list[Point]:
    """All rows, by batch, then optimizer, then placement; borrowed recipes behind those of their batch."""
    own = [
        Point(batch, optimizer, placement)
        for batch in study.batch_sizes
        for optimizer in study.optimizers
        for placement in study.placements
    ]
    borrowed = []
    for each in study.borrow:
        names = study.optimizers if each.from_batch else (study.recipes[each.source]["optim.name"],)
        borrowed += [Point(each.batch, name, place, each.source) for name in names for place in study.placements]
    return sorted([*own, *borrowed], key=lambda point: point.batch)


def lender(point: Point) -> Point:
    """The point whose choice of a rate holds for ``point``: itself, unless it borrows another batch's."""
    return Point(int(point.source), point.optimizer, point.placement) if point.source.isdigit() else point


def searches(study: Study, point: Point) -> bool:
    """Whether the point has runs of its own that choose its rate."""
    return len(study.lr_search) > 1 and not point.source


def search_runs(study: Study, point: Point) -> list[PlannedRun]:
    """The runs that choose the rate of a point; none where there is no choice, or another's is borrowed."""
    if not searches(study, point):
        return []
    return [PlannedRun(point, multiplier, SEARCH_SEED) for multiplier in study.lr_search]


def choice(study: Study, point: Point, statuses: Statuses) -> Choice:
    """The rate of a point: by epochs to target, then by quality, among its search runs."""
    lending = lender(point)
    if lending.source:
        return Choice(1.0)
    runs = search_runs(study, lending)
    if not runs:
        return Choice(study.lr_search[0])
    found = {run.multiplier: statuses.get(run.name, RunStatus("absent")) for run in runs}
    if not all(state.final for state in found.values()):
        return Choice(None)
    of_use = {multiplier: state for multiplier, state in found.items() if state.status in ("reached", "missed")}
    if not of_use:
        return Choice(None, failed=True)
    return Choice(min(of_use, key=lambda multiplier: (*merit(of_use[multiplier]), abs(math.log(multiplier)))))


def merit(state: RunStatus) -> tuple[float, float]:
    """What a run is judged by, less being better: epochs to its target (infinite where missed), then quality."""
    summary = state.summary
    assert summary is not None, "a run that reached or missed its target left its summary"
    epochs = summary.epochs_to_target
    best = math.inf if summary.best is None else summary.best if summary.better == "lower" else -summary.best
    return (math.inf if epochs is None else float(epochs), best)


def seed_runs(study: Study, point: Point, statuses: Statuses) -> list[PlannedRun]:
    """The runs that count, one for each seed; none while the rate is not chosen."""
    multiplier = choice(study, point, statuses).multiplier
    if multiplier is None:
        return []
    return [PlannedRun(point, multiplier, seed) for seed in range(1, study.seeds + 1)]


def all_runs(study: Study, statuses: Statuses) -> list[PlannedRun]:
    """Every run that is known to belong to the study now."""
    rows = points(study)
    found = [run for point in rows for run in search_runs(study, point)]
    return found + [run for point in rows for run in seed_runs(study, point, statuses)]


def possible_names(study: Study) -> list[str]:
    """The names of all runs that the study could come to have, whatever its searches choose."""
    rows = points(study)
    names = [run.name for point in rows for run in search_runs(study, point)]
    for point in rows:
        multipliers = study.lr_search if lender(point).source == "" else (1.0,)
        names += [PlannedRun(point, m, seed).name for m in multipliers for seed in range(1, study.seeds + 1)]
    return names


def next_runs(study: Study, statuses: Statuses) -> list[PlannedRun]:
    """What is still to run and can be, most urgent first: searches, then the first seed of all rows, and so on.

    So a study that is cut short has all its rows, with fewer seeds.
    """
    todo = [run for run in all_runs(study, statuses) if not statuses.get(run.name, RunStatus("absent")).final]
    return sorted(todo, key=lambda run: run.seed)


def left(study: Study, statuses: Statuses) -> list[tuple[Point, int]]:
    """How many runs each row still asks for, those included whose rate is not chosen yet."""
    found = []
    for point in points(study):
        chosen = choice(study, point, statuses)
        runs = [*search_runs(study, point), *seed_runs(study, point, statuses)]
        count = sum(not statuses.get(run.name, RunStatus("absent")).final for run in runs)
        found.append((point, count + (study.seeds if chosen.multiplier is None and not chosen.failed else 0)))
    return found


def rate(study: Study, point: Point, multiplier: float) -> float:
    """The learning rate of a run; a borrowed preset has its own."""
    if point.source in study.recipes:
        return float(study.recipes[point.source]["optim.lr"])
    return study.rates[point.optimizer].at(lender(point).batch, multiplier)


def geometry(study: Study, point: Point) -> tuple[int, int]:
    """Simulated ranks and the samples of each, whose product is the batch.

    Raises ``InputError`` for a batch that whole ranks, the same number on every node, cannot form.
    """
    nodes = 1 if point.placement == "replicate" else study.nodes
    local = max(1, min(study.local_batch_size, point.batch // nodes))
    if point.batch % (nodes * local):
        shared = f" x {nodes} nodes of placement {point.placement}" if nodes > 1 else ""
        raise InputError(
            f"--batch-sizes: {point.batch} must be a multiple of {nodes * local} (train.local_batch_size {local}"
            f"{shared}); change it or --train.local_batch_size"
        )
    return point.batch // local, local


def largest_round(study: Study) -> int:
    """The most runs that can be made at the same time: all that choose rates, or those of all seeds."""
    rows = points(study)
    return max(sum(len(search_runs(study, point)) for point in rows), len(rows) * study.seeds)


def processes_per_run(study: Study) -> int:
    """Ranks that share a sample, each a process."""
    return math.prod(spatial_sizes(study.settings.get("parallel.spatial", "1")))


def study_run(study: Study, run: PlannedRun) -> StudyRun:
    """What ``hpcbench train`` is asked for."""
    point = run.point
    ranks, local = geometry(study, point)
    settings = {"train.baselines": "false", "train.page": "false", "train.keep_checkpoints": "1", **study.settings}
    settings |= study.own_settings.get(point.optimizer, {})
    if point.source in study.recipes:
        settings |= study.recipes[point.source]
    else:
        # Already scaled, which a rule at its own batch leaves alone; it keeps a warm-up below a peak that is low.
        settings |= {
            "optim.name": point.optimizer, "optim.lr": repr(rate(study, point, run.multiplier)),
            "optim.scaling": study.rates[point.optimizer].rule, "optim.base_batch_size": str(point.batch),
        }  # fmt: skip
    settings |= {"train.local_batch_size": str(local), "train.accumulation": "1", "train.seed": str(run.seed)}
    if ranks > 1:
        settings["parallel.simulated_ranks"] = str(ranks)
    else:
        settings.pop("train.noise_scale_every", None)  # it compares ranks
    if (processes := processes_per_run(study)) > 1:
        settings["parallel.devices"] = str(processes)
    if point.placement != "replicate":
        settings |= {
            "parallel.simulated_nodes": str(study.nodes), "staging.placement": "shard",
            "staging.reshuffle": str("reshuffle" in point.placement).lower(),
        }  # fmt: skip
    return StudyRun.of(run.name, study.application, study.preset, settings)
