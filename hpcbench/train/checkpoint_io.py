"""Checkpoints: written whole or not at all, verified when read, and refused when they belong to another run."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, cast

import torch
from torch import Tensor, nn
from torch.serialization import get_crc32_options, set_crc32_options

from hpcbench.data.simulated_set import difference_of_texts
from hpcbench.exits import Aborted
from hpcbench.parallel.shard_gathering import as_integers
from hpcbench.parallel.sharded import sharded_as
from hpcbench.results.checkpoint_files import (
    advice_if_unusable,
    complete,
    marker,
    new_path,
    refusal,
    remove_old,
    write_marker,
)
from hpcbench.train.checkpoint_times import CheckpointTimes
from staging.atomic import make_folder, replacing, sync_folder
from staging.checksums import crc32c
from staging.errors import InputError

SCHEMA = 1
EXPONENTS = {torch.float16: 0x7C00, torch.bfloat16: 0x7F80, torch.float32: 0x7F800000, torch.float64: 0x7FF << 52}
"""The exponent bits of each type."""
READ_PIECE = 2**20
"""Bytes read at a time for a checksum."""
SYNC_BYTES = 2**30
"""Bytes after which a write waits for the disk, so that a slow disk shows progress (``progress.StandstillClock``)."""
FINITE_PIECE = 2**18
"""Elements that are checked together, so that they stay in a cache."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds. ``setup`` decides rounding (threads, layout, precision) and must agree on resuming."""

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    precision: dict[str, Any]
    state: dict[str, Any]
    setup: dict[str, Any]
    statistics: list[list[Tensor]] = field(default_factory=list)
    """Batch-norm statistics of each real or simulated rank, where these may differ; else of one process's ranks."""


class ChecksummedFile:
    """The target of ``torch.save``: a new file, of which it computes the CRC32C. Keeps the first error of the disk.

    That error must not pass through torch's writer, which turns it into another one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb", buffering=0)
        self._checksum = 0
        self._unsynced = 0
        self._error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Append ``data``; has no effect after an error."""
        left = memoryview(data).cast("B")
        size = len(left)
        if self._error is None:
            self._checksum = crc32c(left, self._checksum)
            try:
                while len(left):
                    written = self._file.write(left[: SYNC_BYTES - self._unsynced])
                    left, self._unsynced = left[written:], self._unsynced + written
                    if self._unsynced >= SYNC_BYTES:
                        os.fdatasync(self._file.fileno())
                        self._unsynced = 0
            except OSError as error:
                self._error = error
        return size

    def flush(self) -> None:
        """Do nothing: no data are held back."""

    def finish(self) -> int:
        """Close the file once it is on disk; returns the checksum. Raises ``OSError`` with the file's name."""
        with self._file:
            try:
                if self._error is not None:
                    raise self._error
                os.fsync(self._file.fileno())
            except OSError as error:
                error.filename = str(self._path)
                raise
        return self._checksum


def save(checkpoint: Checkpoint, folder: Path, keep: int, sync_records: Callable[[], object] = lambda: None) -> Path:
    """Write a checkpoint under the name of its epoch and step, then remove all but the newest ``keep``.

    ``checkpoint_files`` says in which order file and marker appear. ``sync_records`` is called before the marker is
    written; afterwards the disk must have what a resumed run expects besides the checkpoint. Raises ``Aborted`` if a
    parameter is not finite, and ``OSError`` if the disk does not take the file; the older checkpoints stay.
    """
    refuse_not_finite(checkpoint.model)
    make_folder(folder)
    state = checkpoint.state
    path = new_path(folder, state["epoch"], state["step"])
    with replacing(path) as temporary:
        checksum = write(checkpoint, temporary)
    sync_folder(folder)
    sync_records()
    facts = {"schema": SCHEMA, "crc32c": checksum, "epoch": state["epoch"], "step": state["step"]}
    write_marker(path, {**facts, "setup": checkpoint.setup})
    remove_old(folder, keep)
    return path


def write(checkpoint: Checkpoint, path: Path) -> int:
    """Write the file and wait until it is on disk; returns its CRC32C. Raises ``OSError``."""
    file = ChecksummedFile(path)
    # The checksum of the file is four times as fast as those that torch adds to each tensor, and covers the same data.
    before = get_crc32_options()
    set_crc32_options(False)
    try:
        torch.save({"schema": SCHEMA, **vars(checkpoint)}, cast("IO[bytes]", file))
    finally:
        set_crc32_options(before)
        checksum = file.finish()
    return checksum


def checksum_of(path: Path, name: str) -> int | str:
    """The checksum of a file: ``crc32c``, or one of hashlib's, which checkpoints of other versions may have."""
    with path.open("rb", buffering=0) as file:
        if name != "crc32c":
            return hashlib.file_digest(file, name).hexdigest()
        checksum, buffer = 0, bytearray(READ_PIECE)
        while size := file.readinto(buffer):
            checksum = crc32c(memoryview(buffer)[:size], checksum)
        return checksum


