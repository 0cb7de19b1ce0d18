"""The command: its errors, its plan, and a real study from beginning to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.cli.main import main
from hpcbench.study.convergence import read_study
from hpcbench.study.folder import StudyFolder, held

pytestmark = pytest.mark.usefixtures("forked_processes")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 training and 8 validation samples of 16^3 x 4."""
    root = tmp_path_factory.mktemp("data") / "cosmoflow"
    sizes = ["--simulate.train_samples", "24", "--simulate.validation_samples", "8", "--processes", "1"]
    assert main(["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", str(root), *sizes]) == 0
    return root


def words(data: Path, folder: Path, *more: str) -> list[str]:
    matrix = ["--batch-sizes", "4,8", "--optimizers", "sgd", "--seeds", "1", "--study-dir", str(folder)]
    settings = ["--data.root", str(data), "--train.max_epochs", "1", "--no-estimate", "--jobs", "2"]
    return ["study", "convergence", "cosmoflow", *matrix, *settings, *more]


def test_a_dry_run_shows_the_plan_and_leaves_nothing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(data, tmp_path / "new", "--dry-run", "--lr-search", "0.5,1,2")) == 0
    shown = capsys.readouterr().out
    assert (
        "cosmoflow smoke: 2 rows x 1 seed + 10 runs that choose rates = 12 runs, up to 18 more if searches\n  widen"
    ) in shown
    assert "2 x 4  sgd" in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert not (tmp_path / "new").exists()


def test_a_plan_without_the_dataset_is_for_as_many_samples_as_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ["--site", "generic-slurm", "--cores-per-rank", "1", "--dry-run", "--data.validation_samples", "64"]
    asked = words(Path("/nowhere/set"), tmp_path / "new", *job, "--samples", "512")
    assert main([*asked, "--batch-sizes", "8,512"]) == 0
    assert "128 x 4  sgd" in capsys.readouterr().out
    assert main([*asked, "--batch-sizes", "8,520"]) == 2
    assert "--batch-sizes: 520 is more than the 512 training samples" in capsys.readouterr().err
    assert main([*asked, "--samples", "0"]) == 2
    assert "--samples (0)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convergence", "cosmoflow"], "the following arguments are required: --study-dir, --batch-sizes, "
         "--optimizers; see hpcbench study convergence --help"),
        (["convergence", "cosmoflw", "--batch-sizes", "4", "--optimizers", "sgd", "--study-dir", "s"],
         "did you mean 'cosmoflow'"),
        (["report", "nowhere"], "nowhere holds no study.json; give the --study-dir of a study"),
        (["status", "cosmoflow"], "takes the folder of a study, not the application cosmoflow"),
        (["collect", "nowhere", "--out", "x"], "nowhere holds no study.json"),
        (["report", "s", "--seeds", "3"], "hpcbench study report has no --seeds; it is an option of hpcbench study "
         "convergence"),
        (["report", "s", "--optim.eps", "3"], "hpcbench study report takes no dotted settings; leave out --optim.eps"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said


def test_a_batch_larger_than_the_dataset_is_refused_and_no_folder_left(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(data, tmp_path / "new", "--batch-sizes", "4,32")) == 2
    assert "--batch-sizes: 32 is more than the 24 training samples" in capsys.readouterr().err
    assert main(words(data / "none", tmp_path / "new")) == 2
    assert not (tmp_path / "new").exists()


def test_a_folder_in_use_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with held(StudyFolder(tmp_path / "used")):
        assert main(words(data, tmp_path / "used")) == 2
    assert "is held by pid" in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_runs_goes_on_grows_and_is_reported(data: Path, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")

    def study(*more: str) -> str:
        command = [sys.executable, "-m", "hpcbench", *words(data, folder.path, *more)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "[2/2]" in study("--train.target", "0.9")
    frame = pd.read_csv(folder.results)
    assert frame["status"].tolist() == ["reached", "reached"]
    assert frame["steps_to_target"].tolist() == [6, 3]
    assert frame["ranks"].tolist() == [1, 2]
    assert "nothing is left to run" in study("--train.target", "0.9")
    grown = study("--train.target", "0.9", "--placements", "shard", "--nodes", "2", "--borrow", "8:4")
    assert "[6/6]" in grown, "to two runs four have come"
    assert "4  sgd sharded from 8" in grown
    assert read_study(folder).placements == ("replicate", "shard")
    assert main(["study", "resume", str(folder.path)]) == 0
    assert main(["study", "report", str(folder.path)]) == 0
    copy = tmp_path / "copy"
    assert main(["study", "collect", str(folder.path), "--out", str(copy)]) == 0
    assert not list(copy.rglob("environment.json"))
    assert "nothing is left to run" in study("--train.target", "0.9", "--study-dir", str(copy)), (
        "a study can go on there"
    )


@pytest.mark.slow
def test_a_search_that_is_stopped_goes_on_with_its_rounds(data: Path, tmp_path: Path) -> None:
    """Real runs: one batch, two multiples and a third, two seeds of the search, one of the study."""
    folder = StudyFolder(tmp_path / "study")
    asked = ["--batch-sizes", "4", "--lr-search", "0.5,1", "--train.target", "0.9"]
    search = [*words(data, folder.path, *asked), "--lr-search-widen", "1"]
    with subprocess.Popen([sys.executable, "-m", "hpcbench", *search], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.startswith("[") for line in process.stdout), "a first run has ended"
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 143
    assert main(["study", "resume", str(folder.path)]) == 0
    frame = pd.read_csv(folder.results)
    assert set(frame["status"]) == {"reached"}
    searched = frame[frame["role"] == "search"]
    assert len({(row.multiplier, row.seed) for row in searched.itertuples()}) == len(searched) >= 5
    assert set(searched["seed"]) == {0, 10_001}
    assert set(searched["multiplier"]) in ({0.25, 0.5, 1}, {0.5, 1, 2}), "the best of two multiples is at an edge"
    assert len(frame) == len(searched) + 1
    again = [sys.executable, "-m", "hpcbench", *words(data, folder.path, *asked)]
    assert "nothing is left to run" in subprocess.run(again, capture_output=True, text=True, check=True).stdout, (
        "its search goes on as it began"
    )
