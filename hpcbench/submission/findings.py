"""What a submission lacks, in plain words, and how to supply it."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcbench.config.schema import SubmissionConfig
from hpcbench.measure.log_rules import PUBLISHED_TARGETS
from hpcbench.mlperf.compliance import check_log
from hpcbench.mlperf.convergence_check import check_convergence, has_points
from hpcbench.mlperf.entry_rules import other_samples
from hpcbench.results.units import counted
from hpcbench.submission.power_logs import LEAST_READINGS, NodePower, power_of
from hpcbench.submission.submission_tree import NamedEntry
from hpcbench.submission.submitted_runs import SubmittedRun, group_of
from hpcbench.submission.system_facts import STATUSES, Facts, blanks, unlike

NODE = "node"
"""What ``energy_sources`` says that counters of a whole node cover."""
TARGET = "Failed checks for eval_"
"""Start of the official checker's message on the published quality, which ``quality`` reports instead."""


@dataclass(frozen=True)
class Finding:
    """Something that an entry lacks, or a note on it."""

    place: str
    problem: str
    remedy: str = ""
    """A command, or something else that helps; empty if nothing does."""
    note: bool = False
    """Whether the entry can be submitted nevertheless."""


def find_faults(named: Sequence[NamedEntry], folder: Path, ruleset: str, facts: Facts) -> list[Finding]:
    """What is missing from the entries whose tree is in ``folder``, and notes on them and on what ``facts`` leaves."""
    findings: list[Finding] = []
    timed = {named_entry.entry.benchmark for named_entry in named if named_entry.entry.mode == "strong"}
    for named_entry in named:
        for part in (count, quality, samples, seeds, convergence, machines, power):
            findings += part(named_entry, ruleset)
        findings += logs(named_entry, folder, ruleset)
        if named_entry.entry.mode == "weak" and named_entry.entry.benchmark not in timed:
            remedy = f"add {named_entry.entry.needed} runs of {named_entry.entry.benchmark} for time to train"
            findings.append(
                Finding(named_entry.words, "throughput is submitted together with time to train alone", remedy)
            )
    findings += category(named, facts)
    remedy = "fill them in the file that --write-facts makes, and give it with --facts"
    for system, described in {named_entry.system: named_entry for named_entry in named}.items():
        if empty := [key for key in blanks(described.description) if not key.endswith("_notes")]:
            findings.append(Finding(f"systems/{system}.json", f"blank: {', '.join(empty)}", remedy, note=True))
    return findings


def category(named: Sequence[NamedEntry], facts: Facts) -> Iterator[Finding]:
    """The category goes into every log and description, and is the default of the runs if nobody states another."""
    default = SubmissionConfig().status
    if not facts.values.get("status"):
        for system in dict.fromkeys(one.system for one in named if one.description.get("status") == default):
            yield Finding(f"systems/{system}.json", f"category not stated, so it is {default}",
                          f"set status in the file of --facts: {', '.join(STATUSES)}", note=True)  # fmt: skip


