"""Runs of a number of steps: exactly these, with the losses of a longer run, evaluated, logged and resumed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.mlperf.compliance import check_log
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.units import counted
from hpcbench.train.loop import Trainer
from staging.errors import InputError
from tests.hpcbench.train.conftest import arguments, train_in_ranks
from tests.params import slow_except

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
NEVER = ("--train.target", "1e-9")
"""A target that no run meets."""
FIXED = ("--train.precision", "64-true", "--model.dropout", "0.5", "--data.augment", "true")
TWO = ("--train.local_batch_size", "2")
"""Twelve steps an epoch."""
UNEVEN = (*TWO, "--train.accumulation", "5")
"""Three steps an epoch, the last of which has two micro-batches instead of five."""
FIFTHS = (*TWO, "--train.evaluations_per_epoch", "5")
"""Evaluations after steps 2, 5, 7, 10 and 12."""
TIMES = ["train_s", "eval_s", "elapsed_s", "samples_per_s"]


def losses(folder: Path) -> list[float]:
    return [float(loss) for loss in RunFolder.open(folder).read_steps()["loss"]]


def rows(folder: Path) -> pd.DataFrame:
    return RunFolder.open(folder).read_epochs().drop(columns=TIMES)


def numbers(folder: Path, key: str) -> list[float]:
    """Epochs of the lines of a key of the official log."""
    lines = [line.removeprefix(":::MLLOG ") for line in (folder / "mllog.txt").read_text().splitlines()]
    return [line["metadata"]["epoch_num"] for line in map(json.loads, lines) if line["key"] == key]


@pytest.fixture(scope="module")
def longer(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three whole epochs, of 36 steps of two samples."""
    folder = tmp_path_factory.mktemp("longer") / "run"
    assert main(arguments(cosmos, folder, *NEVER, *FIXED, *TWO, "--train.max_epochs", "3")) == 3
    return folder


CASES: dict[str, tuple[tuple[str, ...], int, list[float]]] = {
    "within the first epoch": (TWO, 5, [0.416667]),
    "at its end": (TWO, 12, [1]),
    "after its end": (TWO, 13, [1, 1.083333]),
    "at the end of the second": (TWO, 24, [1, 2]),
    "within the third": ((*TWO, "--train.max_epochs", "1"), 29, [1, 2, 2.416667]),
    "accumulated": (("--train.local_batch_size", "1", "--train.accumulation", "2"), 17, [1, 1.416667]),
    "at the end of a part": (FIFTHS, 17, [0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4]),
    "within a part": (FIFTHS, 6, [0.2, 0.4, 0.5]),
    "before the first part": (FIFTHS, 1, [0.083333]),
    "simulated ranks": (("--train.local_batch_size", "1", "--parallel.simulated_ranks", "2"), 17, [1, 1.416667]),
}
"""Settings, steps, and the epochs at which such a run is evaluated."""


