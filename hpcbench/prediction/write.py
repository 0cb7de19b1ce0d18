"""Predictions as JSON and as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcbench.prediction.forecast import Forecast, Interval
from hpcbench.prediction.notes import notes
from hpcbench.prediction.pool import energy_kwh, node_hours
from hpcbench.prediction.predictions import Predicted, Predictions
from hpcbench.prediction.training import Training
from hpcbench.results.run_folder import write_atomic
from staging.errors import InputError

SCHEMA = 1


def write_json(predictions: Predictions, path: Path) -> None:
    """Write everything as JSON. Raises ``InputError`` where it cannot be written."""
    try:
        write_atomic(path, json.dumps(as_object(predictions), indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise InputError(f"--out {path} cannot be written ({error.strerror}); give another name") from error


def as_object(predictions: Predictions) -> dict[str, Any]:
    """The object of the JSON file; seconds, samples and shares."""
    options = predictions.options
    return {
        "what": "hpcbench prediction", "schema": SCHEMA, "machine": options.machine.name, "software": options.software,
        "instances": options.instances, "recipe": options.recipe,
        "predictions": [application_object(prediction) for prediction in predictions.predicted],
        "advice": [
            {"least": advice.aim, "time_s": advice.time_s, "node_hours": advice.node_hours,
             **({} if advice.energy_kwh is None else {"energy_kwh": advice.energy_kwh}),
             "shares": [{"application": share.application, "nodes": share.forecast.training.nodes,
                         "global_batch": share.forecast.training.global_batch} for share in advice.shares]}
            for advice in predictions.advice
        ],
    }  # fmt: skip


def application_object(prediction: Predicted) -> dict[str, Any]:
    """The sizes of one application."""
    sizes, watts = [], prediction.request.calibration.watts
    for number, size in enumerate(prediction.sizes):
        if size.forecast is None:
            sizes.append({"nodes": size.nodes, "refused": size.refusal})
            continue
        slower = {"interconnect": prediction.interconnect[number]} if prediction.interconnect else {}
        energy = {} if watts is None else {"energy_kwh": energy_kwh(size.forecast, watts)}
        sizes.append(
            {
                **forecast_object(size.forecast, bool(prediction.request.calibration.staged)),
                **energy,
                "changes": prediction.improvements[number],
                **slower,
            }
        )
    return {"application": prediction.request.application, "sizes": sizes, "notes": notes(prediction)}


def staging_object(training: Training, calibrated: bool) -> dict[str, Any]:
    """What the time of the staging is from; for a plan the parts that limit it, and the nodes that were probed."""
    plan = training.planned_staging
    if plan is None:
        return {"from": "runs" if calibrated else "published entries"}
    return {"from": "plan and probe", "limited_by": list(plan.limits), "probed_nodes": plan.probed_nodes}


def forecast_object(forecast: Forecast, calibrated: bool) -> dict[str, Any]:
    """One size; ``calibrated``: whether runs on the machine staged."""
    training = forecast.training
    return {
        "nodes": training.nodes, "accelerators": training.ranks, "global_batch": training.global_batch,
        "local_batch": training.local_batch, "accumulation": training.accumulation,
        "time_s": interval_object(forecast.time), "epochs": interval_object(forecast.epochs),
        "epochs_basis": training.epochs.basis, "step_s": interval_object(forecast.step),
        "epoch_s": interval_object(forecast.epoch), "staging_s": interval_object(forecast.staging),
        "staging_basis": staging_object(training, calibrated),
        "parts_s": {name: interval_object(part) for name, part in forecast.intervals.items()},
        "node_hours": node_hours(forecast), "unknown": list(training.platform.missing),
    }  # fmt: skip


def interval_object(interval: Interval) -> dict[str, float]:
    """A number with its 80 % interval."""
    return {"central": interval.central, "low": interval.low, "high": interval.high}


def write_page(predictions: Predictions, path: Path) -> None:
    """Write the page. Raises ``InputError`` where it cannot be written."""
    from hpcbench.prediction.page import page_of
    from hpcbench.results.report import write_page as write

    write(path, page_of(predictions))
