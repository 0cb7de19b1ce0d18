"""Logs that nobody should have written: what can be read of them is, and they spoil no other log of their round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import hpcbench.mlperf.read_runs as reading
from hpcbench.cli.main import main
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.mlperf.runs_table import runs_frame
from tests.hpcbench.mlperf.test_read_log import (
    COSMOFLOW,
    DEEPCAM,
    WITHIN_EPOCHS,
    Line,
    altered,
    changed,
    in_round,
    record_of,
)

HUGE = 10**400
DEEP = f":::MLLOG {'[' * 100_000}\n"
ESCAPE, SURROGATE = "a\x1b[31mb\nc", "a\ud800b"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept in the cache of the user who runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def read_altered(tmp_path: Path, change: Callable[[Line], Line | None], log: Path = COSMOFLOW) -> RunRecord:
    """The record of a changed copy of a log, from which a table can be made."""
    found = record_of(altered(log, tmp_path / "altered", change))
    runs_frame([found])
    return found


def numbered(step: int) -> Callable[[Line], Line]:
    """Gives the number of a step to each evaluation and each end of an epoch."""

    def change(line: Line) -> Line:
        named = line["key"].startswith("eval_") or line["key"] == "epoch_stop"
        return line | {"metadata": line["metadata"] | {"step_num": step}} if named else line

    return change


@pytest.mark.parametrize("key", ["global_batch_size", "number_of_nodes", "accelerators_per_node", "train_samples"])
@pytest.mark.parametrize("value", [HUGE, -HUGE, math.inf, math.nan, 1e300])
def test_a_count_out_of_range_is_unknown(key: str, value: float, tmp_path: Path) -> None:
    found = read_altered(tmp_path, changed(key, value=value))
    unknown = {"number_of_nodes": "nodes", "accelerators_per_node": "accelerators"}.get(key, key)
    assert getattr(found, unknown) is None
    assert found.epochs == 35


def test_a_product_of_counts_out_of_range_is_unknown(tmp_path: Path) -> None:
    """Each count is in range, and a column of 64-bit numbers could not hold their product."""
    scale = {"number_of_nodes", "accelerators_per_node"}
    found = read_altered(tmp_path, lambda line: line | {"value": 8 * 10**15} if line["key"] in scale else line)
    assert (found.nodes, found.accelerators) == (8 * 10**15, None)
    assert f"{8 * 10**15:,} nodes x {8 * 10**15:,} accelerators are out of range, so unknown" in found.notes


@pytest.mark.parametrize("line", [DEEP, f':::MLLOG {{"key": "x", "value": 1, "metadata": {{}}, "time_ms": {HUGE}}}\n'])
def test_a_line_that_no_parser_takes_is_a_note(line: str, tmp_path: Path) -> None:
    log = tmp_path / "result_0.txt"
    log.write_text(COSMOFLOW.read_text() + line)
    found = record_of(log)
    assert found.epochs == 35
    assert found.notes[0].startswith("1 line cannot be read, the first: line ")


def test_lines_of_steps_that_no_parser_takes_are_counted(tmp_path: Path) -> None:
    """The other lines of steps are passed over, unparsed; one that another program would have written is no fault."""
    log = tmp_path / "result_0.txt"
    step = '{"key": "train_loss", "value": [1], "metadata": {"step_num": 7}, "time_ms": 1e3}'
    log.write_text(DEEPCAM.read_text() + f":::MLLOG {step}\n" + f":::MLLOG {step[:-20]}\n" * 2)
    found = record_of(log)
    assert found.notes[0].startswith("2 lines cannot be read, the first: line ")
    log.write_text(DEEPCAM.read_text())
    whole = record_of(log)
    assert not whole.notes
    assert replace(found, notes=[]) == whole


def test_numbers_of_steps_out_of_range_are_not_compared(tmp_path: Path) -> None:
    """They say whether an epoch trains on after its evaluation."""
    found = read_altered(tmp_path, numbered(HUGE), WITHIN_EPOCHS)
    assert len(found.epochs_s) == 24


@pytest.mark.parametrize(("number", "what"), [(-3, "-3"), (0, "0"), (HUGE, "out of range"), ("3", "missing")])
def test_epochs_that_cannot_be_are_unknown(number: Any, what: str, tmp_path: Path) -> None:
    found = read_altered(tmp_path, changed("eval_error", metadata={"epoch_num": number}))
    assert found.epochs is None
    assert f"epoch_num of the last evaluation is {what}, so the epochs are unknown" in found.notes


@pytest.mark.parametrize(("text", "shown"), [(ESCAPE, "a\\x1b[31mb c"), (SURROGATE, "a\\ud800b")])
def test_text_is_printable(text: str, shown: str, tmp_path: Path) -> None:
    keys = {"submission_org": "organization", "submission_platform": "system", "submission_benchmark": "application",
            "submission_division": "division", "submission_status": "category", "opt_name": "optimizer"}  # fmt: skip
    found = read_altered(tmp_path, lambda line: line | {"value": text} if line["key"] in keys else line)
    assert {getattr(found, name) for name in keys.values()} == {shown}
    assert found.recipe["opt_name"] == shown


def test_settings_are_numbers_and_text_of_moderate_size(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(20):
        deep = [deep]
    values = {"opt_weight_decay": HUGE, "opt_base_learning_rate": {"a": 1}, "opt_name": deep}
    found = read_altered(
        tmp_path, lambda line: line | {"value": values[line["key"]]} if line["key"] in values else line
    )
    assert found.recipe["opt_weight_decay"] == math.inf
    assert found.recipe["opt_base_learning_rate"] == "a dict"
    assert json.dumps(found.recipe["opt_name"]) == '[[["a list"]]]'


def test_whatever_a_log_does_the_others_of_its_round_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if reading it fails in a way that nobody foresaw."""
    good, bad = (in_round(tmp_path, DEEPCAM, name=f"result_{number}.txt") for number in range(2))
    read = reading.read_log

    def fail(location: Any) -> RunRecord:
        if location.path == bad:
            raise OverflowError("int too large to convert to float")
        return read(location)

    monkeypatch.setattr(reading, "read_log", fail)
    assert main(["results", str(tmp_path), "--out", str(tmp_path / "runs.csv")]) == 0
    assert f"{bad.name}: cannot be read (OverflowError: int too large" in " ".join(capsys.readouterr().out.split())
    assert list(pd.read_csv(tmp_path / "runs.csv")["path"]) == [str(good), str(bad)]
    assert main(["results", str(bad)]) == 2
    said = capsys.readouterr().err
    assert "result_1.txt: cannot be read (OverflowError: int too large to convert to float); leave it out" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("text", [ESCAPE, SURROGATE])
