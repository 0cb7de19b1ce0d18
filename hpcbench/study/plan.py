"""The runs of a convergence study: pure functions of its definition and of the status of its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hpcbench.config.schema import LARGEST_SEED
from hpcbench.parallel.mesh_shape import spatial_sizes
from hpcbench.study.definition import MOST_SEEDS, Study
from hpcbench.study.lr_search import Choice, Grid, Look, RowSearch, Search, Trial, search
from hpcbench.study.run_status import RunStatus, Statuses
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError

SEEDS_OF_A_BATCH = 100_000
"""The seeds of two batch sizes are so far apart or more, unless one is above 40,000."""


@dataclass(frozen=True)
class Point:
    """A row of the study: runs that differ only in their seed."""

    batch: int
    optimizer: str
    placement: str = "replicate"
    source: str = ""
    """Where a borrowed recipe comes from: a batch size or a preset."""

    @property
    def name(self) -> str:
        """Such as ``b512-lars``, ``b512-lars-shard``, ``b512-lars-from-32``."""
        placed = "" if self.placement == "replicate" else f"-{self.placement.removeprefix('shard+')}"
        return f"b{self.batch}-{self.optimizer}{placed}" + (f"-from-{self.source}" if self.source else "")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a point, with a seed of the study, or of the search for the point's rate."""

    point: Point
    multiplier: float
    seed: int

    @property
    def is_search(self) -> bool:
        """Whether the run is one of those that choose the rate."""
        return not 1 <= self.seed <= MOST_SEEDS

    @property
    def name(self) -> str:
        """Such as ``b512-lars-x0.5-seed1``, ``b512-lars-x0.5-search`` and, with its second seed, ``...-search2``."""
        number = "" if self.seed == 0 else str(self.seed - MOST_SEEDS + 1)
        which = f"search{number}" if self.is_search else f"seed{self.seed}"
        return f"{self.point.name}-x{self.multiplier:g}-{which}"


def points(study: Study) -> list[Point]:
    """All rows, by batch, then optimizer, then placement; borrowed recipes follow the other rows of their batch."""
    own = [
        Point(batch, optimizer, placement)
        for batch in study.batch_sizes
        for optimizer in study.optimizers
        if batch in study.batches(optimizer)
        for placement in study.placements
    ]
    borrowed = []
    for borrow in study.borrow:
        if borrow.from_batch is None:
            names = [study.recipes[borrow.source]["optim.name"]]
        else:
            names = [name for name in study.optimizers if borrow.from_batch in study.batches(name)]
        borrowed += [Point(borrow.batch, name, place, borrow.source) for name in names for place in study.placements]
    return sorted([*own, *borrowed], key=lambda point: point.batch)


def lender(point: Point) -> Point:
    """The point whose choice of a rate holds for ``point``: itself, unless it borrows another batch's."""
    return Point(int(point.source), point.optimizer, point.placement) if point.source.isdigit() else point


def grid(study: Study) -> Grid:
    """What every search of the study tries."""
    return Grid(study.lr_search, study.lr_search_widen, study.lr_search_seeds)


def searches(study: Study, point: Point) -> bool:
    """Whether the point has its own runs that choose its rate."""
    return len(study.lr_search) > 1 and not point.source


def trial_run(point: Point, trial: Trial) -> PlannedRun:
    """The run of a search; the first seed is 0, the others lie beyond those that a study can have."""
    return PlannedRun(point, trial.multiplier, MOST_SEEDS + trial.number if trial.number else 0)


def search_of(study: Study, optimizer: str, statuses: Statuses) -> Search[Point]:
    """The search for the rates of an optimizer, in all its rows."""

    def look(point: Point) -> Look:
        return lambda trial: status_of(trial_run(point, trial), statuses)

    rows = [point for point in points(study) if point.optimizer == optimizer and searches(study, point)]
    return search(grid(study), {point: look(point) for point in rows})


def all_searches(study: Study, statuses: Statuses) -> dict[str, Search[Point]]:
    """The search of every optimizer; none if there is nothing to choose."""
    if len(study.lr_search) == 1:
        return {}
    return {name: search_of(study, name, statuses) for name in study.optimizers}


def status_of(run: PlannedRun, statuses: Statuses) -> RunStatus:
    """The status of a run, which may not have been made."""
    return statuses.get(run.name, RunStatus("absent"))


def row_search(study: Study, point: Point, searches_by_optimizer: Mapping[str, Search[Point]]) -> RowSearch:
    """The search of a point, from the searches of all optimizers; if there is none, the rate is known.

    A rate that reached the target in no run of its search is not lent: a row that would borrow it has no runs.
    """
    if point.source in study.recipes:
        return RowSearch((), Choice(1.0))
    if len(study.lr_search) == 1:
        return RowSearch((), Choice(study.lr_search[0]))
    lender_search = searches_by_optimizer[point.optimizer].rows[lender(point)]
    if searches(study, point):
        return lender_search
    lent = lender_search.choice
    nothing_to_borrow = lent.failed or (lent.multiplier is not None and not lender_search.reached)
    return RowSearch((), Choice(None, failed=True) if nothing_to_borrow else lent)


def choice(study: Study, point: Point, statuses: Statuses) -> Choice:
    """The chosen rate of a point, from the runs that search for it."""
    return row_search(study, point, all_searches(study, statuses)).choice


def seed_runs(study: Study, point: Point, statuses: Statuses) -> list[PlannedRun]:
    """The runs that count, one for each seed; none before the rate is chosen."""
    return runs_of_seeds(study, point, choice(study, point, statuses))


