"""Energy from Slurm's accounting."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.batch import job_energy
from hpcbench.batch.job_energy import job_energy_j, parse_energy
from hpcbench.batch.submission import JobHandle


def test_numbered_steps_are_added_up() -> None:
    printed = "77|\n77.batch|90000\n77.extern|90500\n77.0|1200\n77.1|88000\n77.2|\n"
    assert parse_energy(printed) == 89_200


@pytest.mark.parametrize(
    "printed", ["", "77|0\n77.0|0\n", "77.0|18446744073709551614\n", "77.0|\n", "slurm_load: error\n"]
)
def test_no_value_is_no_energy(printed: str) -> None:
    assert parse_energy(printed) is None


def fake_sacct(folder: Path, text: str) -> None:
    """A command that prints ``text``."""
    command = folder / "sacct"
    command.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}EOF\n")
    command.chmod(0o755)


def test_it_is_asked_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands, run = tmp_path / "bin", tmp_path / "run"
    commands.mkdir()
    run.mkdir()
    fake_sacct(commands, "5.0|100\n5.1|250\n")
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    job = JobHandle(run, "slurm", "5", "here")
    assert job_energy_j(job) == 350
    fake_sacct(commands, "5.0|1\n")
    assert job_energy_j(job) == 350
    (run / job_energy.FILE).write_text("no JSON")
    assert job_energy_j(job) is None


def test_other_schedulers_have_none(tmp_path: Path) -> None:
    assert job_energy_j(JobHandle(tmp_path, "pbs", "5", "here")) is None
    assert list(tmp_path.iterdir()) == []
