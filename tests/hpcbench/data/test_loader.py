"""Loading: batches in the asked order, with the samples' memory layout, inline or by worker processes."""

import os
import signal
import time

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from hpcbench.data.loader import BatchLoader, stack
from staging.errors import Aborted, InputError


class Numbered(Dataset[tuple[Tensor, Tensor]]):
    """Sample i: a volume of i stored channels-last, and the label i."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.full((4, 5, 6, 3), index, dtype=torch.int16).permute(3, 0, 1, 2), torch.tensor([float(index)])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_the_asked_order(workers: int) -> None:
    batches = [np.array([3, 1]), np.array([7, 7, 0]), np.array([], dtype=np.int64)]
    got = list(BatchLoader(Numbered(), workers, pin=False).load(batches))
    assert [targets.flatten().tolist() for _, targets in got] == [[3, 1], [7, 7, 0], []]
    assert [inputs[:, 0, 0, 0, 0].tolist() for inputs, _ in got] == [[3, 1], [7, 7, 0], []]
    assert got[2][0].shape == (0, 3, 4, 5, 6)


def test_channels_last_samples_make_a_channels_last_batch_without_a_transpose() -> None:
    inputs, _ = next(BatchLoader(Numbered(), 0, pin=False).load([np.array([1, 2])]))
    assert inputs.shape == (2, 3, 4, 5, 6)
    assert inputs.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("sample", [
    torch.from_numpy(np.zeros((32, 16))[None]), torch.zeros(1, 32, 16), torch.zeros(32, 16, 1).permute(2, 0, 1),
], ids=["new axis", "first", "last"])  # fmt: skip
def test_an_axis_of_one_element_has_the_same_stride_whatever_it_had(sample: Tensor) -> None:
    """Else compiled code, which is for one layout, would be compiled for each."""
    assert stack([sample, sample]).stride() == torch.zeros(2, 1, 32, 16).stride()


def test_stack_equals_torch_stack() -> None:
    parts = [torch.randn(3, 4, 5).permute(2, 0, 1) for _ in range(3)]
    assert torch.equal(stack(parts), torch.stack(parts))
    assert torch.equal(stack([torch.tensor(1.0), torch.tensor(2.0)]), torch.tensor([1.0, 2.0]))


def test_samples_of_several_shapes_are_refused_in_words() -> None:
    with pytest.raises(
        InputError, match=r"have the shapes \(2, 3\) and \(2, 4\); give them one, or give their dataset"
    ):
        stack([torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 4)])


def test_worker_processes_live_from_epoch_to_epoch() -> None:
    loader = BatchLoader(Pids(), 1, pin=False)
    first, second = (next(loader.load([np.array([0])]))[1].item() for _ in range(2))
    assert first == second != os.getpid()


def test_worker_processes_end_at_once() -> None:
    """Left to the garbage collector, each takes 5 s, in whatever step the collector runs."""
    for how in ("closed", "forgotten"):
        loader = BatchLoader(Pids(), 2, pin=False)
        pids = {int(target) for _, target in loader.load([np.array([index]) for index in range(4)])}
        started = time.monotonic()
        if how == "closed":
            loader.close()
        del loader
        assert time.monotonic() - started < 2
        assert not any(psutil.pid_exists(pid) for pid in pids)


class Killed(Numbered):
    """Ends the process that reads sample 2, as the system does that lacks memory."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_reader_that_is_killed_is_reported_in_words() -> None:
    loader = BatchLoader(Killed(), 1, pin=False)
    with pytest.raises(Aborted, match=r"was killed \(out of memory\?\); lower data.workers or data.prefetch"):
        list(loader.load([np.array([index]) for index in range(4)]))
    loader.close()


def test_a_closed_loader_may_load_again() -> None:
    loader = BatchLoader(Numbered(), 1, pin=False)
    batches = [np.array([0, 1])]
    first = next(loader.load(batches))
    loader.close()
    assert torch.equal(next(loader.load(batches))[0], first[0])


class Pids(Numbered):
    """Labels are the number of the process that read them."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return super().__getitem__(index)[0], torch.tensor(os.getpid())


class Transformed(Numbered):
    """As torchvision's sets with a transform."""

    def __init__(self) -> None:
        self.transform = lambda value: value


def test_a_dataset_that_processes_cannot_get_is_refused_in_words() -> None:
    loader = BatchLoader(Transformed(), 1, pin=False)
    with pytest.raises(InputError, match=r"cannot be sent to processes that read it \(.*lambda.*data.workers 0"):
        loader.load([np.array([0])])
    assert len(list(BatchLoader(Transformed(), 0, pin=False).load([np.array([0])]))) == 1
