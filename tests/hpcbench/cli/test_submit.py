"""``hpcbench submit``, ``jobs`` and ``sites``, and starting again in a folder of an earlier attempt."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcbench.batch.site import known_sites
from hpcbench.cli.main import main
from hpcbench.exits import DONE, TARGET_NOT_REACHED
from hpcbench.results.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("forked_processes")

DRY = ["submit", "cosmoflow", "--site", "generic-slurm", "--nodes", "2", "--cores-per-rank", "4", "--dry-run"]


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a ``sbatch`` on PATH that takes every job; the file that exists once it was called."""
    (tmp_path / "bin").mkdir()
    called = tmp_path / "called"
    (tmp_path / "bin" / "sbatch").write_text(f"#!/bin/sh\n: > {called}\necho 17\n")
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return called


def test_a_dry_run_prints_the_script_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*DRY, "--data.root", "my data", "--seed", "3", "--env", "A=$HOME"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#!/bin/bash\n#SBATCH ")
    assert "train cosmoflow --preset smoke --seed 3 '--data.root=my data'" in script
    assert 'export A="${HOME:-}"' in script
    assert f"hpcbench=({shlex.quote(sys.executable)} -m hpcbench)" in script
    assert f"\ncd {tmp_path}\n" in script
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--site", "frontir"], "unknown site 'frontir'; did you mean 'frontier'"),
        (["--site", "frontier"], "charges every job to a project; name yours with --account"),
        (["--ranks-per-node", "9", "--site", "frontier"], "is more than the 8 GPUs of a node of frontier"),
        (["--env", "A"], "--env ('A') must be NAME=VALUE"),
        (["--time", "soon"], "--time ('soon') must be a time"),
        (["--optim.lrr", "1"], "optim.lrr"),
        (["--queue", "a b"], "--queue ('a b') has the character ' '"),
        (["--local-path", "scratch"], "--local-path ('scratch') must begin with / or $"),
        (["--local-path", "~/scratch"], "--local-path ('~/scratch') must begin with / or $"),
    ],
)
def test_bad_input_is_told_in_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DRY, *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("site", "given", "said"),
    [
        ("generic-slurm", [], "no dataset: set --data.root DIR (`hpcbench data simulate cosmoflow"),
        ("local", [], "no dataset: set --data.root DIR"),
        ("local", ["--data.root", "nowhere"], "nowhere"),
    ],
)
def test_no_job_without_its_dataset_reaches_a_queue(
    site: str, given: list[str], said: str, sbatch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = ["submit", "cosmoflow", "--site", site, "--cores-per-rank", "1", "--no-stage", "--run-dir", "run"]
    assert main([*words, *given]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not sbatch.exists()
    assert not Path("run").exists()


def test_a_dataset_elsewhere_is_left_to_the_job(
    sbatch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", "cosmoflow", "--site", "generic-slurm", "--cores-per-rank", "1", "--no-stage"]
    assert main([*words, "--run-dir", str(tmp_path / "run"), "--data.root", "/nowhere/set"]) == 0
    assert "job 17 of slurm submitted" in capsys.readouterr().out
    assert sbatch.exists()


def test_sites_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sites"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in known_sites())
    assert max(map(len, listed.splitlines())) <= 100
    assert main(["sites", "polaris"]) == 0
    assert "scheduler: pbs\n" in capsys.readouterr().out


def test_a_bad_profile_has_a_row_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ours.yaml").write_text("title: ours\nscheduler: slurm\nlauncher: srun\nquue: gpu\n")
    (tmp_path / "theirs.yaml").write_text("title: theirs\nscheduler: slurm\nlauncher: srun\nmachine: none\n")
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path))
    assert main(["sites"]) == 2
    said = capsys.readouterr()
    table, *below = said.out.split("\n\n")
    assert {line.split()[0] for line in table.splitlines()[2:]} == set(known_sites())
    assert [line.split()[:2] for line in table.splitlines() if "see below" in line] == [
        ["ours", "damaged"], ["theirs", "damaged"],
    ]  # fmt: skip
    assert "ours.yaml: unknown key 'quue'; did you mean 'queue'" in " ".join(below[0].split())
    assert below[1].startswith("theirs: ")
    assert said.err == ""


def test_a_bad_machine_file_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "machines").mkdir()
    (tmp_path / "machines" / "ours.yaml").write_text("title: ours\nnodess: 4\n")
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path))
    assert main(["sites", "--machines"]) == 2
    table, bad = capsys.readouterr().out.rsplit("\n\n", 1)
    assert {"aurora", "fugaku"} <= {line.partition(" ")[0] for line in table.splitlines()}
    assert " ".join(bad.split()).startswith("ours: damaged: ")
    assert "unknown key 'nodess'" in " ".join(bad.split())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("olcf", "olcf is in the title of frontier, summit"),
        ("llnl", "did you mean 'tuolumne', which is Tuolumne (LLNL)?"),
        (
            "nersc",
            "did you mean 'perlmutter-gpu', which is Perlmutter, GPU nodes (NERSC)? nersc is also in the title of "
            "cori-gpu, cori-knl",
        ),
        ("polaris2", "did you mean 'polaris'?"),
        ("xyzxyz", "is like it; 'hpcbench sites' and its --machines list them"),
    ],
)
def test_an_unknown_site_is_looked_for_in_titles(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sites", name]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"hpcbench: error: unknown site or machine '{name}'; ")
    assert hint in said
    assert said.count("\n") == 1


def test_jobs_of_folders_without_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", str(tmp_path)]) == 2
    assert "holds no job.json" in capsys.readouterr().err
    assert main(["jobs", str(tmp_path), str(tmp_path)]) == 0
    assert capsys.readouterr().out == "none of these folders has a job\n"


def test_what_an_earlier_attempt_left_is_put_aside(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.set_aside() is None
    folder.path.mkdir()
    for name in ("job.sh", "job.json", "job-17.log", "hpcbench.o17", "config.yaml", "mllog.txt"):
        (folder.path / name).write_text(name)
    assert folder.set_aside() == folder.path / "attempts" / "1"
    assert folder.set_aside() is None
    (folder.path / "config.yaml").write_text("second")
    assert folder.set_aside() == folder.path / "attempts" / "2"
    assert (folder.path / "attempts" / "1" / "config.yaml").read_text() == "config.yaml"
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "attempts", "hpcbench.o17", "job-17.log", "job.json", "job.sh",
    ]  # fmt: skip
    RunFolder.create(folder.path)


@pytest.mark.slow
def test_a_local_job_starts_over_goes_on_and_is_cancelled(tmp_path: Path) -> None:
    """One process and no scheduler: an attempt without a checkpoint is put aside, one with it is resumed."""
    data, run = tmp_path / "data", tmp_path / "run"
    small = ["--simulate.train_samples", "16", "--simulate.validation_samples", "4"]
    assert main(["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", str(data), *small]) == 0
    words = [sys.executable, "-m", "hpcbench", "train", "cosmoflow", "--preset", "smoke", "--data.root", str(data)]
    words += ["--run-dir", str(run), "--resume-or-start", "--train.max_epochs", "1", "--train.target", "0.0001"]
    words += ["--train.seed", "1"]
    assert subprocess.run(words, check=False, capture_output=True).returncode == TARGET_NOT_REACHED
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    assert subprocess.run(words, check=False, capture_output=True).returncode == TARGET_NOT_REACHED
    assert (run / "attempts" / "1" / "summary.json").exists()
    met = RunFolder.open(run).read_epochs()["mae"].iloc[-1]
    easier = [*words, "--train.max_epochs", "100", "--train.target", str(0.99 * met)]
    assert subprocess.run(easier, check=False, capture_output=True).returncode == DONE
    done = subprocess.run(easier, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (DONE, f"the run in {run} has reached its target; nothing is left to do\n")
    assert RunFolder.open(run).read_summary().resumed == 1

    job = tmp_path / "job"
    words = ["submit", "cosmoflow", "--site", "local", "--run-dir", str(job), "--data.root", str(data), "--no-stage"]
    assert main([*words, "--train.max_epochs", "100000", "--train.target", "0.0001"]) == 0
    deadline = time.monotonic() + 120
    while not (job / "epochs.csv").exists():
        assert time.monotonic() < deadline, (job / "job.log").read_text()
        time.sleep(0.2)
    assert main(["jobs", "--cancel", str(job)]) == 0
    while not (job / "summary.json").exists():
        assert time.monotonic() < deadline, (job / "job.log").read_text()
        time.sleep(0.2)
    assert RunFolder.open(job).read_summary().reason == "signal SIGTERM"
    assert list((job / "checkpoints").glob("*.json"))
