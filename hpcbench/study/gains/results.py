"""What the runs of a gains study found: step times and quality of every option beside the baseline's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import fmean, median, stdev

from hpcbench.phase_names import STEP_PARTS
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.epoch_comparison import LEVEL, holm_p
from hpcbench.study.folder import StudyFolder
from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.options import Option, combined
from hpcbench.study.gains.plan import AGAIN, PLAIN_OPTION, PlannedRun, alone, status, together
from hpcbench.study.gains.quality_comparison import QualityTest, quality_test
from hpcbench.study.gains.step_ratio import StepRatio, mean_difference, step_ratio
from hpcbench.study.run_status import Statuses
from hpcbench.study.scaling.read_results import parts_of_steps, start_s, step_seconds
from hpcbench.study.scaling.run_figures import read_run
from hpcbench.study.trajectories import trajectory
from staging.errors import DataError

CLEAR_PART = 0.05
"""A part of a step has changed if it clearly differs, by at least this share of the baseline's step."""
MOST_BLOCKS = 2.0
"""Starts further apart than this many times what all runs of a repeat take do not belong to runs that follow one
another, so the machine may have changed in between."""
LEAST_APART_S = 60.0
"""Runs that start within this time belong together, however short they are."""
APART = "measured apart"
Trajectory = tuple[tuple[str, ...], bytes]


@dataclass(frozen=True)
class Outcome:
    """What one run found."""

    repeat: int
    step_s: float | None = None
    """Seconds of a step after the warm-up; like all fields below but the last, unset for a run that diverged."""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """The same for each of ``STEP_PARTS``, as the mean over ranks."""
    init_s: float | None = None
    """Seconds from the start of the process to that of the clock, in which a model is compiled."""
    quality: float | None = None
    """Quality at the last step."""
    trajectory: Trajectory | None = None
    """Losses and qualities to the last bit."""
    started_s: float | None = None
    """When the run started, in seconds since 1970; unset in files of other versions."""
    wall_s: float = 0.0
    """Seconds of the process."""


@dataclass(frozen=True)
class OptionResult:
    """An option beside the baseline of the same repeats. The p-values are for all options together (Holm)."""

    option: Option
    runs: tuple[Outcome, ...] = ()
    failed: str = ""
    """Why it cannot be run here."""
    lost_s: Mapping[int, float] = field(default_factory=dict)
    """Seconds of the processes of failed runs that left a summary, by repeat."""
    left: int = 0
    """Repeats that are left to run."""
    ratio: StepRatio | None = None
    quality: QualityTest | None = None
    """Unset if the option trains exactly as the baseline does."""
    same_training: bool = False
    """Whether every run trained as the baseline with the same seed, to the last bit."""
    repeat_ratios: tuple[float, ...] = ()
    """Step time over the baseline's, repeat by repeat."""
    changed_s: Mapping[str, float] = field(default_factory=dict)
    """The parts of a step that changed, by how many seconds."""
    apart: int = 0
    """Repeats that are in no figure of time beside the baseline, since they did not run beside it."""

    def values(self, name: str) -> list[float]:
        """The figure ``name`` of every run that has it."""
        return [float(value) for run in self.runs if (value := getattr(run, name)) is not None]

    def middle(self, name: str) -> float | None:
        """The median of the figure ``name`` over runs."""
        values = self.values(name)
        return median(values) if values else None

    def part(self, name: str) -> float | None:
        """Seconds of a part of a step, the median over runs."""
        seconds = [run.parts_s[name] for run in self.runs if name in run.parts_s]
        return median(seconds) if seconds else None

    @property
    def diverged(self) -> int:
        """Number of runs that diverged."""
        return sum(run.step_s is None for run in self.runs)

    @property
    def quality_spread(self) -> float | None:
        """Standard deviation of the quality between seeds."""
        qualities = self.values("quality")
        return stdev(qualities) if len(qualities) > 1 else None

    @property
    def quality_mean(self) -> float | None:
        """Mean quality of the seeds."""
        qualities = self.values("quality")
        return fmean(qualities) if qualities else None

    @property
    def changes_quality(self) -> bool:
        """Whether the quality is distinguishable from the baseline's."""
        return self.quality is not None and self.quality.p <= LEVEL

    @property
    def verdict(self) -> str:
        """The outcome in a few words."""
        if self.failed:
            return "cannot run"
        if self.changes_quality and self.quality is not None and self.quality.worse:
            return "worse quality"
        if self.ratio is None:
            return APART if self.apart else "too few runs"
        if self.ratio.p > LEVEL:
            return "no difference seen"
        return "faster" if self.ratio.ratio < 1 else "slower"


