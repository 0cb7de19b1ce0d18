"""What a study leaves for readers: its numbers are those of the runs, and nothing that failed is left out."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hpcbench.study.convergence import read_statuses, report
from hpcbench.study.definition import Borrow, Study
from hpcbench.study.findings import findings
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.page import fit_series, machine_of, pooled_noise_scales
from hpcbench.study.plots import machine_time
from hpcbench.study.rates import Rate
from hpcbench.study.results import read_curves, read_rows, runs_needed
from hpcbench.study.schedule_notes import schedule_notes
from hpcbench.study.series_comparison import compare_series
from hpcbench.study.table import notes
from hpcbench.study.trajectories import mark_copies
from tests.hpcbench.study.conftest import FakeLauncher, make

EPOCHS = {8: 4, 32: 5, 128: 8}


def epochs_of(settings: dict[str, str]) -> float:
    """Seeds one epoch apart; adamw misses at batch 128 with seed 2, and diverges at 32."""
    batch = int(settings["train.local_batch_size"]) * int(settings.get("parallel.simulated_ranks", 1))
    seed = int(settings["train.seed"])
    if settings["optim.name"] == "adamw" and batch == 32:
        return math.inf
    if (settings["optim.name"], batch, seed) == ("adamw", 128, 2):
        return 99.0
    return EPOCHS[batch] + seed - 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, StudyFolder]:
    """A study that is done, and its folder with tables and page."""
    study = Study(
        "cosmoflow", "smoke", (8, 32, 128), ("sgd", "adamw"), 2, 4,
        {"sgd": Rate(0.01, 64), "adamw": Rate(0.001, 64, "sqrt")}, borrow=(Borrow("8", 128),),
        commands=("hpcbench study convergence cosmoflow <and more>",),
    )  # fmt: skip
    folder = StudyFolder(tmp_path_factory.mktemp("studies") / "made")
    with held(folder):
        folder.write(study.as_dict())
        make(study, folder, FakeLauncher(epochs_of))
        report(folder)
    return study, folder


def test_the_table_of_runs_has_each_of_them(made: tuple[Study, StudyFolder]) -> None:
    frame = pd.read_csv(made[1].results)
    assert len(frame) == 8 * 2
    assert frame["status"].value_counts().to_dict() == {"reached": 12, "diverged": 2, "missed": 2}
    row = frame.set_index("run").loc["b128-sgd-x1-seed2"]
    assert (row["epochs_to_target"], row["samples_to_target"], row["steps_to_target"]) == (9, 9 * 4096, 9 * 32)
    assert (row["batch"], row["ranks"], row["lr"]) == (128, 32, 0.02)
    assert Path(made[1].path / row["folder"] / "summary.json").exists()


def test_the_text_fits_a_page_and_says_what_was_chosen_how(made: tuple[Study, StudyFolder]) -> None:
    text = made[1].table.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    rows = [line.split() for line in text.splitlines()[2:] if line[:1] == " " and " of 2" in line]
    lines = {(words[0], words[1]): words for words in rows if words[2] != "from"}
    assert lines["128", "adamw"][4:7] == ["1", "of", "2"]
    assert lines["32", "adamw"][4:8] == ["0", "of", "2", "-"]
    assert lines["8", "sgd"][4:10] == ["2", "of", "2", "4.50", "0.157", "10"]
    assert "No search: every row has the rule's rate" in text
    assert "sgd 0.01 at batch 64, linear; adamw 0.001 at batch 64, sqrt" in text
    assert "means are of those that reached it: too good. Fits count all runs." in " ".join(text.split())
    assert "No fit for adamw (2 batches): it takes 3 batches at which runs reached the target." in text


def test_the_page_has_everything_and_every_failure(made: tuple[Study, StudyFolder]) -> None:
    page = made[1].page.read_text(encoding="utf-8")
    for words in ("b32-adamw-x1-seed1", "diverged", "the loss is nan at step 7", "B_crit", "sgd from 8"):
        assert words in page
    assert "hpcbench study convergence cosmoflow &lt;and more&gt;" in page
    assert page.count("<svg") == 4
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert {path.stem for path in made[1].path.glob("*.png")} == {"epochs", "samples-steps", "time", "quality"}


def test_the_noise_scale_is_a_ratio_of_sums_over_all_runs(made: tuple[Study, StudyFolder]) -> None:
    """Runs of 190 and 200 samples; 2.776 is the quantile of Student's distribution with four degrees of freedom."""
    scales = [190, 200, 190, 200, 190]
    half = 2.776 * np.std(scales, ddof=1) / math.sqrt(5)
    words = f"194 ({np.mean(scales) - half:.0f} to {np.mean(scales) + half:.0f})"
    assert words in made[1].page.read_text(encoding="utf-8")
    assert f"noise scale {words}" in made[1].table.read_text(encoding="utf-8")


