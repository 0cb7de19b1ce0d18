"""What runs on a machine tell: their step, staging and energy, and which cannot be used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch.machine import Machine
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.prediction.platforms import Platform, platform_of
from hpcbench.prediction.read_runs import measured, own_epochs_of
from hpcbench.prediction.workload import work_of
from hpcbench.results.attempts import TO_CHECKPOINT
from staging.errors import InputError
from tests.hpcbench.conftest import BuildRun

LOGS = Path(__file__).parents[2] / "data" / "logs"
PUBLISHED = {"flops_training_per_sample": 192_100_000_000, "global_batch_size": 512, "world_size": 64, "nodes": 8,
             "accumulation": 4, "warm_samples_per_s": 25_600.0}  # fmt: skip


@pytest.fixture
def selene(machines: dict[str, Machine]) -> Platform:
    return platform_of(machines["selene"], list(machines.values()))


def own_record(path: Path) -> RunRecord:
    """The record of a run folder of one's own."""
    return RunRecord(path=str(path), origin="own", application="cosmoflow", nodes=8, accelerators=64,
                     global_batch_size=512, staging_s=30.0)  # fmt: skip


def test_a_run_of_one_s_own_tells_its_warm_step(build_run: BuildRun, selene: Platform, tmp_path: Path) -> None:
    record = own_record(build_run(tmp_path / "run", **PUBLISHED))
    found = measured(record, work_of("cosmoflow"), selene, newer=True)
    assert found.step_s == pytest.approx(512 / 25_600)
    assert (float(found.case.local_batch), found.accumulation, float(found.case.devices)) == (2, 4, 8)
    assert found.data_staging_s == 30
    assert found.watts is None


@pytest.mark.parametrize(
    ("resumed", "note", "watts"),
    [(0, "node of 8 nodes", 2500.0), (1, "node of 8 nodes", None), (0, f"node of 8 nodes, {TO_CHECKPOINT}", None)],
)
def test_the_power_of_a_node_is_that_of_the_time_in_which_its_meter_ran(
    resumed: int, note: str, watts: float | None, build_run: BuildRun, selene: Platform, tmp_path: Path
) -> None:
    nodes, clock_s, init_s = 8, 60.0, 25.0
    joules = nodes * 2500.0 * clock_s  # the meter runs from run_start to run_stop
    changes = {"energy_j": joules, "time_to_solution_s": clock_s, "wall_s": init_s + clock_s, "resumed": resumed}
    record = own_record(build_run(tmp_path / "run", **PUBLISHED, **changes, energy_note=note))
    assert measured(record, work_of("cosmoflow"), selene, newer=True).watts == watts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"simulated_nodes": 4}, "simulated its ranks or nodes"),
        ({"spatial": "2x2"}, r"ranks that share samples \(parallel.spatial 2x2\)"),
        ({"flops_training_per_sample": 10**9}, "has samples of 1 GFLOP where those that are predicted have 192.1"),
        ({"flops_training_per_sample": 0}, "samples of unknown GFLOP"),
        ({"device_type": "cpu", "device": "AMD EPYC"}, "on AMD EPYC, which tells nothing of the NVIDIA A100"),
    ],
)
def test_runs_that_tell_nothing_of_the_machine_are_refused(
    changes: dict[str, object], message: str, build_run: BuildRun, selene: Platform, tmp_path: Path
) -> None:
    record = own_record(build_run(tmp_path / "run", **{**PUBLISHED, **changes}))
    with pytest.raises(InputError, match=message):
        measured(record, work_of("cosmoflow"), selene, newer=True)


def test_a_log_without_epochs_is_refused(selene: Platform) -> None:
    record = replace(RunRecord(path="x", origin="log", application="cosmoflow"), nodes=1, accelerators=1)
    with pytest.raises(InputError, match=r"--calibrate x does not tell its batch"):
        measured(record, work_of("cosmoflow"), selene, newer=True)


def test_a_folder_without_runs_of_the_application_is_no_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "result_0.txt").write_bytes((LOGS / "v1.0-nvidia-deepcam.txt").read_bytes())
    with pytest.raises(InputError, match="has no run of cosmoflow that reached its target"):
        own_epochs_of(tmp_path, work_of("cosmoflow"))
