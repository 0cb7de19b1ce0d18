"""Jobs and sites for the tests of scripts and schedulers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.job import Job, make_job
from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.batch.site import Node, Site

LAUNCHERS = {"slurm": "srun", "pbs": "mpich", "lsf": "openmpi", "flux": "flux", "local": "mpich"}


def a_site(scheduler: str = "slurm", **more: Any) -> Site:
    """A site of four cores and two GPUs a node."""
    values = {"node": Node(cores=4, gpus=2, memory_gib=64), "launcher": LAUNCHERS[scheduler], **more}
    return Site(name="here", title="a machine", scheduler=scheduler, **values)  # type: ignore[arg-type]


def a_job(site: Site, folder: Path, stages: bool = True, arguments: tuple[str, ...] = (), **asked: Any) -> Job:
    """Two nodes for ten minutes, run by the word ``hpcbench``."""
    request = JobRequest(**{"nodes": 2, "time": "00:10:00", **asked})
    words = ("cosmoflow", *arguments)
    job = make_job(site, request, folder, ("hpcbench",), words, "a title", stages)
    return replace(job, work_dir=folder.parent)


@pytest.fixture(params=list(SCHEDULERS))
def scheduler(request: pytest.FixtureRequest) -> str:
    """Each scheduler's name."""
    return str(request.param)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes programs that print a text, end with a code, and note their words; nothing else is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, text: str, code: int = 0, error: str = "") -> None:
        (folder / f"{name}.out").write_text(text)
        (folder / f"{name}.err").write_text(error)
        path = folder / name
        path.write_text(
            f'#!/bin/bash\necho "{name} $*" >> {folder}/notes\n[ -t 0 ] || cat > {folder}/{name}.in\n'
            f"cat {folder}/{name}.out\ncat {folder}/{name}.err >&2\nexit {code}\n"
        )
        path.chmod(0o755)

    make.folder = folder  # type: ignore[attr-defined]
    make.notes = lambda: (folder / "notes").read_text().splitlines()  # type: ignore[attr-defined]
    return make
