"""The page docs/your-own-model.md is true: its files, put where it says, install and train to the target."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your-own-model.md"
FILE = re.compile(r"^\*\*`(?P<path>[^`]+)`\*\*\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
WRAPPER = {"__init__", "data", "model", "task"}


def files() -> dict[str, str]:
    """The files of the page by path."""
    return {found["path"]: found["text"] for found in FILE.finditer(PAGE.read_text(encoding="utf-8"))}


def test_the_wrapper_has_fewer_than_sixty_lines_of_python() -> None:
    found = files()
    wrapper = {path: text for path, text in found.items() if Path(path).stem in WRAPPER}
    assert set(wrapper) == {f"src/tones/{part}.py" for part in WRAPPER}
    # Every line counts, empty ones too. What is left over is the user's own code, and a script that makes data.
    assert 40 <= sum(len(text.splitlines()) for text in wrapper.values()) < 60
    assert {path for path in found if path.endswith(".py")} - set(wrapper) == {"src/tones/lab.py", "make_tones.py"}


def test_every_block_of_the_page_is_a_file_or_the_commands() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("\n```\n") == len(files()) + 1
    assert len(COMMANDS.findall(text)) == 1


@pytest.mark.slow
def test_the_files_and_commands_of_the_page_train_to_the_target(environment: Any, tmp_path: Path) -> None:
    project = tmp_path / "tones"
    for path, text in files().items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text, encoding="utf-8")
    found = COMMANDS.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    for line in found["text"].splitlines():
        program, *words = shlex.split(line)
        if program == "pip":
            assert words[:2] == ["install", "--no-deps"]
            environment.install(*words[2:], cwd=project)
        elif program == "python":
            environment.succeed(*words, cwd=project)
        else:
            assert program == "hpcbench"
            environment.hpcbench(*words, *(["--seed", "1"] if words[0] == "train" else []), cwd=project)
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
