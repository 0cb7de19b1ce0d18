"""Made-up closed entries of OpenFold, whose logs count samples where others count epochs."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from tests.hpcbench.mlperf.packages import SYSTEM, Entries, entries_of

TRAIN_SAMPLES = 594_595
FREE = {
    "global_batch_size": 128, "opt_base_learning_rate": 0.001, "opt_learning_rate_warmup_init": 0.0,
    "opt_learning_rate_warmup_steps": 0, "initial_training_dataloader_type": "InitialTrainingDataloaderPQ",
    "number_of_nodes": 16, "accelerators_per_node": 8,
}  # fmt: skip
"""Values that the rules leave open."""


def fixed_values() -> dict[str, Any]:
    """The keys to which the official rules of the closed division give one value."""
    import mlperf_logging

    rules = Path(mlperf_logging.__path__[0]) / "compliance_checker" / "hpc_3.0.0" / "closed_openfold.yaml"
    fixed = re.findall(r"NAME:\s+(\w+)\n\s+REQ:\s+EXACTLY_ONE\n\s+CHECK: \" v\['value'\] == (.*)\"", rules.read_text())
    return {name: ast.literal_eval(value) for name, value in fixed}


def run_of(number: int, samples: int) -> Entries:
    """A run that reaches the target after ``samples`` training samples, and with each ``number`` a little later."""
    values = fixed_values() | FREE | {"submission_benchmark": "openfold", "seed": 100 + number}
    kept = [entry for entry in entries_of("cosmoflow") if entry["key"] not in values
            and not entry["key"].startswith(("opt_", "eval_accuracy", "staging_"))]  # fmt: skip
    last = max(entry["metadata"].get("epoch_num", 0) for entry in kept)
    begin = kept[0]["time_ms"]
    for entry in kept:
        entry["time_ms"] = int(begin + (entry["time_ms"] - begin) * (1 + number / 1000))
        done = entry["metadata"].get("epoch_num")
        if done is not None:
            entry["metadata"]["epoch_num"] = round(samples * done / last)
        if entry["key"] == "eval_error":
            entry |= {"key": "eval_accuracy", "value": 0.8 + number / 1e4 if done == last else 0.5}
    place = {"file": "train.py", "lineno": 10}
    return [
        *({"key": key, "value": value, "metadata": place, "time_ms": begin} for key, value in values.items()),
        *kept,
    ]


def make_entry(organization: Path, samples: int) -> Path:
    """Ten runs of ``samples`` each, in the tree of an organization."""
    (organization / "systems").mkdir(parents=True)
    system = json.loads(SYSTEM.read_text()) | {"division": "closed", "number_of_nodes": "16"}
    (organization / "systems" / "box.json").write_text(json.dumps(system))
    folder = organization / "results" / "box" / "strong" / "openfold"
    folder.mkdir(parents=True)
    for number in range(10):
        text = "".join(f":::MLLOG {json.dumps(entry)}\n" for entry in run_of(number, samples))
        (folder / f"result_{number}.txt").write_text(text)
    return folder
