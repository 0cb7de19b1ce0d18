"""``hpcbench doctor`` on this machine, and on machines where something is missing."""

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hpcbench.cli import doctor
from hpcbench.cli.main import main
from hpcbench.measure import diagnose, import_check
from hpcbench.measure.diagnose import launch, mpi_library, needs, storage
from hpcbench.measure.diagnosis import Row
from hpcbench.measure.import_check import ChildPython
from hpcbench.measure.torch_check import TorchAnswer
from staging.storage.shared_memory import LeftOver
from tests.loaded_modules import loaded

NO_TORCH = TorchAnswer({}, "", False, [])
LAUNCHERS = ("PMI", "PMIX", "OMPI", "MPI_", "SLURM", "RANK", "WORLD_SIZE", "LOCAL_", "HPCBENCH_")


@pytest.fixture(autouse=True)
def without_launcher(monkeypatch):
    for name in list(os.environ):
        if name.startswith(LAUNCHERS):
            monkeypatch.delenv(name)


@pytest.fixture
def without_mpi(monkeypatch):
    """mpi4py as it behaves where no MPI library is installed."""
    monkeypatch.setattr(diagnose, "MPI_PROGRAM", "raise RuntimeError('cannot load MPI library')")
    monkeypatch.setattr(diagnose, "find_program", lambda name: None)


def asked_mpi() -> list[Row]:
    return mpi_library(ChildPython(diagnose.MPI_PROGRAM))


def test_it_prints_what_torch_says_and_fits_100_columns(tmp_path, capsys):
    assert main(["doctor", "--run-dir", str(tmp_path / ("long-" * 30))]) == 0
    output = capsys.readouterr().out
    assert f"  torch             {torch.__version__}" in output
    assert torch.backends.cpu.get_cpu_capability() in output
    assert "a run can start here" in output
    assert "\x1b" not in output
    assert max(len(line) for line in output.splitlines()) <= 100
    assert list(tmp_path.iterdir()) == []


