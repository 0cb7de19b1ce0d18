"""What the runs of a scaling study measured: sums, means and middles of their figures, and what is not known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.measure.phases import Phases
from hpcbench.measure.step_times import StepTimes
from hpcbench.phase_names import PHASES, STEP_PHASES
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.folder import StudyFolder
from hpcbench.study.run_status import RunStatus, read_run_status
from hpcbench.study.scaling.concurrency import Pruned
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.point_results import PointResult, RepeatResult
from hpcbench.study.scaling.read_results import parts_of_steps, read_point_results, read_repeat, step_seconds
from hpcbench.study.scaling.run_matrix import (
    PlannedRun,
    all_runs,
    data_parallel_size,
    local_batch_size,
    run_nodes,
    seed_of,
)
from hpcbench.train.rank_metrics import RankMetrics
from staging.errors import DataError
from staging.phase_timer import PhaseTimer

WARMUP = 5
STEP = {"input_wait": 0.001, "compute": 0.006, "communication": 0.0015, "waiting": 0.0005, "optimizer": 0.0005}
"""Seconds of a step of 10 ms."""
STUDY = Scaling(
    mode="strong", application="cosmoflow", preset="smoke", site="here", nodes=(1, 2), ranks_per_node=2,
    local_batch_size=4, global_batch_size=8, cores_per_rank=4, gpus_per_rank=1, repeats=2, steps=25,
    settings={"data.root": "set"},
)  # fmt: skip


def rank_row(rank: int, node: str, steps: int, samples: int, step_s: float = 0.01, joules: float | None = None,
             simulated: int | None = None) -> dict[str, Any]:  # fmt: skip
    """A row of ``ranks.csv`` as a rank writes it: warm steps of ``step_s``."""
    times = StepTimes(Phases(PhaseTimer(), torch.device("cpu")), WARMUP)
    times.steps, times.samples, times.wall_s, times.cpu_s = steps, samples, steps * step_s, 1.5 * steps * step_s
    times.phases_s = {name: steps * seconds for name, seconds in STEP.items()}
    times.energy_j = joules
    launch = SimpleNamespace(rank=rank, local_rank=0, node_rank=rank)
    group: Any = SimpleNamespace(rank=-1, launch=launch, all_gather_object=lambda host: [host])
    own = RankMetrics(group, times, threads=2, simulated=simulated is not None)
    own.node, own.reads = own.node if simulated is not None else node, joules is not None
    return own.row()


def write_run(
    path: Path, *, hosts: Sequence[str] = ("nid1",), ranks_per_node: int = 1, local: int = 4, accumulation: int = 1,
    steps: int = 25, step_s: float = 0.01, joules: float | None = None, simulated: int | None = None,
    clock_ms: tuple[int, int] = (1000, 61_000), **changes: Any,
) -> Summary:  # fmt: skip
    """The folder of a run on ``hosts``, of which every rank's warm steps take ``step_s``; ``joules`` of each host."""
    path.mkdir(parents=True, exist_ok=True)
    ranks, warm = len(hosts) * ranks_per_node, max(0, steps - WARMUP)
    batch = ranks * local * accumulation
    rows = [
        rank_row(rank, hosts[rank // ranks_per_node], warm, warm * batch, step_s,
                 joules if rank % ranks_per_node == 0 else None, simulated)
        for rank in range(ranks)
    ]  # fmt: skip
    values: dict[str, Any] = {
        "status": "success", "metric": "mae", "target": 0.4, "best": 0.3, "epochs": 2, "steps": steps,
        "samples": steps * batch, "checkpoints": 2, "evaluations": 4, "epochs_to_target": 2,
        "time_to_solution_s": 60.0, "wall_s": 70.0, "phases_s": dict.fromkeys(PHASES, 1.0) | {"init": 6.0},
        "world_size": ranks, "nodes": len(hosts), "ranks_per_node": ranks_per_node, "threads": 2,
        "local_batch_size": local, "accumulation": accumulation, "global_batch_size": batch, "train_samples": 128,
        "validation_samples": 64, "warm_samples_per_s": batch / step_s if warm else None, "parameters": 1000,
        "flops_training_per_sample": 10**9, "simulated_nodes": simulated, "device": "a processor",
        "energy_j": None if joules is None else 10 * joules * len(hosts),
        "energy_source": "" if joules is None else "NVML",
        "energy_note": "not measured: no counter" if joules is None else "devices",
    }  # fmt: skip
    summary = Summary("cosmoflow", "Cosmological parameters", "smoke", **values | changes)
    folder = RunFolder(path)
    folder.write_summary(summary)
    folder.write_ranks(rows)
    write_log(folder.mllog, *clock_ms, hosts[0])
    return summary


def write_log(path: Path, start_ms: int, stop_ms: int, host: str) -> None:
    """The official log, as far as it is read."""
    events = [("POINT_IN_TIME", "submission_platform", host, start_ms - 900), ("INTERVAL_START", "run_start", None,
              start_ms), ("INTERVAL_END", "run_stop", None, stop_ms)]  # fmt: skip
    lines = [{"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key, "value": value, "metadata": {}}
             for kind, key, value, time_ms in events]  # fmt: skip
    path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines), encoding="utf-8")


