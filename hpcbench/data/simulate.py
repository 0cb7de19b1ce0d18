"""Writes a simulated dataset with many processes; continues an interrupted one, and leaves other folders alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.application import Application
from hpcbench.config.resolve import as_tree
from hpcbench.config.schema import READING_ONLY, DataConfig, RunConfig
from hpcbench.data.files import SPLITS
from hpcbench.data.simulated_set import GROUPS, RECORD
from hpcbench.data.workers import allowed_cores, worker_pool
from hpcbench.parallel.heap import keep_freed_memory
from staging.atomic import is_temporary, replacing
from staging.errors import InputError
from staging.formats.regular import read_text
from staging.progress import Progress

Job = tuple[str, int]


@dataclass(frozen=True)
class Written:
    """What a simulation left on disk."""

    samples: dict[str, int]
    new_calls: int
    bytes: int

    def summary(self) -> str:
        """One line for people."""
        counts = ", ".join(f"{count} {split}" for split, count in self.samples.items())
        return f"{counts} samples, {self.bytes / 1e6:,.1f} MB"


def simulate_dataset(
    application: Application,
    config: RunConfig,
    root: Path,
    processes: int | None = None,
    *,
    device: str = "cpu",
    quiet: bool = False,
) -> Written:
    """Write the training and validation splits of ``config.simulate`` below ``root``.

    The same configuration and seed give the same bytes with any number of processes. Existing files are kept, so that
    an interrupted simulation continues; a folder with another dataset is refused. Raises ``InputError`` for that, and
    for a folder that cannot be written or is full.
    """
    if not application.has("simulate"):
        raise InputError(f"{application.name} has no simulator; bring the dataset and set --data.root to its folder")
    claim(root, manifest(application, config))
    simulator = application.module("simulate")
    jobs = [job for job in all_jobs(simulator, config) if not is_written(simulator, config, root, job)]
    per_call = samples_per_call(simulator, config)
    workers = min(processes or allowed_cores(), max(1, len(jobs)))
    shown = bool(jobs) and not quiet
    try:
        with Progress(len(jobs) * per_call, f"simulate {application.name}", "samples", enabled=shown) as progress:
            for _ in write_all(application, config, root, jobs, workers, device):
                progress.advance(per_call)
        if hasattr(simulator, "finish"):
            simulator.finish(config, root)
    except OSError as error:
        raise InputError(
            f"{root} cannot be written ({error.strerror}); free some space there, or check its permissions: the same "
            "command continues"
        ) from None
    return describe(simulator, config, root, len(jobs))


def samples_per_call(simulator: Any, config: RunConfig) -> int:
    """Samples that one call of the simulator's ``write_sample`` gives; one if the simulator does not say."""
    return int(simulator.samples_per_call(config)) if hasattr(simulator, "samples_per_call") else 1


def all_jobs(simulator: Any, config: RunConfig) -> Iterator[Job]:
    """Every call of the simulator that the dataset needs; a call may write several samples."""
    per_call = samples_per_call(simulator, config)
    for split in SPLITS:
        wanted = getattr(config.simulate, f"{split}_samples")
        if wanted % per_call:
            raise InputError(
                f"simulate.{split}_samples ({wanted}) must be a multiple of {per_call}, the samples that one "
                f"simulation gives; take {max(1, wanted // per_call) * per_call}"
            )
        yield from ((split, index) for index in range(wanted // per_call))


def is_written(simulator: Any, config: RunConfig, root: Path, job: Job) -> bool:
    """Whether all files of a call exist; files appear under their name only when complete."""
    return all(path.exists() for path in simulator.expected_files(config, root, *job))


def write_all(
    application: Application, config: RunConfig, root: Path, jobs: list[Job], workers: int, device: str
) -> Iterable[None]:
    """Run the jobs, each on one thread, over ``workers`` processes; on an accelerator, in this process."""
    if device != "cpu" or workers == 1:
        keep_freed_memory()
        for job in jobs:
            write_one(application.package, config, root, job, device)
            yield
        return
    with worker_pool(application.package, workers) as pool:
        futures = [pool.submit(write_one, application.package, config, root, job, device) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()
                yield
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def write_one(package: str, config: RunConfig, root: Path, job: Job, device: str) -> None:
    """Write the sample or samples of one call, on one thread so that the bytes don't depend on the machine's size."""
    from importlib import import_module

    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # On a processor the context would only slow every call of torch down.
        with nullcontext() if device == "cpu" else torch.device(device):
            import_module(f"{package}.simulate").write_sample(config, root, *job)
    finally:
        torch.set_num_threads(threads)


def manifest(application: Application, config: RunConfig) -> dict[str, Any]:
    """What decides the bytes of a simulated dataset, apart from its size."""
    tree = as_tree(config)
    shape = {key: tree["data"][key] for key in on_disk_keys(type(config.data))}
    physics = {key: value for key, value in tree["simulate"].items() if not key.endswith("_samples")}
    return {"schema": 1, "application": application.name, "data": shape, "simulate": physics}


def on_disk_keys(kind: type) -> list[str]:
    """Settings of ``data`` that say what the files are; the others say how they are read."""
    reading = {field.name for field in dataclasses.fields(DataConfig)}
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.name not in reading and not field.metadata.get(READING_ONLY)
    ]


def claim(root: Path, wanted: dict[str, Any]) -> None:
    """Take an empty folder, or continue one with the same manifest; anything else is an ``InputError``."""
    path = root / RECORD
    if path.exists():
        try:
            recorded = json.loads(read_text(path))
            if not isinstance(recorded, dict) or any(not isinstance(recorded.get(part, {}), dict) for part in GROUPS):
                raise ValueError
        except ValueError:
            raise InputError(f"{path}: damaged; remove the folder or choose another --out") from None
        differing = [
            f"{group}.{key} is {recorded.get(group, {}).get(key)!r} there, {value!r} here"
            for group in GROUPS
            for key, value in wanted[group].items()
            if recorded.get(group, {}).get(key) != value
        ]
        if recorded.get("application") != wanted["application"]:
            differing.insert(0, f"it holds {recorded.get('application')} data")
        if differing:
            raise InputError(f"{root} holds another simulated dataset: {differing[0]}; choose another --out")
        return
    # A command that was killed while it wrote the record has left a part of it.
    if root.exists() and (not root.is_dir() or any(not is_temporary(entry.name) for entry in root.iterdir())):
        raise InputError(f"{root} is not empty and holds no simulated dataset; choose another --out")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{root}: cannot write there ({error.strerror}); choose another --out") from None


def describe(simulator: Any, config: RunConfig, root: Path, new_calls: int) -> Written:
    """Count what is on disk."""
    per_call = samples_per_call(simulator, config)
    counts = {split: getattr(config.simulate, f"{split}_samples") // per_call * per_call for split in SPLITS}
    files = [path for job in all_jobs(simulator, config) for path in simulator.expected_files(config, root, *job)]
    return Written(counts, new_calls, sum(path.stat().st_size for path in files))
