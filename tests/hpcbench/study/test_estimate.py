"""How long a study takes, from a short run that any study can make."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.config.schema import TrainConfig
from hpcbench.study.definition import Study
from hpcbench.study.estimate import Speed, calibrate
from hpcbench.study.plan import PlannedRun, Point, study_run
from hpcbench.study.run_slots import Slot
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
