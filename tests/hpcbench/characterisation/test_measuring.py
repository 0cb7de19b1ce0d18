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

from hpcbench.application import find_application
from hpcbench.characterisation import roofs, steps, timing
from hpcbench.characterisation.counts import count_step
from hpcbench.characterisation.input_cost import io_counts
from hpcbench.characterisation.isolated_kernels import as_executed, budget_shares, seconds_alone, tensor_of, time_alone
from hpcbench.characterisation.message_curves import SIZES, curve
from hpcbench.characterisation.model import CurvePoint, Roof
from hpcbench.characterisation.operations import OperationRecorder, TensorShape
from hpcbench.characterisation.storage_roofs import roofs_of, storage_roofs
from hpcbench.config.resolve import resolve
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh_shape import MeshShape
from staging.errors import InputError
from staging.probing.ceilings import Ceilings, Rate
from staging.ranks.launch import detect
from staging.ranks.world import Alone

CPU = torch.device("cpu")


def test_rates_are_work_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofs, "timed", lambda work, device, budget_s: 0.25)
    assert roofs.compute_roof(CPU, "float32", 1.0).value == 2 * 1024**3 / 0.25
    assert roofs.memory_roof(CPU, 1.0).value == 3 * (64 << 20) / 0.25
    assert roofs.cache_roof("L2", 6 << 20, 1.0).value == 3 * (1 << 20) / 0.25
    assert roofs.launch_roof(CPU, 1.0).value == 0.25


def test_the_roofs_of_a_processor() -> None:
    found = {(roof.resource, roof.name): roof for roof in roofs.device_roofs(CPU, "64-true", alone(), 0.01)}
    assert {("compute", "float32"), ("compute", "float64"), ("memory", "memory"), ("launch", "launch")} <= set(found)
    # float64 fills a register with half as many numbers.
    assert found["compute", "float64"].value < 1.2 * found["compute", "float32"].value
    assert all(roof.value > found["memory", "memory"].value for roof in found.values() if roof.resource == "cache")


def alone() -> Group:
    return Group(detect({}), CPU, None)


def test_the_median_over_ranks_of_what_all_have() -> None:
    class Three(Group):
        def all_gather_object(self, value: object) -> list[object]:
            memory = [Roof("memory", "memory", rate, "B/s", "") for rate in (3.0, 1.0, 2.0)]
            cache = Roof("cache", "L2", 9.0, "B/s", "")
            return [[memory[0], cache], [memory[1], cache], [memory[2]]]

    assert [roof.value for roof in roofs.over_ranks([], Three(detect({}), CPU, None))] == [2.0]


def test_caches_are_those_that_the_system_tells(tmp_path: Path) -> None:
    for number, (level, kind, size, shared) in enumerate(
        [("1", "Data", "32K", "0"), ("2", "Instruction", "64K", "0"), ("2", "Unified", "1024K", "0"),
         ("3", "Unified", "32768K", "0-3,8")]
    ):  # fmt: skip
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
            (folder / name).write_text(f"{text}\n")
    found = dict(roofs.cache_sizes(tmp_path, threads=2))
    assert found == {"L2": 2 << 20, "L3": 32 << 20}
    assert roofs.cache_sizes(tmp_path / "none", threads=1) == []
    assert roofs.processors_of("0-3,8") == 5


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
    kernels = time_alone(counted.kernels, counted.operations, CPU, 0.01)
    assert [kernel.operation for kernel in kernels if kernel.alone_s is None] == [config.optim.name]


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


def test_storage_is_probed_and_left_clean(tmp_path: Path) -> None:
    found = storage_roofs([tmp_path], Alone(), 0.5)
    assert [(roof.resource, roof.name) for roof in found] == [("read", str(tmp_path)), ("write", str(tmp_path))]
    assert all(roof.value > 0 for roof in found)
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