@dataclass(frozen=True)
class Results:
    """All results of a study."""

    baseline: OptionResult
    options: tuple[OptionResult, ...]
    """The result of each option alone."""
    again: OptionResult | None = None
    """The baseline beside the options that are tried together."""
    together: OptionResult | None = None
    """The options that helped, run as one."""

    @property
    def tested(self) -> int:
        """Number of options whose quality is compared."""
        return sum(result.quality is not None for result in self.options)


def read_results(study: Gains, folder: StudyFolder, statuses: Statuses) -> Results:
    """The results so far. An option with damaged run files counts as failed."""
    results = read_alone(study, folder, statuses)
    option = chosen(results)
    if option is None:
        return results
    again, both = read_options(folder, statuses, together(study, option), (AGAIN, option))
    return replace(results, again=again, together=compared([both], again, better(statuses))[0])


def read_alone(study: Gains, folder: StudyFolder, statuses: Statuses) -> Results:
    """The results of every option alone."""
    baseline, *options = read_options(folder, statuses, alone(study), (PLAIN_OPTION, *study.options))
    return Results(baseline, tuple(compared(options, baseline, better(statuses))))


def chosen(results: Results) -> Option | None:
    """The options that helped as one, the fastest of every factor; ``None`` if fewer than two, or before all ended."""
    if any(result.left for result in (results.baseline, *results.options)):
        return None
    option = combined(helpful(results))
    return option if "+" in option.name else None


def helpful(results: Results) -> list[Option]:
    """The fastest option of every factor among those that were faster without a worse quality."""
    best: dict[str, OptionResult] = {}
    for result in results.options:
        other = best.get(result.option.factor)
        if result.verdict == "faster" and (other is None or speed(result) < speed(other)):
            best[result.option.factor] = result
    return [result.option for result in best.values()]


def speed(result: OptionResult) -> float:
    """Step time over the baseline's, for an option that has it."""
    assert result.ratio is not None
    return result.ratio.ratio


def better(statuses: Statuses) -> str:
    """Whether the metric is better ``lower`` or ``higher``."""
    return next((state.summary.better for state in statuses.values() if state.summary is not None), "lower")


def read_options(
    folder: StudyFolder, statuses: Statuses, runs: Sequence[PlannedRun], options: Sequence[Option]
) -> list[OptionResult]:
    """What the runs of each option found, not yet compared."""
    results = {option.name: OptionResult(option) for option in options}
    for run in sorted(runs, key=lambda planned: planned.repeat):
        before, state = results[run.option.name], status(statuses, run)
        wall_s = 0.0 if state.summary is None else state.summary.wall_s
        if state.status == "diverged":
            after = replace(before, runs=(*before.runs, Outcome(run.repeat, wall_s=wall_s)))
        elif state.status == "failed":
            lost_s = {**before.lost_s, run.repeat: wall_s}
            after = replace(before, failed=before.failed or state.reason, lost_s=lost_s)
        elif state.done and state.summary is not None:
            try:
                after = replace(before, runs=(*before.runs, read_outcome(folder, run, state.summary)))
            except DataError as error:
                after = replace(before, failed=before.failed or str(error))
        else:
            after = replace(before, left=before.left + 1)
        results[run.option.name] = after
    return [replace(result, left=0) if result.failed else result for result in results.values()]


