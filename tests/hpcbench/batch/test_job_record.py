"""Damaged and edited records of a run folder are told in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.holds import Hold, read_hold, write_hold
from hpcbench.batch.job_record import read_job
from hpcbench.batch.packed_runs import PackedRuns, packed_runs
from hpcbench.batch.warning_time import too_short
from staging.errors import DataError, InputError

RECORD = {
    "job_id": "17", "scheduler": "slurm", "site": "here", "submitted": "2026-11-26T05:00:00+00:00", "mark": "a",
    "warn_s": 120, "packed_runs": PackedRuns({"a": ("x",)}, 2).as_dict(),
}  # fmt: skip
WRONG: list[Any] = [None, 7, -1, 1.5, "abc", [], {}, True, 10**30, ["x"], [[7]], float("nan")]


def written(folder: Path, changes: dict[str, Any]) -> None:
    (folder / "job.json").write_text(json.dumps(RECORD | changes))


@pytest.mark.parametrize("field", ["scheduler", "site", "submitted", "job_id", "mark", "warn_s"])
@pytest.mark.parametrize("value", WRONG, ids=str)
def test_a_record_with_a_field_of_another_type(field: str, value: Any, tmp_path: Path) -> None:
    written(tmp_path, {field: value})
    right = {"job_id": (None, "abc"), "mark": ("abc",), "warn_s": (None, 7), "site": ("abc",)}.get(field, ())
    if any(type(value) is type(each) and value == each for each in right):
        assert read_job(tmp_path).site
        return
    with pytest.raises(InputError, match=f"is damaged .*{field}|is damaged .*isoformat|unknown scheduler"):
        read_job(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "[" * 100_000], ids=lambda text: text[:2])
def test_a_record_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(text)
    for read in (read_job, packed_runs):
        with pytest.raises(DataError, match="is damaged"):
            read(tmp_path)
    assert too_short(tmp_path) == []


@pytest.mark.parametrize("field", ["job_id", "attempt", "scheduler", "mark", "nodes", "process", "host", "began"])
@pytest.mark.parametrize("value", WRONG, ids=str)
def test_a_hold_with_a_field_of_another_type(field: str, value: Any, tmp_path: Path) -> None:
    path = write_hold(tmp_path, Hold.here("17", 1, "slurm", "a", 2, 3), 1).with_suffix(".json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    right = {"attempt": int, "nodes": int, "process": int, "began": (int, float)}.get(field, str)
    if isinstance(value, right) and not isinstance(value, bool) and value in (7, 1.5, "abc"):
        assert getattr(read_hold(tmp_path, 1), field) == value
        return
    with pytest.raises(DataError, match=f"is damaged .*{field}"):
        read_hold(tmp_path, 1)


@pytest.mark.parametrize("field", list(RECORD["packed_runs"]))  # type: ignore[call-overload]
@pytest.mark.parametrize("value", ["x", 1.5, -1, 10**30, [7], [["x"], 7], {"a": "x"}, None], ids=str)
def test_packed_runs_with_a_field_of_another_type(field: str, value: Any, tmp_path: Path) -> None:
    written(tmp_path, {"packed_runs": RECORD["packed_runs"] | {field: value}})  # type: ignore[operator]
    with pytest.raises(DataError, match=f"is damaged .*{field}"):
        packed_runs(tmp_path)


def test_what_the_suite_writes_is_read(tmp_path: Path) -> None:
    written(tmp_path, {})
    assert (read_job(tmp_path).job_id, read_job(tmp_path).mark) == ("17", "a")
    assert packed_runs(tmp_path) == PackedRuns({"a": ("x",)}, 2)
    written(tmp_path, {"packed_runs": None})
    assert packed_runs(tmp_path) is None
    hold = Hold.here("17", 1, "slurm", "a", 2, 3)
    write_hold(tmp_path, hold, 1)
    assert read_hold(tmp_path, 1).began == hold.began
