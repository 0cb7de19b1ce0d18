"""Sources beyond what 64-bit numbers hold, and names that nobody may look at or that are too long: told in a line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from staging.cli import refuse_report
from staging.errors import DataError, InputError
from staging.open_source import refuse_absent
from staging.probing.probe_sample import listed
from staging.ranks.world import Alone
from staging.source.hdf5_source import HDF5Source
from staging.source.make_index import index_dataset
from staging.source.walk import list_names, list_tree

LATE_S = 99_999_999_999
TOO_LATE = rf"has the time {LATE_S} s from 1970, at most 9223372036 s are kept; set its time"
NOBODY = ["setpriv", "--reuid", "65534", "--clear-groups"]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder on a filesystem that keeps late times and huge holes."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("needs /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_times_that_64_bits_do_not_hold_are_refused(memory: Path) -> None:
    (memory / "early").touch()
    os.utime(memory / "early", (0, -LATE_S // 20))
    with h5py.File(memory / "late.h5", "w") as file:
        file["x"] = np.zeros(3)
    os.utime(memory / "late.h5", (0, LATE_S))
    looks: list[Callable[[], object]] = [
        lambda: list_tree(memory, Alone()),
        lambda: list_names(memory, Alone(), ["early", "late.h5"]),
        lambda: listed(memory, ["early", "late.h5"]),
        lambda: HDF5Source(memory / "late.h5"),
        lambda: index_dataset(memory),
    ]
    for look in looks:
        with pytest.raises(DataError, match=f"{memory}/late.h5: {TOO_LATE}"):
            look()
    (memory / "late.h5").unlink()
    assert list_tree(memory, Alone()).listing.mtimes_ns.tolist() == [-LATE_S // 20 * 10**9]


def test_files_of_more_bytes_than_can_be_added_up_are_refused(memory: Path) -> None:
    for name in ("a", "b"):
        (memory / name).touch()
        os.truncate(memory / name, 5 << 60)
    looks: list[Callable[[], object]] = [
        lambda: list_tree(memory, Alone()),
        lambda: list_names(memory, Alone(), ["a", "b"]),
    ]
    for look in looks:
        with pytest.raises(DataError, match=f"{memory}: lists files of more than {1 << 62} bytes together"):
            look()


def test_names_that_are_too_long_are_told(tmp_path: Path) -> None:
    name = tmp_path / ("n" * 300)
    with pytest.raises(InputError, match=r"n cannot be looked at \(File name too long\); check its permissions"):
        refuse_absent(name)
    with pytest.raises(InputError, match=r"n cannot be written \(File name too long\); name another --report file"):
        refuse_report(name, 0)
    (tmp_path / "source").mkdir()
    with pytest.raises(DataError, match=r"n: cannot be written \(File name too long\); name a file that you may"):
        index_dataset(tmp_path / "source", name)


@pytest.mark.parametrize("words", [["{private}/x", "{out}"], ["{source}", "{out}", "--report", "{private}/x"]])
def test_folders_that_one_may_not_enter_are_told(words: list[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with tempfile.TemporaryDirectory() as place:
        paths = {name: Path(place) / name for name in ("private", "source", "out")}
        for name, mode in (("private", 0o700), ("source", 0o755), ("out", 0o777), ("", 0o755)):
            (Path(place) / name).mkdir(exist_ok=True)
            (Path(place) / name).chmod(mode)
        (paths["source"] / "a").touch()
        command = [*NOBODY, sys.executable, "-m", "staging", *(word.format(**paths) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if "No module" in done.stderr or "can't open" in done.stderr or "No such file" in done.stderr:
            pytest.skip("nobody else may read this program")
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("staging: error: ")
        assert f"{paths['private']}/x cannot be " in done.stderr
        assert done.stderr.count("\n") == 1
        assert "(Permission denied)" in done.stderr
