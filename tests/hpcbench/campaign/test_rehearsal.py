"""Every shipped campaign runs from end to end at small size, and says that this is a rehearsal."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import fmean, median

import pytest

from hpcbench.campaign import runs
from hpcbench.campaign.read_rules import CAMPAIGNS
from hpcbench.cli.main import main
from hpcbench.study.folder import StudyFolder
from hpcbench.study.run_status import RunStatus
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.jobs import study_run
from hpcbench.study.scaling.run_matrix import all_runs
from hpcbench.study.study_jobs import study_statuses

pytestmark = pytest.mark.usefixtures("forked_processes")


def events(run: Path) -> dict[str, list[tuple[float, dict[str, object]]]]:
    """Times (s) and metadata of each key of the official log of a run."""
    found: dict[str, list[tuple[float, dict[str, object]]]] = {}
    for line in (run / "mllog.txt").read_text().splitlines():
        record = json.loads(line.removeprefix(":::MLLOG "))
        found.setdefault(record["key"], []).append((record["time_ms"] / 1e3, record["metadata"]))
    return found


def results(folder: Path) -> list[dict[str, str]]:
    """The rows of the sizes."""
    with (folder / "response.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["rehearsal"] for row in rows} == {"rehearsal"}
    assert {row["row"] for row in rows} <= {"run", "result"}, "no reference beside a rehearsal"
    return [row for row in rows if row["row"] == "result"]


def check_words(folder: Path, said: str) -> None:
    """Screen, table and page say what it is."""
    for text in (said, (folder / "response.txt").read_text(), (folder / "campaign.html").read_text()):
        assert "REHEARSAL: scaled-down numbers" in text
        assert "Result not verified by MLCommons Association" in text
        assert "does not count" not in text
    assert "rehearsal</title>" in (folder / "campaign.html").read_text()


@pytest.mark.slow
def test_a_rehearsal_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NERSC-10's rules on one simulated node, its run in this process."""
    text = (CAMPAIGNS / "nersc10-deepcam.yaml").read_text()
    rules, folder = tmp_path / "small.yaml", tmp_path / "campaign"
    rules.write_text(text.replace("      nodes: [1, 2]\n", "      nodes: [1]\n"))
    made: list[str] = []

    def in_this_process(study: Scaling, place: StudyFolder, options: object) -> dict[str, RunStatus]:
        planned = [run for run in all_runs(study) if not place.run(run.name).exists()]
        for run in planned:
            made.append(run.name)
            assert main(study_run(study, run).arguments(place.run(run.name), 1)) == 0
        return study_statuses(place, [run.name for run in all_runs(study)])

    monkeypatch.setattr(runs, "make_runs", in_this_process)
    words = ["campaign", "run", "--rules", str(rules), "--rehearsal", "--campaign-dir", str(folder)]
    assert main(words) == 0
    check_words(folder, capsys.readouterr().out)
    (row,) = results(folder)
    log = events(folder / "baseline/deepcam/runs/n0001-r1")
    (start, _), (stop, _) = log["epoch_start"][0], log["eval_stop"][0]
    assert float(row["seconds"]) == pytest.approx(stop - start, abs=2e-3)
    assert float(row["samples_per_s_per_accelerator"]) == pytest.approx(8 / (stop - start), rel=1e-2)
    assert main(words) == 0
    assert made == ["n0001-r1"], "the same command again makes what is missing"
    assert main(["campaign", "report", str(folder)]) == 0
    assert main([*words[:-3], "--campaign-dir", str(folder), "--nodes", "1", "--category", "optimized"]) == 2
    assert "holds a rehearsal; give another --campaign-dir" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scenario", "category"),
    [
        ("nersc10-deepcam", "deepcam", "baseline"), ("esif-hpc-4", "s1", "optimized"), ("esif-hpc-4", "s2", "ported"),
        ("mlperf-hpc-3.0", "cosmoflow", "closed"), ("mlperf-hpc-3.0", "deepcam", "open"),
        ("mlperf-hpc-3.0", "cosmoflow-throughput", "open"), ("mlperf-hpc-3.0", "deepcam-throughput", "closed"),
    ],
)  # fmt: skip
def test_a_shipped_campaign_runs_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, scenario: str, category: str
) -> None:
    folder = tmp_path / "campaign"
    words = ["--rehearsal", "--campaign-dir", str(folder), "--scenario", scenario, "--category", category]
    assert main(["campaign", "run", name, *words]) == 0
    check_words(folder, capsys.readouterr().out)
    places = sorted((folder / category / scenario / "runs").iterdir())
    for row in results(folder):
        logs = [events(place) for place in places if place.name.startswith(f"n{int(row['nodes']):04d}")]
        starts, stops = [log["run_start"][0][0] for log in logs], [log["run_stop"][0][0] for log in logs]
        lengths = sorted((stop - start) / 60 for start, stop in zip(starts, stops, strict=True))
        if scenario.endswith("throughput"):
            assert float(row["minutes"]) == pytest.approx((max(stops) - min(starts)) / 60, abs=1e-4)
        elif name == "mlperf-hpc-3.0":
            assert float(row["minutes"]) == pytest.approx(fmean(lengths[1:-1]), abs=1e-4)
        elif scenario == "s2":
            assert float(row["minutes"]) == pytest.approx(median(lengths), abs=1e-4)
        elif scenario == "s1":
            assert float(row["seconds_per_step"]) > 0
            assert [len(log["epoch_stop"]) for log in logs] == [2] * len(logs), "all epochs, without a target"
        assert row["valid"] == f"{len(logs)}/{len(logs)}"
