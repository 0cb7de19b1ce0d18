"""Run folders that qualify for the closed division, made by arithmetic, of an invented user on an invented host."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.application import find_application
from hpcbench.config.resolve import as_tree, resolve
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from tests.hpcbench.measure.driven_logs import PUBLISHED, drive

USER, HOST = "jdoe42", "nid004711"
HOME = f"/users/{USER}"
START_MS = 1_700_000_000_000
BuildRun = Callable[..., Path]
SYSTEM = json.loads((Path(__file__).parents[2] / "data" / "logs" / "v1.0-nvidia-cosmoflow-system.json").read_text())


def build(
    folder: Path, application: str = "cosmoflow", seed: int = 1, epochs: int = 23, minutes: float = 10.0,
    start_min: float = 0.0, quality: float | None = None, job: bool = False, **settings: str,
) -> Path:  # fmt: skip
    """A run on 16 nodes of four accelerators with a published recipe, whose last evaluation is ``quality``."""
    run = RunFolder.create(folder)
    (folder / ".reserve").unlink()
    overrides = {key.replace("__", "."): value for key, value in settings.items()}
    overrides |= {"data.root": f"{HOME}/set", "train.seed": str(seed)}
    config = resolve(find_application(application), "mlperf", None, overrides)
    lower = application == "cosmoflow"
    last = (0.123 if lower else 0.8201) if quality is None else quality
    drive(run.mllog, application, scores=(*([0.4] * (epochs - 1)), last), **settings)
    missed = quality is not None and (quality > 0.124 if lower else quality < 0.82)
    text = run.mllog.read_text().replace('"status": "success"', f'"status": "{"aborted" if missed else "success"}"')
    run.mllog.write_text(timed(text, seed, minutes, start_min))
    run.write_config(as_tree(config))
    train, validation, batch = PUBLISHED[application]
    reached = not missed
    run.write_summary(Summary(
        application=application, title="t", preset="mlperf", status="success" if reached else "target_not_reached",
        cause="target" if reached else "epochs", seed=seed, metric="mae" if lower else "iou",
        better="lower" if lower else "higher", target=config.train.target, epochs=epochs,
        epochs_to_target=epochs if reached else None, time_to_solution_s=60 * minutes, nodes=16, ranks_per_node=4,
        world_size=64, global_batch_size=batch, train_samples=train, validation_samples=validation,
        ruleset=config.submission.ruleset, division=config.submission.division,
    ))  # fmt: skip
    run.write_json("system.json", {**SYSTEM, "system_name": HOST, "number_of_nodes": "16", "submitter": "unnamed",
                                   "division": config.submission.division, "status": "research"})  # fmt: skip
    run.write_json("environment.json", {
        "command": [f"{HOME}/env/bin/hpcbench", "train"], "host": HOST, "launcher": {},
        "versions": {"python": "3.11.2", "numpy": "1.26"},
        "source": {"commit": None, "dirty": None},
    })  # fmt: skip
    if job:
        run.write_json("job.json", {"site": "perlmutter-gpu", "nodes": 16, "time_s": 5400})
    return folder


def timed(log: str, seed: int, minutes: float, start_min: float) -> str:
    """The lines of a log, spread over ``minutes`` from run_start to run_stop, with a seed and names of the place.

    Runs of several seeds start some milliseconds apart.
    """
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in log.splitlines()]
    keys = [line["key"] for line in lines]
    start, stop = keys.index("run_start"), keys.index("run_stop")
    values: dict[str, Any] = {
        "seed": seed,
        "submission_platform": HOST,
        "cache_clear": f"dropped pages below {HOME}/set on {HOST}",
    }
    for number, line in enumerate(lines):
        share = (number - start) / (stop - start)
        line["time_ms"] = START_MS + seed + int(60_000 * (start_min + (minutes * share if share > 0 else share)))
        line["value"] = values.get(line["key"], line["value"])
    return "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines)


@pytest.fixture
def build_run() -> BuildRun:
    """Makes a run folder."""
    return build


@pytest.fixture
def qualifying(tmp_path: Path, build_run: BuildRun) -> list[Path]:
    """Ten runs of CosmoFlow whose epochs the reference convergence point at batch 512 accepts."""
    return [build_run(tmp_path / "runs" / f"r{number}", seed=100 + number, minutes=10 + number, epochs=23,
                      start_min=30 * number) for number in range(10)]  # fmt: skip
