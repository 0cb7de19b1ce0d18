"""Rules of an entry that no official tool checks. Each finding begins with the name of its rule.

Source: mlcommons/training_policies, hpc_training_rules.adoc, version 3.0 (2023-05-15).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.measure.log_rules import PUBLISHED_SAMPLES
from hpcbench.mlperf.log_phases import WRONG_ENDS
from hpcbench.mlperf.read_log import claims_epochs, count, text, whole
from hpcbench.mlperf.rulesets import WITHOUT
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.units import counted
from staging.errors import DataError
from staging.formats.regular import read_text

LONGEST_INIT_S = 1800.0
"""Bound of the untimed initialisation; the compliance checker requires less than this in both divisions."""
SAME_SAMPLES = 1e-3
"""Some logs give the samples that their loader takes, up to this fraction fewer than those of the set."""
TIME_TO_TRAIN = "strong"
DAY_S = 86_400.0


@dataclass
class Findings:
    """Violations of rules, and notes for information only."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Description:
    """What a system description says about its system."""

    there: bool
    division: str | None = None
    submitter: str | None = None
    nodes: int | None = None
    accelerators: int | None = None
    """Accelerators of all nodes; a node without any counts as one."""


def description_of(organization: Path, system: str) -> Description:
    """Read the description ``systems/SYSTEM.json``; its fields are unknown if it cannot be read."""
    try:
        values: Any = json.loads(read_text(organization / "systems" / f"{system}.json"))
    except (OSError, DataError, ValueError, RecursionError):
        return Description((organization / "systems" / f"{system}.json").is_file())
    if not isinstance(values, dict):
        return Description(True)
    nodes, per_node = whole(values.get("number_of_nodes")), count(values.get("accelerators_per_node"))
    return Description(
        True, text(values.get("division")), text(values.get("submitter")), nodes,
        nodes * max(per_node, 1) if nodes is not None and per_node is not None else None,
    )  # fmt: skip


def check_entry(runs: Sequence[RunRecord], pruned: int) -> Findings:
    """Apply the rules to the runs of an entry in the tree of an organization; ``pruned`` more runs are left out."""
    findings = Findings()
    folder = Path(runs[0].path).absolute().parent
    throughput = runs[0].mode == "throughput"
    above = folder.parents[1] if folder.parent.name in ("strong", "weak") else folder.parent
    organization = above.parents[1] if len(above.parents) > 1 else above
    described = description_of(organization, above.name)
    check_system(findings, runs, described, above.name)
    check_init(findings, runs)
    check_clock(findings, runs)
    check_epochs(findings, runs)
    check_recipe(findings, runs)
    check_samples(findings, runs)
    if throughput:
        check_alone(findings, organization, folder.name)
        check_scale(findings, runs, pruned, described)
        check_concurrency(findings, runs, pruned, described)
    return findings


def check_system(findings: Findings, runs: Sequence[RunRecord], described: Description, system: str) -> None:
    """The folder of results is named after a description, which agrees with the logs about the system."""
    if not described.there:
        findings.faults.append(f"system: no systems/{system}.json describes the folder's system")
        return
    divisions = sorted({run.division for run in runs if run.division is not None})
    if described.division is not None and divisions and divisions != [described.division]:
        findings.faults.append(
            f"system: the description says {described.division}, the logs say {' and '.join(divisions)}"
        )
    nodes = {run.nodes for run in runs if run.nodes is not None}
    if runs[0].mode != "throughput" and described.nodes is not None and nodes - {described.nodes}:
        logged = ", ".join(str(number) for number in sorted(nodes))
        findings.notes.append(f"system: nodes in the logs: {logged}, in the description: {described.nodes}")


def check_init(findings: Findings, runs: Sequence[RunRecord]) -> None:
    """Initialisation before the clock takes less than half an hour."""
    long = [run.init_s for run in runs if run.init_s is not None and run.init_s >= LONGEST_INIT_S]
    if long:
        findings.faults.append(
            f"init: {counted(len(long), 'run')} of 30 minutes or more, the longest {max(long):.0f} s"
        )


def check_clock(findings: Findings, runs: Sequence[RunRecord]) -> None:
    """Times within a log never go back."""
    back = [run for run in runs if any(note.startswith("the clock goes back") for note in run.notes)]
    if back:
        findings.notes.append(f"clock: goes back in {len(back)} of {counted(len(runs), 'log')}")
    wrong = [(run, why) for run in runs if (why := wrong_ends(run))]
    if wrong:
        run, why = wrong[0]
        findings.faults.append(
            f"clock: the run lasted longer than it says in {len(wrong)} of {counted(len(runs), 'log')}; "
            f"{Path(run.path).stem}: {why}"
        )


