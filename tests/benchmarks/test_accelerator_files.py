"""Files of the benchmark for accelerators: few are written and read, and what a kill left half done is done again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _accelerator.problems import FILES, LINKS, problem

from apps.deepcam import simulate
from apps.deepcam.statistics import load_statistics, summarize


class Killed(BaseException):
    """Ends the process."""


def killed_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, in whose call of that number the process ends."""
    calls = []

    def called(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == call:
            raise Killed
        return function(*arguments)

    return called


@pytest.mark.slow
@pytest.mark.parametrize("form", ["hdf5", "npy"])
@pytest.mark.parametrize(("place", "function", "call"), [
    pytest.param(simulate, "file_statistics", 3, id="statistics"),
    pytest.param(os, "link", 3, id="names of samples"),
    pytest.param(os, "link", LINKS - FILES + 1, id="names of validation samples"),
])  # fmt: skip
def test_what_a_kill_left_is_written_again(
    form: str, place: Any, function: str, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATOR_FOLDER", str(tmp_path))
    made = problem("deepcam", smoke=True, settings={"data.format": form})
    with monkeypatch.context() as patch:
        patch.setattr(place, function, killed_at(call, getattr(place, function)))
        with pytest.raises(Killed):
            made.write_files()
    made.write_files()
    for split, written, names in (("train", FILES, LINKS), ("validation", 1, FILES)):
        files = list((made.root / split).glob("data-*"))
        assert (len(files), len({path.stat().st_ino for path in files})) == (names, written)
        assert len(made.application.module("data").open_split(made.config, split)) == names
    assert list(tmp_path.iterdir()) == [made.root]
    every = summarize(sorted((made.root / "train").glob("data-*")))
    np.testing.assert_allclose(load_statistics(made.root).mean, every.mean, rtol=1e-6)


def test_no_file_is_read_under_each_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATOR_FOLDER", str(tmp_path))
    read: list[Path] = []
    of_file = simulate.file_statistics
    monkeypatch.setattr(simulate, "file_statistics", lambda path: read.append(path) or of_file(path))
    problem("deepcam", smoke=True).write_files()
    assert len(read) == FILES
