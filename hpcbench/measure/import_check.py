"""Check that the packages a run needs can be imported, in two processes at once, since importing takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

FABRIC = "lightning_fabric" if find_spec("lightning_fabric") else "lightning.fabric"
HERE = ("torch", FABRIC)
"""Imported by this process, which then queries them further."""
ELSEWHERE = ("numpy", "scipy", "h5py", "pandas", "matplotlib", "mpi4py", "mlperf_logging")
"""Imported by a separate process at the same time, since those in ``HERE`` take seconds."""
IMPORT_PROGRAM = """
import importlib, json, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        print("looked at", json.dumps([name, ""]), flush=True)
    except Exception as error:
        print("looked at", json.dumps([name, f"{type(error).__name__}: {error}"]), flush=True)
"""
LONGEST_S = 60.0
"""Longest time that a checking process may take."""


class ChildPython:
    """A separate Python process that runs a program and prints what it finds."""

    def __init__(self, program: str, *words: str) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._problem = ""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, errors="replace",
            )  # fmt: skip
        except OSError as error:  # such as a limit on processes
            self._problem = f"no process can be started: {error.strerror}"

    def answer(self) -> tuple[str, str]:
        """Return what it printed, and why it failed (empty if it did not). Ends the process."""
        if self._process is None:
            return "", self._problem
        try:
            said, error = self._process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.communicate()[0], f"not done in {LONGEST_S:.0f} s"
        lines = error.strip().splitlines()
        last = " ".join(lines[-1].split()) if lines else f"exit code {self._process.returncode}"
        return said, last if self._process.returncode else ""


def import_problem(module: str) -> str:
    """Import ``module`` and return why it cannot be imported; empty if it can."""
    try:
        import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def imported_elsewhere(child: ChildPython, modules: Sequence[str]) -> dict[str, str]:
    """Return why ``modules`` cannot be imported by ``child``; the first that it does not report is what ended it."""
    said, why = child.answer()
    lines = (line.partition("looked at ") for line in said.splitlines())  # packages may print, too
    problems = dict(json.loads(report) for before, mark, report in lines if mark and not before)
    missing = [module for module in modules if module not in problems]
    problems |= {module: why if module == missing[0] else f"not tried, after {missing[0]}" for module in missing}
    return {module: problems[module] for module in modules}
