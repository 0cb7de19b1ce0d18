"""Number formats: what ``auto`` means on this processor or accelerator."""

from __future__ import annotations

from pathlib import Path

import torch

from hpcbench.config.schema import Precision

FAST_BFLOAT16 = frozenset({"amx_bf16", "avx512_bf16"})
"""Processor flags (Linux names) of instructions that multiply bfloat16 faster than float32."""


def resolve_precision(precision: Precision, device: torch.device) -> Precision:
    """The precision of a run: ``auto`` is bf16-mixed where the hardware multiplies bfloat16 fast, else 32-true."""
    if precision != "auto":
        return precision
    return "bf16-mixed" if device.type != "cpu" or FAST_BFLOAT16 & processor_flags() else "32-true"


def processor_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction-set flags of the first processor, as Linux names them; empty where they cannot be read."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
