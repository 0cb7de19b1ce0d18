"""Two records of simulated datasets differ in the first setting that both have with different values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.data.simulate import claim
from hpcbench.data.simulated_set import RECORD, difference, difference_of_texts, read_record, record_text
from staging.errors import InputError

FIRST: dict[str, Any] = {
    "application": "deepcam", "data": {"height": 48}, "simulate": {"seed": 2019, "rivers_per_sample": 4.0},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, None),
        ({"application": "cosmoflow"}, ("application", "deepcam", "cosmoflow")),
        ({"data": {"height": 96}}, ("data.height", "48", "96")),
        ({"simulate": {"seed": 7, "rivers_per_sample": 4.0}}, ("simulate.seed", "2019", "7")),
        ({"simulate": {"seed": 2019, "fronts": 3}}, None),
        ({"simulate": None}, None),
    ],
)
def test_the_first_difference_is_named(changed: dict[str, Any], found: tuple[str, str, str] | None) -> None:
    assert difference(FIRST, FIRST | changed) == found
    assert difference_of_texts(json.dumps(FIRST), json.dumps(FIRST | changed)) == found


def test_a_dataset_without_a_record_differs_from_none(tmp_path: Path) -> None:
    assert record_text("") == record_text(str(tmp_path)) == ""
    (tmp_path / RECORD).write_text("[1]", encoding="utf-8")
    assert read_record(tmp_path) is None
    (tmp_path / RECORD).write_text(json.dumps(FIRST), encoding="utf-8")
    assert read_record(tmp_path) == FIRST
    text = record_text(str(tmp_path))
    assert "\n" not in text
    assert difference_of_texts(text, "") is difference_of_texts("", text) is difference_of_texts("[]", text) is None


def test_a_simulation_that_was_killed_while_it_wrote_its_record_begins_again(tmp_path: Path) -> None:
    wanted = {"application": "one", "data": {}, "simulate": {}}
    (tmp_path / f".{RECORD}.0123456789ab.part").write_text("{")
    claim(tmp_path, wanted)
    assert read_record(tmp_path) == wanted
    (tmp_path / RECORD).rename(tmp_path / "mine")
    with pytest.raises(InputError, match="is not empty and holds no simulated dataset"):
        claim(tmp_path, wanted)


@pytest.mark.parametrize(
    "text", ["[]", "null", '{"data": 3}', '{"application": "one", "data": {}, "simulate": []}', "{"]
)
def test_a_record_that_is_damaged_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(InputError, match="damaged; remove the folder or choose another --out"):
        claim(tmp_path, {"application": "one", "data": {}, "simulate": {}})
