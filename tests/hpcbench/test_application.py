"""What an application may leave out, and what is said of one that is missing or broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.application import Application, applications, find_application
from hpcbench.config.resolve import config_class
from hpcbench.config.schema import DataConfig, RunConfig
from hpcbench.data.files import dataset_files, files_of_split, sample_files
from hpcbench.data.inspect import describe
from hpcbench.data.loader import first_samples
from hpcbench.data.simulate import simulate_dataset
from hpcbench.data.verify import verify_dataset
from staging.errors import DataError, InputError
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.stage import stage

WriteApplication = Callable[..., Application]


@pytest.fixture
def write_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteApplication:
    """``write_application("name", data="source")`` makes an application of the given modules alone."""
    monkeypatch.syspath_prepend(tmp_path / "packages")

    def write(name: str, **modules: str) -> Application:
        folder = tmp_path / "packages" / name
        folder.mkdir(parents=True)
        for part, source in {"__init__": "", **modules}.items():
            (folder / f"{part}.py").write_text(source, encoding="utf-8")
        return Application(name=name, title="none", benchmark=name, package=name)

    return write


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two training samples, one of them deeper, one validation sample, and files that are none."""
    root = tmp_path / "set"
    for name in ("train/b.npy", "train/deep/a.npy", "train/.b.npy.part", "validation/c.npy", "notes.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_an_application_without_settings_of_its_own_has_the_common_ones(write_application: WriteApplication) -> None:
    assert config_class(write_application("plain_settings")) is RunConfig


def test_files_of_a_split_are_those_below_its_folder_unless_the_application_says(
    write_application: WriteApplication, dataset: Path
) -> None:
    config = RunConfig(data=DataConfig(root=str(dataset)))
    silent = write_application("silent_files", data="")
    assert files_of_split(silent, config, "train") == [dataset / "train/b.npy", dataset / "train/deep/a.npy"]
    assert dataset_files(silent, config)[-1] == dataset / "validation/c.npy"
    speaking = write_application(
        "speaking_files",
        data="from pathlib import Path\n"
        "def files_of_split(config, split): return [Path(config.data.root) / f'{split}.bin']\n"
        "def shared_files(config): return [Path(config.data.root) / 'mean.bin']\n",
    )
    names = [path.name for path in dataset_files(speaking, config)]
    assert names == ["mean.bin", "train.bin", "validation.bin"]
    one_file = write_application(
        "one_file_files",
        data="from pathlib import Path\n"
        "def files_of_split(config, split): return [Path(config.data.root) / 'all.h5']\n",
    )
    assert dataset_files(one_file, config) == [dataset / "all.h5"], "a file of both splits is read once"


def test_a_dataset_of_another_layout_needs_a_list_of_its_files(
    write_application: WriteApplication, tmp_path: Path
) -> None:
    config = RunConfig(data=DataConfig(root=str(tmp_path)))
    with pytest.raises(InputError, match=r"train: no such folder; add files_of_split\(config.* to odd_files.data"):
        dataset_files(write_application("odd_files", data=""), config)


def test_a_split_without_files_is_refused_and_not_called_good(
    write_application: WriteApplication, dataset: Path
) -> None:
    check = "def check_file(path, config): pass\n"
    config = RunConfig(data=DataConfig(root=str(dataset)))
    silent = write_application("silent_empty", data=check)
    (dataset / "validation/c.npy").unlink()
    with pytest.raises(DataError, match=r"set/validation: holds no file; set data.root to the dataset, or make one"):
        verify_dataset(silent, config)
    (dataset / "train/b.npy").unlink()
    (dataset / "train/deep/a.npy").unlink()
    with pytest.raises(DataError, match=r"set/train: holds no file; "):
        verify_dataset(silent, config)
    speaking = write_application("speaking_empty", data=f"{check}def files_of_split(config, split): return []\n")
    with pytest.raises(InputError, match=r"speaking_empty names no file in .*/set; mend files_of_split in its data.py"):
        verify_dataset(speaking, config)


def test_commands_name_the_part_that_they_miss(
    write_application: WriteApplication, dataset: Path, tmp_path: Path
) -> None:
    application = write_application("bare_parts", data="")
    config = RunConfig(data=DataConfig(root=str(dataset)))
    with pytest.raises(InputError, match=r"bare_parts cannot verify files; add check_file\(path, config\) to its"):
        verify_dataset(application, config)
    with pytest.raises(InputError, match=r"bare_parts cannot say what a file holds; add inspect_file\(path\) to its"):
        describe(application, dataset)
    with pytest.raises(InputError, match="bare_parts has no simulator; bring the dataset"):
        simulate_dataset(application, config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_simulator_needs_only_to_write_and_to_name_its_files(
    write_application: WriteApplication, tmp_path: Path
) -> None:
    application = write_application(
        "short_simulator",
        simulate="def expected_files(config, root, split, index): return [root / f'{split}{index}']\n"
        "def write_sample(config, root, split, index): (root / f'{split}{index}').write_bytes(b'abc')\n",
    )
    config = RunConfig()
    config.simulate.train_samples, config.simulate.validation_samples = 3, 2
    written = simulate_dataset(application, config, tmp_path / "out", processes=1, quiet=True)
    assert (written.samples, written.bytes) == ({"train": 3, "validation": 2}, 15)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"train0", "train1", "train2", "validation0", "validation1", "simulated.json"}


def test_sample_files_are_the_first_by_name_as_many_as_asked_for(dataset: Path) -> None:
    (dataset / "train" / "a.npy").touch()
    assert sample_files(DataConfig(root=str(dataset)), "train", ".npy") == [
        dataset / "train/a.npy",
        dataset / "train/b.npy",
    ]
    one = DataConfig(root=str(dataset), train_samples=1)
    assert sample_files(one, "train", ".npy") == [dataset / "train/a.npy"]
    with pytest.raises(InputError, match=r"data.train_samples \(3\) must be between 1 and 2, the samples in .*; lower"):
        sample_files(DataConfig(root=str(dataset), train_samples=3), "train", ".npy")


def test_the_first_samples_of_any_dataset() -> None:
    samples = [10, 11, 12]
    assert first_samples(samples, None, "data.train_samples") is samples
    assert first_samples(samples, 3, "data.train_samples") is samples
    assert list(first_samples(samples, 2, "data.train_samples")) == [10, 11]
    with pytest.raises(InputError, match=r"data.train_samples \(4\) is more than the 3 samples of the dataset; lower"):
        first_samples(samples, 4, "data.train_samples")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed application whose package is gone, beside one that works."""
    points = [
        EntryPoint(name="broken", value="no_such_package:application", group="hpcbench.apps"),
        EntryPoint(name="cosmoflow", value="apps.cosmoflow:application", group="hpcbench.apps"),
    ]
    monkeypatch.setattr(plugins, "registered", lambda group: points)
    find_application.cache_clear()
    yield
    find_application.cache_clear()


@pytest.mark.usefixtures("broken")
def test_a_broken_application_is_named_and_does_not_stop_the_others() -> None:
    assert find_application("cosmoflow").package == "apps.cosmoflow"
    words = r"application 'broken' \(no_such_package:application\) cannot be imported \(ModuleNotFound.*uninstall"
    with pytest.raises(InputError, match=words):
        find_application("broken")
    with pytest.raises(InputError, match=words):
        applications()
    with pytest.raises(InputError, match="unknown application 'cosmoflo'; did you mean 'cosmoflow'"):
        find_application("cosmoflo")


def test_files_of_a_staged_split_are_those_that_staging_put_there(
    write_application: WriteApplication, dataset: Path, tmp_path: Path
) -> None:
    stage(StageOptions(dataset, str(tmp_path / "staged")), Alone("here"), quiet=True)
    (tmp_path / "staged" / "train" / "foreign.npy").write_bytes(b"not of this set")
    config = RunConfig(data=DataConfig(root=str(tmp_path / "staged")))
    files = files_of_split(write_application("silent_staged", data=""), config, "train")
    assert files == [tmp_path / "staged" / "train" / name for name in ("b.npy", "deep/a.npy")]
    (tmp_path / "way").symlink_to(tmp_path / "staged")
    linked = files_of_split(
        write_application("silent_linked", data=""), RunConfig(data=DataConfig(root=str(tmp_path / "way"))), "train"
    )
    assert linked == [tmp_path / "way/train" / name for name in ("b.npy", "deep/a.npy")]
