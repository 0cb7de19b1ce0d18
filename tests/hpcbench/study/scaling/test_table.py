"""The tables of a scaling study: analytic figures, a dash where nothing is known, and 100 columns at most."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.phase_names import STEP_PARTS
from hpcbench.study.scaling import table
from hpcbench.study.scaling.point_results import PointResult, RepeatResult
from hpcbench.study.scaling.solution_table import solution_sheets
from hpcbench.study.scaling.time_to_solution import Solution

STEP = {"input_wait": 0.01, "compute": 0.1, "communication": 0.0, "waiting": 0.0, "optimizer": 0.02, "other": 0.0}


def run(samples_per_s: float, **changed: Any) -> RepeatResult:
    """A repeat without staging, energy or evaluation."""
    return replace(RepeatResult(4, 64, samples_per_s, STEP), **changed)


def point(nodes: int, *rates: float, variant: str = "", **changed: Any) -> PointResult:
    """A size with a repeat for each rate."""
    return PointResult(nodes, variant, [run(rate) for rate in rates], ranks_per_node=4, **changed)


def cells(sheet: table.Sheet, name: str) -> list[str]:
    """A column of a sheet."""
    return [line[list(sheet.headers).index(name)] for line in sheet.lines]


def test_speed_up_and_efficiency_are_against_the_smallest_size() -> None:
    (sheet,) = table.result_sheets([point(8, 200.0), point(4, 150.0, 160.0, 170.0), point(2, 100.0)], "strong")
    assert cells(sheet, "nodes") == ["2", "4", "8"]
    assert cells(sheet, "ranks") == ["8", "16", "32"]
    assert cells(sheet, "samples/s") == ["100", "160", "200"]
    assert cells(sheet, "speed-up") == ["1.00", "1.60", "2.00"]
    assert cells(sheet, "efficiency") == ["100.0 %", "80.0 %", "50.0 %"]
    assert cells(sheet, "spread") == ["-", "12.5 %", "-"], "one repeat has no spread"


def test_every_variant_has_its_own_smallest_size() -> None:
    rows = [point(1, 100.0, variant="a"), point(2, 100.0, variant="a"), point(2, 50.0, variant="b")]
    first, second = table.result_sheets([*rows, point(4, 100.0, variant="b")], "weak")
    assert (first.heading, cells(first, "efficiency")) == ("a", ["100.0 %", "50.0 %"])
    assert (second.heading, cells(second, "efficiency")) == ("b", ["100.0 %", "100.0 %"])


def test_sizes_without_runs_say_why() -> None:
    rows = [point(1, 100.0), point(2, left=3), point(4, failed=["out of memory", "out of memory"], left=1)]
    text = table.results_table(rows, "strong")
    (sheet,) = table.result_sheets(rows, "strong")
    assert cells(sheet, "repeats") == ["1 of 1", "0 of 3", "0 of 3"]
    assert cells(sheet, "samples/s") == ["100", "-", "-"]
    assert cells(sheet, "efficiency") == ["100.0 %", "-", "-"]
    assert "2 nodes: 3 of 3 repeats left to run." in text
    assert "4 nodes: 2 of 3 repeats failed: out of memory." in text
    assert "4 nodes: 1 of 3 repeats left to run." in text


def test_where_the_smallest_size_failed_the_next_is_the_first() -> None:
    (sheet,) = table.result_sheets([point(1, failed=["lost"]), point(2, 100.0), point(4, 150.0)], "strong")
    assert cells(sheet, "efficiency") == ["-", "100.0 %", "75.0 %"]


def test_instances_and_time_have_columns_where_there_are_any() -> None:
    row = replace(point(4, instances=4), runs=[run(100.0, time_s=90.0), run(100.0, time_s=100.0)])
    (sheet,) = table.result_sheets([row], "throughput")
    assert (cells(sheet, "instances"), cells(sheet, "time")) == (["4"], ["95.0 s"])
    (other,) = table.result_sheets([point(4, 100.0)], "weak")
    assert not {"instances", "time"} & set(other.headers)


@pytest.mark.parametrize(
    ("times", "median"), [((90.0, 100.0, None), "1 min 40 s"), ((100.0, None, None), "-"), ((100.0, None), "-")]
)
def test_a_repeat_that_missed_its_target_counts_as_infinite_time(times: tuple[float | None, ...], median: str) -> None:
    runs = [run(100.0, time_s=time_s, models=int(time_s is not None), missed=int(time_s is None)) for time_s in times]
    row, misses = replace(point(2), runs=runs), times.count(None)
    (sheet,) = table.result_sheets([row], "strong")
    assert cells(sheet, "time") == [median]
    said = f"2 nodes: {misses} of {len(times)} repeats missed their target."
    assert said in table.results_table([row], "strong")
    (sheet,) = table.result_sheets([replace(row, runs=[each for each in runs if each.missed])], "strong")
    assert cells(sheet, "time") == ["-"], "the column is there though none reached it"


def test_parts_of_a_step_are_medians_in_milliseconds_and_add_up() -> None:
    runs = [run(1.0, step_s={**STEP, "communication": seconds}) for seconds in (0.03, 0.05, 0.9)]
    (sheet,) = table.step_sheets([replace(point(2), runs=runs)])
    found = dict(zip(sheet.headers, sheet.lines[0], strict=True))
    assert found["communication"] == "50.0"
    assert float(found["step ms"]) == sum(float(found[phase.replace("_", " ")]) for phase in STEP_PARTS) == 180


def test_the_median_and_the_slowest_rank_have_a_line_each() -> None:
    known = dict.fromkeys(STEP_PARTS, 0.001) | {"wall": 0.02}
    late = known | {"compute": 0.009, "wall": 0.03}
    runs = [run(1.0, step_median_s=known, step_slowest_s=late | {"compute": slow}) for slow in (0.008, 0.009, 0.1)]
    alone = replace(run(1.0, step_median_s=known, step_slowest_s=known), ranks=1)
    rows = [replace(point(1), runs=[alone]), replace(point(2), runs=runs), point(4, 1.0)]
    (sheet,) = table.rank_sheets(rows)
    assert (cells(sheet, "nodes"), cells(sheet, "rank")) == (["2", "2"], ["median", "slowest"])
    assert cells(sheet, "step ms") == ["20.0", "30.0"]
    assert cells(sheet, "compute") == ["1.00", "9.00"]
    assert sheet.as_text() in table.phases_table(rows)
    frame = table.results_frame(rows)
    assert list(frame["step_slowest_compute_s"].dropna()) == [0.001, 0.008, 0.009, 0.1]
    assert table.rank_sheets([replace(point(1), runs=[alone])]) == []


def test_what_is_of_rank_0_says_so() -> None:
    (steps,), (beside,) = table.step_sheets([point(1, 1.0)]), table.beside_sheets([point(1, 1.0)])
    assert steps.heading == "Milliseconds of a step, the mean over ranks"
    assert beside.heading.startswith("Start, evaluation and checkpoints of rank 0;")


def test_unknown_figures_are_dashes_and_measured_zeros_are_zeros() -> None:
    steps, beside = table.step_sheets([point(1, 100.0)]), table.beside_sheets([point(1, 100.0)])
    assert list(beside[0].lines[0]) == ["1", *["-"] * 9], "not even the start, which takes some time, is 0"
    assert cells(steps[0], "communication") == ["0"]
    (bare,) = table.step_sheets([replace(point(1), runs=[run(1.0, step_s={"compute": 0.5})])])
    assert list(bare.lines[0]) == ["1", "500", "-", "500", "-", "-", "-", "-"]


def test_what_is_beside_the_steps_has_its_units() -> None:
    known = run(
        1.0, init_s=4.0, staging_s=30.0, staging_bytes_per_s=2.5e9, evaluation_s=1.5, checkpoint_s=0.25,
        cpu_used=(0.9, 0.7), joules=1.5e6, joules_per_sample=2.0,
    )  # fmt: skip
    (sheet,) = table.beside_sheets([replace(point(1), runs=[known])])
    assert list(sheet.lines[0]) == ["1", "4.00", "30.0", "2.50", "1.50", "0.250", "80 %", "70 %", "2.00", "1.50 MJ"]


def test_energy_and_slow_nodes_are_told() -> None:
    why = "no energy counter: RAPL: not readable"
    same = [replace(point(n), runs=[run(1.0, energy_words=why)] * 2) for n in (1, 2)]
    assert table.energy_lines(same) == [f"Energy: {why}."]
    mixed = [same[0], replace(point(2), runs=[run(1.0, joules=1.0, energy_words="rapl: processors")])]
    assert table.energy_lines(mixed) == [f"Energy at 1 node: {why}.", "Energy at 2 nodes: rapl: processors."]
    assert table.energy_lines([point(1, 1.0)]) == ["Energy: not measured."]
    slow = [run(1.0, slow=["n7 took 20 % longer"]), run(1.0), run(1.0, slow=["n7 took 20 % longer", "n9 took 30 %"])]
    text = table.phases_table([replace(point(16), runs=slow)])
    assert "16 nodes: n7 took 20 % longer (2 of 3 repeats)." in text
    assert "16 nodes: n9 took 30 % (1 of 3 repeats)." in text


def test_a_study_without_runs_has_no_table_of_phases() -> None:
    assert table.phases_table([point(1, left=3)]) == ""


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M"), max_codepoint=0x24F), max_size=150)
FIGURES = st.one_of(st.none(), st.floats(1e-9, 1e15))


@settings(deadline=None, max_examples=60)
@given(NAMES, NAMES, st.lists(st.floats(1e-6, 1e12), max_size=3), FIGURES, st.integers(1, 10**6))
def test_no_line_is_longer_than_100_columns(
    name: str, reason: str, rates: list[float], figure: float | None, nodes: int
) -> None:
    runs = [run(rate, staging_s=figure, joules=figure, joules_per_sample=figure, time_s=figure, energy_words=reason,
                slow=[reason], step_s=dict.fromkeys(STEP_PARTS, rate)) for rate in rates]  # fmt: skip
    rows = [PointResult(nodes, name, runs, [reason], 2, instances=nodes), PointResult(2 * nodes, name, runs)]
    text = f"{table.results_table(rows, 'throughput')}\n{table.phases_table(rows)}"
    assert max(map(len, text.splitlines())) <= 100


def test_the_frame_has_every_repeat_with_every_figure() -> None:
    runs = [run(90.0, joules=5.0, cpu_used=(0.5, 1.0)), run(110.0, slow=["n7 is slow", "n9 is slow"])]
    rows = [point(1, 50.0, variant="b 1", settings={"parallel.b": "1"}, failed=["lost a node"]),
            replace(point(2, variant="b 1", settings={"parallel.b": "1"}, left=1), runs=runs)]  # fmt: skip
    frame = pd.read_csv(io.StringIO(table.results_frame(rows).to_csv(index=False)))
    assert list(frame["status"]) == ["done", "failed", "done", "done"]
    assert list(frame["repeat"]) == [1, 2, 1, 2]
    assert list(frame["parallel.b"]) == [1] * 4
    assert frame["reason"][1] == "lost a node"
    assert pd.isna(frame["samples_per_s"][1])
    assert list(frame["efficiency"].dropna()) == [1.0, 0.9, 1.1]
    assert list(frame["joules"].dropna()) == [5.0]
    assert frame["step_s"][0] == pytest.approx(0.13)
    assert frame["step_communication_s"][0] == 0
    assert pd.isna(frame["init_s"][0])
    assert (frame["cpu_used_mean"][2], frame["cpu_used_lowest"][2]) == (0.75, 0.5)
    assert frame["slow_nodes"][3] == "n7 is slow; n9 is slow"


def solved(nodes: int, time_s: float, **changed: Any) -> Solution:
    """A training of so many seconds, within a tenth."""
    hours = nodes * time_s / 3600
    found = Solution(
        nodes=nodes, instances=1, global_batch_size=64, epochs=10.0, epochs_interval=(9.0, 11.0), time_s=time_s,
        time_interval=(0.9 * time_s, 1.1 * time_s), node_hours=hours, node_hours_interval=(0.9 * hours, 1.1 * hours),
        core_hours=32 * hours, gpu_hours=None, extrapolated=False,
    )  # fmt: skip
    return replace(found, **changed)


def test_trainings_to_the_target_show_the_hours_that_a_site_counts() -> None:
    (sheet,) = solution_sheets({"": [solved(2, 3600.0, extrapolated=True)]})
    assert list(sheet.lines[0]) == ["2", "64*", "10.0 (9.00 to 11.0)", "1 h 00 min", "2.00 (1.80 to 2.20)", "64.0"]
    assert sheet.headers[-1] == "core-hours"
    (sheet,) = solution_sheets({"": [solved(2, 3600.0, gpu_hours=8.0)], "empty": []})
    assert (sheet.headers[-1], sheet.lines[0][-1]) == ("GPU-hours", "8.00")


def test_accelerators_are_as_busy_as_the_median_rank_or_not_measured_with_the_reason() -> None:
    busy = [run(1.0, device_busy=shares) for shares in ((0.9, 0.5, 0.8), (0.6, 0.7, 0.8), (0.9, 0.9, 0.9))]
    why = run(1.0, device_words="NVML: not found.")
    rows = [
        PointResult(1, "", busy),
        PointResult(2, "", [why, why]),
        PointResult(4, "", [why, run(1.0, device_busy=(0.0,))]),
    ]
    (sheet,) = table.use_sheets(rows)
    assert cells(sheet, "accelerator busy") == ["80.0 %", "not measured", "0.0 %"]
    assert cells(sheet, "lowest") == ["50.0 %", "not measured", "0.0 %"]
    assert table.device_lines(rows) == ["Accelerator busy not measured at 2 nodes; 4 nodes: NVML: not found."]
    assert table.device_lines(rows)[0] in " ".join(table.phases_table(rows).split())
    frame = table.results_frame(rows)
    assert list(frame["device_busy_median"].dropna()) == [0.8, 0.7, 0.9, 0.0]
    assert list(frame["device_busy_lowest"].dropna()) == [0.5, 0.6, 0.9, 0.0]
    (of_processors,) = table.use_sheets([point(1, 100.0)])
    assert "accelerator busy" not in of_processors.headers
    assert table.device_lines([point(1, 100.0)]) == []


def test_use_of_the_measured_peak_is_absent_where_nothing_was_measured() -> None:
    probed = [run(rate, flops_per_sample=2_000_000_000, peak_flops=1e12) for rate in (50.0, 100.0, 150.0)]
    rows = [PointResult(1, "", probed, ranks_per_node=4), point(2, 100.0), point(4, 100.0, 120.0)]
    (sheet,) = table.use_sheets(rows)
    assert cells(sheet, "model FLOP/s") == ["200 GFLOP/s", "-", "-"]
    assert cells(sheet, "peak FLOP/s") == ["1.00 TFLOP/s", "not measured", "not measured"]
    assert cells(sheet, "FLOP/s utilization") == ["20.0 %", "not measured", "not measured"]