def read_outcome(folder: StudyFolder, run: PlannedRun, summary: Summary) -> Outcome:
    """What a run that is done found. Raises ``DataError`` for damaged files."""
    path = folder.run(run.name)
    _, ranks, _ = read_run(path, summary)
    steps = parts_of_steps(ranks)
    return Outcome(
        run.repeat, float(steps["wall"].mean()), step_seconds(steps), start_s(summary),
        summary.metrics.get(summary.metric), trajectory(RunFolder(path).read_epochs()), started_s(summary),
        summary.wall_s,
    )  # fmt: skip


def started_s(summary: Summary) -> float | None:
    """When a run started, in seconds since 1970; ``None`` if its summary does not say."""
    try:
        return datetime.fromisoformat(summary.started).timestamp()
    except ValueError:
        return None


def compared(options: Sequence[OptionResult], baseline: OptionResult, direction: str) -> list[OptionResult]:
    """The options beside the baseline, with p-values for all of them together."""
    blocks_s: dict[int, float] = {}
    for one in (baseline, *options):
        for repeat, seconds in [*one.lost_s.items(), *((run.repeat, run.wall_s) for run in one.runs)]:
            blocks_s[repeat] = blocks_s.get(repeat, 0.0) + seconds
    results = [beside(option, baseline, blocks_s, direction) for option in options]
    times = iter(holm_p([one.ratio.p for one in results if one.ratio is not None]))
    qualities = iter(holm_p([one.quality.p for one in results if one.quality is not None]))
    return [
        replace(
            one, ratio=None if one.ratio is None else replace(one.ratio, p=next(times)),
            quality=None if one.quality is None else replace(one.quality, p=next(qualities)),
        )
        for one in results
    ]  # fmt: skip


def beside(option: OptionResult, baseline: OptionResult, blocks_s: Mapping[int, float], direction: str) -> OptionResult:
    """One option beside the baseline; all runs of each repeat take ``blocks_s``."""
    changed, plain = ({run.repeat: run for run in result.runs} for result in (option, baseline))
    both = [(changed[repeat], plain[repeat]) for repeat in sorted(changed.keys() & plain.keys())]
    measured = [(a.step_s, b.step_s, a, b) for a, b in both if a.step_s is not None and b.step_s is not None]
    timed = [pair for pair in measured if not are_apart(*pair[2:], blocks_s[pair[2].repeat])]
    same = bool(both) and all(a.trajectory is not None and a.trajectory == b.trajectory for a, b in both)
    test = None if same else quality_test(
        [run.quality for run in option.runs], [run.quality for run in baseline.runs], direction
    )  # fmt: skip
    return replace(
        option, ratio=step_ratio([pair[0] for pair in timed], [pair[1] for pair in timed]), same_training=same,
        quality=test, repeat_ratios=tuple(pair[0] / pair[1] for pair in timed),
        changed_s=changed_parts([(a, b) for _, _, a, b in timed]), apart=len(measured) - len(timed),
    )  # fmt: skip


def are_apart(one: Outcome, other: Outcome, block_s: float) -> bool:
    """Whether runs of a repeat that takes ``block_s`` started too far apart to have followed one another."""
    if one.started_s is None or other.started_s is None:
        return False
    return abs(one.started_s - other.started_s) > max(LEAST_APART_S, MOST_BLOCKS * block_s)


def changed_parts(pairs: Sequence[tuple[Outcome, Outcome]]) -> dict[str, float]:
    """Parts of a step that changed clearly and by a share that matters, in seconds; negative if they got shorter."""
    if not pairs:
        return {}
    whole = median(base.step_s or 0.0 for _, base in pairs)
    changes: dict[str, float] = {}
    for name in STEP_PARTS:
        if all(name in outcome.parts_s for pair in pairs for outcome in pair):
            difference, clear = mean_difference(
                [a.parts_s[name] for a, _ in pairs], [b.parts_s[name] for _, b in pairs]
            )
            if clear and abs(difference) >= CLEAR_PART * whole:
                changes[name] = difference
    return changes
