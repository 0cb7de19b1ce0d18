"""Parameters of tests of which a few run by default, and the others with the slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_except(quick: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases as parameters, marked slow unless they are among ``quick``, which must all be there."""
    cases, quick = list(cases), list(quick)
    unknown = [each for each in quick if each not in cases]
    assert not unknown, f"no such cases: {unknown}"
    return [pytest.param(*(each if isinstance(each, tuple) else (each,)),
                         marks=() if each in quick else (pytest.mark.slow,)) for each in cases]  # fmt: skip
