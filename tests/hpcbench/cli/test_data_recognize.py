"""`hpcbench data inspect DIR` and `verify DIR` find out whose dataset lies there and in which form, or say why not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import h5py
import numpy as np
import pytest

from apps.cosmoflow.config import Config as CosmoFlowConfig
from apps.cosmoflow.samples import SUFFIXES, write_sample
from hpcbench import application, plugins
from hpcbench.cli.main import main
from hpcbench.skeleton import write_package
from staging.formats.example import encode_example
from staging.formats.tfrecord import write_records
from tests.params import slow_except

WAVES = "recognized_waves"
SIMULATED = {
    "cosmoflow": ("--data.sample_size", "8", "--model.conv_layers", "2", "--simulate.universe_size", "8"),
    "deepcam": ("--data.height", "32", "--data.width", "64"),
    WAVES: ("--data.size", "24"),
}
FORMS = {
    "cosmoflow": "cosmoflow, data.format tfrecord, data.compression gzip, data.sample_size 8, data.channels 4",
    "deepcam": "deepcam, data.format hdf5, data.height 32, data.width 64",
    WAVES: f"{WAVES}, data.size 24",
}
"""What is said of the sets, none of which has the size of the smallest preset."""
FILES = {"cosmoflow": 3, "deepcam": 4, WAVES: 3}


@pytest.fixture(scope="module", autouse=True)
def waves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The skeleton's application, as if it were installed beside the two others."""
    source = write_package(WAVES, tmp_path_factory.mktemp("packages")) / "src"
    names = {"cosmoflow": "apps.cosmoflow", "deepcam": "apps.deepcam", WAVES: WAVES}
    points = [EntryPoint(name, f"{package}:application", plugins.APPLICATIONS) for name, package in names.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(source)
        patch.setattr(plugins, "registered", lambda group: points)
        yield
    application.find_application.cache_clear()


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two training samples and a validation sample of each application, as simulated."""
    root = tmp_path_factory.mktemp("datasets")
    few = ("--samples", "2", "--simulate.validation_samples", "1", "--processes", "1")
    for name, settings in SIMULATED.items():
        assert main(["data", "simulate", name, *settings, *few, "--out", str(root / f"set-{name}")]) == 0
    return {name: root / f"set-{name}" for name in SIMULATED}


@pytest.fixture
def copies(datasets: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Copies that do not say whose they are."""
    found = {name: Path(shutil.copytree(path, tmp_path / name)) for name, path in datasets.items()}
    for path in found.values():
        (path / "simulated.json").unlink()
    return found


def verify(*words: object) -> int:
    """Exit code of a verification by one process."""
    return main(["data", "verify", *map(str, words), "--processes", "1"])


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that ``hpcbench data WORDS`` is refused with."""
    capsys.readouterr()
    assert main(["data", *map(str, words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hpcbench: error: ")
    return line.removeprefix("hpcbench: error: ")


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_except(["cosmoflow"], SIMULATED))
def test_a_folder_is_verified_in_its_own_form(
    name: str, datasets: dict[str, Path], copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    good = f"{FILES[name]} of {FILES[name]} files are good"
    for path in (datasets[name], copies[name]):
        for words in ((path,), (name, path), (name, "--data.root", path)):
            capsys.readouterr()
            assert verify(*words) == 0
            assert capsys.readouterr().out.splitlines() == [f"{path}: {FORMS[name]}", good]
    capsys.readouterr()
    assert verify(copies[name], "--preset", "smoke") == 2
    left = int(name == "deepcam")  # its statistics, which have no size
    assert capsys.readouterr().out.splitlines()[0] == f"{left} of {FILES[name]} files are good"


@pytest.mark.parametrize("name", SIMULATED)
def test_a_bad_file_is_listed_even_if_it_is_the_first(
    name: str, copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first = min((copies[name] / "train").iterdir())
    first.write_bytes(first.read_bytes()[:-40])
    assert verify(copies[name]) == 2
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == [f"{copies[name]}: {FORMS[name]}", f"{FILES[name] - 1} of {FILES[name]} files are good"]
    assert out[2].startswith(f"{first}: ")


@pytest.mark.parametrize("name", SIMULATED)
def test_folders_and_files_are_inspected(
    name: str, copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = min((copies[name] / "train").iterdir())
    for path in (copies[name], copies[name] / "train", file):
        capsys.readouterr()
        assert main(["data", "inspect", str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"{path}: {FORMS[name]}"
        assert str(file) in lines
        capsys.readouterr()
        assert main(["data", "inspect", name, str(path)]) == 0
        assert capsys.readouterr().out.splitlines() == lines[1:]


def test_several_folders_of_different_applications_are_inspected(
    copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "inspect", *map(str, copies.values())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [f"{path}: {FORMS[name]}" for name, path in copies.items()] == [each for each in lines if each.endswith(
        tuple(FORMS.values())
    )]  # fmt: skip


@pytest.mark.parametrize("form", ["tfrecord", "hdf5", "npy"])
def test_each_form_of_cosmoflow_is_recognized(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = CosmoFlowConfig()
    config.data.sample_size, config.data.format, config.data.compression = 8, form, "none"  # type: ignore[assignment]
    for split in ("train", "validation"):
        (tmp_path / split).mkdir()
        path = tmp_path / split / f"0{SUFFIXES[form]}"
        write_sample(path, np.ones((8, 8, 8, 4), np.int16), np.zeros(4, np.float32), config.data)
    assert verify(tmp_path) == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith(f"{tmp_path}: cosmoflow, data.format {form}, ")
    assert said.endswith(", data.sample_size 8, data.channels 4")


def test_deepcam_in_npy_is_recognized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, few = tmp_path / "npy", ("--samples", "1", "--simulate.validation_samples", "1", "--processes", "1")
    settings = (*SIMULATED["deepcam"], "--data.format", "npy", *few)
    assert main(["data", "simulate", "deepcam", *settings, "--out", str(out)]) == 0
    (out / "simulated.json").unlink()
    assert verify(out) == 0
    said = f"{out}: deepcam, data.format npy, data.height 32, data.width 64"
    assert capsys.readouterr().out.splitlines()[1:] == [said, "5 of 5 files are good"]


def test_a_folder_of_universes_is_cosmoflows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "2019-03").mkdir()
    with h5py.File(tmp_path / "2019-03" / "univ.hdf5", "w") as file:
        file["full"] = np.ones((4, 4, 4, 4), np.int16)
        file["unitPar"] = np.zeros(4, np.float32)
    assert main(["data", "inspect", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path}: cosmoflow"
    assert any("HDF5, universe" in line for line in lines)


def test_a_simulated_set_whose_files_are_all_damaged_is_still_known(
    datasets: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(datasets["cosmoflow"], tmp_path / "damaged"))
    for path in root.rglob("*.tfrecord"):
        path.write_bytes(b"no record")
    assert verify(root) == 2
    assert "0 of 3 files are good" in capsys.readouterr().out


LOOKED = f"looked for simulated.json and a sample of cosmoflow or deepcam or {WAVES}"


def test_an_empty_or_unknown_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, other = tmp_path / "empty", tmp_path / "other"
    for path in (empty, other / "train"):
        path.mkdir(parents=True)
    (other / "train" / "a.txt").write_text("words")
    np.save(other / "data-1.npy", np.zeros(3))
    np.save(other / "1_data.npy", np.zeros(3))
    with h5py.File(other / "data-2.h5", "w") as file:
        file["other"] = np.zeros(3)
    with h5py.File(other / "train" / "x.hdf5", "w") as file:
        file["x"] = np.zeros(3)
    write_records(other / "train" / "y.tfrecord", [encode_example({"x": b"abc", "y": np.zeros(3, np.float32)})], "none")
    os.mkfifo(other / "train" / "pipe.tfrecord")
    for action in ("verify", "inspect"):
        line = refusal(capsys, action, empty)
        assert line == (
            f"{empty}: holds no file; {LOOKED}; name another folder, or put the name of its application first"
        )
        assert refusal(capsys, action, other) == (
            f"{other}: holds no known dataset; {LOOKED} in 6 files, the first 1_data.npy; "
            "name another folder, or put the name of its application first"
        )
        assert refusal(capsys, action, tmp_path / "gone").startswith(f"{tmp_path / 'gone'} does not exist; ")
        assert refusal(capsys, action, "cosmoflo") == (
            "unknown application 'cosmoflo', and no such file or folder; did you mean 'cosmoflow'?"
        )
    assert f"a.txt: is not a sample of cosmoflow or deepcam or {WAVES}; name another file" in refusal(
        capsys, "inspect", other / "train" / "a.txt"
    )


def test_what_verify_refuses(copies: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    first, second, _ = copies.values()
    file = min((first / "train").iterdir())
    assert f"takes one dataset, not {second} as well" in refusal(capsys, "verify", first, second)
    assert f"{first} and --data.root {second} are two; name one" in refusal(
        capsys, "verify", first, "--data.root", second
    )
    assert f"{file} is not a folder; name the folder of a dataset" in refusal(capsys, "verify", file)


def test_data_of_an_application_that_is_not_installed_or_of_two(
    copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = copies["cosmoflow"]
    sample = min((copies[WAVES] / "train").iterdir())
    shutil.copy(sample, root / "train" / "0.npy")
    line = refusal(capsys, "verify", root)
    assert line == f"{root}: its files are recognized by cosmoflow and {WAVES}; put the name of one first"
    (root / "simulated.json").write_text(json.dumps({"application": "tones", "data": {}}))
    assert "holds simulated data of the application 'tones', which is not installed (cosmoflow, deepcam," in refusal(
        capsys, "verify", root
    )


def test_a_folder_called_like_an_application_is_a_folder(
    copies: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(copies["cosmoflow"].parent)
    copies["deepcam"].rename("kept")
    copies["cosmoflow"].rename("deepcam")
    for words in (["deepcam"], ["./deepcam"], ["cosmoflow", "deepcam"], ["cosmoflow", "--data.root", "deepcam"]):
        capsys.readouterr()
        assert verify(*words) == 0
        assert capsys.readouterr().out.splitlines() == [f"deepcam: {FORMS['cosmoflow']}", "3 of 3 files are good"]
    capsys.readouterr()
    assert verify("deepcam", "--data.root", "kept") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"kept: {FORMS['deepcam']}"
    assert main(["data", "inspect", "deepcam"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"deepcam: {FORMS['cosmoflow']}"
    assert "no dataset: name its folder" in refusal(capsys, "verify", "cosmoflow")