def test_the_noise_scale_leaves_out_runs_that_broke_down(made: tuple[Study, StudyFolder]) -> None:
    """The gradients of a run that diverges are so large at its end that they would be most of the sums."""
    rows = read_rows(made[0], read_statuses(*made))
    curves = read_curves(made[1], rows)
    scales = pooled_noise_scales(rows, curves)
    for status, counts in (("missed", True), ("diverged", False), ("failed", False)):
        first, *others = rows
        (run, state), *runs = first.runs
        changed = [replace(first, runs=[(run, replace(state, status=status)), *runs]), *others]
        assert (pooled_noise_scales(changed, curves)[first.label] == scales[first.label]) is counts, status


def test_findings_are_ratios_of_means(made: tuple[Study, StudyFolder]) -> None:
    rows = read_rows(made[0], read_statuses(*made))
    found = findings(rows, compare_series(rows))
    assert found[0] == "sgd: from batch 8 to 128, 1.89x the epochs (4.50 to 8.50) and 8.47x fewer steps."
    assert "adamw: no run reached the target at batch 32 (0 of 2)." in found
    assert "adamw: not every run reached the target at batch 128 (1 of 2)." in found


def test_series_that_seeds_cannot_tell_apart_are_said_to_be_so(made: tuple[Study, StudyFolder]) -> None:
    rows = read_rows(made[0], read_statuses(*made))
    compared = {(each.first, each.second, each.where): each.comparison for each in compare_series(rows)}
    assert set(compared) == {
        ("sgd", "adamw", "3 batches, 8 to 128"), ("sgd from 8", "sgd", "batch 128"),
        ("adamw from 8", "adamw", "batch 128"),
    }  # fmt: skip
    whole = compared["sgd", "adamw", "3 batches, 8 to 128"]
    assert whole is not None
    assert not whole.differs
    text = " ".join(made[1].table.read_text(encoding="utf-8").split())
    assert "sgd from 8 over sgd batch 128 1.00 (open) 1 too few seeds" in text


def study_of_placements(folder: StudyFolder, epochs: int) -> Study:
    """Fixed shards and reshuffled ones, whose runs need so many epochs."""
    study = Study(
        "cosmoflow", "smoke", (8, 32, 128), ("sgd",), 3, 4, {"sgd": Rate(0.01, 64)}, nodes=2,
        placements=("shard", "shard+reshuffle"),
    )  # fmt: skip
    with held(folder):
        folder.write(study.as_dict())
        make(study, folder, FakeLauncher(lambda settings: epochs * int(settings["train.seed"])))
    return study


@pytest.mark.slow
def test_runs_that_trained_alike_are_marked_and_not_compared(tmp_path: Path) -> None:
    """The first seed meets the target in the first epoch, in which shards are as they were."""
    folder = StudyFolder(tmp_path / "study")
    study_of_placements(folder, 1)
    report(folder)
    text = folder.table.read_text(encoding="utf-8")
    words = " ".join(text.split())
    assert (
        "= runs that trained as others to the last digit (b8-sgd-reshuffle-x1-seed1 as b8-sgd-shard-x1-seed1 and 2 more"
        in words.replace("- ", "-")
    )
    assert sum("3 of 3=" in line for line in text.splitlines()) == 3
    frame = pd.read_csv(folder.results).set_index("run")
    assert frame["same_as"].dropna().to_dict() == {
        f"b{batch}-sgd-reshuffle-x1-seed1": f"b{batch}-sgd-shard-x1-seed1" for batch in (8, 32, 128)
    }
    assert "Warning: runs met the target in fewer than 3 epochs" in words
    assert len(frame) == 18


