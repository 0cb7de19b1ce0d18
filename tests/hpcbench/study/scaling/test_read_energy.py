"""Energy of the runs of a scaling study: of all nodes, once, or unset with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch.packed_runs import PackedRuns, packed_runs
from hpcbench.results.run_folder import RunFolder
from hpcbench.study.folder import StudyFolder
from hpcbench.study.scaling.read_results import read_repeat
from hpcbench.study.scaling.run_matrix import all_runs
from tests.hpcbench.study.scaling.test_read_results import STUDY, one, rows_of, write_planned, write_run


def test_energy_is_of_all_nodes_or_unset(tmp_path: Path) -> None:
    both = {"hosts": ("nid1", "nid2"), "ranks_per_node": 2}
    found = one(tmp_path / "all", joules=100.0, **both)
    assert (found.joules, found.energy_words) == (2000.0, "NVML: devices")
    assert found.joules_per_sample == pytest.approx(200 / (20 * 16))
    none = one(tmp_path / "none", **both)
    assert (none.joules, none.joules_per_sample, none.energy_words) == (None, None, "not measured: no counter")
    run = RunFolder(tmp_path / "all")
    table = run.ranks.read_text(encoding="utf-8").splitlines(keepends=True)
    run.ranks.write_text("".join([*table[:3], table[3].replace(",100.0,", ",,"), table[4]]), encoding="utf-8")
    part = read_repeat([run.path], timed=False)
    assert (part.joules, part.joules_per_sample) == (2000.0, None), "a reading of the second node is missing"


def test_of_simulated_nodes_one_rank_reads_the_machine(tmp_path: Path) -> None:
    found = one(tmp_path / "run", hosts=("", ""), joules=100.0, simulated=2, energy_j=500.0)
    assert found.joules_per_sample == pytest.approx(200 / (20 * 8))


def test_energy_of_instances_is_unset_where_one_lacks_it(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        write_run(path, hosts=(path.name,), joules=100.0)
    assert read_repeat(paths, timed=False).joules == 2000.0
    write_run(paths[1], hosts=("b",))
    found = read_repeat(paths, timed=False)
    assert (found.joules, found.joules_per_sample, found.energy_words) == (None, None, "not measured: no counter")


def test_energy_of_instances_on_one_node_is_not_counted_twice(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        write_run(path, hosts=("nid1",), joules=100.0)
    found = read_repeat(paths, timed=False)
    assert (found.joules, found.joules_per_sample) == (None, None)
    assert found.energy_words == "not added up: instances had nodes in common, and each read these whole"


def test_energy_by_the_scheduler_s_accounting_is_of_whole_jobs(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        write_run(path, hosts=(path.name,))
        RunFolder(path).write_json("job-energy.json", {"joules": 700.0})
    found = read_repeat(paths, timed=False)
    assert (found.joules, found.joules_per_sample) == (1400.0, None)
    assert found.energy_words.startswith("Slurm's accounting (sacct)")
    (paths[1] / "job-energy.json").unlink()
    assert read_repeat(paths, timed=False).joules is None


def test_instances_of_a_job_share_the_energy_of_it(tmp_path: Path) -> None:
    """An equal part each, so that all of them together have what the job took; pruned ones have had their part, too."""
    study = replace(STUDY, mode="throughput", instance_nodes=1, nodes=(2,), global_batch_size=None, repeats=1)
    folder = StudyFolder(tmp_path)
    job = folder.jobs / "0001"
    job.mkdir(parents=True)
    packed = PackedRuns({run.name: ("cosmoflow",) for run in all_runs(study)}, 2, launchers=(("srun",), ("srun",)))
    record = {"job_id": "17", "mark": "m", "scheduler": "slurm", "site": "s", "submitted": "2026-01-01T00:00:00+00:00"}
    (job / "job.json").write_text(json.dumps({**record, "packed_runs": packed.as_dict()}))
    assert packed_runs(job) == packed, "as it was written"
    (job / "job-energy.json").write_text(json.dumps({"joules": 700.0}))
    for run in all_runs(study):
        write_planned(study, run, folder.run(run.name))
    (row,) = rows_of(study, folder)
    assert row.runs[0].joules == 700.0
    assert row.runs[0].energy_words.endswith("an equal part of its job for each of 2 instances")


def test_why_accounting_has_no_energy_is_said_beside_why_counters_have_none(tmp_path: Path) -> None:
    write_run(tmp_path)
    RunFolder(tmp_path).write_json("job-energy.json", {"joules": None, "words": "step 7.1 is RUNNING by sacct"})
    found = read_repeat([tmp_path], timed=False)
    assert (found.joules, found.energy_words) == (None, "not measured: no counter; step 7.1 is RUNNING by sacct")
