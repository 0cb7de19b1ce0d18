"""Device time as a sum over kernels, beside one efficiency for each application: which predicts published steps better?

Kernels are counted at the published size, in bf16-mixed with one sample. Each form is fitted to the tuned entries with
one site left out, with the same jitter and messages as the model (``hpcbench/prediction/step_time.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcbench.application import find_application
from hpcbench.characterisation.counts import count_step
from hpcbench.characterisation.model import PRODUCTS
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.factor import Parameters, Prior, most_probable, unpack
from hpcbench.prediction.step_time import (
    A100_80_BYTES_PER_S,
    PRIORS,
    StepCase,
    device_s,
    entry_case,
    exposed_s,
    jitter,
    stacked,
)  # fmt: skip
from hpcbench.prediction.workload import published_work

Floats = NDArray[np.float64]
Device = Callable[[Parameters, StepCase], Floats]

OVERHEAD = tuple(prior for prior in PRIORS if prior.name in ("overhead", "exponent"))
SHARED = tuple(prior for prior in PRIORS if prior.name not in ("overhead", "exponent", "efficiency"))
LAUNCH = Prior("launch", 5e-6, 1.0)
ONE = Prior("efficiency", 3.0, 0.7, per_application=True)
TWO = (
    Prior("compute", 2.0, 0.7, per_application=True),
    Prior("memory", 2.0, 0.7, per_application=True),
)
"""Times over those of the roofs: of least bytes, which real kernels exceed several times."""


@cache
def kernels(application: str) -> Floats:
    """Executions, operations of products, their fixed part, bytes and their fixed part of each kernel; (kernels, 5)."""
    app = find_application(application)
    settings = {"train.precision": "bf16-mixed", "train.local_batch_size": 1}
    counted = count_step(app, resolve(app, "mlperf", overrides=settings), MeshShape(1, (1,)))
    return np.array([
        [kernel.count, *((kernel.flop, kernel.fixed_flop) if kernel.kind in PRODUCTS else (0.0, 0.0)), kernel.bytes,
         kernel.fixed_bytes] for kernel in counted.kernels
    ])  # fmt: skip


def summed(parameters: Parameters, case: StepCase) -> Floats:
    """Device seconds of each case by its kernels, with those of ``parameters`` that a form has."""
    seconds = np.zeros(len(case.application))
    for number, name in enumerate(published_work()):
        which = np.flatnonzero(case.application == number)
        count, flop, fixed_flop, moved, fixed_bytes = kernels(name).T[:, :, None]
        batch = case.local_batch[which]
        compute = (fixed_flop + (flop - fixed_flop) * batch) / case.peak_flop_per_s[which]
        memory = (fixed_bytes + (moved - fixed_bytes) * batch) / case.memory_bytes_per_s[which]
        names = ("efficiency", "efficiency") if "efficiency" in parameters else ("compute", "memory")
        ratios = [parameters[key][number] for key in names]
        each = np.maximum(np.maximum(ratios[0] * compute, ratios[1] * memory), parameters.get("launch", 0.0))
        seconds[which] = (count * each).sum(axis=0)
        if "overhead" in parameters:
            slower = (A100_80_BYTES_PER_S / case.memory_bytes_per_s[which]) ** parameters["exponent"]
            seconds[which] += parameters["overhead"][number] * slower
    return np.asarray(seconds * np.exp(parameters["newer"][case.application] * case.newer))


FORMS: dict[str, tuple[tuple[Prior, ...], Device]] = {
    "one efficiency and an overhead (the model)": (PRIORS, device_s),
    "kernels, each at least a launch": ((ONE, LAUNCH, *SHARED), summed),
    "kernels, compute and memory apart, each at least a launch": ((*TWO, LAUNCH, *SHARED), summed),
    "kernels and an overhead": ((ONE, *OVERHEAD, *SHARED), summed),
    "kernels, compute and memory apart, and an overhead": ((*TWO, *OVERHEAD, *SHARED), summed),
}
"""Priors and device time of each form."""


def kernel_sums(entries: Sequence[ModelEntry]) -> list[dict[str, Any]]:
    """How far the step of each tuned entry is off, by each form, with its site left out: median and 90th percentile."""
    tuned = [entry for entry in entries if entry.tuned]
    cases, observed = stacked([entry_case(entry) for entry in tuned]), np.log([entry.step_s for entry in tuned])
    sites = np.array([entry.site for entry in tuned])
    found: list[dict[str, Any]] = []
    for words, (priors, device) in FORMS.items():
        errors = left_out(priors, device, cases, observed, sites)
        found.append({"form": words, "n": len(errors), "median": float(np.median(errors)),
                      "tail": float(np.quantile(errors, 0.9))})  # fmt: skip
    return found


def left_out(
    priors: tuple[Prior, ...], device: Device, cases: StepCase, observed: Floats, sites: NDArray[np.str_]
) -> Floats:
    """Errors of the step, as fractions, of cases whose site was not in the fit."""
    every, applications = np.arange(len(observed)), len(published_work())

    def model(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        case = cases.take(which)
        step = device(parameters, case) * jitter(parameters, case) + exposed_s(parameters, case)
        return np.asarray(np.log(step))

    errors = np.zeros(len(observed))
    for site in sorted(set(sites.tolist())):
        out = every[sites == site]
        z, _ = most_probable(priors, applications, model, observed, sites, every[sites != site])
        errors[out] = np.abs(np.exp(model(unpack(priors, z, applications), out) - observed[out]) - 1)
    return errors
