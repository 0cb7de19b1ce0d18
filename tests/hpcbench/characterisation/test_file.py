"""The file of a characterisation: what is written is read again, and anything else is refused in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.machine import read_machine
from hpcbench.characterisation.file import read_characterisation, write_characterisation
from hpcbench.characterisation.machine_file import write_machine
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
    with pytest.raises(InputError, match="give another --machine-out"):
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
