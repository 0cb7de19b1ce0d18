"""Which rank hangs, by the rules; the time that counts as standing still; and what the report says."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hpcbench.parallel import group as groups
from hpcbench.train.hang_report import HangReport, RankState, culprits, write_report
from hpcbench.train.process_stacks import frame_waits
from hpcbench.train.progress import WARM_STEPS, Bounds, Progress, StandstillClock, read_progress


def state(rank: int, standing_s: float = 70.0, **more: Any) -> RankState:
    given = {"phase": "communication", "step": 120, "bound_s": 60.0, "waiting": True, **more}
    return RankState(rank, "node17", standing_s=standing_s, **given)


WORKS = {"phase": "checkpoint", "waiting": False, "bound_s": 600.0}
STANDS = {"phase": "input_wait", "waiting": False}


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([state(0, 50), state(1, 50)], None),
        ([state(0), state(1, **STANDS), state(2)], [1]),
        ([state(0), state(1, **WORKS), state(2)], None),
        ([state(0), state(1, silent=True), state(2, **STANDS)], [1]),
        ([state(0, 50), state(1, silent=True)], None),
        ([state(0), state(1, 50)], None),
        ([state(0), state(1, step=119), state(2)], [1]),
        ([state(0), state(1), state(2)], []),
        ([state(0, **STANDS), state(1, **STANDS)], []),
        ([state(0, **STANDS)], [0]),
        ([state(0, 50, **STANDS)], None),
    ],
)  # fmt: skip
def test_culprits(states: list[RankState], expected: list[int] | None) -> None:
    assert culprits(states) == expected


def test_the_finding_in_words() -> None:
    def finding(*states: RankState) -> str:
        return HangReport(culprits(states) or [], list(states), {}, 0).finding()

    one = "rank 1 on node17 stood still for 75 s in compute (step 120)"
    compute = state(1, 75, phase="compute", waiting=False)
    assert finding(state(0), compute) == one
    assert finding(state(0), state(1, 75, phase="compute", silent=True, stopped=True)) == f"{one}, its process stopped"
    assert finding(state(0), compute, state(2, **STANDS)) == one.replace("node17", "node17 and 1 other rank")
    lost = RankState(1, "node17", standing_s=75, silent=True)
    assert finding(state(0), lost) == ("rank 1 on node17 stood still for 75 s in unknown, its process not answering")
    assert finding(state(0), state(1)) == (
        "all 2 ranks stood still for 70 s in communication (step 120), and none stands out"
    )


def test_the_report_in_the_folder(tmp_path: Path) -> None:
    states = [state(0), state(1, **STANDS), state(2), state(3), state(4)]
    same = "in all_reduce\n"
    report = HangReport([1], states, {0: same, 1: "in read\n", 2: same, 3: same}, 0)
    text = write_report(tmp_path, report).read_text()
    assert text.count(same) == 1
    assert text.index("--- rank 1\nin read") < text.index("--- ranks 0, 2 to 3\nin all_reduce")
    assert "--- rank 4\nthe stacks are not known" in text
    assert "  * rank 1 on node17: input_wait (step 120), nothing new for 70 s (bound 60 s)\n" in text
    tree = json.loads((tmp_path / "hang.json").read_text())
    assert tree["culprits"] == [1]
    assert [each["phase"] for each in tree["states"]][:2] == ["communication", "input_wait"]
    assert tree["finding"].startswith("rank 1 on node17 stood still")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def looked(clock: Clock, standstill: StandstillClock, seconds: float, every: float = 1.0) -> None:
    for _ in range(round(seconds / every)):
        clock.now += every
        standstill.look()


def test_time_in_which_the_process_is_stopped_does_not_count() -> None:
    clock, progress = Clock(), Progress()
    standstill = StandstillClock(progress, Bounds(), clock)
    standstill.look()
    looked(clock, standstill, 30)
    assert standstill.standing_s == 30
    looked(clock, standstill, 3600, every=3600)
    assert standstill.standing_s == 32
    progress.touch()
    looked(clock, standstill, 1)
    assert standstill.standing_s == 0


def test_bounds_follow_the_steps_of_the_rank() -> None:
    clock, progress = Clock(), Progress()
    standstill = StandstillClock(progress, Bounds(60.0), clock)
    progress.enter("compute")
    assert standstill.bound_s == 600  # the first steps

    def steps(number: int, seconds: float) -> None:
        for _ in range(number):
            looked(clock, standstill, seconds)
            progress.tick(progress.step + 1)

    steps(WARM_STEPS, 100)
    assert standstill.bound_s == 60  # what compiles and chooses kernels says nothing of a warm step
    steps(5, 2)
    assert standstill.bound_s == 60
    with progress.during("evaluation"):
        assert standstill.bound_s == 600
        looked(clock, standstill, 50)
    steps(5, 5)
    looked(clock, standstill, 1)
    assert standstill.bound_s == 100  # an evaluation between two steps is part of neither
    looked(clock, standstill, 1000)
    assert standstill.bound_s == 100  # nor is a hang


@pytest.mark.parametrize("phase", ["finalize", "checkpoint"])
def test_who_moves_bytes_or_computes_while_the_others_wait_has_not_stood_still(phase: str) -> None:
    clock, progress, moved, cpu_s = Clock(), Progress(), 0, 0.0
    standstill = StandstillClock(progress, Bounds(60.0), clock, lambda: moved, lambda: cpu_s)
    progress.enter(phase)
    assert standstill.bound_s == 600

    def stands(bytes_per_look: int, cpu_per_look: float) -> float:
        nonlocal moved, cpu_s
        progress.touch()
        for _ in range(30):
            moved, cpu_s = moved + bytes_per_look, cpu_s + cpu_per_look
            looked(clock, standstill, 1)
        return standstill.standing_s

    assert stands(0, 0.0) == 29
    assert stands(2**20, 0.0) == 0
    assert stands(0, 1.0) == 29, "it may spin in a communication"
    progress.alone = True
    assert stands(0, 0.5) == 0, "the baselines"
    assert stands(0, 0.05) == 29, "the threads that watch"


def test_phases_are_nested_and_seen_from_outside() -> None:
    import os

    progress = Progress()

    def outside() -> tuple[str, int] | None:
        return read_progress(os.getpid(), progress.descriptor)

    assert outside() == ("init", 0)
    with progress.during("evaluation"), progress.during("communication"):
        assert outside() == ("communication", 0)
        with progress.during("evaluation"):
            progress.tick(1_000_000)
        assert outside() == ("communication", 1_000_000)
    assert outside() == ("init", 1_000_000)
    assert read_progress(2**22 + 1, 3) is None


def test_telling_costs_no_more_than_microseconds() -> None:
    progress = Progress()
    calls, best = 10_000, float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for step in range(calls):
            progress.enter("compute")
            progress.tick(step)
        best = min(best, (time.perf_counter() - start) / calls)
    assert best < 20e-6  # 0.5 in an idle machine


def test_waiting_is_told_by_the_code_that_the_main_thread_stands_in() -> None:
    def frame_in(name: str) -> FrameType:
        scope: dict[str, Any] = {}
        exec(compile("import sys\nframe = sys._getframe()", name, "exec"), scope)
        found: FrameType = scope["frame"]
        return found

    parallel = Path(groups.__file__).parent
    assert frame_waits(frame_in(str(parallel / "group.py")))
    assert frame_waits(frame_in("/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"))
    assert not frame_waits(frame_in(str(parallel / "spatial" / "layers.py")))
    assert not frame_waits(frame_in("/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"))
    assert not frame_waits(sys._getframe())
    assert not frame_waits(None)
