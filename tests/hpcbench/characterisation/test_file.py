"""The file of a characterisation: what is written is read again, and anything else is refused in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.machine import read_machine
from hpcbench.characterisation.file import read_characterisation, write_characterisation
from hpcbench.characterisation.machine_file import mounted_at, write_machine
from hpcbench.characterisation.model import Roof
from staging.errors import InputError
from tests.hpcbench.characterisation.made import made


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "made.json"
    write_characterisation(made(), path)
    assert read_characterisation(path) == made()
    values = json.loads(path.read_text())
    assert (values["what"], values["schema"]) == ("hpcbench characterisation", 1)


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"what": "a letter"}, "is no characterisation; `hpcbench characterize APP --out FILE` writes one"),
    ({"schema": 7}, "has schema 7 where this hpcbench reads 1"),
    ({"kernel": []}, "unknown key 'kernel'; did you mean 'kernels'"),
    ({"local_batch": "four"}, "local_batch (four) must be a whole number"),
    ({"local_batch": 2.5}, "local_batch (2.5) must be a whole number"),
    ({"useful_flop": True}, "useful_flop (true) must be a number"),
    ({"roofs": [{"resource": "luck"}]}, "roofs[0] lacks 'name'"),
    ({"host": 3}, "host must hold keys and values, not 3"),
    ({"roofs": [{"resource": "luck", "name": "", "value": 1, "unit": "s", "how": ""}]},
     "roofs[0].resource (luck) must be one of compute, memory"),
    ({"local_batch": 0}, "local_batch (0) must be at least 1"),
    ({"local_batch": -4}, "local_batch (-4) must be at least 1"),
    ({"accumulation": 0}, "accumulation (0) must be at least 1"),
    ({"parameters": 0}, "parameters (0) must be at least 1"),
    ({"parameters": 10**400}, "parameters (a number of more than 60 digits) must be at most"),
    ({"useful_flop": -1.0}, "useful_flop (-1.0) must be at least 0"),
    ({"kernels": []}, "kernels must not be empty"),
    ({"profile": {"copy": -1.0}}, "profile[copy] (-1.0) must be at least 0"),
    ({"configuration": {"parallel": 5}}, "configuration.parallel (5) must hold keys and values"),
    ({"configuration": {"parallel": {"spatial": "zzz"}}}, "configuration.parallel.spatial (zzz) must be a number of"),
    ({"configuration": {"parallel": {"spatial": "2"}}}, "configuration.parallel.spatial (2) splits a sample over 2"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), BROKEN)
def test_anything_else_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    write_characterisation(made(), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError) as error:
        read_characterisation(path)
    assert said in str(error.value)
    assert str(error.value).startswith(str(path))


BROKEN_WITHIN: list[tuple[str, int, str, object, str]] = [
    ("roofs", 0, "value", 0.0, "roofs[0].value (0.0) must be above 0"),
    ("roofs", 1, "value", -1e9, "roofs[1].value (-1000000000.0) must be above 0"),
    ("roofs", 0, "value", float("nan"), "roofs[0].value (nan) must be a number"),
    ("curves", 0, "bytes_per_s", 0.0, "curves[0].bytes_per_s (0.0) must be above 0"),
    ("steps", 0, "median_s", 0.0, "steps[0].median_s (0.0) must be above 0"),
    ("steps", 1, "ranks", 0, "steps[1].ranks (0) must be at least 1"),
    ("steps", 1, "rank_s", [1.0], "steps[1].rank_s has 1 values where steps[1].ranks is 2; give one for each rank"),
    ("steps", 0, "flop_per_s", [], "steps[0].flop_per_s has 0 values where steps[0].ranks is 1"),
    ("kernels", 0, "count", 0, "kernels[0].count (0) must be at least 1"),
    ("kernels", 0, "flop", 1e308, "kernels[0].flop (1e+308) must be at most 1e+30"),
    ("kernels", 0, "alone_s", -1.0, "kernels[0].alone_s (-1.0) must be at least 0"),
    ("messages", 0, "bytes", -1, "messages[0].bytes (-1) must be at least 0"),
]


@pytest.mark.parametrize(("part", "number", "field", "value", "said"), BROKEN_WITHIN)
def test_numbers_that_nothing_measures_are_refused(
    part: str, number: int, field: str, value: object, said: str, tmp_path: Path
) -> None:
    values = json.loads(written(tmp_path).read_text())
    values[part][number][field] = value
    with pytest.raises(InputError) as error:
        read_characterisation(rewritten(tmp_path, values))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("part", "field", "value", "said"),
    [
        ("host", "nodes", 0, "host.nodes (0) must be at least 1"),
        ("input", "train_samples", -5, "input.train_samples (-5) must be at least 1"),
        ("input", "stored_bytes", 0.0, "input.stored_bytes (0.0) must be above 0"),
        ("footprint", "written", -1, "footprint.written (-1) must be at least 0"),
    ],
)
def test_counts_that_cannot_be_are_refused(part: str, field: str, value: object, said: str, tmp_path: Path) -> None:
    values = json.loads(written(tmp_path).read_text())
    values[part][field] = value
    with pytest.raises(InputError) as error:
        read_characterisation(rewritten(tmp_path, values))
    assert said in str(error.value)


def written(folder: Path) -> Path:
    """The file of what was made by hand."""
    write_characterisation(made(), folder / "made.json")
    return folder / "made.json"


def rewritten(folder: Path, values: dict[str, Any]) -> Path:
    """The file with other values."""
    (folder / "made.json").write_text(json.dumps(values))
    return folder / "made.json"


def test_files_without_what_was_added_later_are_read(tmp_path: Path) -> None:
    values = json.loads(written(tmp_path).read_text())
    del values["longest"], values["messages"][0]["alone_s"]
    assert read_characterisation(rewritten(tmp_path, values)) == made()


def test_a_folder_is_no_characterisation(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; give the file that `hpcbench characterize --out FILE` wrote"):
        read_characterisation(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"), [("[1, 2]", "must hold a JSON object"), ("{", "is not JSON"), (None, "cannot be read")]
)
def test_what_is_no_json(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_characterisation(path)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_characterisation(made(), tmp_path / "file" / "made.json")
    with pytest.raises(InputError, match="give another name with --machine-out"):
        write_machine(made(), tmp_path / "file" / "made.yaml")


def test_a_machine_file_has_the_rates_of_a_node(tmp_path: Path) -> None:
    write_machine(made(), tmp_path / "mine.yaml")
    machine = read_machine(tmp_path / "mine.yaml")
    # Two ranks of four threads on a node, which counts as one device.
    assert (machine.accelerators, machine.devices, machine.cores, machine.memory_gib) == (0, 1, 8, 16)
    assert machine.accelerator_memory_gb_s == 2.0
    assert machine.peak_32bit_tflop_s == 0.04
    assert machine.peak_16bit_tflop_s is None
    (storage,) = machine.storage
    assert (storage.path, storage.read_gb_s, storage.write_gb_s) == ("/scratch", 0.2, 0.1)
    source = machine.source_of("peak_32bit_tflop_s")
    assert (source.url, source.read) == ("measured: hpcbench 0.1.0 on node-1", "2026-11-24")


def test_a_machine_file_names_the_storage_and_not_the_folder_that_was_probed(tmp_path: Path) -> None:
    folders = [tmp_path / "mine" / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
    roofs = tuple(Roof("read", str(folder), rate, "B/s", "") for folder, rate in zip(folders, (1e9, 3e9), strict=True))
    path = write_machine(made(roofs=(*made().roofs[:2], *roofs)), tmp_path / "mine.yaml")
    text = path.read_text(encoding="utf-8")
    assert "mine/a" not in text
    assert str(tmp_path) not in text
    assert "# The path of a storage is where the folder that was probed is mounted on the machine that wrote" in text
    # one storage with two folders, of which the faster tells what it gives to two ranks
    (storage,) = read_machine(path).storage
    assert storage.path is not None
    assert (storage.path, storage.read_gb_s) == (mounted_at(folders[0]), 6.0)
    assert folders[0].resolve().is_relative_to(storage.path)
    assert Path(storage.path).is_mount() or Path(storage.path).parent == Path("/")


def test_a_folder_of_another_machine_stays_as_it_is() -> None:
    assert mounted_at(Path("/no/such/scratch")) == "/no/such/scratch"
