"""Datasets for the commands of pages, and machines to submit their jobs to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.walk import Walk, make_datasets
from tests.slurm.conftest import Slurm, slurm

__all__ = ["slurm"]

SITES = {
    "perlmutter-gpu": "scheduler: slurm\nlauncher: srun\nmpi: pmi2\nnode: {{cores: 1, memory_gib: 1}}\n"
    "local_path: {folder}/local/{{node}}\n",
    "polaris": "scheduler: pbs\nlauncher: mpich\nnode: {{cores: 1, memory_gib: 1}}\naccount_required: true\n"
    "local_path: {folder}/local\n",
}
"""Profiles with the names of machines that pages submit to, of which these tests have a node or two."""
PBS = Path(__file__).with_name("pbs.py")
PATIENCE_S = 400


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both applications, and the settings that they are made with."""
    return make_datasets(tmp_path_factory.mktemp("documented"))


@pytest.fixture
def walk(tmp_path: Path, datasets: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """A folder to type commands in."""
    return Walk(tmp_path, datasets, monkeypatch)


@pytest.fixture
def cluster(walk: Walk, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A Slurm and a PBS to submit to; call it to wait until neither has a job that can run."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environ[name])
    monkeypatch.setenv("SLURM_MPI_TYPE", "pmi2")  # as a site that has MPI sets it
    programs, sites, jobs = walk.folder / "bin", walk.folder / "sites", walk.folder / "pbs"
    for folder in (programs, sites, jobs):
        folder.mkdir()
    for name in ("qsub", "qstat", "qselect", "qdel"):
        (programs / name).symlink_to(PBS)
    for name, text in SITES.items():
        (sites / f"{name}.yaml").write_text(f"title: {name}\n" + text.format(folder=walk.folder))
    monkeypatch.setenv("HPCBENCH_SITES", str(sites))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")

    def wait() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while slurm.run("squeue", "--noheader").stdout or any(
            (job / "pid").exists() and not (job / "exit").exists() for job in jobs.iterdir() if job.is_dir()
        ):
            assert time.monotonic() < deadline, "jobs take too long"
            time.sleep(0.5)

    yield wait
    slurm.cancel_everything()
    for job in (path for path in jobs.iterdir() if path.is_dir()):
        if (job / "pid").exists() and not (job / "exit").exists():
            os.kill(int((job / "pid").read_text()), 9)
