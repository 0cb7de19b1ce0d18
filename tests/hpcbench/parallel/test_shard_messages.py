"""Messages of sharded parameters as an accelerator has them: sent at once, and waited for by another stream later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from hpcbench.parallel.exposed import Arrivals
from hpcbench.parallel.shard_messages import ShardMessages, waiting_for


class Log:
    """A recorder that writes down in which order things happen."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def channel(self, kind: str, arrivals: Arrivals, *, on_host: bool = False) -> Log:
        return self

    def message(self, members: Collection[int] | None = None) -> AbstractContextManager[None]:
        number = sum(line.startswith("message") for line in self.lines)
        self.lines.append(f"message {number}")
        return self.waited(number)

    @contextmanager
    def waited(self, number: int) -> Iterator[None]:
        self.lines.append(f"wait for {number}")
        yield
        self.lines.append(f"have {number}")

    def does(self, what: str) -> Callable[[], None]:
        return lambda: self.lines.append(what)


@pytest.fixture
def alone() -> Iterator[Any]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_the_host_waits_where_it_sends(alone: Any) -> None:
    log = Log()
    messages = ShardMessages(alone, None, log, on_host=True)
    messages.send(messages.channel, messages.reductions, log.does("send"))
    assert log.lines == ["message 0", "wait for 0", "send", "have 0"]
    assert messages.reductions == []


def test_an_accelerator_waits_for_the_last_that_was_sent(alone: Any) -> None:
    log = Log()
    messages = ShardMessages(alone, None, log, on_host=False)
    for _ in range(2):
        messages.send(messages.channel, messages.reductions, log.does("send"))
    wait = waiting_for(log.does("stream"), messages.reductions)
    wait()
    wait()
    assert log.lines == ["message 0", "send", "message 1", "send", "wait for 1", "stream", "have 1", "stream"]


def test_a_pass_waits_through_what_was_taken_over(alone: Any) -> None:
    """FSDP2 of the torch that is installed calls what stands in the place of its own."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for module in (model[0], model):
        fully_shard(module, mesh=DeviceMesh("cpu", torch.arange(1), mesh_dim_names=("data",)))
    log = Log()
    messages = ShardMessages(alone, None, log, on_host=False)
    for module in (model[0], model):
        assert isinstance(module, FSDPModule)
        messages.take_over(module)
    messages.reductions.append(log.message())
    output = model(torch.ones(2, 4))
    assert log.lines == ["message 0"], "a forward pass waits for no reduction"
    output.sum().backward()
    assert log.lines == ["message 0", "wait for 0", "have 0"]
    for module in (model[0], model):
        state: Any = module._get_fsdp_state()
        for unit in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
            assert unit.wait_for_unshard.__name__ == "inside"
            unit._all_gather_comm.sent.append(log.message())
    log.lines.clear()
    model(torch.ones(2, 4))
    assert [line.split()[0] for line in log.lines] == ["wait", "have", "wait", "have"]
