"""Predictions for this machine beside what it then does: other steps, one and two single-core nodes, staging."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpcbench.characterisation.file import read_characterisation
from hpcbench.characterisation.model import Characterisation
from hpcbench.prediction.calibration import between
from hpcbench.prediction.kernel_time import COMPUTED_IN, Kernels, kernels_of
from hpcbench.prediction.message_time import MessageTime
from hpcbench.prediction.planned_staging import plan_of, way_of
from hpcbench.prediction.platforms import Fact, Platform
from hpcbench.prediction.staged_time import staged_time
from hpcbench.prediction.step_time import case_of
from hpcbench.prediction.workload import Work, work_of
from staging.options import StageOptions
from staging.probing.probe import probe
from staging.ranks.world import Alone
from staging.source.page_cache import drop_cache
from staging.stage import stage

BASE = {"cosmoflow": (2, 8), "deepcam": (2, 6)}
"""The local batches of the characterisations that everything is predicted from. Of a batch of one on one thread, torch
computes convolutions by kernels of its own, slower ones, instead of by oneDNN's (ATen's ``use_mkldnn``)."""
OTHERS = {"cosmoflow": (3, 4, 6), "deepcam": (3, 4, 5)}
STEPS = Path(__file__).resolve().with_name("_here_steps.py")
GOALS = {"step": 0.10, "one node": 0.15, "two nodes": 0.15, "staging": 0.20}


def one_core_each(words: list[str], ranks: int, folder: Path) -> str:
    """Run Python with ``words`` on ranks with one core each, and return its output."""
    launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run(
        [*launcher, sys.executable, *words], check=False, cwd=folder, capture_output=True, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def characterise(application: str, preset: str, batch: int, ranks: int, seconds: float, out: Path) -> Characterisation:
    """Make a characterisation with the command, and keep it in ``out``."""
    settings = {"preset": preset, "parallel.threads": 1, "train.local_batch_size": batch, "train.precision": "32-true",
                "seconds": seconds, "out": out, "page": out.with_suffix(".html")}  # fmt: skip
    options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    one_core_each(["-m", "hpcbench", "characterize", application, *options], ranks, out.parent)
    return read_characterisation(out)


def timed(
    application: str, preset: str, repeats: int, seconds: float, ranks: int, batches: tuple[int, ...], folder: Path
) -> dict[int, list[float]]:
    """Measure the seconds of a step at each local batch, in turn."""
    numbers = [str(number) for number in (repeats, seconds, ranks, *batches)]
    said = one_core_each([str(STEPS), application, preset, *numbers], ranks, folder)
    return {int(batch): times for batch, times in json.loads(said.strip().splitlines()[-1]).items()}


def device_s(kernels: Kernels, work: Work, roofs: Characterisation, batch: int) -> float:
    """Seconds of a pass at a local batch, for a rank with the roofs in ``roofs``."""
    compute, memory = roofs.roof("compute", COMPUTED_IN[roofs.precision]), roofs.roof("memory")
    assert compute is not None
    assert memory is not None
    platform = Platform("here", "here", 1, "", None, memory.value, compute.value, None, Fact(1, 1), Fact(1, 1))
    case = case_of(Work(**{**vars(work), "application": "cosmoflow"}), platform, 1, 1, batch, newer=True)
    return float(kernels.device_s(case))


def message_s(characterisation: Characterisation) -> float:
    """Seconds of the messages of a step, by their curves; a rank that computes on its only core hides none of them."""
    messages = MessageTime.of(characterisation)
    return 0.0 if messages is None else sum(float(sent.seconds(sent.among)) for sent in messages.messages)


def steps_here(
    applications: Sequence[str], preset: str, repeats: int, seconds: float, folder: Path
) -> list[dict[str, Any]]:
    """Predict and time steps at three local batches that were not characterised, and on one and two one-core nodes."""
    rows = []
    for application in applications:
        small, large = BASE[application]
        others, file = OTHERS[application], folder / f"{application}.json"
        one_rank = characterise(application, preset, small, 1, 5 * seconds, file)
        top = characterise(application, preset, large, 1, 3 * seconds, folder / f"{application}-large.json")
        both = characterise(application, preset, small, 2, 3 * seconds, folder / f"{application}-two.json")
        kernels, work, *_ = kernels_of(file)
        known = {
            float(small): np.zeros(()),
            float(large): np.log(top.steps[0].median_s / device_s(kernels, work, one_rank, large)),
        }

        def alone(batch: int, roofs: Characterisation, kernels: Kernels = kernels, work: Work = work,
                  known: dict[float, Any] = known) -> float:  # fmt: skip
            return float(np.exp(between(known, batch))) * device_s(kernels, work, roofs, batch)

        taken = timed(application, preset, repeats, seconds, 1, others, folder)
        for batch in others:
            rows.append(row(f"{application}, local batch {batch}", "step", alone(batch, one_rank), taken[batch]))
        batch = others[0]
        one = timed(application, preset, repeats, seconds, 1, (batch,), folder)
        rows.append(row(f"{application}, one node", "one node", alone(batch, one_rank), one[batch]))
        two = timed(application, preset, repeats, seconds, 2, (batch,), folder)
        rows.append(row(f"{application}, two nodes", "two nodes", alone(batch, both) + message_s(both), two[batch]))
    return rows


def staging_here(memory: Path, disk: Path, repeats: int, files: int, size: int, probe_s: float) -> list[dict[str, Any]]:
    """Predict and time staging to memory and to disk, in turn, after a probe of each; files come from the disk."""
    with tempfile.TemporaryDirectory(dir=memory) as fast, tempfile.TemporaryDirectory(dir=disk) as slow:
        source = Path(slow) / "source"
        source.mkdir()
        content = np.random.default_rng(0).bytes(size)
        for number in range(files):
            (source / f"{number:05d}.bin").write_bytes(content)
        os.sync()
        summary = plan_of(
            replace(work_of("cosmoflow"), train_samples=files, validation_samples=0, stored_bytes=size), 1
        )
        places = {"memory": Path(fast), "disk": Path(slow)}
        predicted, ways = {}, {}
        for name, place in places.items():
            ceilings = probe(
                StageOptions(source, str(place / "probed"), threads=2), Alone(), budget_s=probe_s, quiet=True
            )
            ways[name] = way_of(ceilings)
            predicted[name] = staged_time(summary, ceilings, way=ways[name]).seconds
        taken: dict[str, list[float]] = {name: [] for name in places}
        for _ in range(repeats):
            for name, place in places.items():
                drop_cache(source.iterdir())
                destination = place / "staged"
                options = StageOptions(source, str(destination), threads=2, write_way=ways[name])  # type: ignore[arg-type]
                taken[name].append(stage(options, Alone(), quiet=True).seconds)
                shutil.rmtree(destination)
    return [row(f"staging to {name}", "staging", predicted[name], taken[name]) for name in places]


def row(what: str, kind: str, predicted: float, taken: list[float]) -> dict[str, Any]:
    """Return a prediction beside the median of the measured times."""
    middle = median(taken)
    error = predicted / middle - 1
    return {"what": what, "predicted_s": predicted, "median_s": middle, "taken_s": taken, "error": error,
            "goal": GOALS[kind], "met": abs(error) <= GOALS[kind]}  # fmt: skip
