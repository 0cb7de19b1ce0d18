"""Studies of many runs: every file of a run is read once, the scheduler is asked once, and `status` starts light."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _studies import EXAMPLE, INSTANCES, asked, make_cluster, make_scaling
from studies import KINDS, RUNS, made_run, measure

from hpcbench.cli.main import main
from tests.hpcbench.study.scaling.test_read_results import write_run

OPENED: list[str] = []
FLAG: list[bool] = []
OTHERS = sorted({*KINDS} - {"throughput"})
BUSY = 2
"""How many times its bound a command may take: one round is measured, and processor time grows on busy cores."""


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """Write down the files that are opened while somebody counts."""
    if FLAG and event == "open":
        OPENED.append(str(arguments[0]))


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often each name of a file is opened within."""
    if not OPENED:
        sys.addaudithook(note)
    OPENED[:] = ["the hook is there"]
    FLAG.append(True)
    found: Counter[str] = Counter()
    try:
        yield found
    finally:
        FLAG.clear()
        found.update(Path(each).name for each in OPENED)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm that answers at once, and the run that studies are made from."""
    environ = make_cluster(tmp_path / "cluster", range(1, RUNS + 1))
    for name in ("PATH", "HPCBENCH_SITES"):
        monkeypatch.setenv(name, environ[name])
    write_run(tmp_path / "run", device_type="cuda")
    return tmp_path


def test_a_look_at_a_study_reads_each_summary_once_and_asks_once(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = replace(EXAMPLE, nodes=(1, 2), repeats=3, vary={})
    path = make_scaling(study, cluster / "study", cluster / "run", under_way=2)
    with counted() as opened:
        assert main(["study", "status", str(path)]) == 0
    assert "4 done, 0 running, 2 waiting" in capsys.readouterr().out
    assert opened["summary.json"] == 4
    assert not opened["ranks.csv"]
    assert asked(cluster / "cluster") == {"squeue": 1}


@pytest.mark.slow
def test_a_report_reads_each_file_of_a_run_once_and_asks_the_accounting_once(cluster: Path) -> None:
    study = replace(INSTANCES, nodes=(4, 8), repeats=1, settings={})
    path = make_scaling(study, cluster / "study", cluster / "run")
    with counted() as opened:
        assert main(["study", "report", str(path)]) == 0
    runs = 2 + 4
    assert {name: opened[name] for name in ("summary.json", "ranks.csv", "mllog.txt", "steps.csv")} == {
        "summary.json": runs, "ranks.csv": runs, "mllog.txt": runs, "steps.csv": 0
    }  # fmt: skip
    assert asked(cluster / "cluster") == {"sacct": 1}


def test_the_status_of_a_study_needs_neither_frames_nor_plots(cluster: Path) -> None:
    path = make_scaling(replace(EXAMPLE, nodes=(1,), repeats=1, vary={}), cluster / "study", cluster / "run")
    code = (
        "import sys; from hpcbench.cli.main import main; main(['study', 'status', sys.argv[1]]); "
        "sys.exit(' '.join({'pandas', 'matplotlib', 'scipy', 'torch'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that the benchmark copies."""
    return made_run(tmp_path_factory.mktemp("made"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["throughput", *(pytest.param(kind, marks=pytest.mark.long) for kind in OTHERS)])
def test_500_runs_are_no_trouble(tmp_path: Path, real_run: Path, kind: str) -> None:
    found = measure(1, tmp_path, real_run, [kind])
    assert {name.split(":")[0] for name in found} == {"status", "report"}
    for name, each in found.items():
        assert each["processor_median_s"] < BUSY * each["at_most_s"], name
        assert sum(each["scheduler_questions"].values()) <= 1, name
