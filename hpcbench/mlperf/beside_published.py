"""Published results beside your own runs: which entries, in which columns, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcbench.batch.machine import Machine, known_machines, published_machine
from hpcbench.measure.log_rules import PUBLISHED_TARGETS
from hpcbench.mlperf.beside_plot import Mark, marks_plot
from hpcbench.mlperf.published import PublishedEntry, published_entries
from hpcbench.optim.recipes import RECIPES
from hpcbench.results import units
from hpcbench.results.beside import Beside, BesideRow
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import metric_label
from hpcbench.results.records import Run
from hpcbench.results.summary import Summary

SIZES = (128, 512, 2048)
"""Largest numbers of accelerators of the size classes; the last class has no bound."""
COMPARABLE = {
    "cosmoflow": "The rules and the set of CosmoFlow differ between v0.7, v1.0 and v2.0: compare within a round.",
    "deepcam": "DeepCAM's results of v0.7 and v1.0 may be compared, those of other rounds only within a round.",
    "oc20": "OpenCatalyst's rules differ between v1.0 and v2.0: compare within a round.",
}
"""What the rules say about comparing results of different rounds (compatibility table of MLPerf HPC)."""


def beside_published(runs: Mapping[str, Run], draw: bool = True) -> Beside | None:
    """Return the entries for the application of ``runs``, with a plot if ``draw``; ``None`` if no round has any."""
    first = next(iter(runs.values())).summary
    machines = known_machines()
    entries = chosen(published_entries(), machines, first.application)
    if not entries:
        return None
    own_rows = [own_row(name, run) for name, run in runs.items()]
    rows = [published_row(entry, machines) for entry in entries]
    notes = [f"{', '.join(runs)}: {NOT_VERIFIED}.", *differences(runs, entries), *general_notes(first.application)]
    metric = metric_label(first.metric)
    marks = [own_mark(name, run) for name, run in runs.items()]
    marks += [published_mark(entry, machines) for entry in entries]
    return Beside(metric, [*own_rows, *rows], notes, marks_plot(first.application, marks) if draw else None)


def machine_of(entry: PublishedEntry, machines: Sequence[Machine]) -> Machine | None:
    """The machine that an entry ran on."""
    return published_machine(machines, entry.organization, entry.system)


def size_class(accelerators: int | None) -> int:
    """Return the index of the size class of a number of accelerators."""
    return sum((accelerators or 0) > bound for bound in SIZES)


def class_words(place: int) -> str:
    """Name a size class: ``up to 128 accelerators``, and so on."""
    return f"up to {SIZES[place]:,} accelerators" if place < len(SIZES) else f"more than {SIZES[-1]:,} accelerators"


def chosen(entries: Sequence[PublishedEntry], machines: Sequence[Machine], application: str) -> list[PublishedEntry]:
    """Return each machine's fastest time to train in each size class, from its newest round, by size and time."""
    by_machine: dict[str, list[PublishedEntry]] = {}
    for entry in entries:
        if entry.application == application and entry.time_to_train_s is not None:
            machine = machine_of(entry, machines)
            by_machine.setdefault(
                machine.name if machine is not None else f"{entry.organization}/{entry.system}", []
            ).append(entry)
    fastest: list[PublishedEntry] = []
    for of_machine in by_machine.values():
        newest = max(entry.round for entry in of_machine)
        best: dict[int, PublishedEntry] = {}
        for entry in sorted(of_machine, key=seconds, reverse=True):
            if entry.round == newest:
                best[size_class(entry.accelerators)] = entry
        fastest += best.values()
    return sorted(fastest, key=lambda entry: (size_class(entry.accelerators), seconds(entry)))


def seconds(entry: PublishedEntry) -> float:
    """Return the time to train of an entry that has one."""
    assert entry.time_to_train_s is not None
    return entry.time_to_train_s


def own_accelerators(summary: Summary) -> int:
    """Count accelerators as published records do: a node without accelerators counts as one."""
    return summary.nodes if summary.device_type in ("cpu", "") else summary.world_size


def own_rate(summary: Summary) -> float | None:
    """Samples per second of an accelerator."""
    return None if summary.samples_per_s is None else summary.samples_per_s / own_accelerators(summary)


