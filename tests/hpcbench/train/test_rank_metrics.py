"""What a run measures of itself: warm steps and energy, rank by rank; and settings whose effect these figures show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.measure.energy import Absent, Energy, find_energy_counters
from hpcbench.measure.memory import peak_memory_bytes
from hpcbench.results.run_folder import RunFolder
from hpcbench.train import finalize, loop, rank_metrics, run
from hpcbench.train.loop import Trainer
from hpcbench.train.rank_metrics import NodesEnergy, added_up
from staging.errors import InputError
from tests.hpcbench.train.conftest import arguments

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
COSMOFLOW = find_application("cosmoflow")
PHASES = ["input_wait_s", "compute_s", "communication_s", "optimizer_s"]
TWO = ("--train.local_batch_size", "2", "--train.max_epochs", "2", "--measure.warmup_steps", "3")
"""24 steps, 21 of them warm."""


def energy(joules: float, source: str = "RAPL", covers: str = "processors") -> Energy:
    return Energy(joules, {}, source, covers)


def test_energies_of_hosts_add_up() -> None:
    assert added_up({"a": energy(2.5)}) == NodesEnergy(2.5, "RAPL", "processors of 1 node")
    assert added_up({"a": energy(2.5), "b": energy(4.0)}) == NodesEnergy(6.5, "RAPL", "processors of 2 nodes")


def test_hosts_with_unlike_counters_are_told_apart() -> None:
    gpus = energy(1.0, "NVML", "4 GPUs"), energy(2.0, "NVML", "4 GPUs"), energy(4.0, "NVML", "3 of 4 GPUs")
    found = added_up(dict(zip("abcd", (*gpus, energy(8.0, "pm_counters", "node")), strict=True)))
    assert found == NodesEnergy(15.0, "NVML, pm_counters", "4 GPUs of 2 nodes; 3 of 4 GPUs of 1 node; node of 1 node")


def test_one_host_without_energy_leaves_all_without() -> None:
    found = added_up({"a": energy(2.5), "b": Absent("the counter fell"), "c": energy(4.0)})
    assert found == NodesEnergy(None, "", "not measured: b: the counter fell")
    assert added_up({"a": Absent("no counter"), "b": Absent("none")}).note == "not measured: no counter"


class Counter:
    """Cray's files of a node's energy, in a tree of their own."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "sys/cray/pm_counters"
        self.folder.mkdir(parents=True)
        (self.folder / "startup").write_text("7 1 us\n")
        self.joules = 1000
        self.add(0)

    def add(self, joules: int) -> None:
        self.joules += joules
        (self.folder / "energy").write_text(f"{self.joules} J 1 us\n")


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """A counter that goes on by 7 J in each step, by 100 J in each evaluation, and much before and after."""
    made = Counter(tmp_path / "fake")

    def drawing(joules: int, module: Any, name: str) -> None:
        real = getattr(module, name)

        def work(*words: Any) -> Any:
            made.add(joules)
            return real(*words)

        monkeypatch.setattr(module, name, work)

    drawing(7, Trainer, "finish_step")
    drawing(100, loop, "evaluate")
    drawing(5000, rank_metrics.EnergyMeter, "start")
    drawing(9000, finalize, "finalize_complete")
    monkeypatch.setattr(rank_metrics, "find_energy_counters", lambda: find_energy_counters(tmp_path / "fake"))
    return made


def test_joules_of_the_clock_and_of_the_warm_steps(train: Train, counter: Counter, tmp_path: Path) -> None:
    assert train(tmp_path / "run", *TWO, "--train.evaluations_per_epoch", "2") == 0
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert counter.joules == 1000 + 5000 + 24 * 7 + 4 * 100 + 9000
    assert summary.energy_j == 24 * 7 + 4 * 100
    assert (summary.energy_source, summary.energy_note) == ("pm_counters", "node of 1 node")
    (rank,) = RunFolder.open(tmp_path / "run").read_ranks().to_dict("records")
    assert (rank["steps"], rank["energy_j"]) == (21, 21 * 7)