def count(named: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """A score needs a given number of runs."""
    entry, has = named.entry, len(named.entry.runs)
    if has < entry.needed:
        kind = "run" if entry.mode == "strong" else "instance"
        more = counted(entry.needed - has, f"more {kind}")
        yield Finding(named.words, f"{has} of {entry.needed} {kind}s; {more} with new seeds", again(entry.first))
    if entry.beyond:
        names = ", ".join(run.name for run in entry.beyond)
        yield Finding(named.words, f"{has + len(entry.beyond)} runs were made; the median of the windows of "
                      f"{entry.needed} in a row counts, without {names}",
                      "say the number of runs beforehand, as the rules ask for", note=True)  # fmt: skip
    if entry.pruned:
        names = ", ".join(run.name for run in entry.pruned)
        yield Finding(named.words, f"pruned, without convergence or with the seed of another: {names}", note=True)


def quality(named: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """One run may miss the published quality; it counts as the slowest."""
    entry, target = named.entry, PUBLISHED_TARGETS[named.entry.benchmark]
    missed = [run for run in entry.runs if not run.converged]
    if not missed:
        return
    lower = missed[0].lower_is_better
    known = [run.best for run in missed if run.best is not None]
    told = f" (best {min(known) if lower else max(known):.4g})" if known else ""
    words = f"quality {'above' if lower else 'below'} {target:g}{told} in {counted(len(missed), 'run')}"
    names = ", ".join(run.name for run in missed)
    if len(missed) > 1:
        yield Finding(named.words, f"not submittable: {words}; one may miss it: {names}",
                      "train to the published target (train.target) on the published dataset, with a recipe that "
                      "reaches it")  # fmt: skip
    else:
        yield Finding(named.words, f"{words}, which counts as the slowest: {names}", note=True)


def samples(named: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """Closed runs train on the published set; of CosmoFlow's the official checkers count no samples."""
    other = [why for run in named.entry.runs if (why := other_samples(run.record))]
    if other:
        yield Finding(named.words, f"not submittable: {other[0]}, in {counted(len(other), 'run')}",
                      "train on the published dataset")  # fmt: skip


def seeds(named: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """Runs with the same seed count as one run."""
    seed_counts = Counter(run.record.seed for run in named.entry.runs if run.record.seed is not None)
    twice = sum(number - 1 for number in seed_counts.values())
    if twice and named.entry.first.record.division == "closed":
        yield Finding(named.words, f"{counted(twice, 'run')} with the seed of another; make {twice} with new seeds",
                      again(named.entry.first))  # fmt: skip
    elif twice:
        yield Finding(named.words, f"{counted(twice, 'run')} with the seed of another", note=True)


def convergence(named: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """Epochs against the reference convergence points, in the closed division."""
    entry, batch = named.entry, named.entry.first.record.global_batch_size
    closed = entry.first.record.division == "closed" and has_points(entry.benchmark, ruleset)
    if not closed or batch is None or len(entry.runs) < 3:
        return
    epochs = [run.record.epochs if run.converged else None for run in entry.runs]
    test = check_convergence(entry.benchmark, ruleset, batch, epochs)
    if entry.mode == "weak":
        test = replace(test, factor=1.0)  # a throughput is tested, but not normalised
    if test.mean_epochs is None or not math.isfinite(test.mean_epochs):
        return
    if test.passed:
        yield Finding(named.words, f"convergence: {test.words}", note=True)
        return
    missing = test.least_epochs is None
    remedy = (
        f"submit a reference convergence point of batch {batch}, or train at a batch that has one"
        if missing
        else "use a published recipe for this batch (docs/schedules.md), or the open division"
    )
    yield Finding(named.words, f"convergence: {test.words}", remedy)


def machines(named: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """All runs must be of one system, and their times must be those of that system."""
    for words in unlike(named.entry.runs):
        yield Finding(named.words, f"not one system; {words}", "give runs of one system alone")
    pretended = [run for run in named.entry.runs if run.summary.simulated_ranks or run.summary.simulated_nodes]
    if pretended:
        yield Finding(named.words, f"ranks or nodes were simulated in {counted(len(pretended), 'run')}: "
                      "times are not theirs", "run on as many nodes as they stand for")  # fmt: skip
    resumed = [run.name for run in named.entry.runs if run.summary.resumed]
    if resumed:
        yield Finding(named.words, f"resumed, and the time counts the gaps: {', '.join(resumed)}", note=True)


def power(named: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """Power logs need readings throughout a run; totals of energy are not enough."""
    logs_by_run = {run.name: power_of(run.folder.path) for run in named.entry.runs}
    without = [name for name, nodes in logs_by_run.items() if not nodes]
    if len(without) == len(logs_by_run):
        if any(run.summary.energy_j is not None for run in named.entry.runs):
            words = "energy was read, but only as totals; power logs need a reading each second"
            yield Finding(named.words, words, "for the next runs: --measure.power true", note=True)
        return
    if without:
        yield Finding(named.words, f"{counted(len(without), 'run')} without power logs, so that none are in the "
                      "package", "add those of all runs", note=True)  # fmt: skip
    yield from faults_of_power(named, {name: nodes for name, nodes in logs_by_run.items() if nodes})


def faults_of_power(named: NamedEntry, logs_by_run: dict[str, list[NodePower]]) -> Iterator[Finding]:
    """What the rules require of power logs, run by run, but no official tool checks."""
    nodes = {run.name: run.summary.nodes for run in named.entry.runs}
    if unequal := [name for name, logs in logs_by_run.items() if len(logs) != nodes[name]]:
        name = unequal[0]
        yield Finding(named.words, f"power: {counted(len(logs_by_run[name]), 'log')} of {counted(nodes[name], 'node')} "
                      f"in {name}", "the rules ask for one of each node", note=True)  # fmt: skip
    if cut := [name for name, logs in logs_by_run.items() if not all(log.ended for log in logs)]:
        yield Finding(named.words, f"power: a log without its end: {', '.join(cut)}", note=True)
    least = min(log.readings for logs in logs_by_run.values() for log in logs)
    if least < LEAST_READINGS:
        yield Finding(named.words, f"power: only {counted(least, 'reading')} in a log; the rules ask for at least "
                      f"{LEAST_READINGS}, one or more a second", note=True)  # fmt: skip
    parts = sorted({f"{log.covers} ({log.source})" for logs in logs_by_run.values() for log in logs
                    if log.source and log.covers != NODE})  # fmt: skip
    if parts:
        yield Finding(named.words, f"power: of {'; '.join(parts)}; the rules ask for whole nodes at their power supply",
                      note=True)  # fmt: skip


def logs(named: NamedEntry, folder: Path, ruleset: str) -> Iterator[Finding]:
    """What the checks of single logs say; a message that several logs get is reported once."""
    told: dict[tuple[str, bool], list[str]] = {}
    division = named.entry.first.record.division
    for number, run in enumerate(named.entry.runs):
        result = check_log(folder / named.place / f"result_{number}.txt", division, ruleset)
        for message in result.official_messages:
            if not message.startswith(TARGET):
                told.setdefault((message, False), []).append(run.name)
        for message in result.beyond_messages:
            told.setdefault((f"beyond the official checker: {message}", True), []).append(run.name)
    for (message, beyond), names in told.items():
        one_may = not beyond and len(names) == 1 and len(named.entry.runs) > 1
        where = names[0] if len(names) == 1 else f"{len(names)} runs"
        yield Finding(named.words, f"{where}: {message}", note=beyond or one_may)


def again(run: SubmittedRun) -> str:
    """The command that makes another run like this one, with a seed of its own."""
    summary, folder = run.summary, shlex.quote(str(run.folder.path / "config.yaml"))
    seed = f"--config {folder} --train.seed null"
    if run.job.get("site"):
        words = ["hpcbench submit", summary.application, "--site", shlex.quote(str(run.job["site"]))]
        words += ["--nodes", str(run.job.get("nodes", summary.nodes))]
        if isinstance(seconds := run.job.get("time_s"), int | float):
            words += ["--time", f"{math.ceil(seconds / 60)}m"]
        if not group_of(run.config, "staging").get("destination"):
            words.append("--no-stage")
        return f"{' '.join(words)} {seed}"
    launcher = f"mpiexec -n {summary.world_size} " if summary.world_size > 1 else ""
    return f"{launcher}hpcbench train {summary.application} {seed}"