def write_planned(study: Scaling, run: PlannedRun, path: Path, **changes: Any) -> Summary:
    """The folder of a run of a study, with a host of its own for every node."""
    nodes = run_nodes(study, run)
    first = nodes * ((run.instance or 1) - 1)
    batch = local_batch_size(study, nodes) * study.accumulation * data_parallel_size(study, nodes)
    options = {
        "hosts": [f"nid{first + number}" for number in range(nodes)], "step_s": 0.01 + batch / 1000 / nodes,
        "ranks_per_node": study.ranks_per_node, "local": local_batch_size(study, nodes), "seed": seed_of(study, run),
        "accumulation": study.accumulation, "steps": study.steps or 25,
    }  # fmt: skip
    return write_run(path, **options | changes)


def one(path: Path, timed: bool = False, **options: Any) -> RepeatResult:
    """What one run comes to."""
    write_run(path, **options)
    return read_repeat([path], timed)


SECONDS = st.floats(0, 1e3)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(*[SECONDS] * (1 + len(STEP_PHASES))), min_size=1, max_size=5),
)
def test_the_parts_of_a_step_add_up_to_its_wall_time(steps: int, ranks: list[tuple[float, ...]]) -> None:
    rows = [
        {"steps": steps, "wall_s": sum(seconds), **{f"{name}_s": part for name, part in zip(STEP_PHASES, seconds[1:],
                                                                                     strict=True)}}
        for seconds in ranks
    ]  # fmt: skip
    found = step_seconds(parts_of_steps(pd.DataFrame(rows)))
    wall = sum(row["wall_s"] for row in rows) / len(rows) / steps
    assert sum(found.values()) == pytest.approx(wall, abs=1e-9)
    assert found["other"] == pytest.approx(sum(seconds[0] for seconds in ranks) / len(rows) / steps, abs=1e-9)


def test_the_median_and_the_slowest_rank_of_each_part_of_a_step(tmp_path: Path) -> None:
    write_run(tmp_path / "run", hosts=("nid1",), ranks_per_node=3)
    folder = RunFolder(tmp_path / "run")
    table = folder.read_ranks()
    steps = table["steps"]
    table["compute_s"], table["waiting_s"] = steps * [0.001, 0.002, 0.006], steps * [0.005, 0.004, 0.0]
    table["wall_s"] = steps * 0.01
    table.loc[1, "wall_s"] = steps[1] * 0.012
    folder.write_ranks(table.to_dict("records"))
    found = read_repeat([folder.path], timed=False)
    same = {name: STEP[name] for name in ("input_wait", "communication", "optimizer")}
    assert found.step_median_s == pytest.approx(
        same | {"compute": 0.002, "waiting": 0.004, "other": 0.001, "wall": 0.01}
    )
    assert found.step_slowest_s == pytest.approx(
        same | {"compute": 0.006, "waiting": 0.005, "other": 0.003, "wall": 0.012}
    )
    assert found.slowest_rank == "rank 2 on nid1", "rank 1 took longer, but waited"
    write_run(tmp_path / "alone", hosts=("nid1",), ranks_per_node=1)
    assert read_repeat([tmp_path / "alone"], timed=False).slowest_rank == ""


