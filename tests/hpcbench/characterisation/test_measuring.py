"""Roofs, curves, kernels alone and storage: that rates are work over time, and fits find what made their points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity

from hpcbench.application import find_application
from hpcbench.characterisation import steps, timing
from hpcbench.characterisation.characterize import Wanted, characterize, optimizer_alone, untimed
from hpcbench.characterisation.counts import count_step
from hpcbench.characterisation.input_cost import io_counts
from hpcbench.characterisation.isolated_kernels import (
    arguments,
    as_executed,
    budget_shares,
    seconds_alone,
    tensor_of,
    time_alone,
)
from hpcbench.characterisation.kernel_times import activities_of, kernel_times
from hpcbench.characterisation.message_curves import SIZES, curve
from hpcbench.characterisation.model import CurvePoint
from hpcbench.characterisation.operations import OperationRecorder, TensorShape
from hpcbench.characterisation.storage_roofs import roofs_of, storage_roofs
from hpcbench.characterisation.tiers import tier_of
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.train.ranks import connect_ranks
from staging.errors import InputError
from staging.probing.ceilings import Ceilings, Rate
from staging.ranks.launch import detect
from staging.ranks.world import Alone
from tests.hpcbench.characterisation.made import CONVOLUTION, RELU, alone

CPU = torch.device("cpu")


@given(st.floats(1e-6, 1e-3), st.floats(1e7, 1e11))
def test_a_curve_is_the_latency_and_rate_that_made_it(latency: float, rate: float) -> None:
    points = [CurvePoint(size, latency + size / rate) for size in SIZES]
    found = curve("all_reduce", 2, 1, "within a node", points)
    assert found.latency_s == pytest.approx(latency, rel=1e-3, abs=1e-9)
    assert found.bytes_per_s == pytest.approx(rate, rel=1e-3)


def test_a_curve_that_falls_has_no_rate_below_zero() -> None:
    found = curve("exchange", 2, 1, "within a node", [CurvePoint(1000, 2e-3), CurvePoint(4000, 1e-3)])
    assert found.latency_s >= 0
    assert found.bytes_per_s > 0


def test_exposed_seconds_are_those_of_each_step_that_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", None, {})
    ranks: Any = SimpleNamespace(group=alone(), device=CPU)

    def full_step(*given: Any) -> Callable[[], None]:
        transfer_s = given[-1].transfer_s
        return lambda: transfer_s.update(gradients=transfer_s["gradients"] + 0.5)

    monkeypatch.setattr(steps, "full_step", full_step)
    monkeypatch.setattr(steps, "profiled", lambda step, device: ({}, ()))
    monkeypatch.setattr(steps, "optimizer_seconds", lambda step: 0.0)
    measured = steps.measure_steps(application, config, ranks, MeshShape(1), 1.0, None, 0.0, lambda said: None)
    assert measured.exposed_s["gradients"] == 0.5


def test_short_work_is_repeated_and_long_work_done_twice() -> None:
    calls = []
    timing.timed(lambda: calls.append(0), CPU, budget_s=0.01)
    assert len(calls) > 100
    calls.clear()
    assert timing.timed(lambda: calls.append(sum(range(200_000))), CPU, budget_s=1e-6) > 1e-4
    assert len(calls) == 2


def test_the_fastest_of_work_is_of_three_repeats_however_long_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock shows, for each repeat in turn: 9 s to warm up, then 5, 4 and 7."""
    ticks = iter([0.0, 9.0, 10.0, 15.0, 20.0, 24.0, 30.0, 37.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    assert timing.fastest(lambda: None, CPU, budget_s=1.0) == 4.0


def test_an_operation_alone_gives_what_it_gave() -> None:
    x = torch.randn(2, 3, 9, 9).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(4, 3, 3, 3)
    with OperationRecorder() as recorder:
        torch.nn.functional.conv2d(x, weight, stride=2)
    (operation,) = recorder.operations
    made = tensor_of(operation.args[0], CPU)
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert made.shape == x.shape
    assert seconds_alone(operation, CPU, 0.001) is not None


def test_a_tensor_that_repeats_itself_and_one_of_nothing() -> None:
    assert tensor_of(TensorShape((500, 10), (0, 1), torch.float32), CPU).untyped_storage().nbytes() == 40
    assert tensor_of(TensorShape((0, 3), (3, 1), torch.int64), CPU).shape == (0, 3)


def test_kernels_share_the_budget_by_their_work() -> None:
    config = resolve(find_application("cosmoflow"), "smoke", overrides={"train.precision": "32-true"})
    kernels = count_step(find_application("cosmoflow"), config, MeshShape(1, (1,))).kernels
    shares = budget_shares(kernels, 100.0)
    largest = max(range(len(kernels)), key=lambda number: kernels[number].flop / 10 + kernels[number].bytes)
    assert max(shares) == shares[largest]
    assert min(shares) == 0.01


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("application", ["cosmoflow", "deepcam"])
def test_every_operation_of_a_pass_can_be_done_alone(application: str, precision: str) -> None:
    found = find_application(application)
    config = resolve(found, "smoke", overrides={"train.precision": precision, "train.local_batch_size": 2})
    counted = count_step(found, config, MeshShape(1, (1,)))
    kernels = time_alone(counted.kernels, counted.operations, alone(), 0.01)
    assert [kernel.operation for kernel in kernels if kernel.alone_s is None] == [config.optim.name]


def test_kernels_without_a_time_are_named() -> None:
    """A device without memory for one, or without the operation."""
    assert untimed([RELU, CONVOLUTION]) == []
    (said,) = untimed([replace(RELU, alone_s=None), CONVOLUTION, replace(RELU, alone_s=None)])
    assert said.startswith("no time alone of 2 of 3 kernels")
    assert said.endswith(": relu_")


def test_a_profile_that_saw_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a user may not read the counters of a GPU."""
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", overrides={"train.precision": "32-true", "parallel.accelerator": "cpu"})
    monkeypatch.setattr(steps, "kernel_times", lambda *given: {"kernel_ms_by_kind": {}, "longest": []})
    with connect_ranks(detect({}), config) as ranks:
        found = characterize(application, config, ranks, Wanted(0.1))
    assert found.notes[-1] == "torch's profiler saw no kernels of cpu: a step's time by kind is not known"


def test_statistics_of_batch_norm_have_the_type_of_its_weights() -> None:
    norm, x = torch.nn.BatchNorm2d(4), torch.randn(2, 4, 3, 3, requires_grad=True)
    result = norm(x)
    with OperationRecorder() as recorder:
        result.sum().backward()
    backward = next(each for each in recorder.operations if each.name == "native_batch_norm_backward")
    # As tensors without data have it under autocast.
    half = [replace(each, dtype=torch.bfloat16) for each in backward.args[:2]]
    kept = [replace(each, dtype=torch.bfloat16) for each in backward.args[5:7]]
    counted = replace(backward, args=(*half, *backward.args[2:5], *kept, *backward.args[7:]))
    assert {each.dtype for each in as_executed(counted)[2:7]} == {torch.float32}
    assert seconds_alone(counted, CPU, 1e-6) is not None


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 4, 4, 4)])
def test_the_gradient_of_a_pooling_alone_goes_where_one_of_a_pass_would(shape: tuple[int, ...]) -> None:
    """Each window of two numbers a side has a maximum of its own, so as many places as windows get a gradient."""
    x = torch.randn(shape, requires_grad=True)
    pooled = (torch.nn.functional.max_pool2d if len(shape) == 4 else torch.nn.functional.max_pool3d)(x, 2)
    with OperationRecorder() as recorder:
        pooled.sum().backward()
    backward = next(each for each in recorder.operations if each.name.endswith("_with_indices_backward"))
    args, kwargs = arguments(backward, CPU)
    gradient = backward.func(*args, **kwargs)
    assert gradient.shape == x.shape
    assert int((gradient != 0).sum()) == pooled.numel()


def test_the_profile_is_of_the_device_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor of a machine that has an accelerator, too."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    x = torch.randn(64, 64)
    assert kernel_times(lambda: x @ x, CPU, 1)["kernel_ms_by_kind"]["matrix product"] > 0
    cuda, other = torch.device("cuda"), torch.device("privateuseone")
    assert activities_of(cuda) == [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    assert activities_of(torch.device("xpu"))[1] == ProfilerActivity.XPU
    assert activities_of(other)[1] == ProfilerActivity.PrivateUse1


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_an_update_alone_needs_no_loss_before_it(precision: str) -> None:
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", overrides={"train.precision": precision, "parallel.accelerator": "cpu"})
    with connect_ranks(detect({}), config) as ranks:
        assert optimizer_alone(application, config, ranks) > 0


def test_storage_is_probed_and_left_clean(tmp_path: Path) -> None:
    found = storage_roofs([tmp_path], Alone(), 0.5)
    assert [(roof.resource, roof.name) for roof in found] == [("read", str(tmp_path)), ("write", str(tmp_path))]
    assert all(roof.value > 0 for roof in found)
    assert {roof.tier for roof in found} == {tier_of(tmp_path)}
    assert list(tmp_path.iterdir()) == []


def test_storage_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match=f"--storage {file} cannot be written"):
        storage_roofs([file], Alone(), 0.5)


def test_rates_of_all_ranks_are_shared_by_them() -> None:
    rates = (Rate("read", 4, 1 << 20, (6e9, 2e9), "cold"), Rate("write_flushed", 4, 1 << 20, (4e8, 4e8), "early"))
    read, write = roofs_of(Ceilings("/a", "/b", ("one", "two"), 8, 1.0, rates), "/a", 8)
    assert (read.value, read.how) == (1e9, "4 threads, 1024 KiB at a time, cold")
    assert (write.value, write.how) == (1e8, "4 threads, early, flushed")


def test_reads_of_this_process_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100_000)
    before = io_counts()
    file.read_bytes()
    after = io_counts()
    if before is None or after is None:
        pytest.skip("this system counts no reads of a process (/proc/self/io)")
    assert after[0] - before[0] >= 100_000
    assert after[1] > before[1]
    assert io_counts(tmp_path / "none") is None
