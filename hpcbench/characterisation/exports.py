"""A characterisation in the forms of other tools: Hatchet and Thicket, Extra-P, and DLIO."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcbench.characterisation.model import Characterisation, Kernel
from hpcbench.characterisation.new_file import write_new
from hpcbench.characterisation.roofline import bound_of, step_s
from staging.errors import InputError

DLIO_FORMATS = ("tfrecord", "hdf5", "npz", "npy")
"""The formats of DLIO's enumeration ``FormatType`` that samples of the suite may have."""


def write_hatchet(characterisation: Characterisation, path: Path) -> Path:
    """Write kernels as a literal of Hatchet; ``GraphFrame.from_literal`` and ``Thicket.from_literal`` take its JSON.

    Returns the path of the file, as all writers here do: ``write_new`` chooses a name that nothing has.

    Nodes are the step, its directions, kinds, and kernels. ``time`` is the seconds of all executions in a step, each
    alone.
    """
    return _write(path, "--hatchet", json.dumps(hatchet_literal(characterisation), indent=1) + "\n")


def hatchet_literal(characterisation: Characterisation) -> list[dict[str, Any]]:
    """The tree; a node's metrics are its own, and those with ``(inc)`` include what is below it."""
    directions: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for kernel in characterisation.kernels:
        kinds = directions.setdefault(kernel.direction, {})
        kinds.setdefault(kernel.kind, []).append(leaf(kernel, characterisation))
    children = [
        node(direction, "region", [node(kind, "region", leaves) for kind, leaves in kinds.items()])
        for direction, kinds in directions.items()
    ]
    return [node(f"{characterisation.application} step", "function", children)]


METRICS = ("time", "bound", "flop", "bytes", "calls")


def leaf(kernel: Kernel, characterisation: Characterisation) -> dict[str, Any]:
    """A kernel as a node without children."""
    shapes = ", ".join("x".join(map(str, shape)) for shape in kernel.shapes)
    metrics = {
        "time": kernel.count * (kernel.alone_s or 0.0),
        "bound": kernel.count * (bound_of(kernel, characterisation) or 0.0),
        "flop": kernel.count * kernel.flop, "bytes": kernel.count * kernel.bytes, "calls": float(kernel.count),
    }  # fmt: skip
    frame = {"name": f"{kernel.operation} [{shapes}] {kernel.settings}".strip(), "type": "kernel"}
    return {
        "frame": frame,
        "metrics": metrics | {f"{name} (inc)": value for name, value in metrics.items()},
        "children": [],
    }


def node(name: str, kind: str, children: list[dict[str, Any]]) -> dict[str, Any]:
    """A node that has no metrics of its own."""
    sums = {f"{metric} (inc)": sum(child["metrics"][f"{metric} (inc)"] for child in children) for metric in METRICS}
    return {"frame": {"name": name, "type": kind}, "metrics": dict.fromkeys(METRICS, 0.0) | sums, "children": children}


def write_extra_p(characterisation: Characterisation, path: Path) -> Path:
    """Step times against ranks in Extra-P's JSON lines; lines of several files may be joined, for more points.

    Raises ``InputError`` where no steps were measured.
    """
    lines = extra_p_lines(characterisation)
    if not lines:
        raise InputError("--extra-p writes times of steps, and none were measured; leave out --counts-only")
    return _write(path, "--extra-p", "".join(json.dumps(line) + "\n" for line in lines))


def extra_p_lines(characterisation: Characterisation) -> list[dict[str, Any]]:
    """One line for each rank's median, which Extra-P takes as a repetition."""
    return [
        {
            "params": {"ranks": steps.ranks},
            "callpath": f"{characterisation.application}->step",
            "metric": metric,
            "value": value,
        }
        for steps in characterisation.steps
        for metric, values in (("time", steps.rank_s), ("flop/s", steps.flop_per_s))
        for value in values
    ]


def write_dlio(characterisation: Characterisation, path: Path) -> Path:
    """Write the input and the step time as a workload of DLIO, which then reads as the training would.

    Raises ``InputError`` where steps or the dataset's size are not known, and for a format that DLIO does not have.
    """
    import yaml

    text = yaml.safe_dump(dlio_workload(characterisation), sort_keys=False)
    return _write(
        path,
        "--dlio",
        f"# {characterisation.application} {characterisation.preset} by hpcbench {characterisation.version}, "
        f"{characterisation.date}\n{text}",
    )


def dlio_workload(characterisation: Characterisation) -> dict[str, Any]:
    """The workload, with the keys that DLIO's reader of configurations takes.

    DLIO reads TFRecords with the loader of TensorFlow only. The size of a record has the name of current versions and
    that of older ones; each version ignores the other name.
    """
    data, seconds = characterisation.input, step_s(characterisation)
    if seconds is None or data.stored_bytes is None or data.train_samples is None:
        what = "a measured step" if seconds is None else "the size of the dataset"
        raise InputError(f"--dlio needs {what}, which this characterisation lacks")
    form, _, compression = data.form.partition(", ")
    if form not in DLIO_FORMATS:
        raise InputError(f"--dlio: DLIO has no format '{form}' (it has {', '.join(DLIO_FORMATS)})")
    loader, evaluated = "tensorflow" if form == "tfrecord" else "pytorch", data.validation_samples or 0
    return {
        "model": {"name": characterisation.application, "model_size_bytes": characterisation.footprint.parameters},
        "framework": loader,
        "workflow": {"generate_data": False, "train": True, "evaluation": bool(evaluated)},
        "dataset": {
            "data_folder": f"data/{characterisation.application}", "format": form,
            "num_files_train": data.train_samples, "num_files_eval": evaluated, "num_samples_per_file": 1,
            "record_length_bytes": round(data.stored_bytes), "record_length": round(data.stored_bytes),
            **({"compression": compression} if compression else {}),
        },
        "reader": {
            "data_loader": loader, "batch_size": characterisation.local_batch * characterisation.accumulation,
            "file_shuffle": "seed", "sample_shuffle": "seed",
            **({"preprocess_time": data.reading.processor_s} if data.reading is not None else {}),
        },
        "train": {"epochs": 1, "computation_time": seconds},
    }  # fmt: skip


def _write(path: Path, option: str, text: str) -> Path:
    return write_new(path, option, lambda temporary: temporary.write_text(text, encoding="utf-8"))
