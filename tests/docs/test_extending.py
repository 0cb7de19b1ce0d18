"""The page docs/extending.md is true: its files, installed as they stand there, are used by name."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from tests.plugin_packages import installed, write_distribution

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
FILE = re.compile(r"^\*\*`(?P<path>[^`]+)`\*\*\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```bash\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
APPLICATION = "waves/"
"""Where the page's application is; the other files form the package ``lab``."""
SCREEN = 28
"""Lines of code, without empty ones and the docstring of the file, that a part of the page may have."""
RUN = ("--preset", "smoke", "--train.target", "null", "--train.local_batch_size", "8", "--train.max_epochs", "1",
       "--train.baselines", "false", "--parallel.threads", "1", "--seed", "5")  # fmt: skip


def all_files() -> dict[str, str]:
    """The files of the page by path."""
    return {found["path"]: found["text"] for found in FILE.finditer(PAGE.read_text(encoding="utf-8"))}


def files() -> dict[str, str]:
    """The files of the package ``lab``."""
    return {path: text for path, text in all_files().items() if not path.startswith(APPLICATION)}


def entry_points() -> dict[str, dict[str, str]]:
    """Those of the page's pyproject.toml."""
    found: dict[str, dict[str, str]] = tomllib.loads(files()["pyproject.toml"])["project"]["entry-points"]
    return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package of the page, installed."""
    folder = tmp_path_factory.mktemp("lab")
    own = {path.removeprefix("src/"): text for path, text in files().items() if path.startswith("src/")}
    write_distribution(folder, "lab-parts", entry_points(), {"lab/__init__.py": "", **own})
    with installed(folder):
        yield folder


@pytest.fixture(scope="module")
def trained(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run with the optimizer, the measurement and the figure of the page."""
    folder, data = tmp_path_factory.mktemp("runs") / "signum", tmp_path_factory.mktemp("data") / "cosmoflow"
    small = ("--simulate.train_samples", "16", "--simulate.validation_samples", "4", "--processes", "1")
    assert main(["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", str(data), *small]) == 0
    parts = ("--optim.name", "signum", "--optim.lr", "0.001", "--measure.extra", "[weight-norm]")
    assert main(["train", "cosmoflow", "--data.root", str(data), "--run-dir", str(folder), *parts, *RUN]) == 0
    return folder


def test_every_block_of_the_page_is_a_file_and_each_part_fits_on_a_screen() -> None:
    text, found = PAGE.read_text(encoding="utf-8"), all_files()
    assert (len(found), len(files()), len(COMMANDS.findall(text))) == (9, 8, 2)
    assert text.count("\n```\n") == 9 + 2, "files and commands"
    for path, own in found.items():
        code = own.split('"""\n', 1)[1] if own.startswith('"""') else own
        assert len([line for line in code.splitlines() if line.strip()]) <= SCREEN, path


def test_every_group_has_a_part_on_the_page() -> None:
    from hpcbench import plugins

    assert {*entry_points(), plugins.APPLICATIONS} == set(plugins.THINGS)
    assert f"`{plugins.APPLICATIONS}`" in PAGE.read_text(encoding="utf-8")


def test_what_may_be_left_out_of_a_measurement_is_on_the_page() -> None:
    from hpcbench.train.measurement import Measurement

    optional = [each.name for each in dataclasses.fields(Measurement) if each.default is not dataclasses.MISSING]
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}" in text for name in optional)
    assert len(optional) == 3
    assert "Three more fields of a `Measurement` are" in text


def test_the_optimizer_of_the_page_trains_as_its_formula_says(lab: Path) -> None:
    import torch
    from torch import nn

    from hpcbench.config.schema import OptimConfig
    from hpcbench.optim.registry import create_optimizer, states_of

    config = OptimConfig(name="signum", lr=0.1, weight_decay=0.5, momentum=0.5)
    weight = nn.Parameter(torch.tensor([2.0, -1.0]))
    optimizer = create_optimizer(config, [{"params": [weight]}], "cpu")
    # averages 0.5 and -1, then 0.25 - 0.5 < 0 and -0.5 + 2 > 0
    for gradient in ([1.0, -2.0], [-1.0, 4.0]):
        weight.grad = torch.tensor(gradient)
        optimizer.step()
    first = (2.0 * 0.95 - 0.1, -1.0 * 0.95 + 0.1)
    assert weight.tolist() == pytest.approx([first[0] * 0.95 + 0.1, first[1] * 0.95 - 0.1])
    assert states_of(config) == 1