@pytest.mark.slow
@pytest.mark.parametrize("timed", [True, False])
def test_joules_of_a_staging_count_where_it_is_on_the_clock(
    timed: bool, train: Train, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run.stage_dataset

    def staging(*parts: Any) -> None:
        counter.add(300)
        real(*parts)

    monkeypatch.setattr(run, "stage_dataset", staging)
    place = ("--staging.destination", str(tmp_path / "node"), "--staging.timed", str(timed).lower())
    assert train(tmp_path / "run", *TWO, *place, "--train.max_epochs", "1") == 0
    assert RunFolder.open(tmp_path / "run").read_summary().energy_j == 12 * 7 + 100 + (300 if timed else 0)


@pytest.mark.slow
def test_a_resumed_run_has_the_joules_of_all_its_attempts(train: Train, counter: Counter, tmp_path: Path) -> None:
    never = ("--train.target", "1e-9")
    assert train(tmp_path / "run", *TWO, *never, "--train.max_epochs", "1") == 3
    assert train(tmp_path / "run", "--resume", "--train.max_epochs", "2") == 3
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert (summary.energy_j, summary.energy_note) == (2 * (12 * 7 + 100), "node of 1 node, over 2 attempts")


def test_a_counter_that_restarts_leaves_no_joules(
    train: Train, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer.finish_step

    def restarting(trainer: Trainer, samples: int) -> None:
        step(trainer, samples)
        if trainer.state.step == 12:
            (counter.folder / "startup").write_text("8 1 us\n")

    monkeypatch.setattr(Trainer, "finish_step", restarting)
    assert train(tmp_path / "run", *TWO) == 0
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert (summary.energy_j, summary.energy_source) == (None, "")
    assert summary.energy_note == "not measured: node: the blade controller was restarted"
    assert RunFolder.open(tmp_path / "run").read_ranks()["energy_j"].isna().all()


def test_a_run_leaves_what_its_rank_measured(train: Train, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train(folder, *TWO) == 0
    summary = RunFolder.open(folder).read_summary()
    (rank,) = RunFolder.open(folder).read_ranks().to_dict("records")
    assert (rank["rank"], rank["local_rank"], rank["threads"], rank["steps"], rank["samples"]) == (0, 0, 1, 21, 42)
    phases = [rank[name] for name in PHASES]
    assert min(phases) >= 0
    assert 0 < rank["compute_s"] < sum(phases) <= rank["wall_s"]
    train_s = RunFolder.open(folder).read_epochs()["train_s"].sum()
    assert rank["wall_s"] < train_s < summary.time_to_solution_s
    # One thread computes, and nobody reads beside it.
    assert 0 < rank["cpu_s"] < 3 * rank["wall_s"] + 1
    assert summary.warm_samples_per_s == 42 / rank["wall_s"]
    assert (summary.slow_nodes, pd.isna(rank["gemm_flops"]), pd.isna(rank["all_reduce_s"])) == ([], True, True)


def test_a_run_of_cold_steps_has_no_figures(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "run", *TWO, "--measure.warmup_steps", "24") == 0
    assert RunFolder.open(tmp_path / "run").read_summary().warm_samples_per_s is None
    (rank,) = RunFolder.open(tmp_path / "run").read_ranks().to_dict("records")
    assert (rank["steps"], rank["samples"]) == (0, 0)
    assert all(pd.isna(rank[name]) for name in (*PHASES, "wall_s", "cpu_s", "energy_j"))


def test_a_table_of_ranks_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder, rows = (
        RunFolder.create(tmp_path),
        [{"rank": 0, "node": "a,b", "x": 0.1}, {"rank": 1, "node": "c", "x": None}],
    )
    folder.write_ranks(rows)
    assert folder.ranks.read_text() == 'rank,node,x\n0,"a,b",0.1\n1,c,\n'
    folder.write_ranks(rows)  # a resumed run has measured anew
    read = folder.read_ranks()
    assert read["node"].tolist() == ["a,b", "c"]
    assert read["x"].tolist() == pytest.approx([0.1, float("nan")], nan_ok=True)


@pytest.mark.slow
def test_a_probe_changes_neither_the_losses_nor_the_peak_of_memory(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = 512 << 20
    probe = rank_metrics.probe

    def greedy(*words: Any) -> Any:
        held = torch.ones(extra // 4)
        assert peak_memory_bytes(held.device) > extra
        return probe(*words)

    monkeypatch.setattr(rank_metrics, "probe", greedy)
    for name, more in (("without", ()), ("with", ("--measure.probe",))):
        assert train(tmp_path / name, *TWO, "--model.dropout", "0.5", "--data.augment", "true", *more) == 0
    texts = [RunFolder.open(tmp_path / name).steps.read_text() for name in ("without", "with")]
    assert texts[0] == texts[1]
    peaks = [RunFolder.open(tmp_path / name).read_summary().peak_memory_bytes for name in ("without", "with")]
    assert peaks[1] < peaks[0] + extra // 2
    assert RunFolder.open(tmp_path / "with").read_ranks()["gemm_flops"].item() > 1e6


PROGRAM = """
import os, runpy, sys
from pathlib import Path
from hpcbench.measure.energy import find_energy_counters
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.train import rank_metrics
place, finish = Path(sys.argv.pop(1)), GradientReducer.finish

def found():
    (place / f"read-by-{os.environ['RANK']}").touch()
    return find_energy_counters(place)

def count(reducer):
    before = reducer.collectives
    finish(reducer)
    with (place / f"steps-of-{os.environ['RANK']}").open("a") as file:
        print(len(reducer._buckets), launched.get(id(reducer), 0), before, reducer.collectives, file=file)
    launched[id(reducer)] = reducer.collectives

launched = {}
rank_metrics.find_energy_counters, GradientReducer.finish = found, count
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
"""Notes which rank looks for counters; and of each step buckets, and collectives before it, at its end and after."""


@pytest.fixture(scope="module")
def two_ranks(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks as nodes of their own, with and without overlap."""
    base = tmp_path_factory.mktemp("ranks")
    Counter(base / "counters")
    common = ("--parallel.simulated_nodes", "2", "--measure.probe", "--train.max_epochs", "1", "--model.dropout", "0.5")
    common = (*common, "--parallel.bucket_bytes", "20000", "--train.local_batch_size", "2")
    words = [
        arguments(cosmos, base / overlap, *common, "--parallel.overlap", overlap, "--measure.warmup_steps", "1")
        for overlap in ("true", "false")
    ]
    trainings = Path(__file__).with_name("programs") / "trainings.py"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(base / "counters"), str(trainings), "2", json.dumps(words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return base


def test_one_rank_of_a_machine_reads_its_counters(two_ranks: Path) -> None:
    assert [path.name for path in (two_ranks / "counters").glob("read-by-*")] == ["read-by-0"]
    summary = RunFolder.open(two_ranks / "true").read_summary()
    assert (summary.nodes, summary.energy_j, summary.energy_note) == (2, 0.0, "node of 1 node")
    ranks = RunFolder.open(two_ranks / "true").read_ranks()
    assert ranks["node"].tolist() == ["simulated node 0", "simulated node 1"]
    assert ranks["energy_j"].tolist() == pytest.approx([0.0, float("nan")], nan_ok=True)


def test_figures_of_two_ranks(two_ranks: Path) -> None:
    """Six steps of four samples, five of them warm."""
    ranks = RunFolder.open(two_ranks / "true").read_ranks()
    assert (ranks["rank"].tolist(), ranks["steps"].tolist(), ranks["samples"].tolist()) == ([0, 1], [5, 5], [20, 20])
    assert (ranks[PHASES].sum(axis=1) <= ranks["wall_s"]).all()
    assert (ranks[["cpu_s", "communication_s", "gemm_flops", "all_reduce_s"]] > 0).all(axis=None)
    summary = RunFolder.open(two_ranks / "true").read_summary()
    assert summary.warm_samples_per_s == pytest.approx(20 / ranks["wall_s"].max(), rel=1e-12)
    assert summary.slow_nodes == []


def test_without_overlap_the_losses_are_the_same_and_nothing_is_sent_in_the_backward_pass(two_ranks: Path) -> None:
    tables = [RunFolder.open(two_ranks / overlap).steps.read_text() for overlap in ("true", "false")]
    assert tables[0] == tables[1]
    for rank in (0, 1):
        noted = np.loadtxt(two_ranks / "counters" / f"steps-of-{rank}", dtype=int)
        assert len(noted) == 12
        buckets, begun, before, after = noted.T
        assert (buckets > 1).all()
        assert (after - begun == buckets).all()
        assert (before[6:] == begun[6:]).all()
        assert (before[:6] == after[:6]).all(), "with overlap all gradients are under way when the pass ends"


def test_sharded_states_cannot_do_without_overlap() -> None:
    with pytest.raises(InputError, match=r"parallel\.overlap false does not go with parallel\.shard_states") as found:
        resolve(COSMOFLOW, "smoke", [], {"parallel.overlap": "false", "parallel.shard_states": "true"})
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("key", "value", "bound"), [("data.prefetch", "0", 1), ("measure.warmup_steps", "-1", 0)])
def test_settings_below_their_bounds(key: str, value: str, bound: int) -> None:
    with pytest.raises(InputError, match=rf"{key} \({value}\) must be at least {bound}"):
        resolve(COSMOFLOW, "smoke", [], {key: value})
