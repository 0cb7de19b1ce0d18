"""An entry: the runs of one folder of a round, and which of them have a time that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.mlperf.convergence_check import ConvergenceTest
from hpcbench.mlperf.official_log import OfficialLog
from hpcbench.mlperf.official_score import OfficialScore
from hpcbench.mlperf.rulesets import NEWEST, WITHOUT, ruleset_of_round
from hpcbench.mlperf.run_record import UNREAD, RunRecord

UNCONVERGED = "did not converge"


@dataclass
class Entry:
    """Runs that make one score together."""

    runs: list[RunRecord]
    """The runs that count: all but the pruned ones."""
    pruned: int = 0
    score_min: float | None = None
    """Time to train: olympic mean in minutes, normalised. Throughput: minutes from the first start to the last stop."""
    withheld_min: float | None = None
    """The minutes that would be the score, of an entry to which the rules give none; see ``may_have_score``."""
    models_per_min: float | None = None
    """Throughput only: runs divided by these minutes."""
    official: OfficialScore | None = None
    """What ``mlperf_logging`` gives to the folder; ``None`` without its logs, or without rules for the round."""
    logs: dict[str, OfficialLog] = field(default_factory=dict)
    """What the official tools see of each log, by the name of its file."""
    convergence: ConvergenceTest | None = None
    """In the closed division, if the rules have reference points."""
    faults: list[str] = field(default_factory=list)
    """Rules that the entry breaks; each message starts with the rule's name."""
    notes: list[str] = field(default_factory=list)

    @property
    def first(self) -> RunRecord:
        """A readable run, for what all runs have in common."""
        return next((run for run in self.runs if run.start_unix_s is not None), self.runs[0])

    @property
    def ruleset(self) -> str | None:
        """The rules of the round; the newest if the round is unknown, ``None`` for v0.7."""
        return None if self.first.round == WITHOUT else ruleset_of_round(self.first.round) or NEWEST


def distinct_seeds(entry: Entry) -> list[RunRecord]:
    """The instances without those that have the seed of another; of each seed the first one that did not fail."""
    lost = {id(run) for run in failed(entry, entry.runs)}
    kept: dict[object, RunRecord] = {}
    for run in sorted(entry.runs, key=lambda run: id(run) in lost):
        kept.setdefault(("no seed", id(run)) if run.seed is None else run.seed, run)
    chosen = {id(run) for run in kept.values()}
    return [run for run in entry.runs if id(run) in chosen]


def unrepeated(entry: Entry) -> list[RunRecord]:
    """The runs that no rule on seeds leaves out."""
    return distinct_seeds(entry) if entry.first.mode == "throughput" else entry.runs


def copies(runs: Sequence[RunRecord]) -> int:
    """The number of runs that start, last and evaluate exactly as another: their logs are copies of its log."""
    seen = [(run.start_unix_s, run.time_to_train_s, tuple(run.qualities))
            for run in runs if run.start_unix_s is not None and run.qualities]  # fmt: skip
    return len(seen) - len(set(seen))


def repeated_seeds(entry: Entry) -> int:
    """The number of runs with the seed of another."""
    seeds = Counter(run.seed for run in entry.runs if run.seed is not None)
    return sum(count - 1 for count in seeds.values())


def failed(entry: Entry, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs without a time that counts: those without success, and those whose log the official checker rejects."""
    return [run for run in runs if not run.converged or run.time_to_train_s is None or not accepted(entry, run)]


def accepted(entry: Entry, run: RunRecord) -> bool:
    """Whether the official checker accepts the log of a run; true if it was not asked."""
    log = entry.logs.get(Path(run.path).name)
    return log is None or (log.accepted and log.crash is None)


def why_lost(entry: Entry, run: RunRecord) -> str:
    """Why a run of ``failed`` has no time that counts."""
    log = entry.logs.get(Path(run.path).name)
    if run.reason is not None and run.reason.startswith(UNREAD):
        return "its log cannot be read"
    if run.status == "success" and run.reason is not None:
        return run.reason
    if run.status != "success" or run.time_to_train_s is None or log is None:
        return UNCONVERGED
    if log.crash is not None:
        return f"the official checker crashes on its log: {log.crash}"
    return UNCONVERGED if log.rejection is None else f"its log is rejected: {log.rejection}"


def reasons_lost(entry: Entry, lost: Sequence[RunRecord]) -> str | None:
    """The reason of each run of ``failed``; ``None`` if it is that none converged."""
    names: dict[str, list[str]] = {}
    for run in lost:
        names.setdefault(why_lost(entry, run), []).append(Path(run.path).stem)
    if set(names) == {UNCONVERGED}:
        return None
    return "; ".join(f"{', '.join(found)}: {why}" for why, found in names.items())