def test_json_holds_the_same(tmp_path, capsys):
    assert main(["doctor", "--json", "--run-dir", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    software = {row["name"]: row["value"] for row in found["sections"]["Software"]}
    assert software["torch"] == torch.__version__
    assert {need["purpose"] for need in found["needs"] if need["required"]} == {
        "train on one process",
        "hpcbench check",
    }


def test_only_the_process_that_asks_torch_imports_it():
    """Importing it takes most of the command's time, which should not be spent twice."""
    code = "import contextlib, io\nfrom hpcbench.cli.main import main\n"
    code += "with contextlib.redirect_stdout(io.StringIO()):\n    main(['doctor'])"
    assert loaded(code, ("torch", "scipy", "pandas", "matplotlib")) == []


def processor_s(*words):
    """Processor time of a command and of what it starts, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_it_takes_little_more_than_to_import_torch_once():
    """Two seconds where that takes one and a half; processor time does not depend on what else the machine does."""
    rounds = [(processor_s("-c", "import torch"), processor_s("-m", "hpcbench", "doctor")) for _ in range(3)]
    torch_s, doctor_s = map(min, zip(*rounds, strict=True))
    assert doctor_s < 1.5 * torch_s + 0.3, rounds


def test_without_an_mpi_library_one_process_still_works_and_the_remedy_is_named(without_mpi, tmp_path, capsys):
    assert main(["doctor", "--run-dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "none (RuntimeError: cannot load MPI library)" in output
    assert 'several ranks, mpiexec        no   needs: pip install "hpcbench-ml[local]"' in output


def test_an_mpi_library_that_ends_the_process_does_not_end_this_one(monkeypatch):
    monkeypatch.setattr(diagnose, "MPI_PROGRAM", "import os; os.abort()")
    row = asked_mpi()[0]
    assert (row.value, row.state) == ("none (exit code -6)", "note")


def test_ranks_that_are_seen_are_held_against_those_that_were_asked_for():
    environ = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    assert launch(environ, 4)[0].value == "rank 2 of 4 on 2 nodes, from PMI"
    assert launch(environ, 4)[0].state == "ok"
    assert launch(environ, 8)[0].state == "broken"
    assert launch({}, 4)[0].state == "broken"
    assert launch({}, None)[0].state == "ok"
    assert launch({}, None)[0].value == "rank 0 of 1 on 1 node, started without a launcher"


def test_launchers_that_disagree_are_broken_in_words(monkeypatch, capsys):
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["doctor"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "PMI and torchrun disagree on rank (1 and 0)" in output
    assert "something that a run needs is broken" in output


def test_only_rank_0_speaks(monkeypatch, capsys):
    for name, value in {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main(["doctor", "--ranks", "2"]) == 0
    assert capsys.readouterr().out == ""


def test_shared_memory_of_killed_processes_is_a_note(monkeypatch):
    monkeypatch.setattr(diagnose, "left_over", lambda: LeftOver(12, 607 << 20, "mpich_shm_1_0"))
    row = diagnose.memory()[-1]
    assert row.state == "note"
    assert row.value.startswith("607 MiB of shared memory of processes that are gone (mpich_shm_1_0 and 11 more); rem")
    monkeypatch.setattr(diagnose, "left_over", lambda: None)
    assert diagnose.memory()[-1].state == "ok"


def test_a_missing_dataset_is_broken(tmp_path, capsys):
    assert main(["doctor", "--data-root", str(tmp_path / "none")]) == 1
    assert "cannot be read (No such file or directory)" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "train").mkdir()
    assert storage({}, tmp_path, tmp_path)[1].value == f"{tmp_path}: holds train"


def test_a_place_that_cannot_be_written_is_broken():
    if not Path("/proc/self").exists():
        pytest.skip("needs /proc")
    row = storage({}, Path("/proc/runs"), None)[0]
    assert row.state == "broken"
    assert "cannot be written" in row.value


def test_node_local_folders_of_a_job_are_listed_once(tmp_path):
    rows = storage({"TMPDIR": str(tmp_path), "SLURM_TMPDIR": str(tmp_path)}, tmp_path, None)
    assert [row.name for row in rows if str(tmp_path) in row.value] == ["run folders", "node-local candidate $TMPDIR"]


def test_a_package_that_cannot_be_imported_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(import_check, "OTHER_MODULES", (*import_check.OTHER_MODULES, "no_such_package"))
    monkeypatch.setattr(diagnose, "OTHER_MODULES", import_check.OTHER_MODULES)
    assert main(["doctor"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "no_such_package broken: cannot be imported (ModuleNotFoundError: No module named 'no_such_pack" in output
    assert "train on one process NO needs: a package that cannot be imported" in output


def test_where_no_process_can_be_started_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = subprocess.Popen

    def limited(words: list[str], *rest: object, **more: object) -> object:
        if words[:2] == [sys.executable, "-c"]:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return real(words, *rest, **more)

    monkeypatch.setattr(subprocess, "Popen", limited)
    assert main(["doctor"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "numpy broken: cannot be imported (no process can be started: Resource temporarily unavailable)" in output
    assert "MPI library none (no process can be started: Resource temporarily unavailable)" in output


def test_needs_name_what_is_missing(monkeypatch):
    monkeypatch.setattr(diagnose.shutil, "which", lambda name, path=None: None)
    missing = {need.purpose: need.missing for need in needs(True, NO_TORCH, asked_mpi()) if not need.works}
    assert missing["--train.compile"] == "a C++ compiler on PATH, such as g++"
    assert "several nodes, srun" in missing


def test_ranks_below_one_are_bad_input(capsys):
    assert main(["doctor", "--ranks", "0"]) == 2
    assert capsys.readouterr().err == "hpcbench: error: --ranks (0) must be at least 1; choose from 1 to 10000000\n"


def test_long_values_are_wrapped_under_their_column():
    lines = doctor.section_lines([diagnose.Row("ranks", "word " * 40, "broken")])
    assert all(len(text) <= 100 for text, _ in lines)
    assert lines[0][0].startswith("  ranks  broken: word")
    assert lines[1][0].startswith("         word")
