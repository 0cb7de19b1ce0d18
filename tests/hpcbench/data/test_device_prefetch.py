"""Batches copied ahead, against a device that does its work only when it is waited for, as late as a real one may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hpcbench.config.schema import RunConfig
from hpcbench.data.device_prefetch import UNDER_WAY, DevicePrefetcher
from hpcbench.parallel.simulated_ranks import data_ranks
from hpcbench.train.data_path import DataPath


class Stream:
    """Work in order; it is done when somebody waits for it."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def wait_stream(self, other: Stream) -> None:
        done = list(other.work)
        self.work.append(lambda: [job() for job in done if job in other.work and not other.work.remove(job)])  # type: ignore[func-returns-value]

    def drain(self) -> None:
        while self.work:
            self.work.pop(0)()


class Event:
    """A point in a stream's work."""

    def record(self, stream: Stream) -> None:
        self.reached = False
        self.stream = stream
        stream.work.append(self.reach)

    def reach(self) -> None:
        self.reached = True

    def synchronize(self) -> None:
        while not self.reached:
            self.stream.work.pop(0)()


class OnDevice:
    """A tensor of the device: filled when its copy is done."""

    device = torch.device("cuda")

    def __init__(self) -> None:
        self.value: Tensor | None = None
        self.used_by: list[Stream] = []

    def record_stream(self, stream: Stream) -> None:
        self.used_by.append(stream)


class Device:
    """The functions of ``torch.cuda`` that the prefetcher needs."""

    Event = Event

    def __init__(self) -> None:
        self.main = self.current = Stream()

    def Stream(self) -> Stream:  # noqa: N802
        return Stream()

    def current_stream(self) -> Stream:
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.current = stream
        yield
        self.current = self.main


class OnHost:
    """A tensor of the host, whose copy is work of the stream that is current."""

    device = torch.device("cpu")

    def __init__(self, device: Device, value: Tensor) -> None:
        self.owner, self.value, self.pinned = device, value, False

    def pin_memory(self) -> OnHost:
        self.pinned = True
        return self

    def to(self, device: torch.device, non_blocking: bool) -> OnDevice:
        assert non_blocking
        result = OnDevice()
        assert self.owner.current is not self.owner.main
        self.owner.current.work.append(lambda: setattr(result, "value", self.value))
        return result


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(torch, "get_device_module", lambda _: device)
    return device


def test_steps_see_their_batches_and_the_host_waits_for_none(device: Device) -> None:
    count, asked, seen, unfinished = 9, [], [], []

    def load() -> Iterator[tuple[Any, ...]]:
        for number in range(count):
            asked.append(number)
            yield (OnHost(device, torch.tensor(number)),)

    for number, (batch,) in enumerate(DevicePrefetcher(torch.device("cuda"), pin=True)(load())):
        # Nothing has been done of this step's copy, unless the device was waited for.
        device.main.work.append(lambda batch=batch: seen.append(int(batch.value)))
        assert asked == list(range(number + 1))
        assert batch.used_by == [device.main]
        unfinished.append(number + 1 - len(seen))
    device.main.drain()
    assert seen == list(range(count))
    # The device always has a step to do while the next batch is read and copied, and never keeps many batches.
    assert unfinished[UNDER_WAY:] == [UNDER_WAY + 1] * (count - UNDER_WAY)


def test_an_evaluation_keeps_few_batches_that_the_device_has_not_done(device: Device) -> None:
    """Pinned memory is not free before its copy is done, and the host would fill it with the whole validation set."""
    run: Any = SimpleNamespace(
        application=None, config=RunConfig(), device=torch.device("cuda"), threads=1, data_ranks=data_ranks(0, 1),
        mesh=SimpleNamespace(axes={}, shape=SimpleNamespace(data=1), data_rank=0),
        task=SimpleNamespace(reads_parts=lambda _: False), phases=SimpleNamespace(device_wait=nullcontext),
    )  # fmt: skip
    data, done = DataPath(run, [0] * 9, [0] * 9), list[int]()
    batches = [(OnHost(device, torch.tensor(number)), OnHost(device, torch.tensor(0))) for number in range(9)]
    data.validation_loader = SimpleNamespace(load=lambda _: iter(batches))  # type: ignore[assignment]
    for number, (inputs, _) in enumerate(data.validation_batches()):
        device.main.work.append(lambda inputs=inputs: done.append(int(inputs.value)))
        assert number + 1 - len(done) <= UNDER_WAY + 1
    device.main.drain()
    assert done == list(range(9))
    # The loader read them in this process, and so did not pin them.
    assert all(tensor.pinned for batch in batches for tensor in batch)


def test_what_is_on_the_device_already_passes_through(device: Device) -> None:
    there = OnDevice()
    ((found,),) = list(DevicePrefetcher(torch.device("cuda"))([(there,)]))  # type: ignore[list-item]
    assert found is there  # type: ignore[comparison-overlap]
    assert there.used_by == []


def test_on_a_processor_batches_pass_through() -> None:
    batches = [(torch.ones(2), torch.zeros(1)), (torch.ones(3), torch.zeros(2))]
    assert list(DevicePrefetcher(torch.device("cpu"))(iter(batches))) == batches
