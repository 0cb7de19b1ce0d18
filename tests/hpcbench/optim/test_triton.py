"""LAMB's kernels for accelerators, in Triton's interpreter, take the steps that torch's operations take."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

PROGRAM = Path(__file__).parent / "programs" / "triton_steps.py"
SETS = {
    "plain": {"lr": 0.01},
    "decayed": {"lr": 0.01, "weight_decay": 0.02, "trust_bounds": [0.5, 3.0]},
    "clipped": {"lr": 0.01, "weight_decay": 0.02, "max_grad_norm": 1.0},
    "a sum": {"lr": 0.01, "grad_averaging": False, "always_adapt": False},
    "uncorrected": {"lr": 0.01, "bias_correction": False, "betas": [0.0, 0.99], "eps": 0.001},
}


pytestmark = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs triton (pip install triton)")


CASES = [(dtype, name) for dtype in ("float64", "float32", "bfloat16") for name in SETS]


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], dict[str, Any]]:
    """What the program found, by number type and options."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps([(dtype, SETS[name]) for dtype, name in CASES])],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "only 0-dimensional arrays can be converted to Python scalars" in done.stderr:
        pytest.skip("this Triton's interpreter is older than this NumPy, which converts no other arrays to a number")
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize(("dtype", "options"), CASES)
def test_the_kernels_take_the_steps_of_torch(
    dtype: str, options: str, found: dict[tuple[str, str], dict[str, Any]]
) -> None:
    """With layers of zeros, of no elements, transposed, of many blocks, without a gradient, and an infinite one."""
    # With bfloat16 torch rounds the update before adding it; three significant digits are left of a weight.
    assert found[dtype, options]["worst"] < {"float64": 1e-13, "float32": 1e-5, "bfloat16": 0.04}[dtype]
    assert found[dtype, options]["finite"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_kernels_can_be_compiled_for_an_accelerator(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To machine code of compute capability 9.0, which needs no accelerator."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from hpcbench.optim import lamb_triton

    wide = "*fp64" if dtype == torch.float64 else "*fp32"
    kinds = dict.fromkeys(("table", "layers", "starts", "sizes", "firsts"), "*i64")
    kinds |= dict.fromkeys(("sums", "divisor", "factors", "squares"), wide) | {"verdict": "*fp32", "blocks": "i32"}
    constants = {
        "count": 301, "beta1": 0.9, "beta2": 0.999, "log1": -0.105, "log2": -0.001, "rate": 1.0, "eps": 1e-6,
        "decay": 0.01, "correct": True, "wide": lamb_triton.TYPES[torch.promote_types(dtype, torch.float32)],
        "kind": lamb_triton.TYPES[dtype], "width": lamb_triton.BLOCK,
    }  # fmt: skip
    for kernel, given in (
        (lamb_triton.first_pass, constants),
        (lamb_triton.second_pass, constants),
        (lamb_triton.add_sums, {"summed": lamb_triton.SUMMED}),
    ):
        signature = {name: "constexpr" if name in given else kinds.get(name, "i32") for name in kernel.arg_names}
        made = triton.compile(ASTSource(kernel, signature, constexprs=given), target=GPUTarget("cuda", 90, 32))
        assert len(made.asm["cubin"]) > 1000
