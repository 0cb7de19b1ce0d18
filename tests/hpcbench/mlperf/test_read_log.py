"""Logs as records of their runs: published ones to the digits that others found, and ones that lie."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.mlperf.find_logs import location_of
from hpcbench.mlperf.read_log import read_log
from hpcbench.mlperf.read_runs import read_runs
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.mlperf.runs_table import runs_frame
from staging.errors import DataError

LOGS = Path(__file__).parents[2] / "data" / "logs"
COSMOFLOW = LOGS / "v1.0-nvidia-cosmoflow.txt"
DEEPCAM = LOGS / "v1.0-nvidia-deepcam.txt"
WITHIN_EPOCHS = LOGS / "v0.7-fujitsu-deepcam.txt"
SYSTEM = LOGS / "v1.0-nvidia-cosmoflow-system.json"

Line = dict[str, Any]


def in_round(root: Path, log: Path, system: str = "box", mode: str = "strong", name: str = "result_1.txt") -> Path:
    """A log at its place in the tree of a round."""
    application = "cosmoflow" if "cosmoflow" in log.name else "deepcam"
    folder = root / "v1.0" / "ORG" / "results" / system / mode / application
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(log, folder / name)
    description = root / "v1.0" / "ORG" / "systems" / f"{system}.json"
    description.parent.mkdir(exist_ok=True)
    shutil.copy(SYSTEM, description)
    return folder / name


def altered(log: Path, root: Path, change: Callable[[Line], Line | None]) -> Path:
    """A copy of a log with each line changed, or left out."""
    root.mkdir(exist_ok=True)
    lines = []
    for text in log.read_text().splitlines():
        head, mark, body = text.partition(":::MLLOG ")
        made = change(json.loads(body)) if mark else None
        if made is not None:
            lines.append(f"{head}{mark}{json.dumps(made)}")
    (root / log.name).write_text("\n".join(lines) + "\n")
    return root / log.name


def record_of(log: Path) -> RunRecord:
    return read_log(location_of(log))


def test_a_published_run_of_cosmoflow(tmp_path: Path) -> None:
    """The figures are those of a table that was made from the public logs by other means."""
    found = record_of(in_round(tmp_path, COSMOFLOW, "dgx"))
    assert (found.round, found.organization, found.system, found.mode) == ("v1.0", "ORG", "dgx", "time to train")
    assert (found.application, found.division, found.category) == ("cosmoflow", "closed", "onprem")
    assert (found.nodes, found.accelerators, found.global_batch_size, found.local_batch_size) == (128, 1024, 1024, 1)
    assert (found.train_samples, found.validation_samples) == (524_288, 65_536)
    assert (found.status, found.epochs) == ("success", 35)
    assert found.quality == pytest.approx(0.12296652788791107)
    assert found.accelerator == json.loads(SYSTEM.read_text())["accelerator_model_name"]
    assert found.recipe["opt_name"] == found.optimizer
    assert not found.notes
    assert found.reason is None


@pytest.mark.parametrize(("log", "worst"), [(COSMOFLOW, 0.03), (DEEPCAM, 0.03), (WITHIN_EPOCHS, 0.005)])
def test_the_phases_close(log: Path, worst: float) -> None:
    found = record_of(log)
    assert found.time_to_train_s is not None
    assert found.rest_s is not None
    assert 0 <= found.rest_s < worst * found.time_to_train_s
    parts = (found.staging_s or 0) + sum(found.epochs_s) + sum(found.evaluations_s) + found.rest_s
    assert parts == pytest.approx(found.time_to_train_s, abs=1e-6)
    assert found.origin == "log"
    assert found.round is None


def test_a_log_that_evaluates_within_epochs_has_all_its_training() -> None:
    """59 steps an epoch, evaluated every 100: what follows an evaluation is training."""
    found = record_of(WITHIN_EPOCHS)
    assert (len(found.epochs_s), len(found.evaluations_s)) == (24, 14)
    assert found.nodes is None, "the log is silent, and nothing lies beside it"
    assert found.staging_s == pytest.approx(146.796)
    # An epoch with an evaluation trains as long as one without.
    assert max(found.epochs_s[1:]) < 1.2 * min(found.epochs_s[1:-1])


def test_blocks_are_read_as_epochs(tmp_path: Path) -> None:
    """The official rules accept them in place of epochs; ``epoch_count`` says how many of these a block has."""

    def block(count: Any) -> Callable[[Line], Line]:
        names = {"epoch_start": "block_start", "epoch_stop": "block_stop"}
        more = {} if count is None else {"epoch_count": count}
        return lambda line: line | {"key": names.get(line["key"], line["key"]), "metadata": line["metadata"] | more}

    epochs = record_of(DEEPCAM)
    for count in (None, 1, 0, 10**400, "2"):
        blocks = record_of(altered(DEEPCAM, tmp_path / "blocks", block(count)))
        assert replace(blocks, path=epochs.path) == epochs
    double = record_of(altered(DEEPCAM, tmp_path / "blocks", block(2)))
    assert double.epochs_s[:4] == pytest.approx([epochs.epochs_s[number] / 2 for number in (0, 0, 1, 1)])
    assert sum(double.epochs_s) == pytest.approx(sum(epochs.epochs_s))
    without = record_of(
        altered(DEEPCAM, tmp_path / "none", lambda line: None if line["key"].startswith("epoch_") else line)
    )
    assert without.epochs_s == []
    assert without.notes == ["no seconds of training between epoch_start and epoch_stop, or block_start and block_stop"]


def test_what_a_log_does_not_tell_is_absent(tmp_path: Path) -> None:
    log = altered(COSMOFLOW, tmp_path / "few", lambda line: line if line["key"] == "run_start" else None)
    found = record_of(log)
    told = {"path", "origin", "pruned", "start_unix_s", "reason", "notes"}
    for each in fields(found):
        assert each.name in told or getattr(found, each.name) in (None, [], {}), each.name
    assert found.reason == "the log ends before run_stop"


def changed(key: str, **more: Any) -> Callable[[Line], Line]:
    return lambda line: line | more if line["key"] == key else line


@pytest.mark.parametrize(("change", "note"), [
    (changed("seed", value="17"), "the seed is text"),
    (changed("seed", value="of barley"), "the seed is not a whole number"),
    (changed("seed", value=1.5), "the seed is not a whole number"),
    (changed("seed", value=2**64), "the seed is not a whole number of at most 63 bits"),
    (changed("seed", value="\N{ARABIC-INDIC DIGIT ONE}"), "the seed is not a whole number"),
    (changed("eval_error", value=math.nan), "35 evaluations without a finite value, the first in line "),
    (changed("eval_error", value=10**400), "35 evaluations without a finite value"),
    (changed("eval_stop", time_ms=1), "eval_stop before eval_start"),
    (changed("eval_stop", time_ms=math.nan), "35 lines without a time"),
    (changed("init_stop", time_ms=0), "the clock goes back by a second or more"),
    (changed("run_stop", time_ms=0), "run_stop is not after run_start"),
    (changed("submission_benchmark", value="deepcam"), "submission_benchmark is deepcam, the folder cosmoflow"),
    (changed("number_of_nodes", value=4096), "4,096 nodes for an instance, 128 in the system description"),
    (changed("global_batch_size", value=32), "1024 accelerators for a batch of 32: the log may hold the nodes of"),
])  # fmt: skip
def test_logs_that_lie_are_read_with_a_note(change: Callable[[Line], Line], note: str, tmp_path: Path) -> None:
    log = altered(COSMOFLOW, tmp_path / "altered", lambda line: change({"value": None, **line}))
    if not any('"seed"' in line for line in log.read_text().splitlines()) and "seed" in note:
        seed = change({"namespace": "", "time_ms": 1, "event_type": "", "key": "seed", "value": 3, "metadata": {}})
        log.write_text(f":::MLLOG {json.dumps(seed)}\n{log.read_text()}")
    found = record_of(in_round(tmp_path, log))
    runs_frame([found])
    assert all(map(math.isfinite, [*found.qualities, *found.epochs_s, *found.evaluations_s]))
    assert any(note in each for each in found.notes), found.notes


@pytest.mark.parametrize(("change", "reason"), [
    (changed("run_stop", metadata={"status": "aborted"}), "run_stop says aborted"),
    (changed("run_stop", metadata={}), "run_stop has no status"),
    (lambda line: None if line["key"] == "run_stop" else line, "the log ends before run_stop"),
    (lambda line: None if line["key"].startswith("eval_") else line, "no evaluation before run_stop"),
])  # fmt: skip
def test_why_a_run_is_no_success(change: Callable[[Line], Line | None], reason: str, tmp_path: Path) -> None:
    found = record_of(altered(COSMOFLOW, tmp_path / "altered", change))
    assert found.reason == reason
    assert found.epochs is None


def test_lines_after_the_end_and_samples_for_epochs(tmp_path: Path) -> None:
    """Some published runs train on after run_stop; OpenFold counts samples."""
    late = {"key": "eval_error", "value": 0.001, "metadata": {"epoch_num": 119}, "time_ms": 2e12, "event_type": ""}
    log = altered(COSMOFLOW, tmp_path / "altered", lambda line: line)
    with log.open("a") as file:
        file.write(f":::MLLOG {json.dumps(late)}\n")
    assert record_of(log).epochs == 35
    openfold = altered(log, tmp_path / "other", changed("submission_benchmark", value="openfold"))
    found = record_of(openfold)
    assert found.epochs == pytest.approx(35 / 524_288)
    assert "epoch_num counts samples" in found.notes


def test_an_application_that_is_not_known_has_one_value_an_evaluation(tmp_path: Path) -> None:
    """NVIDIA's logs have the error and, negative, the accuracy."""
    log = altered(COSMOFLOW, tmp_path / "other", changed("submission_benchmark", value="mine"))
    assert record_of(log).qualities == record_of(COSMOFLOW).qualities


