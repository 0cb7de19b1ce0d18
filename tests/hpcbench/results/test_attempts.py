"""What the attempts of a run add up to, and what a damaged file of theirs is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hpcbench.cli.main import main
from hpcbench.measure.slow_nodes import slow_nodes
from hpcbench.results import units
from hpcbench.results.attempts import Attempt, Attempts, summed
from hpcbench.results.attempts_table import attempts_table
from hpcbench.results.compare import group
from hpcbench.results.phase_table import attempts_of_ranks
from hpcbench.results.rank_phases import rank_name
from hpcbench.results.records import read_run
from hpcbench.train import attempt_recorder
from hpcbench.train.rank_metrics import NodesEnergy
from staging.errors import DataError
from staging.phase_timer import PhaseTimer

SAVE = {"epoch": 1, "step": 4, "stall_s": 0.1, "copy_s": 0.1, "write_bytes": 9, "write_s": 0.2}


def attempt(cause: str | None = None, joules: float | None = 5.0, **values: Any) -> Attempt:
    """An attempt of ten seconds with a checkpoint."""
    common: dict[str, Any] = {"energy_source": "rapl", "energy_note": "packages of 1 node", "saves": [SAVE]}
    return Attempt(0.0, 10.0, 0, 4, cause, 2, 10.0, {"compute": 9.0}, joules, **{**common, **values})


def rows(node: str, steps: int, seconds: list[float]) -> list[dict[str, Any]]:
    """Of a rank on each of some nodes."""
    return [
        {"rank": rank, "node": f"{node}{rank}", "local_rank": 0, "steps": steps, "compute_s": each, "wall_s": each}
        for rank, each in enumerate(seconds)
    ]


def test_a_node_is_not_called_slow_for_what_another_one_took() -> None:
    before, after = rows("old", 100, [100.0, 100.0, 100.0, 150.0]), rows("new", 5, [5.0] * 4)
    assert slow_nodes(before)[0].startswith("old3 ")
    both = summed(before, after)
    assert [row["compute_s"] for row in both] == [105.0, 105.0, 105.0, 155.0]
    assert slow_nodes(both)[0].startswith("old3, new3 computes a step 1.48 times")
    assert rank_name(both[3]) == "rank 3 on old3, new3"
    assert rank_name(summed(both, rows("old", 5, [5.0] * 4))[3]) == "rank 3 on old3, new3", "each of them once"
    assert rank_name(summed(before, before)[3]) == "rank 3 on old3"


def continued(earlier: Attempts, ranks: int, seconds: float | None, monkeypatch: pytest.MonkeyPatch) -> Attempts:
    """All attempts with one more, in which each rank computes ``seconds``; ``None``: killed before its checkpoint."""
    launch, group = SimpleNamespace(world_size=ranks), SimpleNamespace(max=float)
    run: Any = SimpleNamespace(launch=launch, group=group, is_first=False, device=torch.device("cpu"),
                               phases=SimpleNamespace(timer=PhaseTimer()))  # fmt: skip
    figures = (rows("node", 5, [seconds or 0.0] * ranks), NodesEnergy(None, "", ""))
    monkeypatch.setattr(attempt_recorder, "gather_rank_metrics", lambda rank_metrics: figures)
    checkpoints: Any = SimpleNamespace(saves=[], summary=dict)
    recorder = attempt_recorder.AttemptRecorder(run, run, checkpoints, earlier, 0)
    if seconds is not None:
        recorder.collect()
    return recorder.record(0)


@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [
        ([(4, 9.0), (4, 1.0)], 10.0),
        ([(4, 9.0), (4, None), (4, 1.0)], 10.0),
        ([(4, 9.0), (2, 3.0), (4, 1.0)], 1.0),
        ([(4, 9.0), (2, None), (4, 1.0)], 1.0),
        ([(4, 9.0), (2, None), (4, None), (4, 1.0)], 1.0),
        ([(4, 9.0), (2, None)], 9.0),
    ],
)
def test_rows_add_up_the_attempts_that_the_page_names(
    attempts: list[tuple[int, float | None]], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Attempts()
    for ranks, own in attempts:
        found = continued(found, ranks, own, monkeypatch)
    named = attempts_of_ranks(found, len(found.ranks))
    assert [row["compute_s"] for row in found.ranks] == [seconds] * 4
    assert sum(attempts[each][1] or 0.0 for each in named) == seconds


def probed(rate: float | None, steps: int, seconds: float | None, dtype: str = "float32") -> list[dict[str, Any]]:
    """The row of a rank that measured its matrix products at ``rate``."""
    (row,) = rows("node", steps, [0.0])
    return [row | {"wall_s": seconds, "gemm_dtype": dtype, "gemm_flops": rate}]


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        (probed(1e12, 10, 30.0), probed(4e12, 10, 10.0), 1.75e12),  # 70e12 products in 40 s
        (probed(1e12, 10, 30.0), probed(1e12, 5, 4.0), 1e12),
        (probed(1e12, 0, None), probed(4e12, 10, 10.0), 4e12),
        (probed(1e12, 10, 30.0), probed(4e12, 0, None), 1e12),
        (probed(1e12, 0, None), probed(4e12, 0, None), 4e12),
        (probed(None, 10, 30.0), probed(4e12, 10, 10.0), None),
        (probed(1e12, 10, 30.0), probed(4e12, 10, 10.0, "bfloat16"), None),
    ],
)
def test_the_peak_is_that_of_the_nodes_that_took_the_steps(
    before: list[dict[str, Any]], after: list[dict[str, Any]], rate: float | None
) -> None:
    assert summed(before, after)[0]["gemm_flops"] == rate


@pytest.mark.parametrize(
    ("attempts", "note"),
    [
        ([attempt("epochs", energy_to_end=True)], ""),
        ([attempt("rank_lost", energy_to_end=False)], ", up to the last checkpoint"),
        ([attempt(None, energy_to_end=False)], ""),
        ([attempt("signal", energy_to_end=True), attempt("epochs", energy_to_end=True)], ", over 2 attempts"),
        (
            [attempt("rank_lost", energy_to_end=False), attempt(None, energy_to_end=False)],
            ", over 2 attempts without what 1 took after the last checkpoint",
        ),
        (
            [attempt(None, energy_to_end=False), attempt("full_disk", energy_to_end=False)],
            ", over 2 attempts without what 2 took after the last checkpoint",
        ),
        (
            [attempt(None), attempt("signal"), attempt("epochs")],  # of an earlier version
            ", over 3 attempts without what 1 took after the last checkpoint",
        ),
    ],
)
def test_energy_says_what_of_the_time_it_leaves_out(attempts: list[Attempt], note: str) -> None:
    assert Attempts(attempts).energy == (5.0 * len(attempts), "rapl", f"packages of 1 node{note}")


@pytest.mark.parametrize(
    ("attempts", "per_sample"),
    [
        ([attempt("epochs", energy_to_end=True)], 0.05),
        ([attempt("signal", energy_to_end=True), attempt("epochs", energy_to_end=True)], 0.1),
        ([attempt("error", energy_to_end=False)], None),
        ([attempt(None, energy_to_end=False), attempt("epochs", energy_to_end=True)], None),
    ],
)
def test_energy_that_ends_before_the_samples_is_not_divided_by_them(
    attempts: list[Attempt], per_sample: float | None, build_run: Any, tmp_path: Path
) -> None:
    joules, _, note = Attempts(attempts).energy
    path = build_run(energy_j=joules, energy_note=note, samples=100)
    (machine,) = group({"run": read_run(path)}, tmp_path)["machines"]
    assert (machine["energy"], machine["sample_energy"]) == (
        units.prefixed(joules, "J"), units.prefixed(per_sample, "J"),
    )  # fmt: skip


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = Attempts([attempt("signal", energy_to_end=True), attempt(None, None)], rows("n", 5, [5.0, 6.0]))
    kept.write(tmp_path)
    assert Attempts.read(tmp_path) == kept


DAMAGE = {
    "started": "a", "wall_s": None, "first_step": 1.5, "world_size": [], "cause": 5, "phases_s": {"init": "a"},
    "energy_j": "x", "energy_source": None, "energy_to_end": "yes", "peak_memory_bytes": {}, "checkpoint": [1],
    "saves": [{"step": 1}],
}  # fmt: skip
MORE_DAMAGE = [("phases_s", [1]), ("saves", 5), ("saves", [5]), ("saves", [SAVE | {"step": ""}])]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [*DAMAGE.items(), *MORE_DAMAGE],
)
def test_a_damaged_field_is_one_line(
    name: str, value: object, build_run: Any, undrawn: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build_run()
    values = {"schema": 1, "attempts": [asdict(attempt("epochs")) | {name: value}], "ranks": []}
    (folder / "attempts.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match=rf"attempts\.json: is damaged \({name}\b.* (must be|lack) "):
        Attempts.read(folder)
    assert main(["report", str(folder)]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hpcbench: ")]
    assert "remove it to resume without the figures of earlier attempts" in line


@pytest.mark.parametrize("row", [{"x": 1}, {"rank": "0"}, {"rank": 0, "wall_s": "a"}, {"rank": 0, "wall_s": [1]}, 5])
def test_a_damaged_row_is_one_line(row: object, tmp_path: Path) -> None:
    values = {"schema": 1, "attempts": [asdict(attempt())], "ranks": [row]}
    (tmp_path / "attempts.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match=r"attempts\.json: is damaged"):
        Attempts.read(tmp_path)


def test_a_gap_that_the_clock_does_not_tell_is_unknown() -> None:
    def attempt(started: float, ended: float) -> Attempt:
        return Attempt(started=started, ended=ended, first_step=0, last_step=1, wall_s=ended - started)

    told = attempts_table(Attempts([attempt(100, 110), attempt(115, 120)]))
    assert (told["lines"][1]["gap"], told["gap"], told["span"]) == ("5.000", "5.000", "20.000")
    assert not told["clock_set_back"]
    set_back = attempts_table(Attempts([attempt(100, 110), attempt(90, 95), attempt(96, 99)]))
    assert [line["gap"] for line in set_back["lines"]] == ["", "unknown", "1.000"]
    assert (set_back["gap"], set_back["clock_set_back"]) == ("unknown", True)
