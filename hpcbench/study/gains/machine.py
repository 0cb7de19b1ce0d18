"""What the machine of a gains study can do: its cores and accelerators, TF32, a compiler, graphs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec

from hpcbench.study.gains.options import Machine
from hpcbench.study.run_slots import Devices, find_devices, physical_cores, usable_cores

TF32_SINCE = (8, 0)
"""Compute capability of NVIDIA's Ampere, the first with TF32 (NVIDIA A100 Tensor Core GPU Architecture, 2020)."""
COMPILERS = ("g++", "clang++")
"""What torch.compile looks for on a processor, if the variable CXX names no compiler."""
ON_A_PROCESSOR = "this training is on a processor"


def find_machine(on_cpu: bool) -> tuple[Machine, Devices]:
    """This machine, and its accelerators by name; with ``on_cpu``, accelerators are not used."""
    devices = Devices() if on_cpu else find_devices()
    count = len(devices.ids)
    machine = Machine(
        usable_cores(physical_cores()), count, no_tf32=no_tf32(count), no_compiler=no_compiler(count, os.environ),
        no_graph=no_graph(count),
    )  # fmt: skip
    return machine, devices


def no_tf32(accelerators: int) -> str:
    """Why there is no TF32; empty if there is."""
    import torch

    needs = "needs an NVIDIA GPU of compute capability 8.0 or more"
    if not accelerators:
        return f"{needs}; {ON_A_PROCESSOR}"
    if not torch.cuda.is_available() or torch.version.hip:
        return f"{needs}; these accelerators are others"
    major, minor = torch.cuda.get_device_capability()
    return "" if (major, minor) >= TF32_SINCE else f"{needs}; this one has {major}.{minor}"


def no_graph(accelerators: int) -> str:
    """Why no graph can be captured; empty if one can."""
    import torch

    if accelerators and torch.cuda.is_available():
        return ""
    return f"captures the kernels of a GPU; {ON_A_PROCESSOR if not accelerators else 'torch has none for these'}"


def no_compiler(accelerators: int, environ: Mapping[str, str]) -> str:
    """Why torch.compile cannot work; empty if it can. It needs Triton for accelerators, otherwise a C++ compiler."""
    if accelerators:
        return "" if find_spec("triton") else "torch.compile needs the package triton, which is not installed"
    named = [environ["CXX"]] if environ.get("CXX") else COMPILERS
    if any(shutil.which(name) for name in named):
        return ""
    return f"torch.compile needs a C++ compiler; none of {', '.join(named)} is found"
