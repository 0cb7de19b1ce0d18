"""The program that names the samples of a CosmoFlow set in the order of a parameter, for studies of placements."""

from __future__ import annotations

import errno
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apps.cosmoflow.config import PARAMETERS, CosmoFlowData
from apps.cosmoflow.samples import SUFFIXES, files_of_sample, read_sample, write_sample
from tests.documented_commands import ROOT

PROGRAM = ROOT / "docs" / "studies" / "ordered_set.py"
VALUES = (0.5, -0.75, 0.25, -0.25)
"""The parameter of each training sample, in the order of their names."""
FORMS = ("tfrecord", "gzip", "hdf5", "npy")


def data_of(form: str) -> CosmoFlowData:
    gzip = {"compression": "gzip"} if form == "gzip" else {}
    options: dict[str, Any] = {"format": "tfrecord" if form == "gzip" else form, "sample_size": 2, **gzip}
    return CosmoFlowData(**options)


def make_set(folder: Path, form: str = "npy", column: int = 1) -> CosmoFlowData:
    data = data_of(form)
    for split, values in (("train", VALUES), ("validation", VALUES[:2])):
        (folder / split).mkdir(parents=True)
        for number, value in enumerate(values):
            label = np.zeros(len(PARAMETERS), np.float32)
            label[column] = value
            counts = np.full((2, 2, 2, data.channels), number, np.int16)
            write_sample(folder / split / f"s{number}{SUFFIXES[data.format]}", counts, label, data)
    return data


def call(*words: object) -> int:
    """Run the program as a user does; its exit code."""
    before = sys.argv
    sys.argv = [str(PROGRAM), *map(str, words)]
    try:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    except SystemExit as error:
        return int(error.code or 0)
    finally:
        sys.argv = before
    return 0


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert call(*words) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    return text.removeprefix("error: ").strip()


@pytest.mark.parametrize("form", FORMS)
def test_the_training_samples_are_in_the_order_of_the_parameter(form: str, tmp_path: Path) -> None:
    source, out = tmp_path / "set", tmp_path / "new" / "ordered"
    data = make_set(source, form, PARAMETERS.index("n_s"))
    assert call(source, out, "--by", "n_s") == 0
    suffix = SUFFIXES[data.format]
    names = [path.name for path in sorted((out / "train").glob(f"*{suffix}"))]
    assert names == [f"{number:08d}_s{index}{suffix}" for number, index in enumerate((1, 3, 2, 0))]
    samples = [read_sample(out / "train" / name, data) for name in names]
    assert [label[PARAMETERS.index("n_s")] for _, label in samples] == sorted(VALUES)
    assert [counts.max() for counts, _ in samples] == [1, 3, 2, 0]
    for split in ("train", "validation"):
        assert len(list((out / split).iterdir())) == len(list((source / split).iterdir()))
    for path in (source / "validation").iterdir():
        assert path.samefile(out / "validation" / path.name)
    assert [path.name for path in out.parent.iterdir()] == ["ordered"]


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ("train", "set/train has no CosmoFlow sample (*.tfrecord, *.hdf5, *_data.npy); name another set"),
        ("validation", "set/validation has no sample (*_data.npy); add some, or name another set"),
    ],
)
def test_an_empty_set_is_refused(
    removed: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    make_set(tmp_path / "set")
    for path in (tmp_path / "set" / removed).iterdir():
        path.unlink()
    assert refused(capsys, tmp_path / "set", tmp_path / "out").endswith(said)
    assert not (tmp_path / "out").exists()


def test_a_set_of_two_formats_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_set(tmp_path / "set")
    (tmp_path / "set" / "train" / "a.tfrecord").touch()
    found = refused(capsys, tmp_path / "set", tmp_path / "out")
    assert found.endswith("train has samples in 2 formats (tfrecord, npy); keep one of them")


def test_a_folder_that_exists_is_refused_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_set(tmp_path / "set")
    assert call(tmp_path / "set", tmp_path / "out") == 0
    before = sorted(tmp_path.rglob("*"))
    found = refused(capsys, tmp_path / "set", tmp_path / "out")
    assert found == f"{tmp_path / 'out'} exists; remove it, or name another folder"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_sample_without_its_label_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_set(tmp_path / "set")
    missing = files_of_sample(tmp_path / "set" / "train" / "s2_data.npy", "npy")[1]
    missing.unlink()
    assert str(missing) in refused(capsys, tmp_path / "set", tmp_path / "out")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EXDEV, "{out} is on another file system than {source}; name a folder on the same one"),
        (errno.EPERM, "{out} cannot hold links to {source} (Operation not permitted); name another folder"),
    ],
)
def test_a_place_that_takes_no_links_is_refused(
    number: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "set", tmp_path / "out"
    make_set(source)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)
    assert refused(capsys, source, out) == said.format(source=source, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_an_interrupted_call_leaves_nothing_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    source, out = tmp_path / "set", tmp_path / "out"
    make_set(source)
    made = os.link
    seen = []

    def interrupted(path: Path, name: Path) -> None:
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(name)
        made(path, name)
        assert not out.exists()

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(source, out)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
