"""One's own runs in the table: what their pages say, also where they were resumed, missed their target or simulate."""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.analysis.run_seconds import seconds_of
from hpcbench.cli.main import main
from hpcbench.mlperf.find_logs import find_runs
from hpcbench.mlperf.own_runs import use_summary
from hpcbench.mlperf.read_runs import read_runs
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.loop import Trainer

FAST = ("--train.baselines", "false", "--parallel.threads", "1", "--train.local_batch_size", "4", "--seed", "5")


def trained(data: Path, folder: Path, *settings: str) -> int:
    words = ["train", "cosmoflow", "--preset", "smoke", "--data.root", str(data), "--run-dir", str(folder)]
    return main([*words, *([] if "--resume" in settings else FAST), *settings])


@pytest.fixture(scope="module")
def runs(small_cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunRecord]:
    """A run that meets its target; one that misses it, resumed; and one of simulated ranks without a target."""
    root = tmp_path_factory.mktemp("own")
    assert trained(small_cosmos, root / "met", "--train.target", "5", "--train.max_epochs", "2") == 0
    never = ("--train.target", "1e-9", "--train.max_epochs")
    assert trained(small_cosmos, root / "missed", *never, "1") == 3
    assert trained(small_cosmos, root / "missed", "--resume", "--train.max_epochs", "2") == 3
    simulated = ("--parallel.simulated_ranks", "2", "--train.local_batch_size", "2", "--train.max_epochs", "1")
    assert trained(small_cosmos, root / "simulated", *simulated, "--train.target", "null") == 0
    return {Path(record.path).name: record for record in read_runs(find_runs([root]))}


def test_a_run_that_met_its_target(runs: dict[str, RunRecord]) -> None:
    found, summary = runs["met"], RunFolder.open(runs["met"].path).read_summary()
    assert (found.origin, found.application, found.status, found.reason) == ("own", "cosmoflow", "success", None)
    assert found.epochs == summary.epochs_to_target == 1
    assert found.quality == pytest.approx(summary.metrics["mae"])
    assert found.seed == 5
    assert found.precision == summary.precision
    assert (found.nodes, found.global_batch_size, found.train_samples) == (1, 4, summary.train_samples)
    assert found.time_to_train_s == pytest.approx(summary.time_to_solution_s, abs=0.002)
    epochs = RunFolder.open(found.path).read_epochs()
    assert sum(found.epochs_s) == pytest.approx(epochs["train_s"].sum(), abs=0.05)
    assert not found.notes


@pytest.mark.slow
def test_an_epoch_with_two_evaluations_has_all_its_training(small_cosmos: Path, tmp_path: Path) -> None:
    """The first is within the epoch, by its number; the second comes after the line that ends the epoch."""
    settings = ("--train.evaluations_per_epoch", "2", "--train.max_epochs", "2", "--measure.warmup_steps", "1")
    assert trained(small_cosmos, tmp_path / "run", *settings, "--train.target", "1e-9") == 3
    (found,), folder = read_runs(find_runs([tmp_path])), RunFolder.open(tmp_path / "run")
    assert len(found.epochs_s) == 2
    assert sum(found.epochs_s) == pytest.approx(folder.read_epochs()["train_s"].sum(), abs=0.1)
    assert found.samples_per_s == folder.read_summary().warm_samples_per_s is not None


