"""What is asked of a PBS, and how its answers are read."""

from __future__ import annotations

from typing import Any

from hpcbench.batch import pbs
from hpcbench.batch.scheduler import Reply


def test_a_pbs_without_history_is_asked_for_what_it_has() -> None:
    def ask(command: Any) -> Reply:
        if "-x" in command:
            return Reply(1, "", "qstat: PBS is not configured to maintain job history 0.server")
        running = '{"Jobs": {"17.server": {"job_state": "R", "resources_used": {"walltime": "00:01:05"}}}}'
        return Reply(153, running, "qstat: Unknown Job Id 18.server") if "18.server" in command else Reply(0, running)

    assert {name: found.state for name, found in pbs.query(["17.server", "18.server"], ask).items()} == {
        "17.server": "running"
    }
    assert pbs.elapsed_s("17.server", ask) == [(None, 65.0)]
    assert pbs.find("a mark", ask) == []
