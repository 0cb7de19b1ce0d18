"""Energy of the runs of a repeat: as the runs read it themselves, otherwise from the accounting of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.batch.job_energy import FILE, JobEnergy, job_energies, read_kept
from hpcbench.batch.job_record import RECORD, JobHandle, read_job
from hpcbench.batch.packed_runs import packed_runs
from hpcbench.study.scaling.run_figures import Figures


def energy(paths: Sequence[Path], runs: Sequence[Figures], known: Mapping[Path, JobEnergy]) -> tuple[float | None, str]:
    """Joules of all instances, and what they cover: as the runs read them, otherwise as accounted for their jobs."""
    if share_nodes(runs):
        return None, "not added up: instances had nodes in common, and each read these whole"
    joules_read = [summary.energy_j for summary, _, _ in runs if summary.energy_j is not None]
    if len(joules_read) == len(runs):
        return sum(joules_read), f"{runs[0][0].energy_source}: {runs[0][0].energy_note}"
    note = next(summary.energy_note for summary, _, _ in runs if summary.energy_j is None)
    known = dict(known) | accounted_energies([path for path in paths if path not in known])
    accounted = [known[path] for path in paths if path in known]
    joules = [job_energy.joules for job_energy in accounted if job_energy.joules is not None]
    if len(joules) == len(paths):
        return sum(joules), "; ".join(dict.fromkeys(job_energy.words for job_energy in accounted))
    why = next((job_energy.words for job_energy in accounted if job_energy.joules is None), "")
    return None, f"{note.rstrip('.')}; {why}" if why else note


def accounted_energies(paths: Sequence[Path], packing: Mapping[str, JobHandle] | None = None) -> dict[Path, JobEnergy]:
    """Energy of the jobs of runs, from the scheduler's accounting or what is kept of it; runs without a job have none.

    An instance has an equal part of the energy of its job; ``packing`` has the jobs of such runs by name.
    """
    kept_energies = {path: read_kept(path / FILE) for path in paths if (path / FILE).exists()}
    jobs = {path: read_job(path) for path in paths if path not in kept_energies and (path / RECORD).exists()}
    packed = {path: packing[path.name] for path in paths
              if packing and path.name in packing and path not in kept_energies and path not in jobs}  # fmt: skip
    handles = {job.folder: job for job in (*jobs.values(), *packed.values())}
    energies = dict(zip(handles, job_energies(list(handles.values())), strict=True))
    shares = {path: energy_of_instance(energies[job.folder], job) for path, job in packed.items()}
    return kept_energies | {path: energies[job.folder] for path, job in jobs.items()} | shares


def energy_of_instance(whole: JobEnergy, job: JobHandle) -> JobEnergy:
    """An instance's part of the energy of a job that made several instances."""
    packed = packed_runs(job.folder)
    count = 1 if packed is None else len(packed.words)
    if whole.joules is None or count == 1:
        return whole
    return JobEnergy(whole.joules / count, f"{whole.words}; an equal part of its job for each of {count} instances")


def share_nodes(runs: Sequence[Figures]) -> bool:
    """Whether several of the runs had ranks on the same node."""
    nodes = [node for _, ranks, _ in runs for node in ranks["node"].unique()]
    return len(nodes) > len(set(nodes))


def joules_per_sample(runs: Sequence[Figures]) -> float | None:
    """Energy of the warm steps over their samples; ``None`` unless every node was read."""
    joules, samples = 0.0, 0
    for summary, ranks, _ in runs:
        known = ranks["energy_j"].dropna()
        readers = 1 if summary.simulated_nodes is not None else ranks["node"].nunique()
        if summary.energy_j is None or len(known) < readers or share_nodes(runs):
            return None
        joules, samples = joules + float(known.sum()), samples + int(ranks["samples"].iloc[0])
    return joules / samples