def runs_of_seeds(study: Study, point: Point, chosen: Choice) -> list[PlannedRun]:
    """The runs of a point with all seeds, at the chosen rate."""
    if chosen.multiplier is None:
        return []
    return [PlannedRun(point, chosen.multiplier, seed) for seed in range(1, study.seeds + 1)]


def all_runs(study: Study, statuses: Statuses) -> list[PlannedRun]:
    """Every run that is now known to belong to the study, those of searches first."""
    searches_by_optimizer = all_searches(study, statuses)
    rows = [(point, row_search(study, point, searches_by_optimizer)) for point in points(study)]
    searching = [trial_run(point, trial) for point, point_search in rows for trial in point_search.trials]
    return searching + [run for point, point_search in rows for run in runs_of_seeds(study, point, point_search.choice)]


def possible_names(study: Study) -> list[str]:
    """The names of all runs that the study could come to have, whatever its searches choose."""
    rows, ladder = points(study), possible_multipliers(study)
    names = [
        trial_run(point, Trial(multiplier, number)).name
        for point in rows
        if searches(study, point)
        for multiplier in ladder
        for number in range(study.lr_search_seeds)
    ]
    for point in rows:
        multipliers = (1.0,) if point.source in study.recipes else ladder
        names += [run.name for m in multipliers for run in runs_of_seeds(study, point, Choice(m))]
    return names


def possible_multipliers(study: Study) -> tuple[float, ...]:
    """The multiples of the rule's rate that a row could be run at, from the smallest to the largest."""
    return grid(study).ladder if len(study.lr_search) > 1 else study.lr_search


def next_runs(study: Study, statuses: Statuses) -> list[PlannedRun]:
    """The runs that are left and can be made, most urgent first: searches, then the first seed of all rows, and so on.

    So a study that is cut short has all its rows, with fewer seeds.
    """
    todo = [run for run in all_runs(study, statuses) if not status_of(run, statuses).final]
    return sorted(todo, key=lambda run: 0 if run.is_search else run.seed)


def left(study: Study, statuses: Statuses) -> list[tuple[Point, int]]:
    """How many runs each row still needs, including those whose rate is not chosen yet; a window may still grow."""
    searches_by_optimizer, rows = all_searches(study, statuses), []
    for point in points(study):
        point_search = row_search(study, point, searches_by_optimizer)
        runs = [trial_run(point, trial) for trial in point_search.trials] + runs_of_seeds(
            study, point, point_search.choice
        )
        count = sum(not status_of(run, statuses).final for run in runs)
        to_be_chosen = not point_search.is_complete
        rows.append((point, count + point_search.later + (study.seeds if to_be_chosen else 0)))
    return rows


def may_widen(study: Study, statuses: Statuses) -> bool:
    """Whether the search of an optimizer could still try further multiples."""
    return any(not optimizer_search.is_settled for optimizer_search in all_searches(study, statuses).values())


def rate(study: Study, point: Point, multiplier: float) -> float:
    """The learning rate of a run; a borrowed preset has its own."""
    if point.source in study.recipes:
        return float(study.recipes[point.source]["optim.lr"])
    return study.rates[point.optimizer].at(lender(point).batch, multiplier)


def geometry(study: Study, point: Point) -> tuple[int, int]:
    """Simulated ranks and the samples of each, whose product is the batch.

    Raises ``InputError`` for a batch that cannot be made of whole ranks, the same number on every node.
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


def training_seed(study: Study, run: PlannedRun) -> int:
    """The seed with which a run trains: batch size 32 has 3,200,001, 3,200,002, ... if batch sizes have their own."""
    if not study.own_seeds:
        return run.seed
    return run.point.batch % (LARGEST_SEED // SEEDS_OF_A_BATCH) * SEEDS_OF_A_BATCH + run.seed


def largest_round(study: Study) -> int:
    """The most runs that can be due at the same time: those that begin all searches, or those of all seeds."""
    rows = points(study)
    return max(sum(searches(study, point) for point in rows) * len(study.lr_search), len(rows) * study.seeds)


def processes_per_run(study: Study) -> int:
    """Ranks that share a sample, each a process."""
    return math.prod(spatial_sizes(study.settings.get("parallel.spatial", "1")))


def study_run(study: Study, run: PlannedRun) -> StudyRun:
    """The run as ``hpcbench train`` makes it."""
    point = run.point
    ranks, local = geometry(study, point)
    settings = {"train.baselines": "false", "train.page": "false", "train.keep_checkpoints": "1", **study.settings}
    settings |= study.own_settings.get(point.optimizer, {})
    if point.source in study.recipes:
        settings |= study.recipes[point.source]
    else:
        # The rate is already scaled. A rule at its own batch leaves it alone, but lowers the start of a warm-up that is
        # above the peak.
        settings |= {
            "optim.name": point.optimizer, "optim.lr": repr(rate(study, point, run.multiplier)),
            "optim.scaling": study.rates[point.optimizer].rule, "optim.base_batch_size": str(point.batch),
        }  # fmt: skip
    settings |= {"train.local_batch_size": str(local), "train.accumulation": "1"}
    settings["train.seed"] = str(training_seed(study, run))
    if ranks > 1:
        settings["parallel.simulated_ranks"] = str(ranks)
    else:
        settings["train.noise_scale_every"] = "0"  # it compares ranks, and the preset may ask for it
    if (processes := processes_per_run(study)) > 1:
        settings["parallel.devices"] = str(processes)
    if point.placement != "replicate":
        settings |= {
            "parallel.simulated_nodes": str(study.nodes), "staging.placement": "shard",
            "staging.reshuffle": str("reshuffle" in point.placement).lower(),
            "staging.contiguous": str("contiguous" in point.placement).lower(),
        }  # fmt: skip
    return StudyRun.of(run.name, study.application, study.preset, settings)
