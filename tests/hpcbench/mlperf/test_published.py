"""The published figures that come with the suite: those of the rounds, and what our reader finds in the logs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hpcbench.batch.machine import known_machines, published_machine
from hpcbench.mlperf.find_logs import location_of
from hpcbench.mlperf.published import (
    PublishedRun,
    published_applications,
    published_entries,
    published_runs,
)
from hpcbench.mlperf.read_log import read_log
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.mlperf.runs_table import runs_frame

LOGS = Path(__file__).parents[2] / "data" / "logs"
PATHS = {
    "v1.0-nvidia-cosmoflow.txt": "v1.0/NVIDIA/results/dgxa100_n128_ngc21.09_mxnet/strong/cosmoflow/result_1.txt",
    "v1.0-nvidia-deepcam.txt": "v1.0/NVIDIA/results/dgxa100_n256_ngc21.09_pytorch/strong/deepcam/result_1.txt",
    "v0.7-fujitsu-deepcam.txt": "v0.7/Fujitsu/results/abci_1024xV100_pytorch_closed/deepcam/result_1.txt",
}
TIMES = ("start_unix_s", "time_to_train_s", "init_s", "staging_s", "staging_before_s")


@pytest.fixture(scope="module")
def runs() -> list[RunRecord]:
    return published_runs()


def test_runs_and_entries_of_the_rounds(runs: list[RunRecord]) -> None:
    """Counts of the public repositories: v2.0 without the results of v1.0 that Fujitsu and RIKEN gave again."""
    assert Counter(run.round for run in runs) == {"v0.7": 135, "v1.0": 1200, "v2.0": 471}
    assert Counter(entry.round for entry in published_entries()) == {"v0.7": 15, "v1.0": 31, "v2.0": 22}
    assert published_applications() == ["cosmoflow", "deepcam", "oc20"]
    assert len({run.path for run in runs}) == len(runs)
    fugaku = [run for run in runs if run.system == "fugaku_82944xA64FX_tensorflow_closed"]
    assert Counter(run.pruned for run in fugaku) == {False: 637, True: 11}


@pytest.mark.parametrize(
    ("round_", "system", "application", "minutes"),
    [
        ("v1.0", "fugaku_512xA64FX_tensorflow_closed", "cosmoflow", 114.35),
        ("v1.0", "perlmutter_512x4_ngc21.09_pytorch", "deepcam", 2.51),
        ("v1.0", "dgxa100_n256_ngc21.09_pytorch", "deepcam", 1.67),
        ("v2.0", "dgxa100_n64_pytorch", "oc20", 21.93),
        ("v0.7", "daint_gpu_n256_tf2.2.0", "cosmoflow", 327.01),
    ],
)
def test_scores_of_the_official_results(round_: str, system: str, application: str, minutes: float) -> None:
    """Minutes as MLCommons lists them; Piz Daint's of v0.7 has a run that failed."""
    wanted = (round_, system, application)
    (entry,) = [each for each in published_entries() if (each.round, each.system, each.application) == wanted]
    assert round((entry.time_to_train_s or 0) / 60, 2) == minutes


def test_throughput_of_fugaku_in_models_per_minute() -> None:
    """1.29 a minute, as published for v1.0."""
    (entry,) = [e for e in published_entries() if e.round == "v1.0" and e.runs == 637]
    assert entry.models_per_min == pytest.approx(1.29, abs=0.005)
    assert entry.time_to_train_s is None


def test_an_entry_is_the_olympic_mean_of_its_runs(runs: list[RunRecord]) -> None:
    """Recomputed: without the fastest and the slowest, a run that failed being the slowest."""
    checked = 0
    for entry in published_entries():
        own = [run for run in runs if (run.round, run.organization, run.system, run.application, run.mode) == entry.key]
        times = sorted(
            float("inf") if run.status == "success" and not run.converged else run.time_to_train_s or float("inf")
            for run in own
            if not run.pruned
        )
        if entry.time_to_train_s is not None and times:
            checked += 1
            assert entry.runs == len(times)
            assert entry.time_to_train_s == pytest.approx(sum(times[1:-1]) / (len(times) - 2), rel=1e-6), entry.key
    assert checked == 42


@pytest.mark.parametrize("name", PATHS)
def test_the_reader_finds_the_same_in_the_log(name: str, runs: list[RunRecord]) -> None:
    (run,) = [each for each in runs if each.path == PATHS[name]]
    assert isinstance(run, PublishedRun)
    read = read_log(location_of(LOGS / name))
    for field in (
        "application",
        "division",
        "seed",
        "global_batch_size",
        "train_samples",
        "epochs",
        "status",
    ):
        assert getattr(run, field) == getattr(read, field), field
    assert run.quality == pytest.approx(read.quality)
    for field in TIMES:
        assert getattr(run, field) == pytest.approx(getattr(read, field), abs=0.003), field
    assert run.evaluation_s == pytest.approx(sum(read.evaluations_s), abs=0.01)
    if run.round == "v0.7":  # evaluates within epochs, so that seconds of training by epoch are left out
        assert (run.training_s, run.rest_s, run.samples_per_s) == (None, None, None)
    else:
        assert run.training_s == pytest.approx(sum(read.epochs_s), abs=0.01)
        assert run.rest_s == pytest.approx(read.rest_s, abs=0.01)
        assert run.samples_per_s == pytest.approx(read.samples_per_s, rel=2e-4)


def test_phases_of_each_run_close(runs: list[RunRecord]) -> None:
    """Staging, training, evaluation and the rest are the time to train, to the milliseconds of the logs."""
    closed = 0
    for run in runs:
        assert isinstance(run, PublishedRun)
        if run.training_s is not None and run.time_to_train_s is not None:
            parts = (run.staging_s or 0) + run.training_s + (run.evaluation_s or 0) + (run.rest_s or 0)
            assert parts == pytest.approx(run.time_to_train_s, abs=0.01), run.path
            closed += 1
    assert closed == 1789


def test_the_table_of_runs_has_their_sums(runs: list[RunRecord]) -> None:
    """In the columns that it makes of the epochs of other runs."""
    frame = runs_frame(runs[:3])
    assert list(frame["first_epoch_s"]) == [477.889, 617.385, 459.148]
    assert list(frame["training_s"]) == [21939.262, 26807.562, 23720.084]
    assert list(frame["evaluation_median_s"]) == [26.222, 32.835, 30.266]


def test_every_entry_ran_on_a_machine_that_is_known_and_has_as_many_accelerators() -> None:
    machines = known_machines()
    for entry in published_entries():
        machine = published_machine(machines, entry.organization, entry.system)
        assert machine is not None, entry.key
        assert machine.devices is not None
        assert (entry.accelerators or 0) == (entry.nodes or 0) * machine.devices, entry.key


def test_what_is_not_known_is_none(runs: list[RunRecord]) -> None:
    lost = [run for run in runs if run.time_to_train_s is None]
    assert [(run.round, run.organization, run.reason) for run in lost] == [
        ("v0.7", "CSCS", "the log ends before run_stop"), ("v1.0", "Fujitsu+RIKEN", "the log ends before run_stop"),
    ]  # fmt: skip
    assert {run.seed for run in runs if (run.round, run.application) == ("v0.7", "cosmoflow")} == {None}
    assert [run.epochs for run in runs if run.system == "abci_2048xV100_tensorflow_open"] == [None] * 10


def test_reading_them_needs_no_pandas() -> None:
    code = (
        "import sys; from hpcbench.mlperf.published import published_runs; published_runs(); "
        "print([name for name in ('pandas', 'numpy', 'matplotlib', 'torch') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
