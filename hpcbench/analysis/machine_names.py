"""Which machine an entry ran on, and short labels of entries for plots."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from hpcbench.analysis.entry_runs import THROUGHPUT, EntryRuns
from hpcbench.batch.machine import Machine, published_machine
from hpcbench.results import units

MachineOf = Callable[[EntryRuns], Machine | None]
Labels = Mapping[tuple[str, str], str]
"""By ``EntryRuns.identity``."""
LONGEST_SYSTEM = 16
NONE = (None, "", "N/A", "None", "-")
"""What system descriptions give as the accelerator of nodes that have none."""
KIND = re.compile(r"GH200|A64FX|[AHVPBL]\d{2,3}(?!\d)|MI\d{2,3}\w?|RTX|Phi|Max", re.IGNORECASE)


def machine_of(machines: Sequence[Machine], own_machine: Machine | None = None) -> MachineOf:
    """Return a function that finds the machine of an entry.

    That of a published entry is found by organization and system; your own runs are on ``own_machine``.
    """
    machines_by_name: dict[tuple[str | None, str | None], Machine | None] = {}

    def look_up(entry: EntryRuns) -> Machine | None:
        if entry.is_own:
            return own_machine
        names = entry.first.organization, entry.first.system
        if names not in machines_by_name:
            machines_by_name[names] = published_machine(machines, *names)
        return machines_by_name[names]

    return look_up


def accelerator_kind(accelerator: str | None) -> str:
    """The kind of an accelerator, whose names differ between rounds: ``A100`` for ``NVIDIA A100-SXM4-40GB (400W)``."""
    if accelerator in NONE:
        return "unknown"
    match = KIND.search(accelerator or "")
    if match is None:
        return (accelerator or "")[:16]
    return {"phi": "Xeon Phi", "rtx": "Quadro RTX", "max": "Data Center GPU Max"}.get(
        match[0].casefold(), match[0].upper()
    )


def short_title(machine: Machine) -> str:
    """The name of a machine without node type and site: ``Perlmutter`` for ``Perlmutter, GPU nodes (NERSC)``."""
    return short_name(machine.title)


def short_names(titles: Sequence[str]) -> list[str]:
    """Short names for titles, with the node type where names would otherwise be equal."""
    names = [short_name(title) for title in titles]
    return [title.split(" (")[0] if names.count(name) > 1 else name for title, name in zip(titles, names, strict=True)]


def short_name(title: str) -> str:
    """The name in a title, without node type and site."""
    return title.split(" (", maxsplit=1)[0].split(",", maxsplit=1)[0]


def device_of(entry: EntryRuns, machine: Machine | None) -> str | None:
    """What trains: the accelerator of the machine's file or of the system description, else the processor."""
    told = None if machine is None else machine.accelerator or machine.processor
    return told or (None if entry.first.accelerator in NONE else entry.first.accelerator)


def plain(name: str) -> str:
    """A name from a log as a plot can show it: dollar signs would start mathematics."""
    return name.replace("$", "")


def label_of(entry: EntryRuns, machines: MachineOf) -> str:
    """A short label: machine, accelerators and round, or ``own`` or ``log`` instead; ``open`` for an open entry."""
    run, machine = entry.first, machines(entry)
    system = (run.system or "system").split("_")[0][:LONGEST_SYSTEM]
    who = (
        short_title(machine)
        if machine is not None
        else (system if entry.is_own else f"{run.organization or ''} {system}".strip())
    )
    kind = accelerator_kind(device_of(entry, machine))
    count = "" if run.accelerators is None else f", {units.integer(run.accelerators)}"
    size = f"{count} {kind}" if count and kind != "unknown" else count
    division = " open" if run.division == "open" and not entry.is_own else ""
    return f"{plain(who)}{size}, {run.origin if entry.is_own else run.round or 'no round'}{division}"


def unique_labels(entries: Sequence[EntryRuns], machines: MachineOf) -> Labels:
    """Labels of entries; those that are equal within an application get their mode, their batch, then their name."""
    labels = {entry.identity: label_of(entry, machines) for entry in entries}
    for more in (mode_words, batch_words, name_words):
        counts = Counter((application, label) for (application, _), label in labels.items())
        labels |= {
            entry.identity: f"{labels[entry.identity]}{more(entry)}" for entry in entries
            if counts[entry.key[0], labels[entry.identity]] > 1
        }  # fmt: skip
    return labels


def mode_words(entry: EntryRuns) -> str:
    """The mode where it is throughput, for a label."""
    return f", {THROUGHPUT}" if entry.throughput else ""


def batch_words(entry: EntryRuns) -> str:
    """The batch, for a label."""
    batch = entry.first.global_batch_size
    return "" if batch is None else f", batch {units.integer(batch)}"


def name_words(entry: EntryRuns) -> str:
    """What distinguishes an entry from all others, for a label."""
    return plain(f" ({entry.name if entry.is_own else entry.first.system})")
