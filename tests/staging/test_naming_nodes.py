"""Errors get the name of their node in front, unless they name it themselves."""

from __future__ import annotations

import pytest

from staging.ranks.collective_errors import names


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        ("node n1 cannot look at it", True),
        ("n1: /local/out: cannot be written", True),
        ("two nodes share this destination (n0, n1)", True),
        ("it failed on n1.", True),
        ("/dev/shm/tmpan1c/out: cannot be written", False),
        ("/local/n1/out: cannot be written", False),
        ("/local/n1: cannot be written", False),
        ("n1.bin vanished", False),
        ("n10 failed", False),
        ("gpu-n1 failed", False),
    ],
)
def test_a_node_is_named_by_a_word_of_its_own(problem: str, named: bool) -> None:
    assert names(problem, "n1") is named
