"""Staging of each entry: seconds, bytes per node and second, share of the run, and what the first epoch hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.published_sets import set_of
from hpcbench.analysis.run_seconds import epochs_of
from hpcbench.analysis.sheets import column, text
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED

GB = 1e9


@dataclass(frozen=True)
class StagingRow:
    """Staging of an entry; means over the runs kept."""

    application: str = column("application", "of the entry", text)
    entry: str = column("entry", "round, submitter and system", text)
    mode: str = column("mode", "time to train or throughput", text, page=False)
    nodes: int | None = column("nodes", "of an instance", units.integer)
    staging_s: float | None = column("staging (s)", "staging within the clock")
    before_s: float | None = column("before (s)", "staging before the clock")
    share: float | None = column("share", "staging within the clock over the time to train", units.percent)
    set_gb: float | None = column("set (GB)", "training and validation samples as stored, 10^9 bytes", units.integer)
    node_gb_s: float | None = column(
        "GB/s/node", "the set over nodes and seconds of staging: what a node at least took in where each gets a part"
    )
    set_gb_s: float | None = column("GB/s", "the set over seconds of staging, per instance")
    first_epoch: float | None = column("first epoch", "over the median of the others, median over runs")
    hidden_s: float | None = column("hidden (s)", "what the first epoch takes beyond the median of the others")
    verified: str = column("verified", "of own ones: not verified", text, page=False)


def staging_rows(entries: Sequence[EntryRuns]) -> list[StagingRow]:
    """A row for each entry that has means."""
    return [staging_row(entry) for entry in entries if entry.seconds is not None]


def staging_row(entry: EntryRuns) -> StagingRow:
    """The staging of an entry. What a log does not give is ``None``."""
    run = entry.first
    staging = mean_of([kept_run.staging_s for kept_run in entry.kept])
    before = mean_of([kept_run.staging_before_s for kept_run in entry.kept])
    size = set_bytes(run)
    seconds = staging or before
    rate = size / seconds / GB if size and seconds else None
    epochs = [told for kept_run in entry.kept if (told := epochs_of(kept_run)) is not None]
    firsts = [ratio for told in epochs if (ratio := told.first_over_others) is not None]
    hidden = [told.beyond for told in epochs if told.first_over_others is not None]
    total = entry.seconds.total if entry.seconds is not None else None
    return StagingRow(
        run.application or "-", entry.name, entry.key[1], run.nodes, staging, before,
        staging / total if staging is not None and total else None, size / GB if size else None,
        rate / run.nodes if rate is not None and run.nodes else None, rate,
        median(firsts) if firsts else None, fmean(hidden) if hidden else None, NOT_VERIFIED if entry.is_own else "",
    )  # fmt: skip


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean where every value is known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def set_bytes(run: RunRecord) -> float | None:
    """Bytes of the set as stored: for your own run from its summary, else those of the published set."""
    if run.origin == "own":
        from hpcbench.results.run_folder import RunFolder

        folder = RunFolder(Path(run.path))
        if folder.summary.exists():
            summary = folder.read_summary()
            if summary.train_bytes:
                return float(summary.train_bytes + summary.validation_bytes)
    published_set = set_of(run)
    return None if published_set is None else published_set.stored_bytes