def test_rows_that_are_the_same_runs_are_not_compared(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = study_of_placements(folder, 4)
    statuses = read_statuses(study, folder)
    rows = read_rows(study, statuses)
    assert all(not row.copies for row in mark_copies(rows, read_curves(folder, rows)))
    for row in rows:
        for run, _ in row.runs:
            if run.point.placement == "shard+reshuffle":
                twin = folder.run(run.name.replace("-reshuffle", "-shard"))
                shutil.copy(twin / "epochs.csv", folder.run(run.name) / "epochs.csv")
    rows = mark_copies(rows, read_curves(folder, rows))
    (only,) = compare_series(rows)
    assert only.comparison is None
    assert only.batches == (8, 32, 128)
    (said,) = [words for words in findings(rows, [only]) if "same runs" in words]
    assert said.startswith("sgd sharded and sgd reshuffled are the same runs at 3 batches, 8 to 128")


def test_a_run_that_repeats_another_of_its_row_counts_once(made: tuple[Study, StudyFolder]) -> None:
    row = read_rows(made[0], read_statuses(*made))[0]
    first, second = (run.name for run, _ in row.runs)
    once = replace(row, copies={second: first})
    assert (len(row.epochs), len(once.epochs), len(once.epoch_runs)) == (2, 1, 1)
    assert len(replace(row, copies={second: "another row's"}).epochs) == 2


def test_fits_leave_borrowed_rates_out(made: tuple[Study, StudyFolder]) -> None:
    fits = fit_series(read_rows(made[0], read_statuses(*made)))
    assert list(fits) == ["sgd"], "adamw reached its target at two batches only"
    assert fits["sgd"].n == 6


def test_a_target_that_is_met_at_the_first_evaluation_has_no_fit_and_the_page_says_why(tmp_path: Path) -> None:
    study = Study("cosmoflow", "smoke", (8, 32, 128), ("sgd",), 1, 4, {"sgd": Rate(0.01, 64)})
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write(study.as_dict())
        make(study, folder, FakeLauncher(lambda _: 1))
        report(folder)
    said = "all runs met the target at the first evaluation: no fit; evaluate more often"
    for path in (folder.table, folder.page):
        assert said in " ".join(path.read_text(encoding="utf-8").split())


def test_the_spread_decides_how_many_runs_a_score_needs() -> None:
    assert runs_needed([9.0, 11.0], 1.0) == 8, "0.1414 / sqrt(8) is 0.05"
    assert runs_needed([9.0, 9.0], 1.0) is None, "what rounding hides is not known"
    assert runs_needed([9.0], 1.0) is None


def test_time_to_solution_is_samples_over_the_speed_of_all_ranks(made: tuple[Study, StudyFolder]) -> None:
    study = replace(made[0], samples_per_s_per_rank=50.0, parallel_efficiency=0.8)
    rows = read_rows(study, read_statuses(study, made[1]))
    row = next(row for row in rows if row.point.batch == 128 and row.label == "sgd")
    assert machine_time(study, row, 50.0) == pytest.approx(8.5 * 4096 / (50 * 0.8 * 32))
    machine = machine_of(study, rows)
    assert machine is not None
    assert machine.words == "50.0 samples/s per rank x 0.8 parallel efficiency"


def test_the_clock_of_a_run_that_was_stopped_says_nothing(made: tuple[Study, StudyFolder]) -> None:
    study, folder = made
    statuses = read_statuses(study, folder)
    row = read_rows(study, statuses)[0]
    assert row.times == [4 * 21.0, 5 * 21.0]
    name = row.runs[0][0].name
    stopped = statuses[name].summary
    assert stopped is not None
    statuses[name] = replace(statuses[name], summary=replace(stopped, resumed=1, time_to_solution_s=5000.0))
    row = read_rows(study, statuses)[0]
    assert row.times == [5 * 21.0]
    assert row.epochs == [4, 5]


def test_a_study_without_a_finished_run_has_a_page_too(study: Study, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write(study.as_dict())
        report(folder)
    assert "8 runs still to do" in folder.page.read_text(encoding="utf-8")


def test_a_search_is_drawn_and_told(study: Study, tmp_path: Path) -> None:
    searching = replace(study, lr_search=(0.5, 1.0, 2.0))
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write(searching.as_dict())
        make(searching, folder, FakeLauncher(lambda s: 5 if float(s["optim.lr"]) > 0.002 else 6))
        report(folder)
    text = folder.table.read_text(encoding="utf-8")
    assert "3 runs with a seed of its own in every row" in " ".join(text.split())
    assert "* the best rate is at the edge of the search" in text
    assert (folder.path / "search.png").exists()


def test_rows_with_no_rate_to_borrow_are_told_and_nothing_is_claimed_of_them(study: Study, tmp_path: Path) -> None:
    searching = replace(study, lr_search=(0.5, 1.0, 2.0), borrow=(Borrow("8", 32),))
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write(searching.as_dict())
        make(searching, folder, FakeLauncher(lambda s: 99 if s["optim.name"] == "sgd" else 5))
        report(folder)
    text = folder.table.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "sgd from 8" in line)
    assert line.split()[4:9] == ["-", "no", "rate", "not", "run"]
    notes = " ".join(text.split())
    assert "Not run, since no rate reached the target where it would be borrowed: sgd from 8." in notes
    page = (folder.path / "study.html").read_text(encoding="utf-8")
    assert "sgd: no run reached the target at batch 8 (0 of 2), 32 (0 of 2)." in page
    assert "sgd from 8: no run" not in page
    assert not list((folder.path / "runs").glob("b32-sgd-from-8*"))


def test_a_schedule_that_drops_at_a_date_is_told(study: Study) -> None:
    def told(settings: dict[str, str], **by_optimizer: dict[str, str]) -> list[str]:
        return schedule_notes(
            replace(study, settings={"train.max_epochs": "40", **settings}, own_settings=by_optimizer)
        )

    drops = {"schedule.shape": "multistep", "schedule.milestones": "[16, 32]", "schedule.factors": "[0.25, 0.125]"}
    assert told(drops) == [
        "The schedule drops at epochs 16 and 32; it may date the target, and with it the fit of epochs(B)."
    ]
    assert "drops at epoch 16; it may" in told(drops | {"train.max_epochs": "32"})[0], "no run comes to the second one"
    assert told(drops | {"train.max_epochs": "16"}) == []
    assert told({}) == told({"schedule.warmup": "3"}) == []
    assert told({"schedule.shape": "inverse_sqrt", "schedule.t_max": "4"}) == []
    assert told(drops, adamw={"schedule.shape": "constant"})[0].startswith("The schedule of sgd drops at epochs 16 and")
    cosine = {"schedule.shape": "cosine", "schedule.t_max": "9000", "schedule.unit": "step"}
    assert "descends within 9,000 optimizer steps after the warm-up; it may date" in told(cosine)[0]
    steps = drops | {"schedule.unit": "step", "schedule.milestones": "[800]", "schedule.factors": "[0.1]"}
    assert "drops at optimizer step 800 after the warm-up; it may date" in told(steps)[0]
    borrowing = replace(
        study,
        borrow=(Borrow("node", 32),),
        settings={"train.max_epochs": "40"},
        recipes={"node": {"optim.name": "sgd", "optim.lr": "1", **drops}},
    )
    assert schedule_notes(borrowing) == [
        "The schedule borrowed from preset node drops at epochs 16 and 32; it may date the target."
    ]
    assert any("it may date the target" in note for note in notes(borrowing, read_rows(borrowing, {})))


@pytest.mark.slow
def test_a_difference_is_told_with_who_needs_fewer_and_how_sure_that_is(tmp_path: Path) -> None:
    """lars needs twice the epochs of sgd, at three batches with five seeds, which the largest shows by itself."""
    from hpcbench.study.rates import Rate

    rates = {"sgd": Rate(0.01, 64), "lars": Rate(0.1, 64)}
    study = Study("cosmoflow", "smoke", (8, 32, 128), ("sgd", "lars"), 5, 4, rates)
    folder = StudyFolder(tmp_path / "study")

    def epochs(settings: dict[str, str]) -> float:
        return (2 if settings["optim.name"] == "lars" else 1) * (4 + int(settings["train.seed"]))

    with held(folder):
        folder.write(study.as_dict())
        make(study, folder, FakeLauncher(epochs))
        report(folder)
    rows = read_rows(study, read_statuses(study, folder))
    compared = compare_series(rows)
    whole, largest = (each.comparison for each in compared)
    assert whole is not None
    assert largest is not None
    assert (whole.runs, largest.runs) == (30, 10)
    # 5 to 9 epochs against 10 to 18: no pair is exchanged, so 2 of 252 ways are as far apart; both are Holm's.
    assert largest.p == pytest.approx(2 / 252)
    assert whole.p == pytest.approx(2 * 2 / 252**3)
    assert largest.interval[0] < 0.5 < largest.interval[1] < 1
    said = [words for words in findings(rows, compared) if "fewer epochs than" in words]
    assert [words.split(":")[0] for words in said] == [
        "sgd needs fewer epochs than lars at 3 batches, 8 to 128", "sgd needs fewer epochs than lars at batch 128"
    ]  # fmt: skip
    assert all("lars takes 2.0" in words for words in said)
    page = folder.page.read_text(encoding="utf-8")
    assert "Which series needs fewer epochs?" in page
    assert said[0].replace("<", "&lt;") in page