def test_the_run_has_the_optimizer_the_table_and_the_figure(trained: Path) -> None:
    assert "name: signum" in (trained / "config.yaml").read_text()
    with (trained / "weight_norm.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [(row["epoch"], row["step"]) for row in rows] == [("1", "1"), ("1", "2")]
    assert all(float(row["norm"]) > 1 for row in rows)
    page = (trained / "report.html").read_text()
    first, last = (float(row["norm"]) for row in rows)
    assert '<figure id="weight-norm">' in page
    assert f"It went from {first:.3g} to {last:.3g}." in page
    assert "What else was measured?" in page


def test_the_site_of_the_page_writes_a_script_for_its_scheduler(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path))
    assert main(["submit", "cosmoflow", "--site", "lab", "--nodes", "1", "--time", "00:10:00", "--dry-run"]) == 0
    script = capsys.readouterr().out
    assert 'job_id="$(tsp | sed -n "s/ *running.*//p")"' in script
    assert "--scheduler spooler" in script
    assert 'HPCBENCH_ATTEMPT=$((attempt + 1)) exec bash "$run/job.sh"' in script
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


TSP = """\
#!/bin/sh
case "$1" in
-L) echo 7 ;;
-s) [ "$2" = 7 ] && echo "$STATE" ;;
-r) [ "$STATE" = queued ] && touch removed-$2 ;;
-k) [ "$STATE" = running ] && touch killed-$2 ;;
*) printf 'ID   State  Output  E-Level  Command [run=1/1]\\n7    %s    (file)    [%s]bash job.sh\\n' "$STATE" "$MARK" ;;
esac
"""
"""As the real one, which ends running jobs alone, and removes all others."""


@pytest.mark.parametrize(
    ("state", "shown", "ended"), [("running", "running", "killed-7"), ("queued", "waiting", "removed-7")]
)
def test_jobs_are_submitted_to_the_scheduler_of_the_page_found_and_cancelled(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    state: str, shown: str, ended: str,
) -> None:  # fmt: skip
    program = tmp_path / "bin" / "tsp"
    program.parent.mkdir()
    program.write_text(TSP)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path))
    monkeypatch.setenv("STATE", state)
    monkeypatch.setenv("MARK", "hpcbench:me/run:0badf00d")
    words = ["--site", "lab", "--nodes", "1", "--time", "00:10:00", "--data.root", str(tmp_path)]
    assert main(["submit", "cosmoflow", *words, "--run-dir", str(tmp_path / "run"), "--no-stage"]) == 0
    assert "job 7 of spooler submitted" in capsys.readouterr().out
    assert main(["jobs", str(tmp_path / "run")]) == 0
    assert shown in capsys.readouterr().out

    from hpcbench.batch.job_record import read_job
    from hpcbench.batch.schedulers import find_scheduler
    from hpcbench.batch.submission import ask, cancel

    assert find_scheduler("spooler").find("hpcbench:me/run:0badf00d", ask) == ["7"]
    assert find_scheduler("spooler").find("hpcbench:me/run:another", ask) == []
    cancel(read_job(tmp_path / "run"))
    assert (tmp_path / "run" / ended).exists()


