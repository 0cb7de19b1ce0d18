"""Which runs make an entry, which of them count, and what its means are."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from hpcbench.analysis.entry_runs import distinct, entries_of_runs
from tests.hpcbench.analysis.made_runs import entry, run


def test_the_parts_of_a_run_add_up_to_its_time() -> None:
    seconds = entry(run()).seconds
    assert seconds is not None
    assert (seconds.training, seconds.evaluation, seconds.first, seconds.staging) == (60.0, 20.0, 6.0, 10.0)
    assert seconds.rest == pytest.approx(4.0)
    assert seconds.total == pytest.approx(100.0)


def test_the_fastest_and_the_slowest_do_not_count() -> None:
    made = entry(*(run(number, seconds) for number, seconds in enumerate((300, 100, 110, 120, 90))))
    assert sorted(each.time_to_train_s or 0 for each in made.kept) == [100, 110, 120]
    assert made.score_s == pytest.approx(110)


def test_one_run_that_failed_is_the_slowest() -> None:
    runs = [run(number, seconds) for number, seconds in enumerate((100, 110, 120, 130))]
    runs.append(run(4, status="aborted", epochs=None))
    made = entry(*runs)
    assert [each.time_to_train_s for each in made.kept] == [110, 120, 130]
    lost = entry(*runs, run(5, status=None, epochs=None))
    assert lost.score_s is None
    assert lost.why_not == "2 runs did not converge; one may"


def test_two_runs_are_averaged_both() -> None:
    made = entry(run(0, 100), run(1, 130))
    assert made.score_s == pytest.approx(115)
    assert len(made.kept) == 2


def test_a_log_given_twice_counts_once() -> None:
    made = entry(run(0), run(1), run(0))
    assert len(made.runs) == 2
    assert "1 log given twice" in made.notes


def test_pruned_runs_are_no_part_of_an_entry() -> None:
    assert len(entry(run(0), run(1, pruned=True)).runs) == 1


def test_runs_of_one_trajectory_are_one() -> None:
    """To the last digit of all evaluations, or of epochs and quality where a record has no more."""
    same = [run(number, qualities=[0.1, 0.2, 0.81]) for number in range(3)]
    assert len(distinct([*same, run(3, qualities=[0.1, 0.2, 0.8100001])])) == 2
    assert len(distinct([run(0, quality=0.82), run(1, quality=0.82), run(2, quality=0.82, epochs=5.0)])) == 2
    assert len(distinct([run(0, quality=None), run(1, quality=None)])) == 2
    assert "2 of 3 runs trained exactly as another" in entry(*same).notes


def test_throughput_is_models_over_the_span_of_all_instances() -> None:
    """Three instances start at 0, 10 and 20 s and take 100 s: 120 s for three models."""
    made = entry(*(run(number, mode="throughput", start_unix_s=10.0 * number) for number in range(3)))
    assert made.span_s == pytest.approx(120)
    assert made.score_s == pytest.approx(40)
    assert len(made.kept) == 3


def test_means_are_over_the_runs_kept() -> None:
    runs = [run(number, 100 + number, epochs=float(4 + number)) for number in range(5)]
    made = entry(*runs)
    assert made.epochs == fmean([5, 6, 7])
    assert made.samples_per_s == pytest.approx(1000 * 6 / 60)
    assert made.samples_per_s_per_accelerator == pytest.approx(1000 * 6 / 60 / 8)


def test_own_runs_of_one_setup_are_an_entry_and_others_are_not() -> None:
    own = [replace(run(number), origin="own", round=None, path=f"runs/{number}") for number in range(4)]
    own[3].global_batch_size = 32
    found = entries_of_runs(own)
    assert [len(each.runs) for each in found] == [3, 1]
    assert all(each.is_own for each in found)
    assert found[0].name == "own box 2 nodes batch 16"


def test_own_runs_of_two_precisions_are_two_entries_and_simulated_ones_a_third() -> None:
    """Their times are not those of one setup, and a mean over both would be of none."""
    own = [replace(run(number), origin="own", precision=precision) for number, precision in
           enumerate(("32-true", "bf16-mixed", "32-true", "bf16-mixed", "bf16-mixed"))]  # fmt: skip
    own[4].notes = ["its 2 nodes were simulated on one machine"]
    name = "own box 2 nodes batch 16"
    assert {each.name: len(each.runs) for each in entries_of_runs(own)} == {
        f"{name} 32-true": 2, f"{name} bf16-mixed": 2, f"{name} bf16-mixed (2)": 1,
    }  # fmt: skip
    assert [each.name for each in entries_of_runs(own[1:4:2])] == [name], "of one precision the name needs none"


def test_notes_on_own_runs_are_told_once() -> None:
    own = [replace(run(number), origin="own", notes=["4 ranks were simulated"]) for number in range(2)]
    assert entry(*own).notes == ("4 ranks were simulated",)


def test_names_differ_within_an_application() -> None:
    own = [replace(run(number), origin="own", recipe={"opt_name": str(number)}) for number in range(2)]
    assert [each.name for each in entries_of_runs(own)] == ["own box 2 nodes batch 16", "own box 2 nodes batch 16 (2)"]


def test_a_log_without_epochs_has_no_score() -> None:
    made = entry(run(0, epochs_s=[]))
    assert made.score_s is None
    assert made.why_not == "no run reached its target with epochs logged"


def test_runs_of_several_batches_or_sizes_are_no_entry() -> None:
    """The first run would lend its accelerators and its batch to the others."""
    mixed = entry(run(0), run(1, global_batch_size=32), run(2))
    assert mixed.score_s is None
    assert mixed.why_not == "its runs differ in global batch (16, 32); give runs of one setup"
    unequal = entry(*(run(number, mode="throughput", accelerators=8 * (number + 1)) for number in range(2)))
    assert unequal.why_not == "its runs differ in accelerators (8, 16); give runs of one setup"
    assert entry(run(0), run(1, accelerators=None)).score_s is not None, "unknown is no difference"
