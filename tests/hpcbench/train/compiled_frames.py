"""Counts what a rank compiles, and writes down how much that was when the clock starts and when it stops."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

from hpcbench.measure.mllog import RunLog


def note_frames(folder: str) -> None:
    """From now on compile for nothing, and leave both counts in a file of this process in ``folder``.

    Each is a pair: graphs, and frames that were looked at, also those without a graph.
    """
    graphs: list[None] = []
    at: dict[str, tuple[int, int]] = {}

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(None)
        return graph.forward

    def noting(name: str) -> Any:
        method = getattr(RunLog, name)

        def noted(log: RunLog, *words: Any, **more: Any) -> None:
            at.setdefault(name, (len(graphs), counters["frames"]["total"]))
            (Path(folder) / f"frames-{os.getpid()}.json").write_text(json.dumps(at))
            method(log, *words, **more)

        return noted

    real: Any = torch.compile
    torch.compile = lambda model, **options: real(model, backend=counting, **options)  # type: ignore[assignment]
    for name in ("run_start", "run_stop"):
        setattr(RunLog, name, noting(name))