def refuse_not_finite(model: dict[str, Tensor]) -> None:
    """Raise ``Aborted`` if a tensor of the model holds an infinity or not-a-number."""
    for name, tensor in model.items():
        if not all_finite(tensor):
            raise Aborted(
                f"parameter {name} is not finite; lower --optim.lr or start from another seed", cause="diverged"
            )


def all_finite(tensor: Tensor) -> bool:
    """Whether no element of a tensor is an infinity or not-a-number.

    On the host this uses one core, since it runs concurrently with training: such numbers have all exponent bits set.
    """
    if tensor.dtype not in EXPONENTS or tensor.device.type != "cpu":
        return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
    bits = as_integers(tensor.detach())
    mask = bits.dtype.type(EXPONENTS[tensor.dtype])
    flat = bits.ravel(order="K")
    return all(
        bool(((flat[start : start + FINITE_PIECE] & mask) != mask).all()) for start in range(0, len(flat), FINITE_PIECE)
    )


def load_newest(folder: Path, times: CheckpointTimes | None = None) -> Checkpoint | None:
    """The newest checkpoint, or ``None`` if there is none. Raises ``InputError`` if it is damaged."""
    checkpoints = complete(folder)
    return load(checkpoints[-1], times) if checkpoints else None


def load(path: Path, times: CheckpointTimes | None = None) -> Checkpoint:
    """Read and verify a checkpoint; no code in it is ever executed (``weights_only``). ``times`` gets the time.

    Raises ``InputError`` if it is damaged, not a plain file, or of another version.
    """
    started = time.perf_counter()
    advice = advice_if_unusable(path)
    for file in (path, marker(path)):
        if file.exists() and not file.is_file():
            raise refusal(f"{file}: no plain file; {advice}")
    try:
        facts = json.loads(marker(path).read_text(encoding="utf-8"))
        name = "crc32c" if "crc32c" in facts else "blake2b"
        if checksum_of(path, name) != facts[name]:
            raise refusal(f"{path}: damaged checkpoint (its checksum differs); {advice}")
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("schema") != SCHEMA:
            raise refusal(f"{path}: checkpoint of another version of hpcbench; start a new run")
        checkpoint = Checkpoint(**content)
        if times is not None:
            times.add_read(path.stat().st_size, time.perf_counter() - started)
        return checkpoint
    except OSError as error:  # the file may be good; the disk may be unreachable
        raise InputError(f"{path}: checkpoint cannot be read ({error.strerror}); try again, or {advice}") from None
    except (
        EOFError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        UnpicklingError,
    ) as error:
        raise refusal(f"{path}: damaged checkpoint ({' '.join(str(error).split())[:120]}); {advice}") from None


MESH = ("world size", "parallel.spatial", "train.local_batch_size", "train.accumulation")
"""The keys of the setup that say how a global batch is divided among ranks."""
TRAINING = "training samples"
VALIDATION = "validation samples"
"""The key of the setup that checkpoints of earlier versions lack; these are accepted with any number."""
SAMPLES = (TRAINING, VALIDATION)
SIMULATED = "simulated data"
"""The key of the setup with the record of a simulated dataset, which checkpoints of earlier versions lack."""


def check_setup(saved: dict[str, Any], wanted: dict[str, Any], micro_batch: int) -> bool:
    """Refuse to resume with a setup that would round, share the data or evaluate differently.

    Between epochs (``micro_batch`` 0) another mesh may continue with the same global batch; it rounds differently.
    Returns whether the mesh is another one. Raises ``InputError``.
    """
    moved = not micro_batch and any(saved.get(key) != wanted[key] for key in MESH)
    free = (SIMULATED, *MESH, "parallel.threads") if moved else (SIMULATED,)
    if differing := difference_of_texts(saved.get(SIMULATED, ""), wanted.get(SIMULATED, "")):
        name, before, now = differing
        raise InputError(
            f"the checkpoint was made with data whose {name} is {before}, this run's has {now}; give --data.root of "
            "the dataset that it was made with"
        )
    for key, value in wanted.items():
        if key not in free and saved.get(key) != value and (key in saved or key != VALIDATION):
            problem = f"the checkpoint was made with {key} {saved.get(key)}, this run has {value}; use the same {key}"
            # A dataset that has changed is no reason to give up a checkpoint and start anew.
            raise InputError(problem) if key in SAMPLES else refusal(problem)
    return moved


def load_model(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put the weights into the model. Raises ``InputError`` if they are another model's."""
    own_weights = model.state_dict()
    for name in sorted(set(own_weights) ^ set(weights)):
        where = "the checkpoint" if name in own_weights else "this model"
        raise refusal(f"the checkpoint is from another model ({name} is missing in {where})")
    for name, tensor in own_weights.items():
        if tensor.shape != weights[name].shape:
            raise refusal(
                f"the checkpoint is from another model ({name} is {tuple(weights[name].shape)} there, "
                f"{tuple(tensor.shape)} here)"
            )
    model.load_state_dict({name: sharded_as(weights[name], tensor) for name, tensor in own_weights.items()})
