"""The cost of checking the first read of every staged file: an epoch of warm reads with the check and without.

``python benchmarks/first_reads.py`` writes ``benchmarks/results/first_reads.json``. Each application's own samples of
the published size are simulated, staged to ``--place``, and read there from memory by the training's loader, inline:
read, decoded, converted and stacked into batches of two. With the check every read of an epoch is a first read, and the
manifest is read as well. The two alternate; a ratio is the time with the check over the time without.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import paired, write_results

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.data.loader import BatchLoader
from hpcbench.data.simulate import simulate_dataset
from staging.first_reads import FirstReads
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.stage import stage

SAMPLES = {"cosmoflow": 16, "deepcam": 6}
SIZES: dict[str, dict[str, Any]] = {
    "cosmoflow": {"data.sample_size": 128, "simulate.universe_size": 128},
    "deepcam": {"data.height": 768, "data.width": 1152},
}
FORMATS = {"cosmoflow": ("npy", "tfrecord"), "deepcam": ("npy", "hdf5")}
SMOKE: dict[str, dict[str, Any]] = {
    "cosmoflow": {"data.sample_size": 32, "simulate.universe_size": 32},
    "deepcam": {"data.height": 48, "data.width": 64},
}
BOUND = 1.05


def reader(name: str, form: str, size: dict[str, Any], folder: Path) -> Callable[[bool], Callable[[], None]]:
    """Return a function that makes an epoch of reads, checked or not, of ``SAMPLES`` staged below ``folder``."""
    application = find_application(name)
    common = {
        "data.root": str(folder / "source"), "data.format": form, "simulate.train_samples": SAMPLES[name],
        "simulate.validation_samples": 1, "train.seed": 1, "parallel.accelerator": "cpu",
    }  # fmt: skip
    config = resolve(application, None, None, common | size)
    simulate_dataset(application, config, folder / "source", quiet=True)
    stage(StageOptions(folder / "source", str(folder / "staged")), Alone(), quiet=True)
    shutil.rmtree(folder / "source")
    config.data.root = str(folder / "staged")
    samples = application.module("data").open_split(config, "train")
    batches = [np.arange(start, start + 2) for start in range(0, SAMPLES[name], 2)]

    def epoch(*, checked: bool) -> None:
        first_reads = FirstReads(folder / "staged") if checked else None
        for _ in BatchLoader(samples, 0, pin=False, first_reads=first_reads).load(batches):
            pass

    return lambda checked: lambda: epoch(checked=checked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--place", type=Path, default=Path("/dev/shm"), help="where to stage to, with 2 GiB free")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--smoke", action="store_true", help="tiny samples: whether it works, and no measurement")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = SMOKE if options.smoke else SIZES
    measurements, missed = {}, []
    for name, forms in FORMATS.items():
        for form in forms:
            with tempfile.TemporaryDirectory(dir=options.place) as folder:
                epoch = reader(name, form, sizes[name], Path(folder))
                began = time.perf_counter()
                pair = paired(("unchecked", epoch(False)), ("checked", epoch(True)), rounds=options.rounds)
            ratio = pair.speedup_median
            measurements[f"{name}_{form}"] = {"samples": SAMPLES[name], "ratio": ratio, "bound": BOUND, **asdict(pair)}
            print(
                f"{name} {form}: {ratio:.3f} (from {pair.speedup_min:.3f} to {pair.speedup_max:.3f}), "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )
            missed += [f"{name} {form}"] if ratio > BOUND else []
    if not options.smoke:
        print(f"written to {write_results('first_reads', measurements)}")
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
