"""What the benchmark of thousands of logs times: reading and scoring, and drawing, at first and again."""

from __future__ import annotations

from pathlib import Path

import published_logs
import pytest
from published_logs import Taken, measure


def test_reading_and_drawing_are_timed_with_caches_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[tuple[str, bool, Path]] = []

    def timed(words: list[str], cache: Path) -> Taken:
        run.append((words[3] if words[1] == "-m" else "json", "--out" in words, cache))
        return Taken(1.0, 1.0, "3")

    monkeypatch.setattr(published_logs, "timed", timed)
    taken = measure(tmp_path / "rounds", tmp_path, 2)
    expected = ["results at first", "results again", "analyze at first", "analyze again", "json"]
    assert {name: len(times) for name, times in taken.items()} == dict.fromkeys(expected, 2)
    assert [command for command, _, _ in run] == ["results", "results", "analyze", "analyze", "json"] * 2
    assert all(draws is (command == "analyze") for command, draws, _ in run)
    caches = [cache for command, _, cache in run if command != "json"]
    assert caches[::2] == caches[1::2], "again is with what was kept at first"
    assert len(set(caches[::2])) == 4
