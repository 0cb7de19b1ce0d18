"""Check that the packages a run needs can be imported, in separate processes, since importing takes seconds.

A package that ends the process that imports it is named as well. A process tells what it finds in lines that begin
with ``looked at``; packages may print other lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

FABRIC = "lightning_fabric" if find_spec("lightning_fabric") else "lightning.fabric"
TORCH_MODULES = ("torch", FABRIC)
"""Imported by the process that then asks torch about the machine (``hpcbench.measure.torch_check``)."""
OTHER_MODULES = ("numpy", "scipy", "h5py", "pandas", "matplotlib", "mpi4py", "mlperf_logging")
"""Imported by another process at the same time."""
IMPORT_PROGRAM = "from hpcbench.measure.import_check import main; main(sys.argv[1:])"
TORCH_PROGRAM = "from hpcbench.measure.torch_check import main; main()"
MARK = "looked at "
LONGEST_S = 60.0
"""Longest time that a process may take from when its answer is needed."""
LONGEST_TORCH_S = 600.0
"""The same for torch, which consists of gigabytes that a file system may read for the first time."""


class ChildPython:
    """A separate Python process that runs a program, finds modules where this one does, and prints what it finds."""

    def __init__(self, program: str, *words: str) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._problem = ""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}", *words], text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
            )  # fmt: skip
        except OSError as error:  # such as a limit on processes
            self._problem = f"no process can be started: {error.strerror}"

    def answer(self, longest_s: float | None = None) -> tuple[str, str]:
        """Return what it printed, and why it failed (empty if it did not). Ends the process after ``longest_s``."""
        if self._process is None:
            return "", self._problem
        bound = LONGEST_S if longest_s is None else longest_s
        try:
            said, error = self._process.communicate(timeout=bound)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.communicate()[0], f"not done in {bound:.0f} s"
        lines = error.strip().splitlines()
        last = " ".join(lines[-1].split()) if lines else f"exit code {self._process.returncode}"
        return said, last if self._process.returncode else ""


class ImportChecks:
    """The processes that import what a run needs, started together."""

    def __init__(self) -> None:
        self.torch = ChildPython(TORCH_PROGRAM)
        self.others = ChildPython(IMPORT_PROGRAM, *OTHER_MODULES)


def main(modules: Iterable[str]) -> None:
    """In a separate process: tell for each of ``modules`` why it cannot be imported."""
    for module in modules:
        tell("import", [module, import_problem(module)])


def import_problem(module: str) -> str:
    """Import ``module`` and return why it cannot be imported; empty if it can."""
    try:
        import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def tell(kind: str, value: object) -> None:
    """In a separate process: tell the main process a JSON value of a kind."""
    print(f"{MARK}{kind} {json.dumps(value)}", flush=True)


def told(said: str, kind: str) -> list[Any]:
    """Return all values of a kind that a process told."""
    start = f"{MARK}{kind} "
    return [json.loads(line.removeprefix(start)) for line in said.splitlines() if line.startswith(start)]


def import_problems(said: str, why: str, modules: Sequence[str]) -> dict[str, str]:
    """Return why ``modules`` cannot be imported by a process that printed ``said`` and failed for ``why``.

    The first module that it did not report is what ended it.
    """
    problems = dict(told(said, "import"))
    missing = [module for module in modules if module not in problems]
    problems |= {module: why if module == missing[0] else f"not tried, after {missing[0]}" for module in missing}
    return {module: problems[module] for module in modules}
