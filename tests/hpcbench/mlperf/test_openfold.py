"""Entries of OpenFold: ``results`` and ``check`` compare their samples with the reference convergence points."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from hpcbench.cli.main import main
from hpcbench.mlperf.convergence_check import checker, olympic
from tests.hpcbench.mlperf.openfold import TRAIN_SAMPLES, make_entry


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept in the cache of the user who runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def point() -> list[float]:
    """Samples of the runs of the reference at batch 128, by the official package."""
    records = checker("openfold", "3.0.0").rcp_data.values()
    return next(record["Epochs to converge"] for record in records if record["BS"] == 128)


@pytest.mark.parametrize(("samples", "verdict", "rules", "factor"), [
    (95_000, "accepted", "kept", 1.0), (86_000, "accepted, normalised by", "kept", None),
    (70_000, "too fast", "broken", None),
])  # fmt: skip
def test_results_and_check_agree(
    samples: int, verdict: str, rules: str, factor: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_entry(tmp_path / "v3.0" / "ORG", samples)
    reference = olympic(point())
    accepted = rules == "kept"
    assert main(["check", str(folder)]) == (0 if accepted else 1)
    checked = " ".join(capsys.readouterr().out.split())
    compared = f"convergence: {samples:,} samples, the reference {reference:,.0f}, least accepted "
    assert compared in checked
    assert verdict in checked.partition(compared)[2]
    table = tmp_path / "entries.csv"
    assert main(["results", str(tmp_path / "v3.0"), "--entries", str(table)]) == 0
    shown = capsys.readouterr().out
    (row,) = (line for line in shown.splitlines() if line.startswith("v3.0 closed"))
    assert row.split()[-1] == rules
    assert (compared in " ".join(shown.split())) is not accepted
    (entry,) = pd.read_csv(table).to_dict("records")
    assert entry["unit_of_epochs"] == "samples"
    assert entry["mean_epochs"] == pytest.approx(samples)
    assert entry["reference_epochs"] == pytest.approx(reference)
    assert entry["factor"] == pytest.approx(factor or reference / samples)


def test_epochs_of_a_run_are_those_of_its_set(tmp_path: Path) -> None:
    make_entry(tmp_path / "v3.0" / "ORG", 95_000)
    assert main(["results", str(tmp_path / "v3.0"), "--out", str(tmp_path / "runs.csv")]) == 0
    frame = pd.read_csv(tmp_path / "runs.csv")
    assert list(frame["epochs"]) == pytest.approx([95_000 / TRAIN_SAMPLES] * 10)