@pytest.mark.slow
@pytest.mark.parametrize("evaluations", [1, 2])
def test_a_run_that_was_resumed_within_an_epoch_has_the_training_of_all_attempts_and_no_time_in_the_queue(
    evaluations: int, small_cosmos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two evaluations it is interrupted between them, so that the log keeps the start of the epoch."""
    queue_s, steps, finish_step = 3.0, [0], Trainer.finish_step

    def interrupted(trainer: Trainer, samples: int) -> None:
        finish_step(trainer, samples)
        time.sleep(0.05)
        steps[0] += 1
        if steps[0] == trainer.data.steps_per_epoch * 2 - 1:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Trainer, "finish_step", interrupted)
    settings = ("--train.evaluations_per_epoch", str(evaluations), "--train.max_epochs", "3", "--train.target", "1e-9")
    assert trained(small_cosmos, tmp_path / "run", *settings) == 128 + signal.SIGTERM
    time.sleep(queue_s)
    assert trained(small_cosmos, tmp_path / "run", "--resume") == 3
    (found,), table = read_runs(find_runs([tmp_path])), RunFolder.open(tmp_path / "run").read_epochs()
    assert [len(found.epochs_s), len(found.evaluations_s)] == [3, 3 * evaluations]
    assert sum(found.epochs_s) == pytest.approx(table["train_s"].sum())
    assert sum(found.evaluations_s) == pytest.approx(table["eval_s"].sum())
    assert min(found.epochs_s) > 0.05 * steps[0] / 3 - 0.01, "each epoch has all its steps"
    parts = seconds_of(found)
    assert parts is not None
    assert parts.rest > queue_s
    assert parts.total == pytest.approx(found.time_to_train_s)
    assert found.rest_s == pytest.approx(parts.rest)


def test_a_run_that_was_resumed_and_missed_its_target(runs: dict[str, RunRecord]) -> None:
    found = runs["missed"]
    assert found.status == "aborted"
    assert found.epochs is None
    assert found.reason == RunFolder.open(found.path).read_summary().reason
    assert len(found.qualities) == len(found.epochs_s) == 2
    assert "resumed once; the time to train counts the gaps" in found.notes


def test_a_run_without_a_target_whose_ranks_are_simulated(runs: dict[str, RunRecord]) -> None:
    found = runs["simulated"]
    assert (found.epochs, found.reason) == (None, "the run had no target")
    assert "2 ranks were simulated by each: times are not theirs" in found.notes


def test_one_simulated_node_is_one_node(runs: dict[str, RunRecord]) -> None:
    summary = RunFolder.open(runs["simulated"].path).read_summary()
    summary.simulated_ranks, summary.simulated_nodes = 1, 1
    record = replace(runs["simulated"], notes=[])
    use_summary(record, summary)
    assert record.notes[:2] == [
        "1 rank was simulated by each: times are not theirs", "its 1 node was simulated on one machine",
    ]  # fmt: skip


@pytest.mark.parametrize("spoil", ["no column", "words", "a cut row"])
def test_a_damaged_table_of_a_resumed_run_spoils_no_other_run(
    runs: dict[str, RunRecord], tmp_path: Path, spoil: str
) -> None:
    folder = tmp_path / "missed"
    shutil.copytree(runs["missed"].path, folder)
    lines = (folder / "epochs.csv").read_text().splitlines()
    if spoil == "no column":
        lines = [line.partition(",")[2] for line in lines]
    elif spoil == "words":
        lines.append(lines[-1].replace(lines[-1].split(",")[0], "\0\0", 1))
    else:
        lines.append("3,")
    (folder / "epochs.csv").write_text("\n".join(lines))
    met, missed = sorted(
        read_runs(find_runs([folder, Path(runs["met"].path)])), key=lambda record: "missed" in record.path
    )
    assert met.epochs == runs["met"].epochs
    if spoil == "a cut row":
        assert missed.epochs_s == runs["missed"].epochs_s
    else:
        assert "epochs.csv: is not a table of epochs" in str(missed.reason)


def test_a_run_that_has_not_ended(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """It has what its log has."""
    source = Path(runs["met"].path)
    folder = tmp_path / "running"
    folder.mkdir()
    (folder / "config.yaml").write_text((source / "config.yaml").read_text())
    log = (source / "mllog.txt").read_text().splitlines()
    (folder / "mllog.txt").write_text("\n".join(line for line in log if "run_stop" not in line))
    (found,) = read_runs(find_runs([folder]))
    assert (found.status, found.reason, found.epochs) == (None, "the log ends before run_stop", None)
    assert found.global_batch_size == 4
    (folder / "mllog.txt").write_text("\n".join(log))
    (found,) = read_runs(find_runs([folder]))
    assert (found.converged, found.notes) == (True, ["there is no summary.json yet; all columns are from the log"])
