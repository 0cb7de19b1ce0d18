"""`hpcbench train` before it trains: dotted settings wherever they stand, precedence, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import as_tree, resolve
from hpcbench.results.run_folder import RunFolder
from staging.errors import InputError


def settings(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    """What ``--list`` prints: the value of every dotted key."""
    assert main(["train", *words, "--list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("--")]
    return dict(line.removeprefix("--").split(" ", 1) for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ["cosmoflow", "--optim.lr", "0.25", "--train.compile"],
        ["--optim.lr", "0.25", "cosmoflow", "--train.compile", "true"],
        ["--optim.lr=0.25", "--train.compile=true", "cosmoflow"],
        ["--preset", "smoke", "--optim.lr", "0.25", "cosmoflow", "--train.compile", "--seed", "4"],
        ["--train.compile", "cosmoflow", "--optim.lr", "0.25"],
        ["--optim.lr", "9", "cosmoflow", "--train.compile", "--optim.lr", "0.25"],
    ],
)
def test_dotted_settings_may_stand_anywhere(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = settings(capsys, *words)
    assert (found["optim.lr"], found["train.compile"]) == ("0.25", "true")
    assert found["data.sample_size"] == "16"


@pytest.mark.parametrize("order", [0, 1])
def test_a_dotted_setting_wins_over_a_file_and_a_file_over_the_preset(
    order: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("optim: {lr: 0.5, weight_decay: 0.125}\n")
    parts = [["--config", str(file)], ["--optim.lr", "0.25"]]
    found = settings(capsys, "cosmoflow", *parts[order], "--preset", "smoke", *parts[1 - order])
    assert (found["optim.lr"], found["optim.weight_decay"]) == ("0.25", "0.125")
    assert found["data.sample_size"] == "16"


def test_short_options_set_their_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = settings(capsys, "deepcam", "--seed", "7", "--samples", "12")
    assert (found["train.seed"], found["data.train_samples"]) == ("7", "12")
    assert found["simulate.seed"] == "2019"


def test_negative_and_list_values(capsys: pytest.CaptureFixture[str]) -> None:
    found = settings(capsys, "deepcam", "--data.channels", "[0, 3]", "--train.target", "-0.5")
    assert (found["data.channels"], found["train.target"]) == ("[0, 3]", "-0.5")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--optim.lr", "fast"], "optim.lr (fast) must be a number"),
        (["--train.local_batch_size", "0"], "train.local_batch_size (0) must be at least 1"),
        (["--parallel.devices", "0"], "parallel.devices (0) must be at least 1"),
        (["--config", "gone.yaml"], "gone.yaml: cannot read the configuration"),
        (["--resume"], "--resume needs --run-dir"),
        (["--resume", "--run-dir", "gone"], "run folder gone does not exist"),
        (["--train.target"], "train.target (true) must be a number or null"),
    ],
)
def test_what_is_refused(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "cosmoflow", *words]) == 2
    captured = capsys.readouterr().err
    assert captured.count("\n") == 1
    assert expected in captured


def test_ranks_started_here_get_the_command_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], int]] = []

    def spawn(argv: list[str], devices: int, environ: Any) -> int:
        assert environ is os.environ
        calls.append((argv, devices))
        return 5

    monkeypatch.setattr("hpcbench.parallel.spawn.spawn", spawn)
    words = ["train", "cosmoflow", "--parallel.devices", "3"]
    for more in ([], ["--run-dir", "mine"]):
        monkeypatch.setattr(sys, "argv", ["hpcbench", *words, *more])
        assert main() == 5
    assert calls == [(words, 3), ([*words, "--run-dir", "mine"], 3)]


def test_ranks_started_here_share_one_run_folder_that_the_first_one_names(small_cosmos: Path, tmp_path: Path) -> None:
    words = ["train", "cosmoflow", "--preset", "smoke", "--data.root", str(small_cosmos), "--train.target", "null",
             "--train.max_steps", "2", "--parallel.devices", "2"]  # fmt: skip
    subprocess.run([sys.executable, "-m", "hpcbench", *words], cwd=tmp_path, check=True, capture_output=True)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("cosmoflow-smoke-")
    assert json.loads((folder / "summary.json").read_text())["world_size"] == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--preset", "laptop"], 2),
        (["--preset", "none-such"], 2),
        (["--preset", "smoke"], 0),
        ([], 0),
        (["--preset", "smoke", "--config", "smoke.yaml"], 0),
    ],
)
def test_a_resumed_run_keeps_its_preset(
    words: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A requeued job may repeat what it was asked for at the start, in a file and on its command line."""
    monkeypatch.chdir(tmp_path)
    Path("smoke.yaml").write_text("preset: smoke\n")
    run = RunFolder.create(Path("run"))
    run.write_config(as_tree(resolve(find_application("cosmoflow"), "smoke")))
    run.mllog.touch()
    assert main(["train", "cosmoflow", "--run-dir", "run", "--resume", "--list", *words]) == code
    said = capsys.readouterr()
    if code:
        assert f"cannot resume with preset {words[1]}: the run has smoke; leave it out, or start a new run" in said.err
    else:
        assert "--data.sample_size 16\n" in said.out


