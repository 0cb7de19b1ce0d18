"""The kernels for accelerators, in Triton's interpreter, take the steps that torch's operations take."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from hpcbench.config.schema import OptimConfig
from hpcbench.optim.layerwise import LayerwiseOptimizer
from hpcbench.optim.registry import create_optimizer
from hpcbench.optim.tensors import buckets
from tests.params import slow_except

PROGRAM = Path(__file__).parent / "programs" / "triton_steps.py"
SETS: dict[str, dict[str, dict[str, Any]]] = {
    "LAMB": {
        "plain": {"lr": 0.01},
        "decayed": {"lr": 0.01, "weight_decay": 0.02, "trust_bounds": [0.5, 3.0]},
        "clipped": {"lr": 0.01, "weight_decay": 0.02, "max_grad_norm": 1.0},
        "a sum": {"lr": 0.01, "grad_averaging": False, "always_adapt": False},
        "uncorrected": {"lr": 0.01, "bias_correction": False, "betas": [0.0, 0.99], "eps": 0.001},
    },
    "LARS": {
        "plain": {"lr": 10.0},
        "decayed": {"lr": 10.0, "weight_decay": 0.02, "momentum": 0.5, "eps": 0.1},
        "nesterov": {"lr": 10.0, "weight_decay": 0.02, "nesterov": True},
        "larc": {"lr": 0.05, "weight_decay": 0.02, "clip_rate": True, "trust_coefficient": 0.02, "max_grad_norm": 1.0},
    },
}
LAUNCHES = {"LAMB": {"first_pass", "add_sums", "second_pass"}, "LARS": {"norms", "add_sums", "update"}}

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs triton (pip install triton)")

Case = tuple[str, str, str]
CASES: list[Case] = [
    (kind, dtype, name) for kind, sets in SETS.items() for dtype in ("float64", "float32", "bfloat16") for name in sets
]


QUICK = [case for case in CASES if case[1:] == ("float64", "decayed")]


@cache
def found_in(cases: tuple[Case, ...]) -> dict[Case, dict[str, Any]]:
    """What the program finds, by optimizer, number type and options."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps([(kind, dtype, SETS[kind][name]) for kind, dtype, name in cases])],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "only 0-dimensional arrays can be converted to Python scalars" in done.stderr:
        pytest.skip("this Triton's interpreter is older than this NumPy, which converts no other arrays to a number")
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.fixture
def case_results(kind: str, dtype: str, options: str) -> dict[str, Any]:
    """What the program finds for one case; those that run by default have a process together."""
    case = kind, dtype, options
    return found_in(tuple(QUICK if case in QUICK else (each for each in CASES if each not in QUICK)))[case]


@pytest.mark.parametrize(("kind", "dtype", "options"), slow_except(QUICK, CASES))
def test_the_kernels_take_the_steps_of_torch(kind: str, dtype: str, options: str, case_results: dict[str, Any]) -> None:
    """With layers of zeros, of no elements, transposed, of many blocks, without a gradient, and an infinite one."""
    # With bfloat16 torch rounds the update before adding it; three significant digits are left of a weight.
    assert case_results["worst"] < {"float64": 1e-13, "float32": 1e-5, "bfloat16": 0.04}[dtype]
    assert case_results["finite"]


@pytest.mark.parametrize(("kind", "dtype", "options"), slow_except(QUICK, CASES))
def test_one_launch_works_on_all_layers_and_copies_take_the_same_steps(
    kind: str, dtype: str, options: str, case_results: dict[str, Any]
) -> None:
    assert case_results["launches"] == dict.fromkeys({"find_addresses", *LAUNCHES[kind]}, 4)
    assert case_results["copies"] == (2 if dtype == "float32" else 0)
    assert case_results["copied"]


@pytest.mark.parametrize("name", ["lars", "larc", "lamb", "nvlamb"])
def test_all_layers_of_a_type_on_an_accelerator_are_one_bucket_however_large(name: str) -> None:
    """Which is what one launch works on. Tensors without memory stand for those of an accelerator."""
    with FakeTensorMode():
        sizes = (1 << 22, 3, 1 << 24, 1 << 22)
        weights = [nn.Parameter(torch.empty(size, device="cuda")) for size in sizes]
        groups = [{"params": [*weights, nn.Parameter(torch.empty(5, device="cuda", dtype=torch.float64))]}]
        optimizer = create_optimizer(OptimConfig(name=name), groups, "cuda")
    assert isinstance(optimizer, LayerwiseOptimizer)
    assert list(buckets(groups[0]["params"], optimizer.bucket_size)) == [slice(0, 4), slice(4, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_kernels_can_be_compiled_for_an_accelerator(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To machine code of compute capability 9.0, which needs no accelerator."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from hpcbench.optim import lamb_triton, lars_triton, triton_plan

    wide = "*fp64" if dtype == torch.float64 else "*fp32"
    kinds = dict.fromkeys(("table", "layers", "starts", "sizes", "firsts"), "*i64")
    names = ("sums", "divisor", "factors", "squares", "rates")
    kinds |= dict.fromkeys(names, wide) | {"verdict": "*fp32", "blocks": "i32"}
    shared = {
        "count": 301, "wide": triton_plan.TYPES[torch.promote_types(dtype, torch.float32)],
        "kind": triton_plan.TYPES[dtype], "width": triton_plan.BLOCK,
    }  # fmt: skip
    lamb = {
        **shared, "beta1": 0.9, "beta2": 0.999, "log1": -0.105, "log2": -0.001, "rate": 1.0, "eps": 1e-6,
        "decay": 0.01, "correct": True,
    }  # fmt: skip
    for kernel, given in (
        (lamb_triton.first_pass, lamb),
        (lamb_triton.second_pass, lamb),
        (lars_triton.norms, shared),
        (lars_triton.update, {**shared, "momentum": 0.9, "decay": 0.01, "nesterov": False}),
        (lars_triton.update, {**shared, "momentum": 0.9, "decay": 0.01, "nesterov": True}),
        (triton_plan.add_sums, {"summed": triton_plan.SUMMED}),
    ):
        sizes = [each for each in kernel.params if kinds.get(each.name, "i32") == "i32" and each.name not in given]
        assert all(each.do_not_specialize for each in sizes), "none is compiled again for other sizes"
        signature = {name: "constexpr" if name in given else kinds.get(name, "i32") for name in kernel.arg_names}
        made = triton.compile(ASTSource(kernel, signature, constexprs=given), target=GPUTarget("cuda", 90, 32))
        assert len(made.asm["cubin"]) > 1000
