"""What a submission lacks, in plain words, and how to supply it."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.measure.log_rules import PUBLISHED_TARGETS
from hpcbench.mlperf.compliance import check_log
from hpcbench.mlperf.convergence_check import check_convergence, has_points
from hpcbench.results.units import counted
from hpcbench.submission.power_logs import LEAST_READINGS, NodePower, power_of
from hpcbench.submission.submission_tree import NamedEntry
from hpcbench.submission.submitted_runs import SubmittedRun
from hpcbench.submission.system_facts import blanks, unlike

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


def find_faults(named: Sequence[NamedEntry], folder: Path, ruleset: str) -> list[Finding]:
    """What is missing from the entries whose tree is in ``folder``, and notes on them."""
    found: list[Finding] = []
    timed = {each.entry.benchmark for each in named if each.entry.mode == "strong"}
    for each in named:
        for part in (count, quality, seeds, convergence, machines, power):
            found += part(each, ruleset)
        found += logs(each, folder, ruleset)
        if each.entry.mode == "weak" and each.entry.benchmark not in timed:
            remedy = f"add {each.entry.needed} runs of {each.entry.benchmark} for time to train"
            found.append(Finding(each.words, "throughput is submitted together with time to train alone", remedy))
    remedy = "fill them in the file that --write-facts makes, and give it with --facts"
    for system, each in {each.system: each for each in named}.items():
        if empty := [key for key in blanks(each.description) if not key.endswith("_notes")]:
            found.append(Finding(f"systems/{system}.json", f"blank: {', '.join(empty)}", remedy, note=True))
    return found


def count(each: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """A score needs a given number of runs."""
    entry, has = each.entry, len(each.entry.runs)
    if has < entry.needed:
        kind = "run" if entry.mode == "strong" else "instance"
        more = counted(entry.needed - has, f"more {kind}")
        yield Finding(each.words, f"{has} of {entry.needed} {kind}s; {more} with new seeds", again(entry.first))
    if entry.beyond:
        names = ", ".join(run.name for run in entry.beyond)
        yield Finding(each.words, f"{has + len(entry.beyond)} runs were made; the median of the windows of "
                      f"{entry.needed} in a row counts, without {names}",
                      "say the number of runs beforehand, as the rules ask for", note=True)  # fmt: skip
    if entry.pruned:
        names = ", ".join(run.name for run in entry.pruned)
        yield Finding(each.words, f"pruned, without convergence or with the seed of another: {names}", note=True)


def quality(each: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """One run may miss the published quality; it counts as the slowest."""
    entry, target = each.entry, PUBLISHED_TARGETS[each.entry.benchmark]
    missed = [run for run in entry.runs if not run.converged]
    if not missed:
        return
    lower = missed[0].lower_is_better
    known = [run.best for run in missed if run.best is not None]
    told = f" (best {min(known) if lower else max(known):.4g})" if known else ""
    words = f"quality {'above' if lower else 'below'} {target:g}{told} in {counted(len(missed), 'run')}"
    names = ", ".join(run.name for run in missed)
    if len(missed) > 1:
        yield Finding(each.words, f"not submittable: {words}; one may miss it: {names}",
                      "train to the published target (train.target) on the published dataset, with a recipe that "
                      "reaches it")  # fmt: skip
    else:
        yield Finding(each.words, f"{words}, which counts as the slowest: {names}", note=True)


def seeds(each: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """Runs with the same seed count as one run."""
    found = Counter(run.record.seed for run in each.entry.runs if run.record.seed is not None)
    twice = sum(number - 1 for number in found.values())
    if twice and each.entry.first.record.division == "closed":
        yield Finding(each.words, f"{counted(twice, 'run')} with the seed of another; make {twice} with new seeds",
                      again(each.entry.first))  # fmt: skip
    elif twice:
        yield Finding(each.words, f"{counted(twice, 'run')} with the seed of another", note=True)


def convergence(each: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """Epochs against the reference convergence points, in the closed division."""
    entry, batch = each.entry, each.entry.first.record.global_batch_size
    closed = entry.first.record.division == "closed" and has_points(entry.benchmark, ruleset)
    if not closed or batch is None or len(entry.runs) < 3:
        return
    epochs = [run.record.epochs if run.converged else None for run in entry.runs]
    test = check_convergence(entry.benchmark, ruleset, batch, epochs)
    if test.mean_epochs is None or not math.isfinite(test.mean_epochs):
        return
    if test.passed:
        yield Finding(each.words, f"convergence: {test.words}", note=True)
        return
    missing = test.least_epochs is None
    remedy = (
        f"submit a reference convergence point of batch {batch}, or train at a batch that has one"
        if missing
        else "use a published recipe for this batch (docs/schedules.md), or the open division"
    )
    yield Finding(each.words, f"convergence: {test.words}", remedy)


def machines(each: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """All runs must be of one system, and their times must be those of that system."""
    for words in unlike(each.entry.runs):
        yield Finding(each.words, f"not one system; {words}", "give runs of one system alone")
    pretended = [run for run in each.entry.runs if run.summary.simulated_ranks or run.summary.simulated_nodes]
    if pretended:
        yield Finding(each.words, f"ranks or nodes were simulated in {counted(len(pretended), 'run')}: "
                      "times are not theirs", "run on as many nodes as they stand for")  # fmt: skip
    resumed = [run.name for run in each.entry.runs if run.summary.resumed]
    if resumed:
        yield Finding(each.words, f"resumed, and the time counts the gaps: {', '.join(resumed)}", note=True)


def power(each: NamedEntry, ruleset: str) -> Iterator[Finding]:
    """Power logs need readings throughout a run; totals of energy are not enough."""
    found = {run.name: power_of(run.folder.path) for run in each.entry.runs}
    without = [name for name, nodes in found.items() if not nodes]
    if len(without) == len(found):
        if any(run.summary.energy_j is not None for run in each.entry.runs):
            words = "energy was read, but only as totals; power logs need a reading each second"
            yield Finding(each.words, words, "for the next runs: --measure.power true", note=True)
        return
    if without:
        yield Finding(each.words, f"{counted(len(without), 'run')} without power logs, so that none are in the "
                      "package", "add those of all runs", note=True)  # fmt: skip
    yield from faults_of_power(each, {name: nodes for name, nodes in found.items() if nodes})


def faults_of_power(each: NamedEntry, found: dict[str, list[NodePower]]) -> Iterator[Finding]:
    """What the rules require of power logs, run by run, but no official tool checks."""
    nodes = {run.name: run.summary.nodes for run in each.entry.runs}
    if unequal := [name for name, logs in found.items() if len(logs) != nodes[name]]:
        name = unequal[0]
        yield Finding(each.words, f"power: {counted(len(found[name]), 'log')} of {counted(nodes[name], 'node')} in "
                      f"{name}", "the rules ask for one of each node", note=True)  # fmt: skip
    if cut := [name for name, logs in found.items() if not all(log.ended for log in logs)]:
        yield Finding(each.words, f"power: a log without its end: {', '.join(cut)}", note=True)
    least = min(log.readings for logs in found.values() for log in logs)
    if least < LEAST_READINGS:
        yield Finding(each.words, f"power: only {counted(least, 'reading')} in a log; the rules ask for at least "
                      f"{LEAST_READINGS}, one or more a second", note=True)  # fmt: skip
    parts = sorted({f"{log.covers} ({log.source})" for logs in found.values() for log in logs
                    if log.source and log.covers != NODE})  # fmt: skip
    if parts:
        yield Finding(each.words, f"power: of {'; '.join(parts)}; the rules ask for whole nodes at their power supply",
                      note=True)  # fmt: skip


def logs(each: NamedEntry, folder: Path, ruleset: str) -> Iterator[Finding]:
    """What the checks of single logs say; a message that several logs get is reported once."""
    told: dict[tuple[str, bool], list[str]] = {}
    division = each.entry.first.record.division
    for number, run in enumerate(each.entry.runs):
        result = check_log(folder / each.place / f"result_{number}.txt", division, ruleset)
        for message in result.official_messages:
            if not message.startswith(TARGET):
                told.setdefault((message, False), []).append(run.name)
        for message in result.beyond_messages:
            told.setdefault((f"beyond the official checker: {message}", True), []).append(run.name)
    for (message, beyond), names in told.items():
        one_may = not beyond and len(names) == 1 and len(each.entry.runs) > 1
        where = names[0] if len(names) == 1 else f"{len(names)} runs"
        yield Finding(each.words, f"{where}: {message}", note=beyond or one_may)


def again(run: SubmittedRun) -> str:
    """The command that makes another run like this one, with a seed of its own."""
    summary, folder = run.summary, shlex.quote(str(run.folder.path / "config.yaml"))
    seed = f"--config {folder} --train.seed null"
    if run.job.get("site"):
        words = ["hpcbench submit", summary.application, "--site", shlex.quote(str(run.job["site"]))]
        words += ["--nodes", str(run.job.get("nodes", summary.nodes))]
        if run.job.get("time_s"):
            words += ["--time", f"{math.ceil(run.job['time_s'] / 60)}m"]
        if not (run.config.get("staging") or {}).get("destination"):
            words.append("--no-stage")
        return f"{' '.join(words)} {seed}"
    launcher = f"mpiexec -n {summary.world_size} " if summary.world_size > 1 else ""
    return f"{launcher}hpcbench train {summary.application} {seed}"
