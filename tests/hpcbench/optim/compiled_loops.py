"""LAMB's compiled loops as a new process has them: nothing of them is compiled."""

from __future__ import annotations

from typing import Any

import pytest

LOOPS = ("norm_loop", "first_loop", "trust", "second_loop")
"""Those that Python calls; the others are compiled into them."""


def loops_to_compile(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put loops that are not compiled in the place of those that an earlier test may have used; their dispatchers."""
    from numba import njit

    from hpcbench.optim import lamb_numba

    loops = {name: njit(**lamb_numba.COMPILED)(getattr(lamb_numba, name).py_func) for name in LOOPS}
    for name, loop in loops.items():
        monkeypatch.setattr(lamb_numba, name, loop)
    return loops


def compiled_for(loops: dict[str, Any]) -> dict[str, int]:
    """For how many sets of types each loop is compiled; loops that are not compiled are left out."""
    return {name: len(loop.signatures) for name, loop in loops.items() if loop.signatures}
