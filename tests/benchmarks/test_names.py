"""Names of benchmarks: their folder is on the path while one runs, so a name must not hide a package."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LOOKED_FOR = {"coverage", "IPython", "tqdm", "cupy", "jax"}
"""What libraries in use import where it is there; numba takes ``coverage`` for the package of that name."""
OWN = {"staging"}
"""``_common`` puts the checkout before the folder, so that the package is found."""


def test_no_benchmark_has_the_name_of_a_package() -> None:
    names = {path.stem for path in BENCHMARKS.glob("*.py")}
    assert len(names) > 10
    assert not names & (LOOKED_FOR | sys.stdlib_module_names | (packages_distributions().keys() - OWN))