def test_the_figures_of_a_run(tmp_path: Path) -> None:
    found = one(tmp_path / "run", hosts=("nid1", "nid2"), ranks_per_node=2, local=3, accumulation=2)
    assert (found.ranks, found.global_batch_size, found.samples) == (4, 24, 600)
    assert found.samples_per_s == pytest.approx(2400)
    assert found.step_s == pytest.approx(STEP | {"other": 0.0005})
    assert (found.init_s, found.wall_s, found.flops_per_sample) == (6.0, 70.0, 10**9)
    assert (found.evaluation_s, found.checkpoint_s) == (0.25, 0.5), "of one of them"
    assert found.cpu_used == pytest.approx([0.75] * 4), "1.5 cores of 2 threads"


def test_accelerators_are_busy_on_every_rank_or_the_reason_is_told(tmp_path: Path) -> None:
    assert (found := one(tmp_path / "cpu", device_type="cpu")).device_busy == []
    assert found.device_words == "", "a processor has no such counter, and misses none"
    write_run(tmp_path / "gpu", hosts=("nid1", "nid2"), device_type="cuda")
    folder = RunFolder(tmp_path / "gpu")
    table = folder.read_ranks().astype({"device_note": object})
    table["device_busy_s"], table["device_sampled_s"] = [30.0, 45.0], [60.0, 60.0]
    folder.write_ranks(table.to_dict("records"))
    assert read_repeat([folder.path], timed=False).device_busy == [0.5, 0.75]
    table.loc[1, ["device_busy_s", "device_note"]] = [None, "NVML: not found"]
    folder.write_ranks(table.to_dict("records"))
    part = read_repeat([folder.path], timed=False)
    assert (part.device_busy, part.device_words) == ([], "NVML: not found")


def test_without_evaluations_and_checkpoints_none_has_a_time(tmp_path: Path) -> None:
    found = one(tmp_path / "run", evaluations=0, checkpoints=0)
    assert (found.evaluation_s, found.checkpoint_s) == (None, None)


def test_instances_are_counted_together(tmp_path: Path) -> None:
    for number, step_s in enumerate((0.01, 0.02)):
        write_run(tmp_path / str(number), hosts=(f"nid{number}",), step_s=step_s, wall_s=70.0 + number,
                  slow_nodes=[f"nid{number} is slow"])  # fmt: skip
    found = read_repeat([tmp_path / "0", tmp_path / "1"], timed=False)
    assert (found.ranks, found.global_batch_size, found.samples) == (2, 4, 200)
    assert found.samples_per_s == pytest.approx(400 + 200)
    assert sum(found.step_s.values()) == pytest.approx(0.015)
    assert (found.wall_s, found.slow) == (71.0, ["nid0 is slow", "nid1 is slow"])


