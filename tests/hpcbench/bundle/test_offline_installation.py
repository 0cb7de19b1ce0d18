"""The real bundle, installed and used without a network on a Python that has torch and numpy, and little else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
QUIET = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
ONE_THREAD = {**QUIET, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def unshare() -> list[str]:
    """The words that run a command without a network."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare, of util-linux")
    for words in (["unshare", "--net"], ["unshare", "--net", "--map-root-user"]):
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("needs the right to make a network namespace (unshare --net)")


@pytest.fixture(scope="module")
def bundle(unshare: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked bundle for this very Python."""
    folder = tmp_path_factory.mktemp("real")
    words = [sys.executable, "-m", "hpcbench", "bundle", "hpcbench.tar.gz", "--source", str(ROOT)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    for reason in ("no package index can be reached", "has no pip", "invalid choice", "no bundle is made for"):
        if reason in done.stderr:
            pytest.skip(f"no bundle can be made here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    subprocess.run(["tar", "-xzf", "hpcbench.tar.gz"], cwd=folder, check=True)
    return next(folder.glob("hpcbench-ml-*/"))


@pytest.fixture(scope="module")
def site_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that sees torch, numpy, pip and what these need, and nothing else of this environment."""
    folder = tmp_path_factory.mktemp("site") / "python"
    venv.create(folder, with_pip=False)
    own = next((folder / "lib").glob("python*/site-packages"))
    for name in needed_by("torch", "numpy", "pip"):
        here = distribution(name)
        for entry in {file.parts[0] for file in here.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (own / entry).exists():
                (own / entry).symlink_to(Path(str(here.locate_file(entry))))
    return folder / "bin" / "python"


def needed_by(*names: str) -> set[str]:
    """Distributions that are installed here, and all that they need."""
    found: set[str] = set()
    asked = list(names)
    while asked:
        name = asked.pop()
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:  # for another machine
            continue
        if name not in found:
            found.add(name)
            needs = [
                each for each in map(Requirement, requires) if not each.marker or each.marker.evaluate({"extra": ""})
            ]
            asked += [each.name for each in needs]
    return found


WHERE = """
import json
from importlib.util import find_spec
found = {name: find_spec(name) for name in ("torch", "numpy", "hpcbench", "h5py", "mpi4py", "pandas")}
print(json.dumps({name: spec.origin for name, spec in found.items() if spec}))
"""


@pytest.mark.slow
def test_a_bundle_trains_without_a_network_on_the_torch_that_is_there(
    unshare: list[str], bundle: Path, site_python: Path, tmp_path: Path
) -> None:
    def run(*words: object, code: int = 0) -> str:
        command = [*unshare, *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, env=ONE_THREAD, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def places(python: Path) -> dict[str, str]:
        found: dict[str, str] = json.loads(run(python, "-c", WHERE))
        return found

    before = places(site_python)
    assert set(before) == {"torch", "numpy"}, "the site has nothing else"
    assert "hpcbench-ml" in run("sh", bundle / "install.sh", "--venv", "environment", "--python", site_python)
    after = places(tmp_path / "environment" / "bin" / "python")
    assert {name: after.pop(name) for name in before} == before
    assert set(after) == {"hpcbench", "h5py", "mpi4py", "pandas"}
    assert all(place.startswith(str(tmp_path / "environment")) for place in after.values())
    program = tmp_path / "environment" / "bin" / "hpcbench"
    assert "a run can start here" in run(program, "doctor")
    run(program, "data", "simulate", "cosmoflow", "--out", "data", "--samples", "16", "--processes", "1")
    run(program, "train", "cosmoflow", "--data.root", "data", "--run-dir", "run", "--train.max_epochs", "1", code=3)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "target_not_reached"
    assert summary["epochs"] == 1