def own_row(name: str, run: Run) -> BesideRow:
    """Return the row of your own run. Its time and epochs are those to its own target, if it met one."""
    s = run.summary
    return BesideRow(
        is_own=True, name=name, detail=f"{s.preset}, {s.device}. {NOT_VERIFIED}", round=s.division, group="",
        size=units.integer(own_accelerators(s)), batch=units.integer(s.global_batch_size),
        epochs=units.epochs(s.epochs_to_target) if run.reached else units.MISSING,
        quality=units.score(run.quality), rate=units.significant(own_rate(s)),
        time=units.duration(s.time_to_solution_s) if run.reached else units.MISSING,
    )  # fmt: skip


def published_row(entry: PublishedEntry, machines: Sequence[Machine]) -> BesideRow:
    """Return the row of an entry; its epochs, quality and rate are medians over its runs."""
    return BesideRow(
        is_own=False, name=short_title(entry, machines), detail=f"{entry.organization}/{entry.system}",
        round=f"{entry.round} {entry.division}", group=class_words(size_class(entry.accelerators)),
        size=units.integer(entry.accelerators),
        batch=units.integer(entry.global_batch_size), epochs=units.epochs(entry.epochs),
        quality=units.score(entry.quality), rate=units.significant(entry.samples_per_s_per_accelerator),
        time=units.duration(entry.time_to_train_s),
    )  # fmt: skip


def own_mark(name: str, run: Run) -> Mark:
    """Return the mark of your own run in the plot."""
    return Mark(True, name, run.summary.time_to_solution_s if run.reached else None, own_rate(run.summary))


def published_mark(entry: PublishedEntry, machines: Sequence[Machine]) -> Mark:
    """Return the mark of an entry in the plot."""
    division = " open" if entry.division == "open" else ""
    name = f"{short_title(entry, machines)} {entry.round}{division}, {units.integer(entry.accelerators)}"
    return Mark(False, name, entry.time_to_train_s, entry.samples_per_s_per_accelerator)


def short_title(entry: PublishedEntry, machines: Sequence[Machine]) -> str:
    """The machine's name, with its kind of nodes if another has the same name; else the organization's name."""
    machine = machine_of(entry, machines)
    if machine is None:
        return entry.organization
    name = machine.title.partition(" (")[0]
    short = name.partition(",")[0]
    alike = [other for other in machines if other.title.startswith((f"{short},", f"{short} ("))]
    return name if len(alike) > 1 else short


def differences(runs: Mapping[str, Run], entries: Sequence[PublishedEntry]) -> list[str]:
    """List how your own runs differ from the entries; runs that differ in the same way are named together."""
    names_by_difference: dict[str, list[str]] = {}
    for name, run in runs.items():
        for words in differences_of(run, entries):
            names_by_difference.setdefault(words, []).append(name)
    return [f"{', '.join(names)}: {words}." for words, names in names_by_difference.items()]


def differences_of(run: Run, entries: Sequence[PublishedEntry]) -> list[str]:
    """List how one run differs from the entries."""
    s, remarks = run.summary, []
    recipes = {recipe.preset for recipe in RECIPES if recipe.application == s.application}
    if recipes and s.preset not in recipes:
        remarks.append(f"the preset {s.preset} is no published recipe, so that samples and network may be smaller")
    sets = sorted({entry.train_samples for entry in entries if entry.train_samples})
    if s.train_samples and s.train_samples not in sets:
        known = " or ".join(units.integer(size) for size in sets)
        remarks.append(f"an epoch has {units.integer(s.train_samples)} samples, that of the entries {known}")
    target = PUBLISHED_TARGETS.get(s.application)
    if s.target is None:
        remarks.append("there was no target, so that there is no time to train")
    elif target is not None and s.target != target:
        remarks.append(f"the target is {units.score(s.target)}, that of the entries {units.score(target)}")
    if s.target is not None and not run.reached:
        remarks.append("the target was not reached, so that there is no time to train")
    if s.simulated_ranks is not None or s.simulated_nodes is not None:
        remarks.append("ranks or nodes were simulated, so the times are not those of real ones")
    return remarks


def general_notes(application: str) -> list[str]:
    """Return the notes that apply to all published rows."""
    return [
        "Published: the fastest time to train of each machine in each size class (up to 128, 512, 2,048 "
        "accelerators, and more), from its newest round up to v2.0. A time is the mean over an entry's runs without "
        "the fastest and the slowest, without the rules' factor for few epochs; your own is that of a single run.",
        *([COMPARABLE[application]] if application in COMPARABLE else []),
        "A node without accelerators counts as one; samples/s are per accelerator. Figures are from the public "
        "logs (github.com/mlcommons/hpc_results_v0.7, v1.0, v2.0), under the Apache License 2.0.",
    ]