@pytest.mark.slow
@pytest.mark.parametrize("case", slow_except(["at its end", "accumulated", "within a part", "simulated ranks"], CASES))
def test_so_many_steps_are_made_with_the_losses_of_a_longer_run(
    case: str, train: Train, longer: Path, tmp_path: Path
) -> None:
    settings, steps, epochs = CASES[case]
    folder = tmp_path / "run"
    assert train(folder, *NEVER, *FIXED, *settings, "--train.max_steps", str(steps)) == 3
    np.testing.assert_allclose(losses(folder), losses(longer)[:steps], rtol=1e-9)
    assert len(losses(folder)) == steps
    summary = RunFolder.open(folder).read_summary()
    assert (summary.steps, summary.samples, summary.epochs) == (steps, 2 * steps, epochs[-1])
    assert (summary.status, summary.cause) == ("target_not_reached", "steps")
    assert summary.reason.endswith(f"not reached in {counted(steps, 'step')}")
    table = rows(folder)
    assert table["epoch"].tolist() == epochs == numbers(folder, "eval_error")
    last = table.iloc[-1]
    assert (last["step"], last["samples"]) == (steps, 2 * steps)
    since = int(table["step"].iloc[-2]) if len(table) > 1 else 0
    assert last["train_loss"] == pytest.approx(np.mean(losses(folder)[since:]), rel=1e-12)
    assert last["mae"] == summary.metrics["mae"]
    whole = list(range(1, -(-steps // 12) + 1))
    assert numbers(folder, "epoch_start") == numbers(folder, "epoch_stop") == whole


@pytest.mark.slow
def test_epochs_whose_last_step_is_shorter(train: Train, tmp_path: Path) -> None:
    common = (*NEVER, *FIXED, *UNEVEN)
    assert train(tmp_path / "whole", *common, "--train.max_epochs", "3") == 3
    for steps in (3, 4, 8):
        folder = tmp_path / str(steps)
        assert train(folder, *common, "--train.max_steps", str(steps)) == 3
        assert losses(folder) == losses(tmp_path / "whole")[:steps]
        summary = RunFolder.open(folder).read_summary()
        assert (summary.steps, summary.samples) == (steps, steps // 3 * 24 + steps % 3 * 10)
        assert summary.epochs == round(steps / 3, 6)


@pytest.mark.slow
def test_without_a_target_such_a_run_succeeds_and_its_log_is_as_good_as_that_of_whole_epochs(
    train: Train, tmp_path: Path
) -> None:
    assert train(tmp_path / "epochs", *TWO, "--train.max_epochs", "1") == 0
    assert train(tmp_path / "steps", *TWO, "--train.max_steps", "5") == 0
    assert RunFolder.open(tmp_path / "steps").read_summary().status == "success"
    found, wanted = (check_log(tmp_path / name / "mllog.txt", "open") for name in ("steps", "epochs"))
    assert (found.official, found.messages) == (wanted.official, wanted.messages)
    assert found.beyond_messages == []


def test_a_target_that_is_met_at_the_last_step(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "run", *TWO, "--train.target", "10", "--train.max_steps", "5") == 0
    assert RunFolder.open(tmp_path / "run").read_summary().epochs_to_target == 0.416667
    result = check_log(tmp_path / "run" / "mllog.txt", "open")
    assert (result.official, result.messages) == ("own target", [])
    assert numbers(tmp_path / "run", "epoch_start") == numbers(tmp_path / "run", "epoch_stop") == [1]


def equal_to_uninterrupted(train: Train, folder: Path, common: tuple[str, ...], steps: int) -> None:
    """The run in ``folder`` has what one of so many steps has that nobody stopped."""
    whole = folder.with_name("uninterrupted")
    assert train(whole, *common, "--train.max_steps", str(steps)) == 3
    assert RunFolder.open(folder).steps.read_text() == RunFolder.open(whole).steps.read_text()
    both = rows(folder).merge(rows(whole), on="epoch", suffixes=("", "_expected"))
    assert both["epoch"].tolist() == rows(whole)["epoch"].tolist()
    assert both["mae"].tolist() == both["mae_expected"].tolist()
    for key in ("epoch_start", "epoch_stop"):
        assert numbers(folder, key) == numbers(whole, key)


STOPS = {
    "within an epoch": (TWO, 5, 14),
    "at its end": (TWO, 12, 20),
    "just before a part would end": (FIFTHS, 1, 12),
    "where a part ends early": (FIFTHS, 2, 12),
    "where a part ends late": (FIFTHS, 5, 12),
    "before a shorter step": (UNEVEN, 2, 5),
    "after a shorter step": (UNEVEN, 3, 5),
    "simulated ranks": ((*TWO, "--parallel.simulated_ranks", "2"), 4, 9),
}
"""Settings, steps of the first run, and of the one that resumes it."""


@pytest.mark.slow
@pytest.mark.parametrize("case", slow_except(["within an epoch"], STOPS))
def test_more_steps_may_be_asked_of_a_run_that_made_its_own(case: str, train: Train, tmp_path: Path) -> None:
    settings, first, steps = STOPS[case]
    common = (*NEVER, *FIXED, *settings)
    assert train(tmp_path / "run", *common, "--train.max_steps", str(first)) == 3
    assert train(tmp_path / "run", "--resume", "--train.max_steps", str(steps)) == 3
    equal_to_uninterrupted(train, tmp_path / "run", common, steps)


def interrupt_after(number: int, patch: pytest.MonkeyPatch) -> None:
    step = Trainer.finish_step

    def interrupted(trainer: Trainer, samples: int) -> None:
        step(trainer, samples)
        if trainer.state.step == number:
            signal.raise_signal(signal.SIGTERM)

    patch.setattr(Trainer, "finish_step", interrupted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "signal_after", "steps"),
    slow_except(
        [(TWO, 7, 5), (UNEVEN, 3, 5)],
        [(TWO, 5, 5), (TWO, 12, 12), (TWO, 7, 5), (UNEVEN, 3, 5), (UNEVEN, 6, 5), (FIFTHS, 5, 5), (FIFTHS, 2, 4)],
    ),
)
def test_a_run_that_a_signal_ended_makes_the_steps_that_are_left_and_is_evaluated(
    settings: tuple[str, ...], signal_after: int, steps: int, train: Train, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The signal may come after the last step, and before the evaluation that follows it."""
    common, folder = (*NEVER, *FIXED, *settings), tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt_after(signal_after, patch)
        asked = max(steps, signal_after)
        assert train(folder, *common, "--train.max_steps", str(asked)) == 128 + signal.SIGTERM
    assert train(folder, "--resume", "--train.max_steps", str(steps)) == 3
    equal_to_uninterrupted(train, folder, common, max(steps, signal_after))


@pytest.mark.slow
def test_steps_may_be_asked_of_a_run_that_had_epochs(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its evaluation after a third of an epoch is not made again, though that is now 0.333333 and no more 0.333."""
    thirds, folder = (*NEVER, *TWO, "--train.evaluations_per_epoch", "3"), tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt_after(6, patch)
        assert train(folder, *thirds) == 128 + signal.SIGTERM
    assert train(folder, "--resume", "--train.max_steps", "9") == 3
    assert rows(folder)["step"].tolist() == [4, 8, 9]
    assert rows(folder)["epoch"].tolist() == [0.333, 0.666667, 0.75]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [4, 6])
def test_a_run_that_is_resumed_for_no_more_steps_trains_no_more(
    steps: int, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert train(folder, *NEVER, *FIXED, *TWO, "--train.max_steps", "6") == 3
    before, table = losses(folder), rows(folder)
    capsys.readouterr()
    assert train(folder, "--resume", "--train.max_steps", str(steps)) == 2
    said = "has made its 6 steps and not reached its target; raise --train.max_steps to extend it\n"
    assert capsys.readouterr().err.endswith(said)
    assert train(folder, "--resume", "--resume-or-start", "--train.max_steps", str(steps)) == 3
    assert losses(folder) == before
    pd.testing.assert_frame_equal(rows(folder), table)
    assert numbers(folder, "epoch_start") == numbers(folder, "epoch_stop") == [1]
    assert RunFolder.open(folder).read_summary().metrics["mae"] == table["mae"].iloc[-1]


def test_data_that_still_arrive_are_waited_for_before_the_evaluation(train: Train, tmp_path: Path) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.overlap", "--staging.threads", "1")
    assert train(tmp_path / "run", *NEVER, *TWO, *staged, "--train.max_steps", "1") == 3
    assert json.loads((tmp_path / "run" / "staging.json").read_text())["files"] == 34
    log = (tmp_path / "run" / "mllog.txt").read_text()
    order = ("staging_start", "epoch_start", "staging_stop", "eval_start", "epoch_stop")
    assert sorted(order, key=log.index) == list(order)


@pytest.mark.slow
def test_two_ranks(cosmos: Path, longer: Path, tmp_path: Path) -> None:
    """They stop within an epoch, and go on, also one that had to stop at its end."""
    settings = (*NEVER, *FIXED, "--train.local_batch_size", "1")
    words: list[list[str]] = []
    for stop in (5, 12):
        folder = tmp_path / str(stop)
        words.append(arguments(cosmos, folder, *settings, "--train.max_steps", str(stop)))
        words.append(arguments(cosmos, folder, "--resume", "--train.max_steps", "17"))
    train_in_ranks(2, words)
    for stop in (5, 12):
        np.testing.assert_allclose(losses(tmp_path / str(stop)), losses(longer)[:17], rtol=1e-9)
        summary = RunFolder.open(tmp_path / str(stop)).read_summary()
        assert (summary.world_size, summary.resumed, summary.epochs) == (2, 1, 1.416667)


@pytest.mark.slow
def test_exit_codes_of_two_ranks(start: Callable[..., Any], tmp_path: Path) -> None:
    targets = {"null": 0, "1e-9": 3}
    common = ("--parallel.devices", "2", "--train.local_batch_size", "1", "--train.max_steps", "2")
    runs = {target: start(tmp_path / target, *common, "--train.target", target) for target in targets}
    said = {target: run.communicate()[0] for target, run in runs.items()}
    assert {target: run.returncode for target, run in runs.items()} == targets, said
    assert "not reached in 2 steps" in said["1e-9"]


def test_no_steps_are_refused() -> None:
    with pytest.raises(InputError, match=r"train\.max_steps \(0\) must be at least 1"):
        resolve(find_application("cosmoflow"), "smoke", [], {"train.max_steps": "0"})