@pytest.mark.parametrize(("folder", "origin"), [
    ("v0.7/ORG/results/box/deepcam", "published"), ("v1.0/ORG/results/box/weak/deepcam", "published"),
    ("home/results/last/week", "log"), ("home/results/box/loud/deepcam", "log"), ("home/mine", "log"),
])  # fmt: skip
def test_only_the_tree_of_a_round_is_one(folder: str, origin: str, tmp_path: Path) -> None:
    assert location_of(tmp_path / folder / "result_1.txt").origin == origin


def test_runs_of_one_trajectory_are_told(tmp_path: Path) -> None:
    logs = [in_round(tmp_path, COSMOFLOW, name=f"result_{number}.txt") for number in range(3)]
    other = in_round(tmp_path, COSMOFLOW, system="another")
    found = read_runs([location_of(log) for log in [*logs, other]])
    told = [["one trajectory" in " ".join(record.notes)] for record in found]
    assert told == [[False], [True], [True], [False]]


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00\xff" * 100])
def test_what_is_no_log_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "result_0.txt").write_bytes(content)
    with pytest.raises(DataError, match="holds no line of an official log") as caught:
        record_of(tmp_path / "result_0.txt")
    assert "\n" not in str(caught.value)


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(f"{COSMOFLOW.read_text()}:::MLLOG {{nonsense\n:::MLLOG []\n")
    (note,) = record_of(tmp_path / "log.txt").notes
    assert note.startswith("2 lines cannot be read, the first: line ")
