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

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.results import units

from .page_tables import Claims, Tables


def heading(t: Tables) -> Claims:
    """Lines above the tiles."""
    started = datetime.fromtimestamp(int(t.attempts[0]["started"]), UTC)
    page, name = t.page, t.page.package.__name__.removeprefix("apps.")
    claims = {
        "/span": f"{name} \u00b7 {page.title}",
        "/span 2": f"preset smoke \u00b7 {started.day} {started:%B %Y, %H:%M} UTC",
        "/about": page.plots.ABOUT,
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
    scores = {name: found[page.metric] for name, found in baseline_metrics(t).items()}
    best = page.best(t.epochs[page.metric])
    # The best baseline first.
    ordered = sorted(scores.items(), key=lambda each: each[1], reverse=page.better == "higher")
    beaten = [f"{name} ({units.score(score)})" for name, score in ordered if page.beats(best, score)]
    others = [f"{name} ({units.score(score)})" for name, score in ordered if not page.beats(best, score)]
    said = [f"Baselines that it beats: {', '.join(beaten)}."] if beaten else []
    said += [f"Baselines that it does not beat: {', '.join(others)}."] if others else []
    claims["/verdict"] = " ".join([
        f"The best validation {page.metric_label} is {units.score(best)} after {len(t.epochs)} epochs and {t.clock}.",
        f"The target is {units.score(page.target)} or {page.better}.", *said,
    ])  # fmt: skip
    return claims


def baseline_metrics(t: Tables) -> dict[str, dict[str, float]]:
    application = find_application(t.page.package.__name__.removeprefix("apps."))
    return t.page.baselines(resolve(application, "smoke", [], {"data.root": t.config["data"]["root"]}))


def tiles(t: Tables) -> Claims:
    wall = f"of {units.duration(t.wall_s)} wall time"
    if t.gaps:
        wall = f"{wall[3:]} in {len(t.attempts)} attempts, {units.duration(sum(t.gaps))} between them"
    batch, shape = t.batch
    parameters = t.page.parameters if t.attempts[-1]["cause"] == "diverged" else sum(map(prod, t.shapes))
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
    sign = "\u2264" if t.page.better == "lower" else "\u2265"
    if not t.epochs.empty:
        found |= {
            f"validation {t.page.metric_label}/value": units.score(t.page.best(t.epochs[t.page.metric])),
            f"validation {t.page.metric_label}/note": f"best; target {sign} {units.score(t.page.target)}",
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
        columns = dict(zip(file["columns"], file["scores"].T, strict=True))
    found, name = t.page.metrics(columns), t.page.metric
    assert found[name] == pytest.approx(t.epochs[name].iloc[-1], rel=1e-9)
    series = {"network": found, **baseline_metrics(t)}
    claims = {
        f"how-good/{t.page.plots.LABELS[name]}/{column}": units.metric(values[name])
        for column, values in series.items()
        for name in found
    }
    notes = [note for note in t.page.plots.NOTES if re.search("[0-9]", note)]
    claims |= {f"how-good/note{f' {number}' if number > 1 else ''}": note for number, note in enumerate(notes, 1)}
    samples = int(t.logged("eval_samples")["value"])
    return claims | {
        f"{name}/figcaption": caption.replace("{samples}", str(samples)) for name, caption in t.page.captions.items()
    }


def references(t: Tables) -> Claims:
    """Reference runs of the preset as the application's file has them: means without the extremes; this run below."""
    folder = Path(str(t.page.package.__file__)).with_name("references")
    (point,) = json.loads((folder / "smoke.json").read_text()).values()
    claims = {
        "hardware": point["Hardware"], "global batch": str(point["BS"]), "runs": str(len(point["Seeds"])),
        "epochs to target": olympic(point["Epochs to converge"]), "seconds to target": olympic(point["Seconds"]),
    }  # fmt: skip
    here = {"references/this run/global batch": str(t.batch[0]), "references/this run/runs": "1"}
    return {f"references/{point['Hardware']}/{key}": text for key, text in claims.items()} | here


def olympic(values: list[float]) -> str:
    return f"{units.significant(fmean(sorted(values)[1:-1]))} \u00b1 {units.significant(pstdev(values), 2)}"
