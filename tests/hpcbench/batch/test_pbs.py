"""What is asked of a PBS, and how its answers are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch import pbs
from hpcbench.batch.scheduler import Reply, UnreachableError
from hpcbench.batch.site import Node
from tests.hpcbench.batch.conftest import a_job, a_site


def test_a_pbs_without_history_is_asked_for_what_it_has() -> None:
    def ask(command: Any) -> Reply:
        if "-x" in command:
            return Reply(1, "", f"{command[0]}: PBS is not configured to maintain job history 0.server")
        if command[0] == "qselect":
            return Reply(0, "17.server\n18.server\n")
        running = '{"Jobs": {"17.server": {"job_state": "R", "resources_used": {"walltime": "00:01:05"}}}}'
        return Reply(153, running, "qstat: Unknown Job Id 18.server") if "18.server" in command else Reply(0, running)

    assert {name: found.state for name, found in pbs.query(["17.server", "18.server"], ask).items()} == {
        "17.server": "running"
    }
    assert pbs.elapsed_s("17.server", ask) == [(None, 65.0)]
    assert pbs.find("a mark", ask) == []


def test_a_job_is_looked_for_among_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of thousands of users, ``qstat`` of all jobs takes long, and is forbidden in places."""
    monkeypatch.setenv("LOGNAME", "ada")
    asked: list[list[str]] = []
    jobs = {
        "16.server": {"Variable_List": {"HPCBENCH_MARK": "m1"}},
        "9.server": {"Variable_List": "A=1,HPCBENCH_MARK=m1"},
    }

    def ask(command: Sequence[str], selected: str = "16.server\n9.server\n7.server\n") -> Reply:
        asked.append(list(command))
        if command[0] == "qselect":
            return Reply(0, selected)
        return Reply(153, json.dumps({"Jobs": jobs}), "qstat: Unknown Job Id 7.server")

    assert pbs.find("m1", ask) == ["9.server", "16.server"]
    assert asked == [
        ["qselect", "-x", "-u", "ada"], ["qstat", "-x", "-f", "-F", "json", "16.server", "9.server", "7.server"]
    ]  # fmt: skip
    asked.clear()
    assert pbs.find("m1", partial(ask, selected="")) == []
    assert len(asked) == 1
    with pytest.raises(UnreachableError, match=r"qselect: .*errno=111"):
        pbs.find("m1", lambda _: Reply(1, "", "qselect: cannot connect to server pbs (errno=111)"))


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4711"), OSError("No username set")])
def test_a_user_without_a_name_is_no_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that does not know the user's number."""

    def nobody() -> str:
        raise error

    monkeypatch.setattr(pbs.getpass, "getuser", nobody)
    with pytest.raises(UnreachableError, match="set LOGNAME"):
        pbs.find("m1", lambda _: Reply(0, ""))


@pytest.mark.parametrize(
    ("launcher", "chunk"), [("openmpi", "select=2:mpiprocs=4:big"), ("mpich", "select=2:big"), ("pals", "select=2:big")]
)
def test_open_mpi_gets_a_place_for_each_rank_of_a_whole_node(launcher: str, chunk: str, tmp_path: Path) -> None:
    """It reads from the list of nodes how many ranks each takes; other launchers are told."""
    site = a_site("pbs", launcher=launcher, whole_nodes=True, node=Node(cores=8))
    assert f"-l {chunk}" in pbs.directives(a_job(site, tmp_path, ranks_per_node=4, constraint="big"), site)
