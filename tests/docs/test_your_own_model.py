"""The page docs/your-own-model.md is true: its files, put where it says, install and train to the target."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your-own-model.md"
FILE = re.compile(r"^\*\*`(?P<path>[^`]+)`\*\*\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
WRAPPER = {"__init__", "data", "model", "task"}
WRAPPED = {"lit": "lit", "plain": "sets", "hf": "hugging"}
"""The sections on `hpcbench app wrap`, in order, by the names of their runs: the file that each shows."""
NEEDS = {"lit": "lightning", "hf": "datasets"}


def files() -> dict[str, str]:
    """The files of the page by path."""
    return {found["path"]: found["text"] for found in FILE.finditer(PAGE.read_text(encoding="utf-8"))}


def blocks() -> list[list[list[str]]]:
    """The words of the commands of each block of the page."""
    return [
        [shlex.split(line) for line in found["text"].splitlines()]
        for found in COMMANDS.finditer(PAGE.read_text(encoding="utf-8"))
    ]


def write_files(folder: Path) -> Path:
    """The project of the page."""
    for path, text in files().items():
        (folder / "tones" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tones" / path).write_text(text, encoding="utf-8")
    return folder / "tones"


def type_command(environment: Any, words: Sequence[str], folder: Path, mpiexec: str = "") -> str:
    """Run a command in the environment, trainings with a seed; returns its output."""
    program, *rest = words
    if program == "pip":
        assert rest[:2] == ["install", "--no-deps"]
        environment.install(*rest[2:], cwd=folder)
        return ""
    seeded = [*rest, *(["--seed", "1"] if "train" in rest else [])]
    if program == "python":
        return str(environment.succeed(*rest, cwd=folder))
    if program == "mpiexec":
        assert seeded[:3] == ["-n", "2", "hpcbench"]
        command = [mpiexec, "-n", "2", str(environment.python), "-m", *seeded[2:]]
        variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    assert program == "hpcbench"
    return str(environment.hpcbench(*seeded, cwd=folder))


def test_the_wrapper_has_fewer_than_sixty_lines_of_python() -> None:
    found = files()
    wrapper = {path: text for path, text in found.items() if Path(path).stem in WRAPPER}
    assert set(wrapper) == {f"src/tones/{part}.py" for part in WRAPPER}
    # Every line counts, empty ones too. What is left over is the user's own code, and a script that makes data.
    assert 40 <= sum(len(text.splitlines()) for text in wrapper.values()) < 60
    own = {"src/tones/lab.py", "make_tones.py"} | {f"src/tones/{name}.py" for name in WRAPPED.values()}
    assert {path for path in found if path.endswith(".py")} - set(wrapper) == own


def test_every_block_of_the_page_is_a_file_or_the_commands() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("\n```\n") == len(files()) + 1 + len(WRAPPED)
    assert len(COMMANDS.findall(text)) == 1 + len(WRAPPED)


def test_the_page_installs_what_a_section_needs_before_it_is_used() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.index('pip install "hpcbench-ml[lightning]"') < text.index("hpcbench app wrap lit_tones")
    assert text.index("`pip install datasets`") < text.index("from datasets import Dataset")


@pytest.mark.slow
def test_the_files_and_commands_of_the_page_train_to_the_target(environment: Any, tmp_path: Path) -> None:
    project = write_files(tmp_path)
    for words in blocks()[0]:
        type_command(environment, words, project)
    summary = json.loads((project / "runs" / "tones" / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "success"
    assert summary["metrics"]["accuracy"] >= summary["target"] == 0.95
    assert summary["parameters"] == 16 * 17 + 16 + 4 * 16 + 4

    used = environment.run(
        "-m", "hpcbench", "train", "tones", "--data.root", "data/tones", "--run-dir", "runs/few", "--seed", "1",
        "--samples", "64", "--train.max_epochs", "1", cwd=project,
    )  # fmt: skip
    assert used.returncode == 3, used.stderr
    assert json.loads((project / "runs" / "few" / "summary.json").read_text(encoding="utf-8"))["train_samples"] == 64


def test_every_optional_part_of_an_application_is_on_the_page() -> None:
    from hpcbench import application

    assert application.__doc__ is not None
    optional = application.__doc__.split("The following parts are optional")[1]
    parts = re.findall(r"^\S*?([a-zA-Z_]+(?:/\*\.json)?)``  ", optional, re.MULTILINE)
    assert len(parts) == 20
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("## What you can add") : text.index("## A LightningModule")]
    assert [part for part in parts if not re.search(rf"`(?:[^`\n]*\b)?{re.escape(part)}", table)] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRAPPED)
def test_what_is_wrapped_trains_to_the_target_alike_on_one_and_on_two_ranks(
    kind: str, environment: Any, mpiexec: str, tmp_path: Path
) -> None:
    needed = NEEDS.get(kind)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"needs the package {needed}")
    project = write_files(tmp_path)
    first, *wrapped = blocks()
    for words in first[:2]:
        type_command(environment, words, project)
    said = {" ".join(words): type_command(environment, words, project, mpiexec)
            for words in wrapped[list(WRAPPED).index(kind)]}  # fmt: skip
    assert "common rules" in said[f"hpcbench check runs/{kind}-1"]
    for run in (f"{kind}-1", f"{kind}-2"):
        summary = json.loads((project / "runs" / run / "summary.json").read_text(encoding="utf-8"))
        assert summary["status"] == "success"
        assert summary["metrics"][summary["metric"]] >= summary["target"] == 0.95
        assert (project / "runs" / run / "report.html").stat().st_size > 10_000
    one, two = (losses(project / "runs" / f"{kind}-{ranks}") for ranks in (1, 2))
    assert one == pytest.approx(two, rel=1e-4)
    planned = [text for command, text in said.items() if command.startswith("hpcbench plan")]
    assert all("2 x 1" in text for text in planned)
    assert kind != "plain" or "2 reached, 0 left" in "".join(said.values())
    assert kind != "lit" or planned


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lit", "plain"])
def test_what_is_wrapped_trains_alike_if_it_is_compiled(kind: str, environment: Any, tmp_path: Path) -> None:
    needed = NEEDS.get(kind)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"needs the package {needed}")
    if not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("torch.compile needs a C++ compiler (apt-get install g++)")
    project = write_files(tmp_path)
    first, *wrapped = blocks()
    commands = wrapped[list(WRAPPED).index(kind)]
    until = next(number for number, words in enumerate(commands) if words[:2] == ["hpcbench", "train"])
    for words in [*first[:2], *commands[:until]]:
        type_command(environment, words, project)
    short = ("--train.max_epochs", "2", "--train.target", "null", "--samples", "64")
    for name in ("true", "false"):
        words = [*commands[until][:-1], f"runs/{name}", *short]
        type_command(environment, [*words, "--train.compile", name], project)
    compiled, eager = (losses(project / "runs" / name) for name in ("true", "false"))
    assert len(compiled) == 2
    assert compiled == pytest.approx(eager, rel=1e-5)


@pytest.mark.slow
def test_a_plain_module_trains_alike_if_it_is_sharded(environment: Any, mpiexec: str, tmp_path: Path) -> None:
    """The last step has one sample, so that the other rank makes a pass without any, as the page says it can."""
    project = write_files(tmp_path)
    first, *wrapped = blocks()
    commands = wrapped[list(WRAPPED).index("plain")]
    until = next(number for number, words in enumerate(commands) if words[0] == "mpiexec")
    for words in [*first[:2], *commands[:2]]:
        type_command(environment, words, project)
    train = [*commands[until], "--train.max_epochs", "2", "--train.target", "null", "--samples", "65"]
    run = train.index("--run-dir") + 1
    for name, more in (("sharded", ["--parallel.shard_states", "true"]), ("whole", [])):
        type_command(environment, [*train[:run], f"runs/{name}", *train[run + 1 :], *more], project, mpiexec)
    sharded, whole = (losses(project / "runs" / name) for name in ("sharded", "whole"))
    assert len(sharded) == 2
    assert sharded == pytest.approx(whole, rel=1e-5)


def losses(run: Path) -> list[float]:
    """The mean training loss of every epoch."""
    with (run / "epochs.csv").open(encoding="utf-8") as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]
