"""Power logs of runs: of the clock of one attempt, one for each machine, and why there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcbench.measure.energy import Absent, find_energy_counters
from hpcbench.measure.phases import Phases
from hpcbench.measure.power_log import PowerLog
from hpcbench.measure.step_times import StepTimes
from hpcbench.parallel.group import Group
from hpcbench.results.run_folder import RunFolder
from hpcbench.submission.power_logs import power_of
from hpcbench.train import rank_metrics
from hpcbench.train.loop import Trainer
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import Launch
from tests.hpcbench.measure.test_power_log import official_joules
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.test_rank_metrics import TWO, Counter, Train, counter

pytestmark = pytest.mark.usefixtures("forked_processes")

__all__ = ["counter"]


@pytest.mark.slow
def test_power_logs_hold_the_joules_of_the_clock_and_end_with_an_attempt(
    train: Train, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_metrics, "PowerLog", partial(PowerLog, interval_s=0.02))
    words = (*TWO, "--measure.power", "true", "--train.target", "1e-9", "--train.max_epochs", "1")
    assert train(tmp_path / "run", *words) == 3
    (log,) = power_of(tmp_path / "run")
    assert (log.ended, log.covers, log.source) == (True, "node", "pm_counters")
    assert log.readings >= 3
    joules = official_joules(tmp_path / "run" / "power" / "node_0.txt")
    assert joules == pytest.approx(RunFolder.open(tmp_path / "run").read_summary().energy_j, rel=0.05)
    capsys.readouterr()
    assert train(tmp_path / "run", "--resume", "--train.max_epochs", "2") == 3
    assert "no power log: a resumed run has none of the time before\n" in capsys.readouterr().out
    assert not power_of(tmp_path / "run")
    assert (tmp_path / "run" / "power-part1" / "node_0.txt").exists()


def test_a_power_log_whose_counter_is_lost_has_no_end_and_says_why(
    train: Train, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_metrics, "PowerLog", partial(PowerLog, interval_s=0.02))
    real = Trainer.finish_step

    def lose(trainer: Trainer, *parts: Any) -> Any:
        (counter.folder / "startup").write_text("8 1 us\n")
        return real(trainer, *parts)

    monkeypatch.setattr(Trainer, "finish_step", lose)
    assert train(tmp_path / "run", *TWO, "--measure.power", "true", "--train.max_epochs", "1") == 0
    said = "the power log has no end: node: the blade controller was restarted\n"
    assert capsys.readouterr().out.count(said) == 1
    assert [log.ended for log in power_of(tmp_path / "run")] == [False]


def test_a_command_that_asks_for_power_without_counters_says_so_and_trains(
    cosmos: Path, mpiexec: str, tmp_path: Path
) -> None:
    """Two ranks, of a machine whose counters are those that this one has: one log of the machine, or one reason."""
    words = [mpiexec, "-n", "2", sys.executable, "-m", "hpcbench"]
    words += arguments(cosmos, tmp_path / "run", *TWO, "--measure.power", "true", "--train.max_epochs", "1")
    done = subprocess.run(
        words, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reasons = [line for line in done.stdout.splitlines() if line.startswith("no power log: no energy counter: ")]
    logs = power_of(tmp_path / "run")
    assert (len(reasons), len(logs)) == ((1, 0) if isinstance(find_energy_counters(), Absent) else (0, 1))


class TwoMachines(Group):
    """Four ranks, two of each machine, of which this is one."""

    def __init__(self, rank: int) -> None:
        super().__init__(Launch(rank=rank, world_size=4), torch.device("cpu"), None)
        self.hosts = ["b", "b", "a", "a"]

    def all_gather_object(self, value: Any) -> list[Any]:
        return self.hosts


def test_each_machine_has_one_power_log_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Counter(tmp_path / "fake")
    monkeypatch.setattr(rank_metrics, "find_energy_counters", lambda: find_energy_counters(tmp_path / "fake"))
    for rank, host in enumerate("bbaa"):
        times = StepTimes(Phases(PhaseTimer(), torch.device("cpu")), 1)
        monkeypatch.setattr(rank_metrics.socket, "gethostname", lambda host=host: host)
        metrics = rank_metrics.RankMetrics(TwoMachines(rank), times, 1, simulated=False)
        metrics.meter.start()
        assert metrics.log_power(tmp_path / f"power-of-{rank}") == ""
        assert metrics.stop() == ""
    found = [[path.name for path in (tmp_path / f"power-of-{rank}").glob("*")] for rank in range(4)]
    assert found == [["node_0.txt"], [], ["node_1.txt"], []]
