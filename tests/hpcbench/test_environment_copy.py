"""A Python environment on the nodes: what belongs to it, and that its copy runs without the original."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.environment_copy import parts_of
from staging.errors import InputError
from tests.environments import ROOT, make_environment


def test_a_virtual_environment_comes_with_the_library_that_it_was_made_from() -> None:
    environment, base = parts_of(Path("/me/venv"), Path("/sw/python"), "3.11")
    assert (environment.source, environment.under) == (Path("/me/venv"), "environment")
    assert (base.source, base.under, base.include) == (Path("/sw/python"), "base", ("lib/python3.11/*", "include/*"))
    assert "lib/python3.11/site-packages/*" in base.exclude
    assert "lib/python3.11/site-packages/*" not in parts_of(Path("/v"), Path("/sw"), "3.11", sees_base=True)[1].exclude
    assert [part.source for part in parts_of(Path("/me/venv"), Path("/usr"), "3.11")] == [Path("/me/venv")]
    assert [part.source for part in parts_of(Path("/me/conda"), Path("/me/conda"), "3.11")] == [Path("/me/conda")]
    with pytest.raises(InputError, match="is the system's own, which every node has"):
        parts_of(Path("/usr"), Path("/usr"), "3.11")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """One whose files lie on shared storage."""
    return make_environment(tmp_path / "shared" / "venv")


def run(python: Path, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command of an environment, without the checkout on its path."""
    left = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-P", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=left)


@pytest.mark.slow
def test_the_copy_runs_without_the_original(environment: Path, tmp_path: Path) -> None:
    local = tmp_path / "node"
    done = run(environment / "bin" / "python", "-m", "hpcbench", "environment", local, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    python = local / "environment" / "bin" / "python"
    assert f"run {python} -P -m hpcbench" in done.stdout
    environment.rename(environment.with_name("elsewhere"))
    code = (
        "import sys, hpcbench, json; print(*{sys.prefix, sys.executable, hpcbench.__file__, json.__file__}, sep='\\n')"
    )
    done = run(python, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    inside = [line for line in done.stdout.splitlines() if line.startswith(f"{local}/")]
    on_system = Path(sys.base_prefix).is_relative_to("/usr")
    assert len(inside) == (3 if on_system else 4), done.stdout
    assert os.access(next(local.rglob("hpcbench/tool")), os.X_OK)
    assert run(python, "-m", "hpcbench", "--version", cwd=tmp_path).stdout.startswith("hpcbench ")
    assert run(python, "-m", "hpcbench", "environment", local, cwd=tmp_path).returncode != 0


@pytest.mark.slow
@pytest.mark.mpi
def test_several_nodes_have_a_whole_copy_each(environment: Path, tmp_path: Path, mpiexec: str) -> None:
    """Two ranks, each a node of its own with a folder of its own."""
    library = Path(sys.prefix) / "lib"  # where pip puts the MPI library
    left = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [mpiexec, "-n", "2", environment / "bin" / "python", "-P", "-m", "hpcbench", "environment"]
    done = subprocess.run(
        [*map(str, command), str(tmp_path / "node-{rank}")], capture_output=True, text=True, check=False,
        env=left | {"LD_LIBRARY_PATH": f"{library}{os.pathsep}{os.environ.get('LD_LIBRARY_PATH', '')}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    package = Path("lib") / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages" / "hpcbench"
    wanted = sorted(path.relative_to(ROOT / "hpcbench") for path in (ROOT / "hpcbench").rglob("*.py"))
    shutil.rmtree(environment)
    for rank in (0, 1):
        copy = tmp_path / f"node-{rank}" / "environment"
        found = sorted(path.relative_to(copy / package) for path in (copy / package).rglob("*.py"))
        assert found == wanted
        shown = run(copy / "bin" / "python", "-c", "import hpcbench; print(hpcbench.__file__)", cwd=tmp_path)
        assert shown.stdout.strip() == str(copy / package / "__init__.py"), shown.stderr


def test_hpcbench_outside_of_the_environment_is_told_in_a_line(tmp_path: Path) -> None:
    """Such as a checkout that is installed with ``pip install -e``."""
    command = [
        sys.executable,
        "-m",
        "hpcbench",
        "submit",
        "cosmoflow",
        "--site",
        "local",
        "--run-dir",
        tmp_path / "run",
    ]
    done = subprocess.run([*command, "--bring-environment"], capture_output=True, text=True, check=False, cwd=ROOT)
    if "site-packages" in str(ROOT):
        pytest.skip("hpcbench is in the environment")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "outside of the environment" in done.stderr
    assert list(tmp_path.iterdir()) == []
