"""What a gains study refuses before a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.study.gains.options import Machine
from hpcbench.study.run_slots import Devices
from tests.hpcbench.study.gains.conftest import PROCESSOR


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores."""
    monkeypatch.setattr("hpcbench.study.gains.request.find_machine", lambda on_cpu: (PROCESSOR, Devices()))


def refused(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    """The one line of an error, which leaves nothing behind."""
    study = folder / "study"
    assert main(["study", "gains", "cosmoflow", "--study-dir", str(study), *words]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert not study.exists()
    return line.removeprefix("hpcbench: error: ").rstrip("\n")


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "5"), "--steps (5) must be more than the 5 steps of the warm-up (measure.warmup_steps), which no"),
        (("--ranks", "3"), "--ranks (3) is more than the 2 cores of this machine; lower it"),
        (("--only", "bf61"), "--only: 'bf61' is no option that this machine can do; did you mean"),
        (("--without", "tf32"), "--without: 'tf32' is no option that this machine can do; "),
        (("--train.seed", "3"), "train.seed is for the study to set; --repeats gives each repeat its own"),
        (("--parallel.devices", "2"), "parallel.devices is for the study to set; use --ranks"),
        (("--train.target", "0.3"), "train.target is for the study to set; all runs train for --steps"),
        (("--data.train_samples", "7"), "global batch of 8 (train.local_batch_size 4 x train.accumulation 1"),
        (("--only", "bf16", "--train.precision", "bf16-mixed"),
         "no option is left to measure (bf16: train.precision is bf16-mixed in all runs, as the command says)"),
        (("--data.root", "nowhere"), "nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_in_a_line(
    words: tuple[str, ...], message: str, small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = () if "--data.root" in words else ("--data.root", str(small_cosmos))
    assert message in refused(capsys, tmp_path, *root, *words)


def test_a_dataset_is_needed(two_cores: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, tmp_path).startswith("no dataset: set --data.root DIR")


def test_a_file_that_sets_what_the_study_sets_is_refused(
    two_cores: None, small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("train:\n  max_steps: 3\n", encoding="utf-8")
    line = refused(capsys, tmp_path, "--data.root", str(small_cosmos), "--config", str(config))
    assert line == "train.max_steps is for the study to set; use --steps"


def test_more_ranks_than_accelerators_are_refused(
    small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(16, accelerators=4)
    monkeypatch.setattr("hpcbench.study.gains.request.find_machine", lambda on_cpu: (machine, Devices()))
    line = refused(capsys, tmp_path, "--data.root", str(small_cosmos), "--ranks", "8")
    assert line.startswith("--ranks (8) is more than the 4 accelerators of this machine; lower it, or set --parallel.")


def test_the_folder_of_another_study_is_refused(
    two_cores: None, small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "strong"
    study.mkdir()
    (study / "study.json").write_text('{"schema": 1, "kind": "strong"}', encoding="utf-8")
    words = ["study", "gains", "cosmoflow", "--data.root", str(small_cosmos), "--study-dir", str(study)]
    assert main(words) == 2
    assert "holds another study: its kind is strong, this one's gains; give another --study-dir" in (
        capsys.readouterr().err
    )


def test_a_dry_run_shows_the_options_and_what_cannot_be_done(
    two_cores: None, small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    words = ["study", "gains", "cosmoflow", "--data.root", str(small_cosmos), "--study-dir", str(study), "--dry-run",
             "--without", "fp16", "--data.workers", "1"]  # fmt: skip
    assert main(words) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    assert "TF32; CUDA graph: no GPU" in text
    assert "fp16: left out by the command" in text
    assert "a reader process a rank: data.workers is 1 in all runs, as the command says" in text
    # The options that are left, twice: the baseline, and twelve less the two above, and DALI, which reads no gzip.
    assert "66 runs to make, then what helped together: 12 more at most" in text
    assert not study.exists()
