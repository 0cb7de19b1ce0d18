"""Compute of each entry: rate per accelerator against local batch and scale, efficiency, model FLOP/s over peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.machine_names import MachineOf, device_of
from hpcbench.analysis.published_sets import set_of
from hpcbench.analysis.sheets import column, text
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED

TERA = 1e12


@dataclass(frozen=True)
class ComputeRow:
    """Compute of an entry."""

    application: str = column("application", "of the entry", text)
    entry: str = column("entry", "round, submitter and system", text)
    mode: str = column("mode", "time to train or throughput", text, page=False)
    machine: str | None = column("machine", "whose file has the facts; empty: unknown", text)
    accelerator: str | None = column(
        "accelerator", "of the machine's file, else of the system description", text, page=False
    )
    accelerators: int | None = column("acc.", "accelerators of an instance", units.integer)
    local_batch: float | None = column("local batch", "global batch over accelerators, samples")
    samples_per_s: float | None = column("samples/s", "training samples over seconds of training", page=False)
    rate: float = column("samples/s/acc.", "the same over accelerators")
    scale_base: str | None = column(
        "against", "the smallest entry of the same round, submitter and accelerator", text, page=False
    )
    efficiency: float | None = column(
        "efficiency",
        "rate per accelerator over that of the smallest entry of the same round, submitter and accelerator",
        units.percent,
    )
    tflop_s: float | None = column("TFLOP/s/acc.", "rate x operations of a training sample, 10^12/s")
    peak_tflop_s: float | None = column("peak", "of the accelerator in 16 bits, dense, 10^12/s")
    of_peak: float | None = column("of peak", "model FLOP/s over that peak", units.percent)
    verified: str = column("verified", "of own ones: not verified", text, page=False)


def compute_rows(entries: Sequence[EntryRuns], machines: MachineOf) -> list[ComputeRow]:
    """A row for each entry whose rate per accelerator is known."""
    known = [entry for entry in entries if entry.samples_per_s_per_accelerator is not None]
    bases = scale_bases(known)
    return [compute_row(entry, bases[family(entry)], machines) for entry in known]


def family(entry: EntryRuns) -> tuple[object, ...]:
    """What entries that differ in scale have in common: application, round, submitter and accelerator."""
    run = entry.first
    return run.application, run.round, (run.organization or "").casefold(), run.accelerator or run.system


def scale_bases(entries: Sequence[EntryRuns]) -> Mapping[tuple[object, ...], EntryRuns]:
    """The entry with the fewest accelerators in each family; the fastest of several."""
    bases: dict[tuple[object, ...], EntryRuns] = {}
    for entry in entries:
        other = bases.get(family(entry))
        if other is None or size_key(entry) < size_key(other):
            bases[family(entry)] = entry
    return bases


def size_key(entry: EntryRuns) -> tuple[int, float]:
    """Sort key: the fewest accelerators first, then the fastest."""
    return entry.first.accelerators or 0, -(entry.samples_per_s_per_accelerator or 0.0)


def compute_row(entry: EntryRuns, base: EntryRuns, machines: MachineOf) -> ComputeRow:
    """The compute of an entry whose rate is known."""
    run, rate = entry.first, entry.samples_per_s_per_accelerator or 0.0
    machine = machines(entry)
    flops = training_flops(run)
    tflop_s = rate * flops / TERA if flops else None
    peak = None if machine is None else machine.peak_16bit_tflop_s
    alone = base is entry
    return ComputeRow(
        run.application or "-", entry.name, entry.key[1], None if machine is None else machine.title,
        device_of(entry, machine), run.accelerators,
        run.global_batch_size / run.accelerators if run.global_batch_size and run.accelerators else None,
        entry.samples_per_s, rate, None if alone else base.name,
        None if alone else rate / (base.samples_per_s_per_accelerator or rate), tflop_s, peak,
        tflop_s / peak if tflop_s is not None and peak else None, NOT_VERIFIED if entry.is_own else "",
    )  # fmt: skip


def training_flops(run: RunRecord) -> float | None:
    """Operations of a training sample: for your own run as counted there, else for the published network."""
    if run.origin == "own":
        from hpcbench.results.run_folder import RunFolder

        folder = RunFolder(Path(run.path))
        if folder.summary.exists():
            return float(folder.read_summary().flops_training_per_sample) or None
    published_set = set_of(run)
    return None if published_set is None else float(published_set.training_flops)
