"""Measurements that a record of predictions takes over say when and where they were made."""

from __future__ import annotations

from typing import Any

from prediction import measured_before

OLD: dict[str, Any] = {"command": "python benchmarks/prediction.py --here", "commit": "a1", "date": "2026-11-01",
                       "machine": {"cores": 2}}  # fmt: skip


def test_measurements_keep_their_own_source_however_often_the_rest_is_made_again() -> None:
    first = measured_before({**OLD, "results": {"published": {}, "here": [1]}})
    assert first == {"here": [1], "here_measured": OLD}
    later = {
        "command": "python benchmarks/prediction.py",
        "commit": "b2",
        "date": "2026-11-02",
        "machine": {"cores": 4},
    }
    assert measured_before({**later, "results": {"published": {}, **first}}) == first
    assert measured_before({**later, "results": {"published": {}}}) == {}
