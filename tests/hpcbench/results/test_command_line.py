"""The command on the page of a run is one that a reader can type."""

from __future__ import annotations

from typing import Any

import pytest

from hpcbench.results.run_page import command_line


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (["/opt/env/bin/hpcbench", "train", "cosmoflow"], "hpcbench train cosmoflow"),
        # of each rank that --parallel.devices starts, and of mpiexec python -m hpcbench
        (["/opt/env/lib/hpcbench/__main__.py", "train", "a b"], "hpcbench train 'a b'"),
        (["__main__.py", "train"], "__main__.py train"),
        (["own.py"], "own.py"),
        ([], ""),
        ("hpcbench train", "hpcbench train"),
    ],
)
def test_the_command_is_the_one_that_was_typed(recorded: Any, shown: str) -> None:
    assert command_line({"command": recorded}) == shown
