"""What a rank does before it trains: which modules it imports, and how many file-system calls it makes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hpcbench.frame_lookups import cheap_frame_lookups
from tests.environments import make_whole_environment
from tests.loaded_modules import loaded

ROOT = Path(__file__).parents[2]
NOT_NEEDED = (
    "pandas", "matplotlib", "jinja2", "scipy", "tensorboard", "numba", "nvidia.dali", "mypy", "pytest",
    "hpcbench.results.run_page", "hpcbench.results.plots", "hpcbench.study",
)  # fmt: skip
"""Modules of pages, plots and tables, and of options that a run has to ask for."""


@pytest.mark.slow
def test_a_rank_imports_nothing_that_it_does_not_need_to_train() -> None:
    """Where torchmetrics is installed, Lightning Fabric imports it to read its version, and Matplotlib with it."""
    code = (
        "import sys\nsys.modules['torchmetrics'] = None\nfrom hpcbench.cli import train\n"
        "import hpcbench.train.run, apps.cosmoflow.data, apps.cosmoflow.model, apps.cosmoflow.task"
    )
    assert loaded(code, NOT_NEEDED) == []


def test_a_study_is_planned_and_told_without_what_draws_it() -> None:
    assert loaded("import hpcbench.study.convergence", ("scipy", "matplotlib", "pandas", "torch")) == []


@pytest.mark.parametrize(
    "words",
    [
        "convergence cosmoflow --batch-sizes 4 --optimizers sgd",
        pytest.param("strong cosmoflow --nodes 1", marks=pytest.mark.slow),
        pytest.param("throughput cosmoflow --nodes 1 --instance-nodes 1", marks=pytest.mark.slow),
        pytest.param("gains cosmoflow", marks=pytest.mark.slow),
    ],
    ids=lambda words: words.split()[0],
)
def test_a_dry_run_imports_nothing_that_draws(words: str, small_cosmos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    line = ["study", *words.split(), "--study-dir", str(folder), "--data.root", str(small_cosmos), "--dry-run"]
    code = (
        "import contextlib, io\nfrom hpcbench.cli.main import main\nsaid = io.StringIO()\n"
        f"with contextlib.redirect_stdout(said):\n    assert main({line}) == 0\nassert 'run' in said.getvalue()"
    )
    assert loaded(code, ("matplotlib", "jinja2")) == []
    assert not folder.exists()


def test_a_frame_is_looked_up_as_inspect_does_it_without_the_text_of_its_file() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    known, line = inspect.getmodule(frame), inspect.getframeinfo(frame)
    with cheap_frame_lookups():
        assert inspect.getmodule(frame) is known
        found = inspect.getframeinfo(frame)
        assert (found.filename, found.function) == (line.filename, line.function)
        assert found.lineno == line.lineno + 3
        assert found.code_context is None
        assert inspect.getmodule(Path) is sys.modules[Path.__module__]
    assert inspect.getframeinfo(frame).code_context is not None


def test_an_error_inside_restores_inspect() -> None:
    before = (inspect.getmodule, inspect.getframeinfo)
    with pytest.raises(ZeroDivisionError), cheap_frame_lookups(), cheap_frame_lookups():
        raise ZeroDivisionError
    assert (inspect.getmodule, inspect.getframeinfo) == before


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark ``start.py``."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import start  # type: ignore[import-not-found]

    module: ModuleType = start
    return module


@pytest.fixture
def strace(start: ModuleType) -> None:
    """Skips where calls cannot be counted."""
    if not start.has_strace():
        pytest.skip("needs strace that may trace processes")


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
def test_a_rank_starts_within_its_bound_of_file_system_calls(
    start: ModuleType, small_cosmos: Path, tmp_path: Path
) -> None:
    """With the look at the job, on one process, which does what rank 0 does; modules may still have to be compiled."""
    folders = {"environment": [Path(sys.prefix), Path(sys.base_prefix)], "source": [ROOT]}
    found = start.training(Path(sys.executable), tmp_path / "run", small_cosmos, folders)
    assert found.start() <= start.BOUND, found.as_dict()
    assert found.before["environment"] > 1000
    assert found.after["dataset"] >= 4


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
def test_the_process_that_makes_packed_runs_starts_without_torch(start: ModuleType, tmp_path: Path) -> None:
    folders = {"environment": [Path(sys.prefix), Path(sys.base_prefix)], "source": [ROOT]}
    found = start.packed_job(Path(sys.executable), tmp_path / "study", folders)
    assert 1000 < found.start() < 8000, found.as_dict()


def test_calls_on_shared_folders_are_those_on_run_folder_and_dataset_too(start: ModuleType) -> None:
    named = ("environment", "source", "work", "run", "dataset", "node", "system", "other")
    calls = start.FileCalls({name: 10**number for number, name in enumerate(named)})
    assert calls.start(start.SHARED) == 11111


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
def test_ranks_of_a_copied_environment_leave_shared_folders_alone(
    start: ModuleType, small_cosmos: Path, tmp_path: Path
) -> None:
    """Of one rank, and of each of two; the copy has the packages that a rank imports."""
    environment = make_whole_environment(tmp_path / "shared" / "venv")
    work, local, python = tmp_path / "work", tmp_path / "work" / "node", environment / "bin" / "python"
    work.mkdir()
    words = start.bring_words(python, local)  # not counted, which would take minutes
    subprocess.run(words, cwd=work, env=start.environ(source=False), check=True)
    found = start.from_copy(work, python, local, small_cosmos)
    assert found["train_one_rank"]["start_by_folder"]["node"] > 1000, found
    assert 0 < found["shared"] < start.SHARED_BOUND, found
    assert len(found["shared_ranks_of_2"]) == 2
    assert all(0 < calls < start.SHARED_BOUND for calls in found["shared_ranks_of_2"]), found
