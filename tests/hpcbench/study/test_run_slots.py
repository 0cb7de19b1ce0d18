"""The slots of runs on a node: disjoint cores and accelerators, and what does not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.main import main
from hpcbench.study import convergence, execute, run_slots
from hpcbench.study.local_runs import own_environment
from hpcbench.study.run_slots import Devices, Slot, equal_slots, local_slots, named_devices, physical_cores
from staging.errors import InputError

pytestmark = pytest.mark.usefixtures("forked_processes")

FOUR = Devices("CUDA_VISIBLE_DEVICES", ("0", "1", "2", "3"))


@pytest.fixture
def twelve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve cores of one hardware thread each."""
    monkeypatch.setattr(run_slots, "physical_cores", lambda: [(core,) for core in range(12)])
    monkeypatch.setattr(run_slots, "cpu_quota", lambda: None)


@given(runs=st.integers(1, 9), processes=st.integers(1, 3), cores=st.integers(1, 40), threads=st.integers(1, 2))
def test_no_two_runs_share_a_core_or_an_accelerator(runs: int, processes: int, cores: int, threads: int) -> None:
    blocks = [tuple(core + cores * thread for thread in range(threads)) for core in range(cores)]
    devices = Devices("CUDA_VISIBLE_DEVICES", tuple(map(str, range(runs * processes))))
    found = equal_slots(runs, processes, blocks, devices, processes)
    assert len(found) == runs
    taken = [core for slot in found for core in slot.cores]
    assert len(set(taken)) == len(taken)
    sizes = {len(slot.cores) for slot in found}
    assert sizes == {cores // runs * threads}
    visible = [name for slot in found for name in slot.environment["CUDA_VISIBLE_DEVICES"].split(",")]
    assert sorted(visible, key=int) == list(devices.ids)
    assert all(slot.threads >= 1 for slot in found)


@pytest.mark.parametrize(
    ("runs", "processes", "count", "threads"),
    [(None, 1, 6, 2), (5, 1, 5, 2), (20, 1, 20, 1), (None, 4, 3, 1), (2, 2, 2, 3)],
)
@pytest.mark.usefixtures("twelve")
def test_cores_are_shared_among_runs(runs: int | None, processes: int, count: int, threads: int) -> None:
    found = local_slots(runs, processes, Devices())
    assert (len(found), {slot.threads for slot in found}) == (count, {threads})
    assert all(not slot.environment for slot in found)
    assert [slot.threads for slot in local_slots(None, 1, Devices(), most=1)] == [12], "a study of one run"
    assert len(local_slots(None, 1, Devices(), threads=1)) == 12
    assert len(local_slots(None, 2, Devices(), threads=3)) == 2
    assert len(local_slots(None, 1, Devices(), threads=16)) == 1


@pytest.mark.usefixtures("twelve")
def test_a_control_group_may_give_less_time_than_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_slots, "cpu_quota", lambda: 1.5)
    (slot,) = local_slots(None, 1, Devices())
    assert slot.threads == 1


@pytest.mark.usefixtures("twelve")
def test_each_process_has_an_accelerator_and_more_runs_are_refused() -> None:
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in local_slots(None, 1, FOUR)] == list("0123")
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in local_slots(None, 2, FOUR)] == ["0,1", "2,3"]
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in local_slots(3, 1, FOUR)] == ["0", "1", "2"]
    with pytest.raises(InputError, match=r"--jobs \(5\) is more than the 4 runs that the 4 accelerators of this mach"):
        local_slots(5, 1, FOUR)
    with pytest.raises(InputError, match="a run of 8 processes needs an accelerator for each, and this machine has 4"):
        local_slots(None, 8, FOUR)


@pytest.mark.parametrize(
    ("kind", "environ", "variable", "ids"),
    [
        ("cuda", {}, "CUDA_VISIBLE_DEVICES", ("0", "1")),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "3,GPU-8f2a"}, "CUDA_VISIBLE_DEVICES", ("3", "GPU-8f2a")),
        ("rocm", {}, "ROCR_VISIBLE_DEVICES", ("0", "1")),
        ("rocm", {"ROCR_VISIBLE_DEVICES": "4,5"}, "ROCR_VISIBLE_DEVICES", ("4", "5")),
        ("rocm", {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1,0"}, "HIP_VISIBLE_DEVICES", ("1", "0")),
        ("xpu", {"ZE_AFFINITY_MASK": "0.0,0.1"}, "ZE_AFFINITY_MASK", ("0.0", "0.1")),
    ],
)
def test_accelerators_have_the_names_of_the_environment(
    kind: str, environ: dict[str, str], variable: str, ids: tuple[str, ...]
) -> None:
    assert named_devices(kind, 2, environ) == Devices(variable, ids)


def test_hardware_threads_of_a_core_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_slots, "cores_allowed", lambda: [0, 1, 2, 4, 5])
    for number, siblings in {0: "0,4", 1: "1,5", 2: "2,6", 4: "0,4", 5: "1,5"}.items():
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_cores(tmp_path) == [(0, 4), (1, 5), (2,)]


def test_a_child_is_bound_from_its_first_instruction_on_and_its_parent_stays_free() -> None:
    before = os.sched_getaffinity(0)
    slot = Slot(1, (min(before),), {"CUDA_VISIBLE_DEVICES": "7"})
    program = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['CUDA_VISIBLE_DEVICES'])"
    with slot.held():
        child = subprocess.Popen(
            [sys.executable, "-c", program], env=own_environment(os.environ, slot), stdout=subprocess.PIPE, text=True
        )
    assert os.sched_getaffinity(0) == before
    assert child.communicate(timeout=60)[0].strip() == f"[{min(before)}] 7"


@pytest.mark.slow
def test_each_run_of_a_study_sees_an_accelerator_of_its_own(
    small_cosmos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is told that it has two; the runs, which find none, train on its processors."""
    monkeypatch.setattr(convergence, "find_devices", lambda: Devices("CUDA_VISIBLE_DEVICES", ("4", "5")))
    folder = tmp_path / "study"
    words = ["study", "convergence", "cosmoflow", "--batch-sizes", "4,8", "--optimizers", "sgd", "--seeds", "1"]
    words += ["--data.root", str(small_cosmos), "--train.max_epochs", "1", "--no-estimate", "--study-dir", str(folder)]
    assert main([*words, "--jobs", "3"]) == 2
    assert not folder.exists()
    assert main(words) == 0
    seen = [json.loads(path.read_text()) for path in folder.glob("runs/*/environment.json")]
    assert sorted(each["launcher"]["CUDA_VISIBLE_DEVICES"] for each in seen) == ["4", "5"]
    first, second = (set(each["cores_allowed"]) for each in seen)
    assert first.isdisjoint(second) or len(physical_cores()) < 2


def test_a_job_that_sees_fewer_accelerators_than_it_asked_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = execute.PackedRuns({"b4-sgd-x1-seed1": ("cosmoflow",)}, side_by_side=2, gpus=1)
    monkeypatch.setattr(execute, "find_devices", lambda: Devices("CUDA_VISIBLE_DEVICES", ("0",)))
    with pytest.raises(InputError, match=r"the job sees 1 accelerator instead of 2 \(2 runs x 1\)"):
        execute.slots_of(packed)
