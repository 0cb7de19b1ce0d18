"""Checkpoints: written whole or not at all, verified when read, and refused when they belong to another run."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.exits import Aborted
from hpcbench.parallel.sharded import sharded_as
from staging.atomic import replacing
from staging.errors import InputError

SCHEMA = 1


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds. ``setup`` decides rounding (threads, layout, precision) and must agree on resuming."""

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    precision: dict[str, Any]
    state: dict[str, Any]
    setup: dict[str, Any]
    statistics: list[list[Tensor]] = field(default_factory=list)
    """Batch-norm statistics of each simulated rank, where there are several."""


def save(checkpoint: Checkpoint, folder: Path, keep: int) -> Path:
    """Write a checkpoint under the name of its epoch and step, then remove all but the newest ``keep``.

    A file named ``*.json`` beside it holds its checksum and appears last, so an unfinished one is never taken.
    Raises ``Aborted`` when a parameter is not finite; the older checkpoints stay.
    """
    refuse_not_finite(checkpoint.model)
    folder.mkdir(parents=True, exist_ok=True)
    state = checkpoint.state
    path = folder / f"epoch-{state['epoch']:04d}-step-{state['step']:08d}.pt"
    with replacing(path) as temporary:
        write(checkpoint, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "blake2b").hexdigest()
    with replacing(path.with_suffix(".json")) as temporary:
        facts = {"schema": SCHEMA, "blake2b": digest, "epoch": state["epoch"], "step": state["step"]}
        temporary.write_text(json.dumps({**facts, "setup": checkpoint.setup}, indent=1) + "\n", encoding="utf-8")
    for old in complete(folder)[:-keep]:
        old.with_suffix(".json").unlink()
        old.unlink()
    return path


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write the file. A full disk raises ``OSError``, which torch's writer by itself reports as something else."""
    try:
        torch.save({"schema": SCHEMA, **vars(checkpoint)}, path)
    except RuntimeError:
        written = path.stat().st_size if path.exists() else 0
        needed = sum(tensor.numel() * tensor.element_size() for tensor in checkpoint.model.values())
        if shutil.disk_usage(path.parent).free < max(needed - written, 2**20):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
        raise


def refuse_not_finite(model: dict[str, Tensor]) -> None:
    """Raise ``Aborted`` if a tensor of the model holds an infinity or not-a-number."""
    for name, tensor in model.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise Aborted(f"parameter {name} is not finite; lower --optim.lr, and resume from the last checkpoint")


def complete(folder: Path) -> list[Path]:
    """The finished checkpoints, oldest first."""
    return sorted(path for path in folder.glob("epoch-*.pt") if path.with_suffix(".json").exists())


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint, or ``None`` where there is none. Raises ``InputError`` if it is damaged."""
    found = complete(folder)
    return load(found[-1]) if found else None


def load(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; no code in it is ever executed (``weights_only``)."""
    remedy = f"remove it and its .json to resume from the one before (in {path.parent})"
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "blake2b").hexdigest()
        if digest != facts["blake2b"]:
            raise InputError(f"{path}: damaged checkpoint (its checksum differs); {remedy}")
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("schema") != SCHEMA:
            raise InputError(f"{path}: checkpoint of another version of hpcbench; start a new run")
        return Checkpoint(**content)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{path}: damaged checkpoint ({' '.join(str(error).split())[:120]}); {remedy}") from None


MESH = ("world size", "parallel.spatial", "train.local_batch_size", "train.accumulation")
"""What of the setup says how a global batch is shared out."""


def check_setup(found: dict[str, Any], wanted: dict[str, Any], micro_batch: int) -> bool:
    """Refuse to resume with a setup that would round differently or share the data differently.

    Between epochs (``micro_batch`` 0) another mesh may go on with the same global batch, which rounds differently.
    Returns whether it is another one.
    """
    moved = not micro_batch and any(found.get(key) != wanted[key] for key in MESH)
    free = (*MESH, "parallel.threads") if moved else ()
    for key, value in wanted.items():
        if key not in free and found.get(key) != value:
            raise InputError(
                f"cannot resume: the checkpoint was made with {key} {found.get(key)}, this run has {value}; "
                f"use the same {key}"
            )
    return moved


def load_model(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put the weights into the model. Raises ``InputError`` if they are another model's."""
    own = model.state_dict()
    for name in sorted(set(own) ^ set(weights)):
        where = "the checkpoint" if name in own else "this model"
        raise InputError(f"cannot resume: the checkpoint is from another model ({name} is missing in {where})")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            raise InputError(
                f"cannot resume: the checkpoint is from another model ({name} is {tuple(weights[name].shape)} there, "
                f"{tuple(tensor.shape)} here)"
            )
    model.load_state_dict({name: sharded_as(weights[name], tensor) for name, tensor in own.items()})
