"""What torch says of this machine: a program for a separate process, which imports torch and Lightning Fabric.

Fabric imports ``torch._dynamo``, which takes as long as torch itself, for the name of one class. The program imports
Fabric with a stand-in for that module; if that fails, it imports Fabric as it is, and that decides.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from importlib.util import find_spec
from types import ModuleType

from hpcbench.measure.diagnosis import Row, gib
from hpcbench.measure.import_check import (
    FABRIC,
    LONGEST_TORCH_S,
    TORCH_MODULES,
    ChildPython,
    import_problem,
    import_problems,
    tell,
    told,
)

DYNAMO = "torch._dynamo"
DYNAMO_NEEDS = (DYNAMO, "sympy")
"""Modules without which ``torch._dynamo`` cannot be imported, and which ``import torch`` does not need."""


@dataclass(frozen=True)
class TorchAnswer:
    """What the program told."""

    problems: dict[str, str]
    """Why torch and Fabric cannot be imported; empty strings if they can."""
    version: str
    """Of torch, with its build, such as ``+cu130``; empty if torch cannot be imported."""
    distributed: bool
    """Whether several ranks can exchange messages on processors."""
    devices: list[Row]
    """Instructions, accelerators and precision; none if torch or Fabric cannot be imported."""

    @property
    def has_accelerator(self) -> bool:
        """Whether torch finds an accelerator."""
        return any(row.name == "accelerators" and row.state == "ok" for row in self.devices)


def torch_answer(child: ChildPython) -> TorchAnswer:
    """Wait for the process that runs the program, and return what it told."""
    said, why = child.answer(LONGEST_TORCH_S)
    problems = import_problems(said, why, TORCH_MODULES)
    rows = [Row(*values) for values in next(iter(told(said, "devices")), [])]
    if not rows and not any(problems.values()):
        rows = [Row("accelerators", f"cannot be asked ({why})", "broken")]
    return TorchAnswer(problems, "".join(told(said, "version")), told(said, "distributed") == [True], rows)


class StandIn(ModuleType):
    """A module in which every public name is a class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def main() -> None:
    """Tell why torch and Fabric cannot be imported. If they can, tell what torch says of the machine."""
    tell("import", ["torch", problem_of_torch := import_problem("torch")])
    if not problem_of_torch:
        tell("version", torch_version())
    tell("import", [FABRIC, problem := import_problem(FABRIC) if problem_of_torch else fabric_problem()])
    if not problem_of_torch and not problem:
        tell("distributed", has_distributed())
        tell("devices", [astuple(row) for row in devices()])
    os._exit(0)  # all is told; taking torch apart would take longer


def fabric_problem() -> str:
    """Return why Fabric cannot be imported, where torch can; empty if it can."""
    if all(find_spec(name) for name in DYNAMO_NEEDS):
        with stand_in(DYNAMO):
            if not import_problem(FABRIC):
                return ""
        forget(FABRIC.partition(".")[0])
    return import_problem(FABRIC)


@contextmanager
def stand_in(module: str) -> Iterator[None]:
    """Let imports get a ``StandIn`` for a module that has not been imported yet."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = StandIn(module)
    try:
        yield
    finally:
        del sys.modules[module]


def forget(package: str) -> None:
    """Let the next import of a package begin anew."""
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]


def torch_version() -> str:
    """The version of torch, with its build."""
    import torch

    return str(torch.__version__)


def has_distributed() -> bool:
    """Whether several ranks can exchange messages on processors."""
    import torch.distributed

    return torch.distributed.is_available() and torch.distributed.is_gloo_available()


def devices() -> list[Row]:
    """What torch was built for, the accelerators it finds, and the precision that ``auto`` would choose."""
    import torch

    from hpcbench.parallel.precision import FAST_BFLOAT16, processor_flags, resolve_precision

    rows = [Row("vector instructions", torch.backends.cpu.get_cpu_capability())]
    device = torch.device("cpu")
    if torch.accelerator.is_available():
        device = torch.accelerator.current_accelerator() or device
        rows.append(Row("accelerators", f"{torch.accelerator.device_count()} of type {device.type}"))
        rows += _device_rows(device.type)
    else:
        rows.append(Row("accelerators", "none found by torch; training runs on the processor", "note"))
    fast = sorted(FAST_BFLOAT16 & processor_flags())
    rows.append(Row("fast bfloat16 on the processor", ", ".join(fast) or "no"))
    rows.append(Row("precision 'auto'", resolve_precision("auto", device)))
    return rows


def _device_rows(kind: str) -> list[Row]:
    import torch

    rows = []
    for index in range(torch.accelerator.device_count()):
        try:
            properties = torch.get_device_module(kind).get_device_properties(index)
            rows.append(Row(f"{kind}:{index}", f"{properties.name}, {gib(properties.total_memory)}"))
        except (AttributeError, RuntimeError) as error:
            rows.append(Row(f"{kind}:{index}", f"cannot be asked ({error})", "broken"))
    return rows