def test_the_time_of_instances_is_from_the_first_start_to_the_last_stop(tmp_path: Path) -> None:
    clocks = [(8_000, 60_000), (4_000, 50_000), (7_000, 61_500)]
    paths = [tmp_path / str(number) for number in range(3)]
    for number, clock_ms in enumerate(clocks):
        write_run(paths[number], clock_ms=clock_ms, hosts=(f"nid{number}",), samples=300 + number)
    found = read_repeat(paths, timed=True)
    assert (found.time_s, found.span_s, found.last_start_s) == pytest.approx((57.5, 57.5, 4.0))
    assert (found.instances, found.models, found.samples_per_model) == (3, 3, 301)
    assert found.models_per_minute == pytest.approx(3 / 57.5 * 60)
    assert found.together == pytest.approx(3 * 42 / (52 + 46 + 54.5))
    assert read_repeat(paths[:1], timed=True).time_s == 60.0, "of one it is that of its summary"
    write_run(tmp_path / "stopped", resumed=1, gaps_s=3600.0, time_to_solution_s=3660.0)
    stopped = read_repeat([tmp_path / "stopped"], timed=True)
    assert (stopped.time_s, stopped.models) == (None, 1), "the clock kept running while it was stopped"
    steps = read_repeat(paths, timed=False)
    assert (steps.time_s, steps.missed, steps.models_per_minute) == (None, 0, None), "a number of steps is no target"
    write_run(paths[2], clock_ms=clocks[2], hosts=("nid2",), status="target_not_reached", epochs_to_target=None,
              reason="target mae 0.3 not reached")  # fmt: skip
    found = read_repeat(paths, timed=True)
    assert (found.time_s, found.span_s) == pytest.approx((56.0, 57.5)), "one missed its target and is pruned"
    assert (found.instances, found.models, found.missed, found.samples) == (3, 2, 1, 701), "its throughput counts"
    alone = read_repeat(paths[2:], timed=True)
    assert (alone.time_s, alone.models, alone.missed, alone.models_per_minute) == (None, 0, 1, 0.0)
    assert found.pruned == [Pruned("2", "missed", "target mae 0.3 not reached")]


def test_the_start_of_a_resumed_run_is_that_of_an_attempt(tmp_path: Path) -> None:
    """The phases of its summary are those of all attempts, and a training starts once."""
    write_run(tmp_path / "whole")
    write_run(tmp_path / "resumed", resumed=2, phases_s=dict.fromkeys(PHASES, 1.0) | {"init": 18.0})
    starts = [read_repeat([tmp_path / name], timed=False).init_s for name in ("whole", "resumed")]
    assert starts == [6.0, 6.0]


def test_an_instance_of_another_day_is_pruned_and_a_repeat_of_such_is_no_result(tmp_path: Path) -> None:
    day_ms, paths = 86_400_000, [tmp_path / str(number) for number in range(3)]
    for number, path in enumerate(paths):
        late = day_ms if number == 0 else 0
        write_run(path, clock_ms=(1000 + late, 61_000 + late), hosts=(f"nid{number}",), joules=10.0)
    found = read_repeat(paths, timed=True)
    words = "began 24 h 00 min after the others, when these had ended"
    assert found.pruned == [Pruned("0", "late", words)]
    assert (found.instances, found.models, found.ranks, found.samples, found.joules) == (2, 2, 2, 200, 200.0)
    assert (found.samples_per_s, found.time_s, found.together) == pytest.approx((800, 60.0, 1.0))
    with pytest.raises(DataError, match=rf"1 of 2 instances that ran at the same time \(0: {words}\); give more --rep"):
        read_repeat(paths[:2], timed=True)
    lost = read_repeat(paths[1:], timed=True, failed={"9": "no memory"})
    assert (lost.instances, lost.pruned) == (2, [Pruned("9", "failed", "no memory")])
    with pytest.raises(DataError, match=r"2 of 4 instances .*\(9: no memory; 0: began 24 h"):
        read_repeat(paths, timed=True, failed={"9": "no memory"})


def test_a_log_that_was_cut_off_is_no_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, hosts=(name,))
    log = RunFolder(tmp_path / "b").mllog
    log.write_text("".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[:2]), encoding="utf-8")
    with pytest.raises(DataError, match=r"b/mllog.txt: lacks run_start or run_stop"):
        read_repeat([tmp_path / "a", tmp_path / "b"], timed=True)


