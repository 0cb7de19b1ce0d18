"""Which runs may be compared: whether they train the same problem, with which settings, and what single runs tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpcbench.config.read_yaml import read_yaml
from hpcbench.results import units
from hpcbench.results.records import Run
from staging.errors import InputError

PROBLEM = {
    "train_samples": "training samples",
    "parameters": "parameters",
    "flops_forward_per_sample": "FLOPs of a sample",
}
"""Keys of the summary that make a problem, and their words; 0 is not known."""
SETUP = (
    "preset", "target", "world_size", "simulated_ranks", "nodes", "device", "device_type", "threads", "precision",
    "global_batch_size", "peak_lr", "train_samples", "validation_samples",
)  # fmt: skip
"""Keys of the summary that hold what the configuration leaves open."""


def differences(runs: Sequence[Run]) -> str:
    """What differs between the problems of runs of one application, in words; empty where it is one problem.

    Targets are named where something else differs, too: alone they leave the speed of training comparable.
    """
    said = []
    for key, words in PROBLEM.items():
        known = sorted({value for run in runs if (value := getattr(run.summary, key))})
        if len(known) > 1:
            ends = f"{known[0]:,} {'and' if len(known) == 2 else 'to'} {known[-1]:,}"
            said.append(f"{words} ({ends})")
    targets = sorted({run.summary.target for run in runs if run.summary.target is not None})
    if said and len(targets) > 1:
        said.append(f"targets ({', '.join(map(units.score, targets))})")
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def share_target(runs: Sequence[Run]) -> bool:
    """Whether all runs have one and the same target."""
    targets = {run.summary.target for run in runs}
    return len(targets) == 1 and None not in targets


def reaching(runs: Sequence[Run], it: str = "") -> str:
    """How many runs reach their target, as a clause to append; empty where all do, or none has one.

    ``it`` stands for a target that was named before.
    """
    reached = sum(run.reached for run in runs)
    if reached == len(runs) or all(run.summary.target is None for run in runs):
        return ""
    own = "its target" if reached == 1 else "their targets"
    what = it or ("the target" if share_target(runs) else own)
    return f"; {reached} of {len(runs)} runs {'reaches' if reached == 1 else 'reach'} {what}"


def repeats(runs: Sequence[Run]) -> str:
    """``same settings, other seeds`` where runs differ in nothing else that was set; empty for other runs."""
    first = _settings(runs[0])
    if len(runs) < 2 or first is None or any(_settings(run) != first for run in runs[1:]):
        return ""
    seeds = {run.summary.seed for run in runs}
    return "same settings and seed" if len(seeds) == 1 else "same settings, other seeds"


def caveat(runs: Mapping[str, Run]) -> str:
    """A sentence on what single runs cannot tell; empty where their epochs or times to a target are not compared."""
    every = list(runs.values())
    reached = [run for run in every if run.reached]
    is_compared = len(every) > 1 and len(reached) > 0 and share_target(reached)
    if not is_compared or differences(reached) or repeats(every):
        return ""
    known = [settings for run in every if (settings := _settings(run)) is not None]
    has_several = any(settings in known[:number] for number, settings in enumerate(known))
    return f"{'A single run' if has_several else 'One run each'} does not tell settings from seeds."


def _settings(run: Run) -> dict[str, Any] | None:
    """All settings of a run but its seed, and what it ran on; ``None`` where they are not known."""
    try:
        config = read_yaml(run.folder.config)
    except InputError:
        return None
    train = config.get("train")
    if isinstance(train, dict):
        config = config | {"train": {key: value for key, value in train.items() if key != "seed"}}
    return config | {"summary": {key: getattr(run.summary, key) for key in SETUP}}
