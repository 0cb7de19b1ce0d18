"""Trains as ``hpcbench`` does, and sends itself a real signal at a moment that the command line names.

``interrupting.py one PLAN WORDS...``: one training; a launcher may start it on several ranks.
``interrupting.py attempts JSON``: several one after the other, each in processes of its own (forked, so that torch is
imported once); prints a JSON of their exit codes, their output, and the seconds that they took from outside. The run
folder as an attempt finds it is kept where the attempt says ``copy``.

PLAN is JSON: ``where`` (step, evaluation, init, staging, late sample, reshuffle, checkpoint, baselines, page) or
``phase`` (a name of ``phase_names``), ``signal``, ``ranks`` that get it (of several, all where unset), ``number`` (of
the step, or how often the moment comes first), ``sleep_s`` per step, ``warm_up`` (true: also where nothing is to be
compiled), ``own_dropout`` (true: the model's layers draw from torch's generator). With ``hang_s`` the ranks sleep so
long then, instead of a signal.

Of the disk: ``disk_s``, how long each checkpoint takes by the writer's own clock, which is put forward for it;
``stuck``, the number of the checkpoint that the disk never takes. ``write_s``: how long there is time after SIGTERM.
``draw_s``: how long the page takes to be drawn.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import apps.cosmoflow.baselines
import apps.cosmoflow.data
import apps.cosmoflow.model
import apps.cosmoflow.task
import hpcbench.train.run as run_module
from hpcbench.cli.main import main
from hpcbench.parallel.spawn import rank_environments
from hpcbench.results import style
from hpcbench.train import checkpoint_io, checkpoint_writer, finalize, loop, setup
from hpcbench.train.loop import Trainer
from hpcbench.train.progress import Progress
from staging.ranks import signals
from staging.source.sources import FileReader

STUCK_S = 600.0
MOMENTS: dict[str, tuple[Any, str]] = {
    "evaluation": (loop, "evaluate"),
    "init": (setup, "build_model"),
    "reshuffle": (loop, "reshuffle_shards"),
    "staging": (FileReader, "read_into"),
    "checkpoint": (checkpoint_io, "save"),
    "baselines": (apps.cosmoflow.baselines, "baselines"),
    "page": (finalize, "draw"),
}
"""What is called then."""
SLOWLY = ("staging", "checkpoint", "baselines")
"""Moments that then last for a while."""


def own_rank() -> int:
    """As launchers say it."""
    return int(os.environ.get("PMI_RANK") or os.environ.get("SLURM_PROCID") or os.environ.get("RANK") or 0)


def follow(plan: dict[str, Any]) -> None:
    """Send the signal when its moment comes, and take longer in each step."""
    number, here = plan.get("number", 1), own_rank() in plan.get("ranks", [own_rank()])

    def send() -> None:
        if here and "hang_s" in plan:
            time.sleep(plan["hang_s"])
        elif here:
            os.kill(os.getpid(), signal.Signals[plan["signal"]])

    step = Trainer.finish_step

    def finish_step(trainer: Trainer, samples: int) -> None:
        time.sleep(plan.get("sleep_s", 0.0))
        step(trainer, samples)
        if plan.get("where") == "step" and trainer.state.step == number:
            send()

    Trainer.finish_step = finish_step  # type: ignore[method-assign]
    if plan.get("own_dropout"):
        apps.cosmoflow.model.SampleDropout = lambda p, stream: torch.nn.Dropout(p)  # type: ignore[assignment,misc]
    if plan.get("warm_up"):
        run_module.is_due = lambda config, device: True
    if "phase" in plan:
        Progress.enter = at_phase(Progress.enter, plan["phase"], number, send)  # type: ignore[method-assign]
    if plan.get("where") == "late sample":
        FileReader.read_into = at_call(  # type: ignore[method-assign]
            FileReader.read_into, number, lambda: threading.Timer(2.0, send).start(), 60.0
        )
    elif plan.get("where") in MOMENTS:
        module, name = MOMENTS[plan["where"]]
        setattr(module, name, at_call(getattr(module, name), number, send, 0.5 if plan["where"] in SLOWLY else 0.0))


def slow_down_disk(plan: dict[str, Any]) -> None:
    """Let checkpoints take as long as the plan says."""
    write, clock, passed, calls = checkpoint_io.write, time.perf_counter, [0.0], list[None]()

    def slow(*words: Any) -> int:
        checksum = write(*words)
        calls.append(None)
        if len(calls) == plan.get("stuck"):
            time.sleep(STUCK_S)
        passed[0] += plan.get("disk_s", 0.0)
        return checksum

    checkpoint_io.write = slow
    checkpoint_writer.time = SimpleNamespace(perf_counter=lambda: clock() + passed[0])  # type: ignore[assignment]
    signals.WRITE_S = plan.get("write_s", signals.WRITE_S)
    if "draw_s" in plan:
        finalize.draw = at_call(finalize.draw, 1, lambda: time.sleep(plan["draw_s"]), 0.0)


def at_call(real: Callable[..., Any], number: int, send: Callable[[], None], then_s: float) -> Callable[..., Any]:
    """``real``, whose call ``number`` begins with ``send``."""
    calls = []

    def called(*words: Any, **more: Any) -> Any:
        calls.append(None)
        if len(calls) == number:
            send()
            time.sleep(then_s)
        return real(*words, **more)

    return called


def at_phase(
    real: Callable[[Progress, str], str], phase: str, number: int, send: Callable[[], None]
) -> Callable[[Progress, str], str]:
    """``Progress.enter``, which ends with ``send`` when ``phase`` is entered for the time ``number``."""
    calls = []

    def enter(progress: Progress, name: str) -> str:
        before = real(progress, name)
        if name == phase:
            calls.append(None)
            if len(calls) == number:
                send()
        return before

    return enter


def train(plan: dict[str, Any], words: list[str]) -> int:
    """One training; the exit code of a process."""
    style.svg = lambda figure, name: "<svg></svg>"  # drawing takes longer than a short run
    sys.argv = ["hpcbench", *words]
    follow(plan)
    slow_down_disk(plan)
    return main(words)


def child(environ: dict[str, str], attempt: dict[str, Any], output: Path) -> None:
    """One rank of an attempt, to its end as an interpreter ends."""
    os.environ.update(environ | attempt.get("environ", {}))
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.exit(train(attempt.get("plan", {}), attempt["words"]))


def attempt_of(attempt: dict[str, Any]) -> dict[str, Any]:
    """Run an attempt; exit codes of its ranks, output and seconds."""
    if "copy" in attempt:
        shutil.copytree(attempt["words"][attempt["words"].index("--run-dir") + 1], attempt["copy"])
    ranks = attempt.get("world_size", 1)
    environments = rank_environments(ranks, os.environ) if ranks > 1 else [{}]
    # By name, since a child that ends would remove a temporary file of its parent.
    descriptor, name = tempfile.mkstemp(prefix="interrupting-")
    os.close(descriptor)
    started = time.time()
    children = []
    for environ in environments:
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            child(environ, attempt, Path(name))
        children.append(process)
    codes = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in children]
    ended = time.time()
    said = Path(name).read_text()
    Path(name).unlink()
    return {"codes": codes, "seconds": ended - started, "said": said, "started": started, "ended": ended}


if __name__ == "__main__":
    if sys.argv[1] == "one":
        sys.exit(train(json.loads(sys.argv[2]), sys.argv[3:]))
    print(json.dumps([attempt_of(each) for each in json.loads(sys.argv[2])]))