def test_staging_is_over_with_its_last_instance_and_lands_on_all(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, seconds in zip(paths, (2.0, 4.0), strict=True):
        write_run(path, hosts=(path.name,))
        report = {"seconds": seconds, "bytes_landed": 8_000, "bytes_per_s": 8_000 / seconds, "nodes": []}
        RunFolder(path).write_json("staging.json", report)
    found = read_repeat(paths, timed=False)
    assert (found.staging_s, found.staged_bytes, found.staging_bytes_per_s) == (4.0, 16_000, 6_000)
    found_all = {"seconds": 0.1, "bytes_landed": 0, "bytes_per_s": 0.0, "nodes": []}
    resumed = RunFolder(paths[0])
    resumed.set_staging_aside()
    resumed.write_json("staging.json", found_all)
    again = read_repeat(paths, timed=False)
    assert (again.staging_s, again.staged_bytes, again.staging_bytes_per_s) == (4.0, 16_000, 6_000)
    write_run(tmp_path / "d")
    RunFolder(tmp_path / "d").write_json("staging.json", found_all)
    assert read_repeat([tmp_path / "d"], timed=False).staging_bytes_per_s is None
    unstaged = one(tmp_path / "c")
    assert (unstaged.staging_s, unstaged.staged_bytes, unstaged.staging_bytes_per_s) == (None, None, None)


def rows_of(study: Scaling, folder: StudyFolder) -> list[PointResult]:
    """The rows of what is in the folder."""
    return read_point_results(
        study, folder, {run.name: read_run_status(folder.run(run.name)) for run in all_runs(study)}
    )


def test_every_repeat_is_done_failed_or_left(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    first, second, third, _ = all_runs(STUDY)
    write_planned(STUDY, first, folder.run(first.name))
    write_planned(STUDY, second, folder.run(second.name), steps=WARMUP)
    write_planned(STUDY, third, folder.run(third.name), status="aborted", reason="the loss is nan at step 7")
    one_node, two_nodes = rows_of(STUDY, folder)
    assert (len(one_node.runs), one_node.failed, one_node.left) == (1, ["n0001-r2: the loss is nan at step 7"], 0)
    assert (two_nodes.nodes, len(two_nodes.runs), two_nodes.left) == (2, 0, 1)
    assert two_nodes.failed == [
        f"{folder.run(second.name) / 'ranks.csv'}: has no step after the warm-up (5 steps in all); give more --steps, "
        "or lower measure.warmup_steps"
    ]
    assert (one_node.ranks, one_node.cores_per_node, one_node.gpus_per_node) == (2, 8, 2)


def test_a_repeat_needs_all_its_instances(tmp_path: Path) -> None:
    study = replace(STUDY, mode="throughput", instance_nodes=1, nodes=(2,), global_batch_size=None)
    folder = StudyFolder(tmp_path)
    runs = all_runs(study)
    for run in runs:
        write_planned(study, run, folder.run(run.name))
    (row,) = rows_of(study, folder)
    assert (row.instances, len(row.runs), row.ranks) == (2, 2, 4)
    statuses = {run.name: read_run_status(folder.run(run.name)) for run in runs}
    failed = {run.name: RunStatus("failed", "no memory") for run in runs[:2]}
    (row,) = read_point_results(study, folder, statuses | failed)
    assert (len(row.runs), row.left) == (1, 0)
    assert row.failed == ["n0002-r1-i001: no memory; n0002-r1-i002: no memory"], "one repeat has failed"
    (row,) = read_point_results(study, folder, statuses | {runs[0].name: failed[runs[0].name]})
    assert (len(row.runs), row.left) == (1, 0)
    assert "1 of 2 instances that ran at the same time (n0002-r1-i001: no memory)" in row.failed[0]
    (row,) = read_point_results(study, folder, statuses | {runs[0].name: RunStatus("running"),
                                                   runs[1].name: RunStatus("reached")})  # fmt: skip
    assert (len(row.runs), row.failed, row.left) == (1, [], 1)


def test_a_row_names_its_variant_and_settings(tmp_path: Path) -> None:
    study = replace(STUDY, vary={"tier": ("node",), "parallel.overlap": ("false",)}, nodes=(1,))
    (row,) = rows_of(study, StudyFolder(tmp_path))
    assert (row.variant, row.settings) == ("tier node, overlap false", {"parallel.overlap": "false"})
    assert (row.left, row.failed) == (2, [])
