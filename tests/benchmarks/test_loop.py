"""The benchmark of the loop says whether its bounds are met, and fails where one is not."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import loop
import pytest

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "benchmarks" / "results" / "loop.json").read_text(encoding="utf-8"))["results"]


def test_the_record_meets_the_bounds() -> None:
    assert RECORD.keys() == loop.STEPS.keys()
    assert loop.beyond_bounds(RECORD) == []


@pytest.mark.parametrize(("figure", "words"), [
    ("loop_over_bare", "cosmoflow over bare steps 1.051 of 1.05"),
    ("loop_over_steps_with_input", "cosmoflow over steps with their input 1.051 of 1.05"),
    ("peak_memory_ratio", "cosmoflow memory 1.101 of 1.10"),
    ("", ""),
])  # fmt: skip
def test_the_last_line_says_whether_the_bounds_are_met(
    figure: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = copy.deepcopy(RECORD["cosmoflow"])
    if figure == "peak_memory_ratio":
        found[figure] = 1.101
    elif figure:
        found[figure]["median"] = 1.051
    monkeypatch.setattr(loop, "measure", lambda *words: found)
    monkeypatch.setattr(loop, "simulate_dataset", lambda *words, **more: None)
    monkeypatch.setattr(loop, "write_results", lambda name, results: tmp_path / "loop.json")
    monkeypatch.setenv(loop.SWITCH, "1")
    monkeypatch.setattr(sys, "argv", ["loop.py", "--only", "cosmoflow"])
    if not figure:
        loop.main()
        assert capsys.readouterr().out.splitlines()[-1] == "met: at most 1.05, memory at most 1.10"
        return
    with pytest.raises(SystemExit) as ended:
        loop.main()
    assert ended.value.code == f"missed: {words}"  # which Python prints, and ends with 1