def wrong_ends(run: RunRecord) -> str | None:
    """How the lines of a run contradict its ``run_start`` or ``run_stop``; ``None`` if they do not."""
    return next((note.removeprefix(WRONG_ENDS) for note in run.notes if note.startswith(WRONG_ENDS)), None)


def check_epochs(findings: Findings, runs: Sequence[RunRecord]) -> None:
    """Epochs count from 1 without a gap: more of them would pass the convergence test too easily."""
    claimed = [run for run in runs if claims_epochs(run)]
    if claimed:
        first = claimed[0]
        findings.faults.append(
            f"epochs: more than were begun in {len(claimed)} of {counted(len(runs), 'log')}; "
            f"{Path(first.path).stem} claims {first.epochs:g} and has {first.epochs_begun}"
        )


def check_recipe(findings: Findings, runs: Sequence[RunRecord]) -> None:
    """All runs of a score have the same hyperparameters."""
    keys = sorted({key for run in runs for key in run.recipe})
    unlike = [key for key in keys if len({repr(run.recipe.get(key)) for run in runs if run.recipe}) > 1]
    if unlike:
        findings.notes.append(f"recipe: the runs differ in {', '.join(unlike[:5])}")


def check_samples(findings: Findings, runs: Sequence[RunRecord]) -> None:
    """Closed runs train and evaluate on the published set."""
    other = [why for run in runs if (why := other_samples(run))]
    if other:
        findings.faults.append(f"samples: {other[0]}, in {len(other)} of {counted(len(runs), 'log')}")


def other_samples(run: RunRecord) -> str | None:
    """How the set of a closed run differs from the published one in size; ``None`` if it does not, or is unknown."""
    published = PUBLISHED_SAMPLES.get(run.application or "", ())
    if run.division != "closed" or run.round == WITHOUT:
        return None
    logged = (run.train_samples, run.validation_samples)
    for here, there, what in zip(logged, published, ("training", "validation"), strict=False):
        if here is not None and abs(here - there) > SAME_SAMPLES * there:
            return f"{here:,} {what} samples, the published set has {there:,}"
    return None


def check_alone(findings: Findings, organization: Path, benchmark: str) -> None:
    """Throughput requires a time to train of the same benchmark by the same organization in the same round."""
    if not any(organization.glob(f"results/*/{TIME_TO_TRAIN}/{benchmark}/result_*.txt")):
        findings.faults.append(f"alone: throughput without a time to train of {benchmark} by the organization")


def check_scale(findings: Findings, runs: Sequence[RunRecord], pruned: int, described: Description) -> None:
    """Instances have one size S, on T accelerators in all: S <= T <= M x S for M instances, including pruned ones."""
    sizes = {run.accelerators for run in runs if run.accelerators is not None}
    if len(sizes) > 1:
        findings.faults.append(
            f"sizes: instances of {' and '.join(f'{number:,}' for number in sorted(sizes))} accelerators"
        )
    if len(sizes) != 1 or described.accelerators is None:
        return
    (size,) = sizes
    total, most = described.accelerators, (len(runs) + pruned) * size
    if total < size:
        findings.faults.append(f"scale: an instance has {size:,} accelerators, the system {total:,}")
    if total > most:
        findings.faults.append(
            f"scale: the system has {total:,} accelerators, its {counted(len(runs) + pruned, 'instance')} at most "
            f"{most:,}"
        )


def check_concurrency(findings: Findings, runs: Sequence[RunRecord], pruned: int, described: Description) -> None:
    """The clocks of the nodes are comparable: instances that must have run concurrently overlap in their logs."""
    spans = [(run.start_unix_s, run.start_unix_s + run.time_to_train_s) for run in runs
             if run.start_unix_s is not None and run.time_to_train_s is not None]  # fmt: skip
    if len(spans) < 2:
        return
    last_start, first_stop = max(start for start, _ in spans), min(stop for _, stop in spans)
    size = runs[0].accelerators
    at_once = size is not None and described.accelerators == (len(runs) + pruned) * size
    if at_once and last_start > first_stop:
        findings.notes.append(
            f"clocks: all instances ran at once by their sizes, yet one starts {last_start - first_stop:.0f} s after "
            "another stops"
        )
    elif last_start - min(start for start, _ in spans) > DAY_S:
        findings.notes.append("clocks: instances start more than a day apart")
