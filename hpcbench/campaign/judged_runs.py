"""A run of a campaign that has ended, and which runs the others make invalid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcbench.campaign.entry import Entry
from hpcbench.config.schema import RunConfig
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.summary import Summary
from hpcbench.results.units import score


@dataclass(frozen=True)
class CampaignRun:
    """One run that has ended."""

    name: str
    nodes: int
    """Nodes of the run; for an instance, its own."""
    number: int
    """Replicate, or instance, from 1."""
    accelerators: int
    record: RunRecord
    summary: Summary
    config: RunConfig
    value: float | None
    """The run's figure by the metric, in its unit; ``None`` if the run has none."""
    faults: tuple[str, ...] = ()
    """Why the run does not count; empty if it is valid."""

    @property
    def valid(self) -> bool:
        """Whether the run counts."""
        return not self.faults and self.value is not None

    @property
    def missed(self) -> bool:
        """Whether the run does not count for the only reason that it ended without its target."""
        return self.summary.status != "success" and set(self.faults) <= {target_fault(self.summary)}


def target_fault(summary: Summary) -> str:
    """The fault of a run that missed its target."""
    return f"{summary.metric} {score(summary.best)} does not reach {score(summary.target)}"


def judged(entry: Entry, runs: Sequence[CampaignRun]) -> list[CampaignRun]:
    """The runs, with a fault for each that the others make invalid: it is a copy of one, or has the seed of one, or
    another batch.

    Of instances of a throughput with one seed the first valid one counts, as in a submission.
    """
    runs = of_one_batch(entry, without_copies(runs))
    if "seeds" not in entry.scenario.validity:
        return runs
    counts = Counter(run.summary.seed for run in runs)
    first: dict[int, CampaignRun] = {}
    if entry.scenario.throughput:
        for run in runs:
            if run.valid:
                first.setdefault(run.summary.seed, run)
    return [
        replace(run, faults=(*run.faults, f"seed {run.summary.seed} is another run's, too"))
        if counts[run.summary.seed] > 1 and run is not first.get(run.summary.seed) else run for run in runs
    ]  # fmt: skip


def without_copies(runs: Sequence[CampaignRun]) -> list[CampaignRun]:
    """The runs, with a fault for each whose log starts, lasts and evaluates exactly as that of a run before it."""
    first: dict[object, str] = {}
    found = []
    for run in runs:
        record = run.record
        log = (record.start_unix_s, record.time_to_train_s, tuple(record.qualities))
        other = first.setdefault(log, run.name) if record.start_unix_s is not None and record.qualities else run.name
        found.append(run if other == run.name else replace(run, faults=(*run.faults, f"its log is that of {other}")))
    return found


def of_one_batch(entry: Entry, runs: Sequence[CampaignRun]) -> list[CampaignRun]:
    """The runs; where the rules leave the batch open, with a fault for each that has another than most have."""
    fixed, batches = entry.scenario.batch, Counter(run.summary.global_batch_size for run in runs)
    if len(batches) < 2 or fixed.local_size is not None or fixed.global_size is not None:
        return list(runs)
    usual = max(batches, key=lambda batch: batches[batch])
    return [
        run if run.summary.global_batch_size == usual else replace(run, faults=(
            *run.faults, f"global batch {run.summary.global_batch_size:,}, and {usual:,} of the other runs",
        )) for run in runs
    ]  # fmt: skip
