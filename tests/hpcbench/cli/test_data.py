"""`hpcbench data`: simulation that resumes to the same bytes, verification that lists every bad file, inspection."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpcbench.cli.main import main

SIMULATE = ["data", "simulate", "cosmoflow", "--preset", "smoke", "--processes", "1", "--samples", "6",
            "--simulate.validation_samples", "3"]  # fmt: skip


def digests(root: Path) -> dict[str, str]:
    """Checksum of every file below ``root`` by its name."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 training and 3 validation samples, gzip TFRecord."""
    root = tmp_path_factory.mktemp("data") / "cosmoflow"
    assert main([*SIMULATE, "--out", str(root)]) == 0
    return root


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    """A copy of the dataset to damage."""
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line of error."""
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hpcbench: ")]
    assert len(lines) == 1
    return lines[0]


def test_simulation_resumes_to_the_same_bytes(dataset: Path, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    removed = [*sorted((copy / "train").iterdir())[1:4], *sorted((copy / "validation").iterdir())[:1]]
    kept = {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file() and path not in removed}
    for path in removed:
        path.unlink()
    assert main([*SIMULATE, "--out", str(copy)]) == 0
    assert "6 train, 3 validation samples" in capsys.readouterr().out
    assert digests(copy) == digests(dataset)
    assert len(digests(copy)) == 10
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_number_of_processes(dataset: Path, tmp_path: Path) -> None:
    assert main([*SIMULATE, "--processes", "3", "--out", str(tmp_path / "three")]) == 0
    assert digests(tmp_path / "three") == digests(dataset)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_full_disk_is_one_line_and_the_command_continues(
    processes: str, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder in the place of a file stands for what cannot be written."""
    root = tmp_path / "full"
    first = next(path for path in sorted((dataset / "train").iterdir()))
    command = [*SIMULATE, "--out", str(root), "--processes", processes]
    assert main([*SIMULATE, "--out", str(root)]) == 0
    (root / "train" / first.name).unlink()
    before = digests(root)
    (root / "train" / f"{first.name}.d").mkdir()
    (root / "train").rename(tmp_path / "train")
    (root / "train").write_text("no folder", encoding="utf-8")
    capsys.readouterr()
    assert main(command) == 2
    assert f"hpcbench: error: {root} cannot be written (" in capsys.readouterr().err
    (root / "train").unlink()
    (tmp_path / "train").rename(root / "train")
    (root / "train" / f"{first.name}.d").rmdir()
    assert main(command) == 0
    assert digests(root).items() >= before.items()


def test_more_samples_continue_a_dataset(dataset: Path, copy: Path) -> None:
    assert main([*SIMULATE, "--samples", "8", "--out", str(copy)]) == 0
    before, after = digests(dataset), digests(copy)
    assert len(after) == len(before) + 2
    assert {name: after[name] for name in before} == before


def test_another_configuration_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for setting, words in {
        ("--simulate.cell_mpc_h", "9.5"): "simulate.cell_mpc_h is",
        ("--seed", "1"): "simulate.seed is 2019 there, 1 here",
        ("--data.compression", "none"): "data.compression is 'gzip' there, 'none' here",
    }.items():
        before = digests(copy)
        assert main([*SIMULATE, "--out", str(copy), *setting]) == 2
        said = one_line(capsys)
        assert words in said
        assert "choose another --out" in said
        assert digests(copy) == before
    assert main(["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(copy)]) == 2
    assert "it holds cosmoflow data" in one_line(capsys)


def test_how_files_are_read_does_not_make_another_dataset(copy: Path) -> None:
    assert main([*SIMULATE, "--out", str(copy), "--data.workers", "2", "--data.apply_log", "false"]) == 0


def test_a_foreign_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("kept")
    assert main([*SIMULATE, "--out", str(tmp_path / "mine")]) == 2
    assert "is not empty and holds no simulated dataset" in one_line(capsys)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    assert main([*SIMULATE, "--out", str(tmp_path / "mine" / "thesis.tex")]) == 2
    assert "choose another --out" in one_line(capsys)


def test_a_damaged_manifest_is_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "simulated.json").write_text("{")
    assert main([*SIMULATE, "--out", str(copy)]) == 2
    assert "simulated.json: damaged" in one_line(capsys)


def test_what_simulation_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "simulate", "cosmoflow", "--preset", "smoke"]) == 2
    assert "required: --out; see hpcbench data simulate --help" in one_line(capsys)
    assert main([*SIMULATE, "--processes", "0", "--out", str(tmp_path / "new")]) == 2
    assert "--processes (0) must be at least 1" in one_line(capsys)
    assert main([*SIMULATE, "--simulate.universe_size", "32", "--out", str(tmp_path / "new")]) == 2
    assert "simulate.train_samples (6) must be a multiple of 8" in one_line(capsys)
    assert not any((tmp_path / "new").glob("*/*"))