@pytest.mark.parametrize("command", ["results", "check"])
def test_a_terminal_gets_no_control_characters(
    command: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("submission_platform", "submission_benchmark", "submission_division", "submission_org")
    log = altered(DEEPCAM, tmp_path / "made", lambda line: line | {"value": text} if line["key"] in keys else line)
    assert main([command, str(log)]) == (0 if command == "results" else 1)
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert "\\x1b" in shown or "\\ud800" in shown


@pytest.mark.slow
def test_an_analysis_is_written_of_such_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = altered(
        DEEPCAM, tmp_path / "altered", lambda line: line | {"value": SURROGATE + ESCAPE}
        if line["key"] == "submission_platform" else line
    )  # fmt: skip
    assert main(["analyze", str(log), str(DEEPCAM), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()
    assert "a\\ud800ba\\x1b[31mb c" in (tmp_path / "out" / "tables" / "pairs.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["results", "check"])
def test_a_description_that_no_parser_takes(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = in_round(tmp_path, DEEPCAM)
    (log.parents[4] / "systems" / "box.json").write_text("[" * 100_000)
    assert main([command, str(tmp_path / "v1.0")]) == (0 if command == "results" else 1)
    assert "box.json" in capsys.readouterr().out


def test_a_file_of_parameters_that_is_not_text_is_a_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the official package checker, which opens it as text."""
    log = in_round(tmp_path, DEEPCAM)
    (log.parent / "package_checker_params").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "v1.0", log.parent):
        assert main(["check", str(path)]) == 1
        shown = " ".join(capsys.readouterr().out.split())
        assert "crash: package_checker_params in box or deepcam: UnicodeDecodeError" in shown
