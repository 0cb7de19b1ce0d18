"""What runs cost on each size: hours, operations, data, memory and storage, of every variant its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from hpcbench.study.scaling.point_results import PointResult, RepeatResult
from hpcbench.study.scaling.proposal import Campaign, Line, largest_recommended, proposal
from hpcbench.study.scaling.proposal_forms import as_text
from hpcbench.study.scaling.trainings import Size, Training
from staging.errors import InputError


def row(nodes: int, rate: float, variant: str = "", instances: int = 1, **more: float) -> PointResult:
    measured = RepeatResult(4 * nodes, 64, rate, {}, flops_per_sample=5 * 10**9, instances=instances,
                        **more)  # type: ignore[arg-type]  # fmt: skip
    return PointResult(
        nodes, variant, [measured], instances=instances, cores_per_node=48, gpus_per_node=4, ranks_per_node=4
    )


ROWS = [row(4, 350.0, staging_s=100.0, init_s=20.0, staged_bytes=3 * 10**12), row(1, 100.0), row(2, 180.0)]


def of(
    samples: float, rows: Sequence[PointResult] = ROWS, epochs: float = 1.0, evaluations: float = 0.0
) -> dict[Size, Training]:
    """The same training on every size."""
    return {(each.variant, each.nodes): Training(epochs, samples, evaluations) for each in rows}


def cost(rows: Sequence[PointResult], runs: int, samples: float, **more: float) -> list[Line]:
    return proposal(rows, of(samples, rows, **more), Campaign(runs))


def test_a_line_is_what_the_runs_cost() -> None:
    line = cost(ROWS, 10, 1_260_000.0)[-1]
    hours = (1_260_000 / 350 + 120) / 3600
    figures = {name: value for name, value in asdict(line).items() if isinstance(value, float)}
    assert figures == pytest.approx(
        {
            "hours_per_run": hours, "node_hours": 40 * hours, "core_hours": 48 * 40 * hours, "gpu_hours": 160 * hours,
            "flop": 10 * 1.26e6 * 5e9, "data_bytes": 30e12, "efficiency": 3.5 / 4,
        }
    )  # fmt: skip
    assert (line.variant, line.nodes, line.ranks, line.instances, line.staged) == ("", 4, 16, 1, True)


@pytest.mark.parametrize(
    ("rates", "recommended", "in_doubt"),
    [((150.0, 152.0, 154.0), True, False), ((120.0, 144.0, 170.0), True, True), ((110.0, 136.0, 160.0), False, True),
     ((100.0, 101.0, 102.0), False, False), ((120.0,), False, False)],
)  # fmt: skip
def test_sizes_near_the_efficiency_asked_for_are_in_doubt(
    rates: tuple[float, ...], recommended: bool, in_doubt: bool
) -> None:
    """The threshold is 70 %, so 140 samples/s on two nodes where one makes 100."""
    rows = [replace(row(1, 100.0), runs=[row(1, rate).runs[0] for rate in (99.0, 100.0, 101.0)]),
            replace(row(2, 100.0), runs=[row(2, rate).runs[0] for rate in rates])]  # fmt: skip
    line = cost(rows, 1, 1e6)[-1]
    assert (line.recommended, line.in_doubt) == (recommended, in_doubt)
    said = " ".join(as_text([line]).split())
    assert ("scatter too much to say whether the efficiency is below 70 % on 2 (95 %: " in said) == in_doubt


def test_contingency_is_added_to_hours_that_are_asked_for() -> None:
    (line,) = proposal([row(2, 100.0)], of(3.6e5, [row(2, 100.0)]), Campaign(5, contingency=0.25))
    assert line.node_hours == pytest.approx(10)
    assert line.asked(line.node_hours) == pytest.approx(12.5)
    assert line.asked(None) is None


def test_efficiency_is_relative_to_the_smallest_size_of_its_variant() -> None:
    lines = cost([*ROWS, row(2, 50.0, "overlap off"), row(4, 80.0, "overlap off")], 1, 1e6)
    assert [(each.variant, each.nodes) for each in lines] == [
        ("", 1), ("", 2), ("", 4), ("overlap off", 2), ("overlap off", 4),
    ]  # fmt: skip
    assert [each.efficiency for each in lines] == pytest.approx([1, 0.9, 0.875, 1, 0.8])


def test_samples_differ_by_size_and_sizes_without_them_have_no_line() -> None:
    lines = proposal(ROWS, {("", 2): Training(1, 360_000.0, 0), ("", 4): Training(4, 1.4e6, 0)}, Campaign(1))
    assert [each.nodes for each in lines] == [2, 4]
    assert lines[0].hours_per_run == pytest.approx(2000 / 3600)
    assert lines[0].efficiency == pytest.approx(0.9)


def test_variants_of_other_datasets_have_their_own_figures() -> None:
    """Ten times the samples: ten times the operations, bytes read and storage of the dataset."""
    small = row(1, 100.0, "train_samples 4096", train_bytes=4 * 10**9, validation_bytes=10**9, folder_bytes=10**7)
    large = row(1, 100.0, "train_samples 40960", train_bytes=4 * 10**10, validation_bytes=10**9, folder_bytes=10**7)
    lengths = {
        ("train_samples 4096", 1): Training(10, 40_960, 10),
        ("train_samples 40960", 1): Training(10, 409_600, 10),
    }
    one, ten = proposal([small, large], lengths, Campaign(2))
    assert (one.flop, ten.flop) == (2 * 40_960 * 5e9, 2 * 409_600 * 5e9)
    assert ten.node_hours == pytest.approx(10 * one.node_hours)
    assert (one.data_bytes, ten.data_bytes) == (2 * 50e9, 2 * 410e9)
    assert (one.dataset_bytes, ten.dataset_bytes) == (5 * 10**9, 41 * 10**9)
    assert (one.storage_bytes, ten.storage_bytes) == (5_020_000_000, 41_020_000_000)


def test_evaluations_take_time_too() -> None:
    (line,) = cost([row(1, 100.0, evaluation_s=30.0)], 1, 3.6e5, evaluations=20.0)
    assert line.hours_per_run == pytest.approx((3600 + 20 * 30) / 3600)


def test_data_is_what_was_staged_or_else_what_epochs_and_evaluations_read() -> None:
    unstaged = row(2, 180.0, train_bytes=10**12, validation_bytes=10**11)
    lines = cost([ROWS[0], ROWS[1], unstaged], 10, 1e6, epochs=3.0, evaluations=5.0)
    assert [each.data_bytes for each in lines] == [None, pytest.approx(10 * 3.5e12), pytest.approx(30e12)]
    assert [each.staged for each in lines] == [False, False, True]


def test_storage_needs_both_the_dataset_and_the_folders() -> None:
    lines = cost(
        [row(1, 1.0, train_bytes=5), row(2, 1.0, folder_bytes=5), row(4, 1.0, train_bytes=5, folder_bytes=7)], 3, 9.0
    )
    assert [each.storage_bytes for each in lines] == [None, None, 26]


def test_memory_is_the_largest_of_all_repeats() -> None:
    runs = [
        RepeatResult(4, 64, 100.0, {}, peak_memory_bytes=size, device_type=kind)
        for size, kind in ((3, "cuda"), (5, "cuda"))
    ]
    (line,) = cost([PointResult(1, "", runs)], 1, 9.0)
    assert (line.memory_bytes, line.accelerators) == (5, True)
    (line,) = cost([PointResult(1, "", [replace(runs[0], device_type="cpu")])], 1, 9.0)
    assert (line.memory_bytes, line.accelerators) == (3, False)
    (line,) = cost([PointResult(1, "", [replace(runs[0], peak_memory_bytes=0)])], 1, 9.0)
    assert line.memory_bytes is None


def test_instances_that_share_the_nodes_cost_what_each_would_alone() -> None:
    (alone,) = cost([row(2, 50.0, staged_bytes=10**12)], 12, 1e6)
    (shared,) = cost([row(8, 200.0, instances=4, staged_bytes=4 * 10**12)], 12, 1e6)
    assert shared == replace(alone, nodes=8, ranks=32, instances=4)


def test_sizes_below_the_efficiency_asked_for_are_not_recommended() -> None:
    rows = [row(1, 100.0), row(2, 140.0), row(4, 279.0), row(8, 300.0)]
    lines = cost(rows, 1, 1e6)
    assert [each.recommended for each in lines] == [True, True, False, False], "0.7 is enough"
    assert largest_recommended(lines) == 2
    strict = proposal(rows, of(1e6, rows), Campaign(1, min_efficiency=0.69))
    assert largest_recommended(strict) == 4
    assert largest_recommended(lines[2:]) is None


def test_the_largest_recommended_size_comes_before_the_first_that_is_not() -> None:
    lines = cost([row(1, 100.0), row(2, 130.0), row(4, 282.0)], 1, 1e6)
    assert [each.recommended for each in lines] == [True, False, True]
    assert largest_recommended(lines) == 1
    said = " ".join(as_text(lines).split())
    assert (
        "The largest recommended size is 1 node. Sizes beyond the first that is not recommended do not count." in said
    )
    assert largest_recommended(lines[1:]) is None
    assert "No size is recommended. Sizes beyond the first" in " ".join(as_text(lines[1:]).split())


def test_single_repeats_cannot_tell_how_sure_the_efficiency_is() -> None:
    several = [replace(row(nodes, 1.0), runs=[row(nodes, nodes * rate).runs[0] for rate in (99.0, 100.0, 101.0)])
               for nodes in (1, 2)]  # fmt: skip
    said = " ".join(as_text(cost([*several, row(4, 390.0)], 1, 1e6)).split())
    assert "Single repeats cannot tell how sure the efficiency is on 4 nodes." in said
    assert "Single repeats" not in as_text(cost(several, 1, 1e6))
    said = " ".join(as_text(cost([row(1, 100.0), several[1], row(4, 390.0)], 1, 1e6)).split())
    assert "how sure the efficiency is on 2, 4 nodes." in said


def test_numbers_that_cost_nothing_are_refused() -> None:
    with pytest.raises(InputError, match=r"a proposal for 0 runs has no cost; give at least 1"):
        cost(ROWS, 0, 1e6)
    with pytest.raises(InputError, match=r"a run of 0 samples on 1 node has no cost; it must have more than 0"):
        cost(ROWS, 1, 0.0)


def test_rows_without_figures_have_no_line() -> None:
    assert cost([PointResult(1, "")], 1, 1e6) == []
