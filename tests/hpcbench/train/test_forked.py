"""Ranks of tests are forked from a server that has torch, whatever server their process had before."""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

import pytest

from tests.hpcbench.train.forked import server

CODE = "import os, sys; os._exit(7 if 'torch' in sys.modules else 8)"


def exit_code(context: ForkServerContext) -> int | None:
    """7 where a process of the server begins with torch, else 8."""
    process = context.Process(target=exec, args=(CODE,))
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.slow
def test_a_server_without_torch_is_replaced() -> None:
    """As a test of loaders or simulators leaves one; each rank would import torch for itself, which takes seconds."""
    server.cache_clear()
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    bare = multiprocessing.get_context("forkserver")
    bare.set_forkserver_preload([])
    assert exit_code(bare) == 8
    assert exit_code(server()) == 7
    assert exit_code(server()) == 7
