"""Whether the packages that a run needs can be imported, by two processes at the same time, since it takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

FABRIC = "lightning_fabric" if find_spec("lightning_fabric") else "lightning.fabric"
HERE = ("torch", FABRIC)
"""Imported by this process, which asks them for more."""
ELSEWHERE = ("numpy", "scipy", "h5py", "pandas", "matplotlib", "mpi4py", "mlperf_logging")
"""Imported by a process of their own at the same time, since the former take seconds."""
IMPORT_PROBE = """
import importlib, json, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        print("looked at", json.dumps([name, ""]), flush=True)
    except Exception as error:
        print("looked at", json.dumps([name, f"{type(error).__name__}: {error}"]), flush=True)
"""
PROBE_S = 60.0
"""So long a process that looks may take."""


@contextmanager
def started(program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A Python of its own that runs ``program``; it does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def import_problem(module: str) -> str:
    """Why ``module`` can't be imported; empty where it is."""
    try:
        import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def imported_elsewhere(process: subprocess.Popen[str], modules: Sequence[str]) -> dict[str, str]:
    """Why the ``modules`` that ``process`` was to import can't be; the first that it says nothing of ended it."""
    try:
        said, error = process.communicate(timeout=PROBE_S)
        why = " ".join(error.split()[-20:]) or f"exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        why = f"not done in {PROBE_S:.0f} s"
    lines = (line.partition("looked at ") for line in said.splitlines())  # packages may print, too
    problems = dict(json.loads(found) for before, mark, found in lines if mark and not before)
    missing = [module for module in modules if module not in problems]
    problems |= {module: why if module == missing[0] else f"not tried, after {missing[0]}" for module in missing}
    return {module: problems[module] for module in modules}
