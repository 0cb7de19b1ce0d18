"""What a page must say of how good a run is: headline, tiles, metrics and reference runs, computed from its tables."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from statistics import fmean, stdev

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
    if t.aborted:
        return claims | aborted(t)
    scores = {name: found[page.metric] for name, found in baseline_metrics(t).items()}
    # The best baseline first.
    ordered = sorted(scores.items(), key=lambda each: each[1], reverse=page.better == "higher")
    beaten = [f"{name} ({units.score(score)})" for name, score in ordered if page.beats(t.quality, score)]
    others = [f"{name} ({units.score(score)})" for name, score in ordered if not page.beats(t.quality, score)]
    said = [f"Baselines that it beats: {', '.join(beaten)}."] if beaten else []
    said += [f"Baselines that it does not beat: {', '.join(others)}."] if others else []
    quality, target = f"validation {page.metric_label}", f"The target is {units.score(t.target)} or {page.better}."
    best = f"The best {quality} is {units.score(t.quality)} after {counted_epochs(t)} and {t.clock}."
    if t.reached:
        claims["/h1"] = f"Reached its target in {t.clock}"
        best = f"A {quality} of {units.score(t.quality)} after {counted_epochs(t)}."
    return claims | {"/verdict": " ".join([best, target, *said])}


def counted_epochs(t: Tables) -> str:
    """``1 epoch``, ``0.5 epochs``."""
    return f"{t.trained_epochs} epoch{'' if t.trained_epochs == '1' else 's'}"


def aborted(t: Tables) -> Claims:
    """After whole epochs these are counted and the best score is said, else the steps are counted."""
    assert len(t.steps) == t.last_step or t.attempts[-1]["cause"] == "diverged"
    after = f"{t.last_step} optimizer steps" if t.epochs.empty else counted_epochs(t)
    best = f"The best validation {t.page.metric_label} until then was"
    best = "" if t.epochs.empty else f"{best} {units.score(t.quality)}."
    reason = t.logged("run_stop")["metadata"]["reason"]
    if t.attempts[-1]["cause"] == "diverged":
        said = ["The training diverged.", best]
        return {"/h1": f"Aborted after {after}", "/verdict": " ".join(filter(None, said)), "/reason": reason}
    name = reason.removeprefix("signal ")
    said = [f"{name} asked it to end, as batch systems do before the time of a job is up.", best]
    said += ["To continue, resume with --resume."]
    return {"/h1": f"Stopped by {name} after {after}", "/verdict": " ".join(filter(None, said))}


def baseline_metrics(t: Tables) -> dict[str, dict[str, float]]:
    application = find_application(t.page.package.__name__.removeprefix("apps."))
    return t.page.baselines(resolve(application, "smoke", [], {"data.root": t.config["data"]["root"]}))


def tiles(t: Tables) -> Claims:
    wall = f"of {units.duration(t.wall_s)} wall time"
    if t.gaps:
        wall = f"{wall[3:]} in {len(t.attempts)} attempts, {units.duration(sum(t.gaps))} between them"
    batch, shape = t.batch
    parameters = sum(map(prod, t.shapes)) if any((t.folder / "checkpoints").glob("*.pt")) else t.page.parameters
    clock, epochs = ("time to solution", "epochs to target") if t.reached else ("time on the clock", "epochs")
    found = {
        f"{clock}/value": t.clock, f"{clock}/note": wall,
        f"{epochs}/value": "0" if t.epochs.empty else t.trained_epochs,
        f"{epochs}/note": f"{t.last_step} optimizer steps",
        "model/value": units.integer(parameters),
        "global batch/value": str(batch), "global batch/note": shape,
        "peak memory/value": units.size(max(each["peak_memory_bytes"] for each in t.attempts)),
    }  # fmt: skip
    rate = t.samples_per_s or t.warm_rate
    if rate is not None:
        found["throughput/value"] = units.significant(rate)
    sign = "\u2264" if t.page.better == "lower" else "\u2265"
    if not t.epochs.empty:
        when = "at the end" if t.reached else "best"
        found |= {
            f"validation {t.page.metric_label}/value": units.score(t.quality),
            f"validation {t.page.metric_label}/note": f"{when}; target {sign} {units.score(t.target)}",
        }
    if not t.aborted:
        assert t.warm_rate is not None
        found["compute rate/value"] = units.prefixed(t.warm_rate * t.flops("training"), "FLOP/s")
        if t.config["measure"]["probe"]:
            share = t.warm_rate * t.flops("training") / t.ranks["gemm_flops"].sum()
            found["compute rate/note"] = f"{units.percent(share)} of the measured peak"
    return {f"tiles/{key}": text for key, text in found.items()}


def metrics(t: Tables) -> Claims:
    if t.epochs.empty:
        return {}
    name = t.page.metric
    if t.aborted:  # no scores are kept
        columns = list(t.epochs)
        found = dict(t.epochs.iloc[-1][columns[columns.index("train_loss") + 1 : columns.index("train_s")]])
        assert found[name] == [event for event in t.events if event["key"] == t.page.metric_key][-1]["value"]
        series = {"network": found}
    else:
        with np.load(t.folder / "scores.npz") as file:
            found = t.page.metrics(dict(zip(file["columns"], file["scores"].T, strict=True)))
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
        f"{name}/figcaption": caption.replace("{samples}", str(samples))
        for name, caption in t.page.captions.items()
        if not t.aborted or name in t.page.of_metrics
    }


def references(t: Tables) -> Claims:
    """Reference runs of the preset as the application's file has them: means of all; this run below."""
    folder = Path(str(t.page.package.__file__)).with_name("references")
    (point,) = json.loads((folder / "smoke.json").read_text()).values()
    claims = {
        "hardware": point["Hardware"], "global batch": str(point["BS"]), "runs (n)": str(len(point["Seeds"])),
        "epochs to target": spread(point["Epochs to converge"]), "seconds to target": spread(point["Seconds"]),
    }  # fmt: skip
    here = {"global batch": str(t.batch[0]), "runs (n)": "1"}
    if t.reached:
        here |= {"epochs to target": t.trained_epochs, "seconds to target": units.significant(t.clock_s)}
    return {f"references/{point['Hardware']}/{key}": text for key, text in claims.items()} | {
        f"references/this run/{key}": text for key, text in here.items()
    }


def spread(values: list[float]) -> str:
    return f"{units.significant(fmean(values))} \u00b1 {units.significant(stdev(values), 2)}"