def test_the_machine_of_the_page_is_listed_shown_and_predicted(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sites", "--machines"]) == 0
    assert "lab-node" in capsys.readouterr().out
    assert main(["sites", "lab"]) == 0
    shown = capsys.readouterr().out
    assert "scheduler: spooler" in shown
    assert "Node of the lab: facts of the machine" in shown
    assert main(["predict", "cosmoflow", "--machine", "lab-node", "--nodes", "1", "--batch", "64"]) == 0
    assert "Node of the lab" in capsys.readouterr().out


def test_what_is_installed_is_listed(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hpcbench.installed_plugins import installed_plugins

    found = {(each.thing, each.name): (each.origin, each.wrong) for each in installed_plugins()}
    assert found == {
        ("optimizer", "signum"): ("lab.parts:SIGNUM of lab-parts", ""),
        ("scheduler", "spooler"): ("lab.spooler of lab-parts", ""),
        ("measurement", "weight-norm"): ("lab.weight_norm:MEASUREMENT of lab-parts", ""),
        ("figure", "weight-norm"): ("lab.weight_figure:weight_norm of lab-parts", ""),
        ("machine files", "lab"): ("lab.sites of lab-parts", ""),
    }
    assert main(["optimizers"]) == 0
    assert "signum   the sign of the momentum (Bernstein et al. 2018)" in capsys.readouterr().out


def test_settings_are_checked_without_torch_and_unknown_names_suggest_a_plug_in(lab: Path) -> None:
    code = (
        "import sys\nfrom hpcbench.application import find_application\nfrom hpcbench.config.resolve import resolve\n"
        "from hpcbench.config.optimizers import optimizer_info\nfrom staging.errors import InputError\n"
        "optimizer_info('signum')\n"
        "try:\n    optimizer_info('signun')\nexcept InputError as error:\n    print(error)\n"
        "print('torch' in sys.modules, 'lab.spooler' in sys.modules)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(lab), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    said, loaded = done.stdout.splitlines()
    assert said == "unknown optimizer optim.name 'signun'; did you mean 'signum'?"
    assert loaded == "False False"


def test_the_scheduler_names_of_sites_are_those_of_the_schedulers() -> None:
    from hpcbench.batch.schedulers import SCHEDULERS
    from hpcbench.batch.site import SCHEDULERS as NAMES

    assert tuple(SCHEDULERS) == NAMES


def test_every_file_of_a_new_application_is_in_the_table() -> None:
    from hpcbench.skeleton import render

    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("| file below `waves/") : text.index("Replace one file at a time")]
    source = "src/waves/"
    names = {path.removeprefix(source) for path in render("waves") if path.startswith(source)} - {"__init__.py"}
    assert names == set(re.findall(r"`([\w/]+\.(?:py|yaml))`", table))
    assert set(all_files()) - set(files()) == {f"{APPLICATION}{source}model.py"}


@pytest.mark.slow
def test_the_application_of_the_page_trains_to_its_target_with_its_network(environment: Any, tmp_path: Path) -> None:
    first, rest = (found["text"].splitlines() for found in COMMANDS.finditer(PAGE.read_text(encoding="utf-8")))
    for line in first:
        environment.hpcbench(*line.split()[1:], cwd=tmp_path)
    (changed,) = set(all_files()) - set(files())
    assert (tmp_path / changed).is_file()
    (tmp_path / changed).write_text(all_files()[changed], encoding="utf-8")
    for line in rest:
        program, *words = line.split()
        if program == "pip":
            assert words[:2] == ["install", "--no-deps"]
            environment.install(*words[2:], cwd=tmp_path)
        else:
            environment.hpcbench(*words, *(["--seed", "1"] if "train" in words else []), cwd=tmp_path)
    summary = json.loads((tmp_path / "runs" / "waves" / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "success"
    assert summary["parameters"] == (25 + 1) * 16 + (16 * 9 + 1) * 32 + (32 * 9 + 1) * 64 + (64 + 1) * 2


@pytest.mark.slow
def test_the_package_of_the_page_installs_with_pip(environment: Any, tmp_path: Path) -> None:
    project = tmp_path / "lab-parts"
    for path, text in {**files(), "src/lab/__init__.py": ""}.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text, encoding="utf-8")
    environment.install(".", cwd=project)
    assert "lab-node" in environment.hpcbench("sites", "--machines", cwd=tmp_path)
    assert "signum" in environment.hpcbench("optimizers", cwd=tmp_path)
    said = environment.hpcbench("doctor", cwd=tmp_path)
    assert "lab.spooler of lab-parts" in said
    assert "cannot" not in said[said.index("Plug-ins") : said.index("What works here")]
