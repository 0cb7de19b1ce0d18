"""How long a study takes, from a short run that any study can make."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from hpcbench.config.schema import TrainConfig
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.study.definition import Placement, Study
from hpcbench.study.estimate import Speed, calibrate, run_side_by_side
from hpcbench.study.local_runs import LocalProcess
from hpcbench.study.plan import PlannedRun, Point, study_run
from hpcbench.study.preset_values import study_config
from hpcbench.study.run_slots import Slot
from hpcbench.train.ranks import on_simulated_nodes
from hpcbench.train.setup import ranks_of
from staging.errors import InputError
from staging.ranks.launch import Launch
from tests.hpcbench.study.conftest import FakeLauncher


def test_a_single_run_is_counted_as_one() -> None:
    assert Speed(1.0, 2.0, 3.0, "").words(1, 1).startswith("about 5.00 s for 1 run, 1 at once: ")
    assert " for 2 runs, 1 at once: " in Speed(1.0, 2.0, 3.0, "").words(2, 1)


def test_a_short_run_measures_no_noise_and_counts_all_evaluations(study: Study, tmp_path: Path) -> None:
    first = study_run(study, PlannedRun(Point(32, "sgd"), 1.0, 1))
    assert first.settings["parallel.simulated_ranks"] == "8"
    seconds = {}
    for evaluations in (1, 8):
        launcher = FakeLauncher(lambda settings: 2.0)
        folder = tmp_path / str(evaluations)
        folder.mkdir()
        train = TrainConfig(max_epochs=9, evaluations_per_epoch=evaluations, noise_scale_every=16)
        speed = calibrate(first, launcher, folder, (1000, 100), [Slot()] * 2, train)
        assert len(launcher.started) == 2
        for settings in launcher.started:
            given = {
                key: settings[f"train.{key}"] for key in ("noise_scale_every", "evaluations_per_epoch", "max_epochs")
            }
            assert given == {"noise_scale_every": "0", "evaluations_per_epoch": "1", "max_epochs": "2"}
            assert settings["parallel.simulated_ranks"] == "1"
        assert speed.epochs == 9
        seconds[evaluations] = speed.epoch_s
    rows = (tmp_path / "1" / "run0" / "epochs.csv").read_text().splitlines()
    evaluation = float(dict(zip(rows[0].split(","), rows[-1].split(","), strict=True))["eval_s"])
    assert seconds[8] - seconds[1] == pytest.approx(7 * evaluation * 100 / 64)


@pytest.mark.parametrize(
    ("settings", "placement", "nodes"),
    [
        ({"train.batchnorm_group_size": "2"}, "replicate", 1),
        ({}, "shard", 2),
        ({}, "shard+reshuffle", 2),
        ({}, "shard+contiguous", 2),
        ({"parallel.simulated_nodes": "2", "train.batchnorm_group_size": "8"}, "replicate", 1),
    ],
)
def test_a_short_run_can_start_whatever_the_ranks_of_the_study_share(
    study: Study, tmp_path: Path, settings: dict[str, str], placement: Placement, nodes: int
) -> None:
    shared = replace(study, settings=study.settings | settings, placements=(placement,), nodes=nodes)
    first = study_run(shared, PlannedRun(Point(32, "sgd", placement), 1.0, 1))
    launcher = FakeLauncher(lambda settings: 2.0)
    calibrate(first, launcher, tmp_path, (1000, 100), [Slot()], TrainConfig(max_epochs=9))
    (started,) = launcher.started
    config = study_config(shared, {key: value for key, value in started.items() if "." in key})
    launch, parallel = Launch(), config.parallel
    assert ranks_of(config, launch, mesh_shape(1, parallel.spatial)).total == 1
    if parallel.simulated_nodes is not None:
        on_simulated_nodes(launch, parallel.simulated_nodes, parallel.simulated_ranks)


CHILD = """
import pathlib, signal, subprocess, sys
child = subprocess.Popen(["sleep", "60"], process_group=0)
signal.signal(signal.SIGTERM, lambda *_: (child.terminate(), sys.exit(143)))
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
child.wait()
"""


class NoSecond:
    """Starts a process with a child in a group of its own, as ranks are, and fails at the second."""

    def __init__(self, pid: Path) -> None:
        self.pid = pid

    def start(self, arguments: Sequence[str], log: Path, slot: Slot) -> LocalProcess:
        if self.pid.exists():
            raise InputError("no room for a second process")
        process = subprocess.Popen([sys.executable, "-c", CHILD, self.pid], process_group=0)
        while not (self.pid.exists() and self.pid.read_text()):
            time.sleep(0.02)
        return LocalProcess(process)


def test_an_interrupted_short_run_leaves_no_process(study: Study, tmp_path: Path) -> None:
    first = study_run(study, PlannedRun(Point(32, "sgd"), 1.0, 1))
    with pytest.raises(InputError, match="no room"):
        run_side_by_side(first, NoSecond(tmp_path / "pid"), [tmp_path / "a", tmp_path / "b"], [Slot()] * 2)
    child = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
