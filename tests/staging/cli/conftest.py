"""The command line in this process, under both of its names, and a few files to stage."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hpcbench.cli.main
import staging.__main__
from tests.staging.processes import make_tree

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A few files."""
    make_tree(tmp_path / "source", 12)
    return tmp_path / "source"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``python -m staging`` in this process: exit code, output and error output."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["staging", *map(str, words)])
        return staging.__main__.main(), *capsys.readouterr()

    return call


@pytest.fixture
def hpcbench_stage(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``hpcbench stage`` in this process."""

    def call(*words: object) -> tuple[int, str, str]:
        return hpcbench.cli.main.main(["stage", *map(str, words)]), *capsys.readouterr()

    return call