@pytest.mark.parametrize("benchmark", ["cosmoflow", "deepcam", None])
def test_a_run_of_another_application_is_told_as_that(
    benchmark: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not by the settings that the two do not share. A log that names no benchmark is left to what follows."""
    monkeypatch.chdir(tmp_path)
    run = RunFolder.create(Path("run"))
    run.write_config(as_tree(resolve(find_application("cosmoflow"), "smoke")))
    line = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "submission_benchmark",
            "value": benchmark, "metadata": {}}  # fmt: skip
    run.mllog.write_text(f":::MLLOG {json.dumps(line)}\n" if benchmark else "")
    other = "deepcam" if benchmark == "cosmoflow" else "cosmoflow"
    code = main(["train", other, "--run-dir", "run", "--resume", "--list"])
    said = capsys.readouterr().err
    if benchmark is None:
        assert code == 0
    else:
        assert (code, said) == (2, (
            f"hpcbench: error: the run in run is of {benchmark}, not of {other}; name its application to continue it, "
            "or give another --run-dir to start a new run\n"
        ))  # fmt: skip


def test_every_command_takes_the_preset_that_a_settings_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its values: a run that is called laptop is one."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("preset: laptop\n")

    def told(application: object, asked: Any, *more: object) -> None:
        raise InputError(f"asked for {asked.preset}")

    for name in ("request", "scaling.request", "gains.request"):
        monkeypatch.setattr(f"hpcbench.study.{name}.define", told)
    sizes = ["--batch-sizes", "8", "--optimizers", "sgd"]
    studies: dict[str, list[str]] = {"convergence": sizes, "strong": ["--nodes", "1"], "gains": []}
    for kind, more in studies.items():
        words = ["study", kind, "cosmoflow", "--config", "mine.yaml", *more]
        assert main([*words, "--study-dir", "s"]) == 2
        assert capsys.readouterr().err == "hpcbench: error: asked for laptop\n"
    assert main(["train", "cosmoflow", "--config", "mine.yaml", "--list"]) == 0
    assert "--data.sample_size 32\n" in capsys.readouterr().out
    assert main(["train", "cosmoflow", "--config", "mine.yaml", "--preset", "smoke", "--list"]) == 2
    assert "mine.yaml names preset 'laptop', and 'smoke' is asked for besides" in capsys.readouterr().err
    words = ["--site", "local", "--no-stage", "--dry-run", "--data.root", "set"]
    assert main(["submit", "cosmoflow", "--config", "mine.yaml", *words]) == 0
    assert "train cosmoflow --preset laptop --config " in capsys.readouterr().out
