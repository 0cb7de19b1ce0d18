"""A characterisation by hand: round numbers, so that bounds can be said in a head."""

from __future__ import annotations

from typing import Any

import torch

from hpcbench.characterisation.model import (
    Characterisation,
    Curve,
    CurvePoint,
    Footprint,
    Host,
    InputData,
    Kernel,
    Message,
    Reading,
    Roof,
    StepTimes,
)
from hpcbench.parallel.group import Group
from staging.ranks.launch import detect

CONVOLUTION = Kernel(
    "convolution", "convolution", "forward", "float32", ((4, 2, 8, 8), (3, 2, 3, 3)), "stride 1x1, padding 1x1",
    count=2, flop=3e9, read_bytes=6e6, written_bytes=4e6, fixed_bytes=2e6, alone_s=0.5,
)  # fmt: skip
RELU = Kernel("relu_", "elementwise", "forward", "float32", ((4, 3, 8, 8),), "", 1, 1e6, 4e6, 4e6, alone_s=0.012)
UPDATE = Kernel("sgd", "optimizer", "optimizer", "float32", ((1000,),), "1 states per parameter", 1, 0.0, 3e6, 2e6,
                fixed_bytes=5e6, alone_s=0.01)  # fmt: skip
ROOFS = (
    Roof("compute", "float32", 2e10, "FLOP/s", "product of 1024 x 1024 matrices of float32"),
    Roof("memory", "memory", 1e9, "B/s", "triad of 3 x 64 MiB"),
    Roof("cache", "L2", 8e9, "B/s", "triad in half of 2048 KiB, all threads of a rank"),
    Roof("launch", "launch", 1e-5, "s", "adding to one number"),
    Roof("read", "/scratch", 1e8, "B/s", "4 threads, 1024 KiB at a time, cold"),
    Roof("write", "/scratch", 5e7, "B/s", "4 threads, uncached, flushed"),
)


def made(**changes: Any) -> Characterisation:
    """Two convolutions, an activation and an update on one of two ranks; a step of 1.25 s."""
    known: dict[str, Any] = {
        "application": "cosmoflow", "title": "Cosmological parameters", "preset": "smoke",
        "date": "2026-11-24T21:00:00+00:00", "version": "0.1.0",
        "host": Host("node-1", "cpu", "A processor", 1, 2, 4, 16 << 30, {"torch": "2.11.0"}),
        "precision": "32-true", "local_batch": 4, "accumulation": 1, "optimizer": "sgd", "parameters": 1000,
        "useful_flop": 1.5e9, "kernels": (CONVOLUTION, RELU, UPDATE),
        "footprint": Footprint(4000, 8000, 4000, 5 << 20, 6 << 20, 4096, 7_000_000, 100 << 20),
        "input": InputData("tfrecord, gzip", 128, 64, 2.5e6, 1, 4096.0, Reading(8, 2.5e6, 12.0, 0.02, 0.018, 0.001)),
        "messages": (Message("gradients", "all_reduce", "within a node", 2, 4_000_000, 0.01),),
        "curves": (
            Curve("all_reduce", 2, 1, "within a node",
                  (CurvePoint(1000, 2e-5), CurvePoint(10**6, 1.02e-3)), 1e-5, 1e9),
        ),
        "roofs": ROOFS,
        "steps": (
            StepTimes(1, 1, 4, 5, 1.0, 0.9, 1.2, (1.0,), (6e9,), (0.3,)),
            StepTimes(2, 1, 4, 5, 1.25, 1.1, 1.5, (1.2, 1.25), (5e9, 4.8e9), (0.25, 0.24)),
        ),
        "profile": {"convolution": 1.0, "elementwise": 0.1}, "notes": ("made by hand",),
    }  # fmt: skip
    return Characterisation(**known | changes)


def alone() -> Group:
    """A process by itself."""
    return Group(detect({}), torch.device("cpu"), None)
