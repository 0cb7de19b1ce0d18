"""One process needs no MPI library, and sends nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from hpcbench.parallel.batchnorm import average_statistics
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import connect
from staging.ranks.abort import AbortWatcher
from staging.ranks.launch import Launch

# mpi4py looks for a library by itself; pointing it at one that does not exist is what a machine without MPI looks like.
WITHOUT_MPI = textwrap.dedent("""
    import os, sys
    os.environ["MPI4PY_LIBMPI"] = "/nowhere/libmpi.so"
    import mpi4py
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        print("MPI fails:", type(error).__name__)
    from staging.ranks.abort import AbortWatcher
    from hpcbench.parallel.group import connect
    from staging.ranks.launch import Launch, detect
    from staging.ranks.mpi import abort_mpi, communicator
    group = connect(detect({}))
    with AbortWatcher(group, program="test"):
        group.barrier()
    abort_mpi(1)
    print(group.world_size, communicator(1))
""")


@pytest.mark.slow
def test_runs_where_mpi4py_finds_no_library() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_MPI], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("MPI fails:")
    assert second == "1 None"


def test_every_method_is_an_identity() -> None:
    group = connect(Launch())
    rows = torch.rand(3, 2)
    assert group.all_gather_rows(rows) is rows
    assert group.all_reduce_sum(rows) is rows
    assert group.all_gather_object("a") == ["a"]
    assert group.broadcast_object("a") == "a"
    assert group.max(2.5) == 2.5
    group.agree("anything", object())
    group.barrier()
    group.close()
    assert not torch.distributed.is_initialized()


def test_gradients_and_statistics_stay_as_they_are() -> None:
    group = connect(Launch())
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    reducer = GradientReducer(model.parameters(), group, 100)
    reducer.enabled = True
    model(torch.rand(4, 2)).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    reducer.finish()
    average_statistics(model, group)
    assert all(p.grad is gradient for p, gradient in zip(model.parameters(), gradients, strict=True))
    assert reducer.collectives == 0


def test_errors_pass_through_the_watcher() -> None:
    with pytest.raises(ZeroDivisionError), AbortWatcher(connect(Launch()), program="test"):
        raise ZeroDivisionError
