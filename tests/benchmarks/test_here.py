"""Predictions for this machine: each row has a measurement of its own, and messages are those of the curves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import _here
import numpy as np
import pytest

from hpcbench.characterisation.model import Characterisation
from tests.hpcbench.prediction.test_kernel_time import characterisation_with, kernel
from tests.hpcbench.prediction.test_message_time import characterised


def test_rows_do_not_share_a_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[int, tuple[int, ...]]] = []

    def timed(application: str, preset: str, repeats: int, seconds: float, ranks: int, batches: tuple[int, ...],
              folder: Path) -> dict[int, list[float]]:  # fmt: skip
        asked.append((ranks, batches))
        return {batch: [float(len(asked))] for batch in batches}

    kernels = SimpleNamespace(device_s=lambda case: np.asarray(0.1))
    monkeypatch.setattr(_here, "timed", timed)
    monkeypatch.setattr(_here, "characterise", lambda *words: characterised())
    monkeypatch.setattr(_here, "kernels_of", lambda path: (kernels, _here.work_of("cosmoflow"), "", None))
    rows = _here.steps_here(["cosmoflow"], "smoke", 1, 0.1, tmp_path)
    assert asked == [(1, (3, 4, 6)), (1, (3,)), (2, (3,))]
    assert [(row["what"], row["median_s"]) for row in rows] == [
        ("cosmoflow, local batch 3", 1), ("cosmoflow, local batch 4", 1), ("cosmoflow, local batch 6", 1),
        ("cosmoflow, one node", 2), ("cosmoflow, two nodes", 3),
    ]  # fmt: skip


def test_messages_are_those_of_the_curves() -> None:
    assert seconds(characterised()) == pytest.approx(4 * 1e-3 + 8e6 / 1e8 + 6 * 5e-4 + 2e6 / 2e8)
    assert seconds(characterisation_with(kernel("copy", 0, 1e9, 1))) == 0


def seconds(characterisation: Characterisation) -> Any:
    return _here.message_s(characterisation)


def test_a_row_says_whether_its_goal_is_met() -> None:
    row = _here.row("steps", "step", 1.05, [1.0, 0.9, 1.1])
    assert (row["error"], row["met"]) == (pytest.approx(0.05), True)
    assert not _here.row("staging", "staging", 1.3, [1.0])["met"]


@pytest.mark.slow
def test_staging_is_predicted_from_its_plan_and_a_probe(tmp_path: Path) -> None:
    rows = _here.staging_here(tmp_path, tmp_path, 1, 4, 65536, 0.5)
    assert [row["what"] for row in rows] == ["staging to memory", "staging to disk"]
    assert all(row["predicted_s"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []
