"""Predictions of this machine beside what it then does: other steps, one and two single-core nodes, staging."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpcbench.application import find_application
from hpcbench.characterisation.bounds import curve_of
from hpcbench.characterisation.file import read_characterisation
from hpcbench.characterisation.model import Characterisation
from hpcbench.prediction.kernel_time import COMPUTED_IN, Kernels, kernels_of
from hpcbench.prediction.platforms import Fact, Platform
from hpcbench.prediction.staged_time import staged_time
from hpcbench.prediction.step_time import case_of
from hpcbench.prediction.work import Work
from staging.options import StageOptions
from staging.planning.plan_summary import NodeFlow, PlanSummary
from staging.probing.probe import probe
from staging.ranks.world import Alone
from staging.stage import stage

BASE = {"cosmoflow": 4, "deepcam": 2}
"""The local batch of the characterisation that everything is predicted from."""
OTHERS = {"cosmoflow": (2, 6, 8), "deepcam": (1, 3, 4)}
GOALS = {"step": 0.10, "one node": 0.15, "two nodes": 0.15, "staging": 0.20}


def characterise(application: str, preset: str, batch: int, ranks: int, seconds: float, out: Path) -> Characterisation:
    """A characterisation with one core for each rank, by the command."""
    settings = {"preset": preset, "parallel.threads": 1, "train.local_batch_size": batch, "train.precision": "32-true",
                "seconds": seconds, "out": out, "page": out.with_suffix(".html")}  # fmt: skip
    options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
    words = [*launcher, sys.executable, "-m", "hpcbench", "characterize", application, *options]
    one_core = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, check=False, cwd=out.parent, capture_output=True, text=True, env=one_core)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    found = read_characterisation(out)
    for path in (out, out.with_suffix(".html")):
        path.unlink()
    return found


def device_s(kernels: Kernels, work: Work, roofs: Characterisation, batch: int) -> float:
    """Seconds of a pass at a local batch, where a rank has the roofs of ``roofs``."""
    compute, memory = roofs.roof("compute", COMPUTED_IN[roofs.precision]), roofs.roof("memory")
    assert compute is not None
    assert memory is not None
    platform = Platform("here", "here", 1, "", None, memory.value, compute.value, None, Fact(1, 1), Fact(1, 1))
    case = case_of(Work(**{**vars(work), "application": "cosmoflow"}), platform, 1, 1, batch, newer=True)
    return float(kernels.device_s(case))


def message_s(found: Characterisation) -> float:
    """Seconds of the messages of a step by their curves; a rank that computes on its only core hides none of them."""
    total = 0.0
    for message in found.messages:
        curve = curve_of(found, message)
        if curve is not None:
            total += message.count * curve.latency_s + message.bytes / curve.bytes_per_s
    return total


def steps_here(preset: str, repeats: int, seconds: float, folder: Path) -> list[dict[str, Any]]:
    """Steps at three local batches that were not characterised, and of one and two single-core nodes."""
    rows = []
    for application, base in BASE.items():
        find_application(application)
        base_file = folder / f"{application}.json"
        characterise_into(application, preset, base, 5 * seconds, base_file)
        kernels, work, _ = kernels_of(base_file)
        own = read_characterisation(base_file)
        taken: dict[int, list[float]] = {batch: [] for batch in OTHERS[application]}
        pairs = []
        for _ in range(repeats):
            for batch, times in taken.items():
                found = characterise(application, preset, batch, 1, seconds, folder / "one.json")
                times.append(found.steps[0].median_s)
            pairs.append(characterise(application, preset, OTHERS[application][0], 2, seconds, folder / "two.json"))
        for batch, times in taken.items():
            rows.append(row(f"{application}, local batch {batch}", "step", device_s(kernels, work, own, batch), times))
        batch = OTHERS[application][0]
        one = [found.steps[0].median_s for found in pairs]
        rows.append(row(f"{application}, one node", "one node", device_s(kernels, work, own, batch), one))
        both = pairs[0]
        two = device_s(kernels, work, both, batch) + message_s(both)
        rows.append(row(f"{application}, two nodes", "two nodes", two, [found.steps[-1].median_s for found in pairs]))
    return rows


def characterise_into(application: str, preset: str, batch: int, seconds: float, out: Path) -> None:
    """The characterisation that everything is predicted from, kept in a file."""
    from hpcbench.characterisation.file import write_characterisation

    write_characterisation(characterise(application, preset, batch, 1, seconds, out.with_name("base.json")), out)


def staging_here(memory: Path, disk: Path, repeats: int, files: int, size: int) -> list[dict[str, Any]]:
    """Staging of files in the page cache to memory and to the disk, by turns, after a probe of each."""
    with tempfile.TemporaryDirectory(dir=memory) as fast, tempfile.TemporaryDirectory(dir=disk) as slow:
        source = Path(slow) / "source"
        source.mkdir()
        content = np.random.default_rng(0).bytes(size)
        for number in range(files):
            (source / f"{number:05d}.bin").write_bytes(content)
        os.sync()
        summary = PlanSummary(files, files * size, 1, (NodeFlow(0, files, files * size, files * size, 0, 0, 0),))
        places = {"memory": Path(fast), "disk": Path(slow)}
        predicted, ways = {}, {}
        for name, place in places.items():
            ceilings = probe(StageOptions(source, str(place / "probed"), threads=2), Alone(), budget_s=5, quiet=True)
            best = ceilings.best("write_flushed")
            ways[name] = best.note if best is not None else "auto"
            predicted[name] = staged_time(summary, ceilings, way=ways[name]).seconds
        taken: dict[str, list[float]] = {name: [] for name in places}
        for _ in range(repeats):
            for name, place in places.items():
                destination = place / "staged"
                options = StageOptions(source, str(destination), threads=2, write_way=ways[name])  # type: ignore[arg-type]
                taken[name].append(stage(options, Alone(), quiet=True).seconds)
                shutil.rmtree(destination)
    return [row(f"staging to {name}", "staging", predicted[name], taken[name]) for name in places]


def row(what: str, kind: str, predicted: float, taken: list[float]) -> dict[str, Any]:
    """A prediction beside the median of what it took."""
    middle = median(taken)
    error = predicted / middle - 1
    return {"what": what, "predicted_s": predicted, "median_s": middle, "taken_s": taken, "error": error,
            "goal": GOALS[kind], "met": abs(error) <= GOALS[kind]}  # fmt: skip
