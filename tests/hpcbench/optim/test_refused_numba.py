"""A Numba that is installed and refuses the NumPy at hand costs LAMB its compiled loops, not the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import torch
from hpcbench.optim import lamb

def steps():
    weight = torch.nn.Parameter(torch.linspace(-1, 2, 40, dtype=torch.float64))
    optimizer = lamb.LAMB([weight], lr=0.1, weight_decay=0.01, max_grad_norm=0.5)
    for _ in range(2):
        weight.grad = weight.detach().sin()
        optimizer.step()
    return weight

by_host = steps()
lamb.COMPILED_FROM = 0
print(torch.equal(steps(), by_host))
"""


def test_a_numba_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('Numba needs NumPy 2.3 or less.\\nGot 2.4.')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert result.stdout == "True\n", result.stderr
    assert result.stderr == (
        "warning: LAMB runs without compiled loops, since Numba cannot be imported "
        "(Numba needs NumPy 2.3 or less. Got 2.4.); mend Numba\n"
    )
