"""What a page must say of how good a run is: headline, tiles, metrics and reference runs, computed from its tables."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest

from apps import cosmoflow
from apps.cosmoflow.baselines import baselines
from apps.cosmoflow.plots import ABOUT, LABELS, NOTES
from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.results import units

from .page_tables import Claims, Tables

PARAMETERS = 59_612
"""Of that model, for the run that leaves no checkpoint to count in; the others are counted."""
DIAGONAL = (
    "A perfect network lies on the diagonal; one that has learned nothing lies on the dashed line. In brackets: the "
    "error of predicting the mean of these samples."
)
SLICES = (
    "One plane of cells through each of the first validation samples, as the network sees them; a row is one sample. "
    "Time runs from left to right, from high redshift z to today (z = 0): matter falls together into filaments and "
    "knots."
)


def heading(t: Tables) -> Claims:
    """Lines above the tiles."""
    started = datetime.fromtimestamp(int(t.attempts[0]["started"]), UTC)
    claims = {
        "/span": "cosmoflow \u00b7 Regression of cosmological parameters from 3-D matter density",
        "/span 2": f"preset smoke \u00b7 {started.day} {started:%B %Y, %H:%M} UTC",
        "/about": ABOUT,
    }
    cause = t.attempts[-1]["cause"]
    if cause == "signal":
        assert len(t.steps) == t.last_step == 3
        return claims | {"/h1": "Stopped by SIGTERM after 3 optimizer steps"}
    if cause == "diverged":
        return claims | {
            "/h1": f"Aborted after {t.last_step} optimizer steps",
            "/reason": t.logged("run_stop")["metadata"]["reason"],
        }
    scores = {name: found["mae"] for name, found in baseline_metrics(t).items()}
    best = t.epochs["mae"].min()
    beaten = {name: f"{name} ({units.score(score)})" for name, score in scores.items() if best < score}
    others = {name: f"{name} ({units.score(score)})" for name, score in scores.items() if not best < score}
    said = [f"Baselines that it beats: {', '.join(sorted(beaten.values(), key=worst))}."] if beaten else []
    said += [f"Baselines that it does not beat: {', '.join(sorted(others.values(), key=worst))}."] if others else []
    claims["/verdict"] = " ".join([
        f"The best validation MAE is {units.score(best)} after {len(t.epochs)} epochs and {t.clock}.",
        f"The target is {units.score(1e-9)} or lower.", *said,
    ])  # fmt: skip
    return claims


def worst(text: str) -> float:
    return float(re.findall(r"\(([0-9.]+)\)", text)[0])


def baseline_metrics(t: Tables) -> dict[str, dict[str, float]]:
    application = find_application("cosmoflow")
    return baselines(resolve(application, "smoke", [], {"data.root": t.config["data"]["root"]}))  # type: ignore[arg-type]


def tiles(t: Tables) -> Claims:
    wall = f"of {units.duration(t.wall_s)} wall time"
    if t.gaps:
        wall = f"{wall[3:]} in {len(t.attempts)} attempts, {units.duration(sum(t.gaps))} between them"
    batch, shape = t.batch
    parameters = PARAMETERS if t.attempts[-1]["cause"] == "diverged" else sum(map(prod, t.shapes))
    found = {
        "time on the clock/value": t.clock, "time on the clock/note": wall,
        "epochs/value": str(len(t.epochs)), "epochs/note": f"{t.last_step} optimizer steps",
        "model/value": units.integer(parameters),
        "global batch/value": str(batch), "global batch/note": shape,
        "peak memory/value": units.size(max(each["peak_memory_bytes"] for each in t.attempts)),
    }  # fmt: skip
    rate = t.samples_per_s or t.warm_rate
    if rate is not None:
        found["throughput/value"] = units.significant(rate)
    if not t.epochs.empty:
        found |= {
            "validation MAE/value": units.score(t.epochs["mae"].min()),
            "validation MAE/note": f"best; target \u2264 {units.score(1e-9)}",
        }
    if not t.aborted:
        assert t.warm_rate is not None
        found["compute rate/value"] = units.prefixed(t.warm_rate * t.flops("training"), "FLOP/s")
        if t.config["measure"]["probe"]:
            share = t.warm_rate * t.flops("training") / t.ranks["gemm_flops"].sum()
            found["compute rate/note"] = f"{units.percent(share)} of the measured peak"
    return {f"tiles/{key}": text for key, text in found.items()}


def metrics(t: Tables) -> Claims:
    if t.aborted:
        return {}
    with np.load(t.folder / "scores.npz") as file:
        columns = dict(zip(file["columns"], file["scores"].mean(axis=0), strict=True))
    errors = {f"mae_{name.removeprefix('error_')}": value for name, value in columns.items() if "error" in name}
    errors["mae"] = fmean(errors.values())
    assert errors["mae"] == pytest.approx(t.epochs["mae"].iloc[-1], rel=1e-9)
    series = {"network": errors, **baseline_metrics(t)}
    cells = {
        f"how-good/{LABELS[name]}/{column}": units.metric(values[name])
        for column, values in series.items()
        for name in errors
    }
    samples = int(t.logged("eval_samples")["value"])
    caption = f"Each dot is one of {samples} validation samples, in labels scaled to [-1, 1]. "
    return cells | {
        "how-good/note": NOTES[0],
        "predictions/figcaption": caption + DIAGONAL,
        "slices/figcaption": SLICES,
    }


def references(t: Tables) -> Claims:
    """Reference runs of the preset as the application's file has them: means without the extremes; this run below."""
    (point,) = json.loads(Path(cosmoflow.__file__).with_name("references").joinpath("smoke.json").read_text()).values()
    claims = {
        "hardware": point["Hardware"], "global batch": str(point["BS"]), "runs": str(len(point["Seeds"])),
        "epochs to target": olympic(point["Epochs to converge"]), "seconds to target": olympic(point["Seconds"]),
    }  # fmt: skip
    here = {"references/this run/global batch": str(t.batch[0]), "references/this run/runs": "1"}
    return {f"references/{point['Hardware']}/{key}": text for key, text in claims.items()} | here


def olympic(values: list[float]) -> str:
    return f"{units.significant(fmean(sorted(values)[1:-1]))} \u00b1 {units.significant(pstdev(values), 2)}"