def verify(capsys: pytest.CaptureFixture[str], root: Path, *settings: str) -> tuple[int, list[str]]:
    """Exit code and printed lines."""
    capsys.readouterr()
    words = ["data", "verify", "cosmoflow", "--preset", "smoke", "--data.root", str(root), "--processes", "1"]
    return main([*words, *settings]), capsys.readouterr().out.splitlines()


def test_a_good_dataset_is_good(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(capsys, dataset) == (0, ["9 of 9 files are good"])


def test_a_single_file_is_counted_as_one(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a dataset has one, and where a folder of samples does."""
    (file,) = sorted((dataset / "train").iterdir())[:1]
    monkeypatch.setattr("hpcbench.data.verify.dataset_files", lambda *_: [file])
    assert verify(capsys, dataset) == (0, ["1 of 1 file is good"])
    (tmp_path / file.name).write_bytes(file.read_bytes())
    assert main(["data", "inspect", "cosmoflow", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}: 1 file, ")


def test_every_bad_file_is_listed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, validation = sorted((copy / "train").iterdir()), sorted((copy / "validation").iterdir())
    cut, flipped, plain, flipped_within = train[0], train[2], train[5], validation[1]
    cut.write_bytes(cut.read_bytes()[:-30])
    flip(flipped, flipped.stat().st_size // 2)
    plain.write_bytes(gzip.decompress(plain.read_bytes()))
    within = bytearray(gzip.decompress(flipped_within.read_bytes()))
    within[1000] ^= 1
    flipped_within.write_bytes(gzip.compress(bytes(within), mtime=0))
    (copy / "train" / ".partial.tfrecord").write_bytes(b"")
    code, lines = verify(capsys, copy)
    assert code == 2
    assert lines[0] == "5 of 9 files are good"
    assert [line.split(": ")[0] for line in lines[1:]] == [str(path) for path in (cut, flipped, plain, flipped_within)]
    assert "gzip" in lines[3]
    assert "none" in lines[3]
    assert "checksum" in lines[4] or "CRC" in lines[4]


def flip(path: Path, position: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_gzip_where_plain_was_said_is_said_of_every_file(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = verify(capsys, dataset, "--data.compression", "none", "--data.train_samples", "2")
    assert code == 2
    assert lines[0] == "0 of 5 files are good"
    assert all("gzip" in line for line in lines[1:])


def test_verify_without_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify", "cosmoflow"]) == 2
    assert "no dataset: name its folder, as in `hpcbench data verify cosmoflow DIR`" in one_line(capsys)
    assert main(["data", "verify", "cosmoflow", "--data.root", str(tmp_path / "gone")]) == 2
    assert "gone" in one_line(capsys)


def test_inspect_a_file(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sorted((dataset / "train").iterdir())[0]
    assert main(["data", "inspect", "cosmoflow", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == str(path)
    assert "TFRecord, gzip" in text
    assert "(16, 16, 16, 4) int16" in text
    particles = json.loads((dataset / "simulated.json").read_text())["simulate"]["particles_per_cell"]
    assert f"min 0, mean {particles}, max" in text


@pytest.mark.slow
def test_the_input_is_standardized_by_what_inspect_prints(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sorted((dataset / "validation").iterdir())[0]
    assert main(["data", "inspect", "cosmoflow", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = {word: line.split("channel")[1].strip() for word in ("mean", "std")
               for line in lines if line.split()[0] == word}  # fmt: skip
    words = ["--preset", "smoke", "--data.root", str(dataset), "--data.validation_samples", "1"]
    words += ["--train.max_epochs", "1", "--train.target", "null", "--train.baselines", "false"]
    for name, more in (("plain", []), ("own", [f"--data.input_{key}=[{values}]" for key, values in printed.items()])):
        assert main(["train", "cosmoflow", "--run-dir", str(tmp_path / name), *words, *more]) == 0
    seen = {name: np.load(tmp_path / name / "examples.npz")["slice"][0] for name in ("plain", "own")}
    mean, std = (np.array(list(map(float, printed[key].split(","))))[:, None, None] for key in ("mean", "std"))
    assert seen["plain"].min() == 0
    assert seen["own"] == pytest.approx((seen["plain"] - mean) / std, abs=1e-5)
    assert np.abs(seen["own"].mean(axis=(1, 2))).max() < 0.3


def test_inspect_a_folder(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", "cosmoflow", str(dataset)]) == 0
    text = capsys.readouterr().out
    assert f"{dataset / 'train'}: 6 files" in text
    assert f"{dataset / 'validation'}: 3 files" in text


def test_what_inspect_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.tfrecord").write_bytes(b"not a record, only words that go on for a while")
    for path, words in {
        "gone": "does not exist", "empty": "holds no dataset file", "note.tfrecord": "note.tfrecord",
    }.items():  # fmt: skip
        assert main(["data", "inspect", "cosmoflow", str(tmp_path / path)]) == 2
        assert words in one_line(capsys)
    assert main(["data", "inspect", "cosmoflow"]) == 2
    assert "data inspect: name the files to inspect" in one_line(capsys)


def test_inspect_says_that_a_file_has_no_datasets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data-1.h5"
    h5py.File(path, "w").close()
    assert main(["data", "inspect", "deepcam", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n  datasets  none\n"


@pytest.fixture
def universe(tmp_path: Path) -> Path:
    """A universe of 16^3 x 4 counts, as published."""
    path = tmp_path / "21688988" / "univ_a.hdf5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file["full"] = np.arange(16**3 * 4, dtype=np.int16).reshape(16, 16, 16, 4)
        file["unitPar"] = np.linspace(-1, 1, 4, dtype=np.float32)
    return path


def split(out: Path, *words: object) -> int:
    """Exit code of a split into samples of 8^3."""
    common = ["data", "split", "cosmoflow", "--preset", "smoke", "--data.sample_size", "8", "--out", str(out)]
    return main([*common, *map(str, words)])


def test_a_universe_is_split_into_samples_that_verify(
    universe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = universe.with_name("univ_b.hdf5")
    shutil.copy(universe, other)
    assert split(tmp_path / "set" / "train", universe, other, "--processes", "2") == 0
    assert split(tmp_path / "set" / "validation", universe) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path / 'set' / 'validation'}: 8 samples"
    code, lines = verify(capsys, tmp_path / "set", "--data.sample_size", "8")
    assert (code, lines) == (0, ["24 of 24 files are good"])


def test_a_split_continues_and_overwrites_nothing(
    universe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "train"
    assert split(out, universe) == 0
    first = digests(out)
    victim = sorted(out.iterdir())[3]
    victim.unlink()
    assert split(out, universe) == 0
    assert digests(out) == first
    with h5py.File(universe, "r+") as file:
        file["full"][0, 0, 0, 0] = 7
    assert split(out, universe) == 2
    assert "is in the way of a sample, and holds other counts" in one_line(capsys)
    assert split(out, universe, "--data.compression", "none") == 2
    assert "is in the way of a sample" in one_line(capsys)
    assert digests(out) == first


def test_what_split_refuses(universe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "train"
    for words, said in {
        (): "the following arguments are required: PATH; see hpcbench data split --help",
        (tmp_path / "gone.hdf5",): "gone.hdf5: no such file; name the files to split",
        (universe, "--data.sample_size", "24"): "multiple of data.sample_size (24)",
    }.items():
        assert split(out, *words) == 2
        assert said in one_line(capsys)
    assert main(["data", "split", "cosmoflow", str(universe)]) == 2
    assert "the following arguments are required: --out; see hpcbench data split --help" in one_line(capsys)
    assert main(["data", "split", "deepcam", str(universe), "--out", str(out)]) == 2
    assert "deepcam has no files to split" in one_line(capsys)
    twin = tmp_path / "more" / universe.parent.name / universe.name
    twin.parent.mkdir(parents=True)
    shutil.copy(universe, twin)
    assert split(out, universe, twin, "--processes", "1") == 2
    assert "both give" in one_line(capsys)
