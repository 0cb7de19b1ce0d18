"""Roofs of a device: that rates are work over time, what is measured on which device, and by all ranks at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hpcbench.characterisation import caches, isolated_kernels, roofs
from hpcbench.characterisation.isolated_kernels import time_alone
from hpcbench.characterisation.model import Roof
from hpcbench.parallel.group import Group
from staging.ranks.launch import detect
from tests.hpcbench.characterisation.made import CONVOLUTION, RELU, alone

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_rates_are_work_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofs, "fastest", lambda work, device, budget_s: 0.25)
    assert roofs.compute_roof(CPU, "float32", 1.0).value == 2 * 1024**3 / 0.25
    assert roofs.memory_roof(CPU, 64 << 20, 0, 1.0).value == 3 * (64 << 20) / 0.25
    assert roofs.cache_roof("L2", 6 << 20, 1.0).value == 3 * (1 << 20) / 0.25
    assert roofs.launch_roof(CPU, 1.0).value == 0.25


def test_the_roofs_of_a_processor() -> None:
    found = {(roof.resource, roof.name): roof for roof in roofs.device_roofs(CPU, "64-true", alone(), 0.01)}
    assert {("compute", "float32"), ("compute", "float64"), ("memory", "memory"), ("launch", "launch")} <= set(found)
    # float64 fills a register with half as many numbers.
    assert found["compute", "float64"].value < 1.2 * found["compute", "float32"].value
    assert all(roof.value > found["memory", "memory"].value for roof in found.values() if roof.resource == "cache")


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
    found = dict(caches.cache_sizes(tmp_path, threads=2))
    assert found == {"L2": 2 << 20, "L3": 32 << 20}
    assert caches.cache_sizes(tmp_path / "none", threads=1) == []
    assert caches.processors_of("0-3,8") == 5


def test_products_of_16_bits_are_measured_in_any_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, found in (({"avx2", "amx_bf16"}, True), ({"asimd", "bf16"}, True), ({"avx512f"}, False)):
        monkeypatch.setattr(roofs, "processor_flags", lambda flags=flags: frozenset(flags))
        monkeypatch.setattr(roofs, "available_memory", lambda: 1 << 30)
        measured = roofs.device_roofs(CPU, "32-true", alone(), 1e-3)
        names = [roof.name for roof in measured if roof.resource == "compute"]
        assert names == ["float32", *(["bfloat16"] if found else [])]
        said = roofs.roof_notes(measured, CPU)
        assert said == ([] if found else ["no roof of products in bfloat16: this processor has no instructions for it"])


@pytest.mark.parametrize(
    ("capability", "hip", "types", "tensor_float"),
    [
        ((7, 0), None, ["float16"], False),
        ((8, 0), None, ["bfloat16", "float16"], True),
        ((9, 0), None, ["bfloat16", "float16"], True),
        ((9, 4), "6.2", ["bfloat16", "float16"], False),
    ],
)
def test_types_that_accelerators_multiply(
    capability: tuple[int, int], hip: str | None, types: list[str], tensor_float: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A V100, an A100, an H100, and an MI300X, which has no TF32 for torch."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: capability >= (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert roofs.sixteen_bit(CUDA) == types
    assert roofs.has_tensor_float(CUDA) is tensor_float
    assert not roofs.has_tensor_float(CPU)


def test_a_cache_that_is_hardly_faster_than_memory_has_no_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the last level of a machine that others share; two lines of a plot would lie on each other."""
    sizes = {"L2": 1 << 20, "L3": 1 << 21, "L4": 1 << 22}
    rates = {"L2": 50.0, "L3": 12.1, "L4": 11.9}
    monkeypatch.setattr(roofs, "cache_sizes", lambda: list(sizes.items()))
    monkeypatch.setattr(roofs, "memory_roof", lambda *_: Roof("memory", "memory", 10.0, "B/s", ""))
    monkeypatch.setattr(roofs, "cache_roof", lambda name, *_: Roof("cache", name, rates[name], "B/s", ""))
    found = roofs.device_roofs(CPU, "32-true", alone(), 1e-4)
    assert [roof.name for roof in found if roof.resource == "cache"] == ["L2", "L3"]


def test_the_triad_is_larger_than_any_cache_where_memory_suffices() -> None:
    largest, plenty = 480 << 20, 64 << 30
    size = roofs.triad_bytes(CPU, [2 << 20, largest], plenty)
    assert 3 * size == 2 * largest
    assert roofs.triad_bytes(CPU, [2 << 20], plenty) == roofs.triad_bytes(CPU, [], plenty) == 64 << 20
    assert roofs.triad_bytes(CPU, [largest], 3 << 30) == (3 << 30) // 24
    assert roofs.triad_bytes(CPU, [largest], 1 << 20) == 64 << 20
    assert roofs.triad_bytes(CUDA, [], plenty) == 1 << 30


def test_a_triad_that_a_cache_may_hold_says_so() -> None:
    assert roofs.memory_roof(CPU, 1 << 20, 3 << 20, 1e-3).how == "triad of 3 x 1 MiB, which a cache holds"
    assert roofs.memory_roof(CPU, 1 << 20, 2 << 20, 1e-3).how == "triad of 3 x 1 MiB"


class Ranks(Group):
    """Ranks of which this process is the first; the others answer with ``others``."""

    def __init__(self, others: list[object]) -> None:
        super().__init__(detect({}), CPU, None)
        self.others, self.barriers = others, 0

    def all_gather_object(self, value: object) -> list[object]:  # type: ignore[override]
        return [value, *self.others]

    def barrier(self) -> None:
        self.barriers += 1


def test_ranks_wait_for_each_other_as_often() -> None:
    """One of two kinds of nodes has no instructions for bfloat16."""
    assert roofs.common(["float32", "bfloat16"], Ranks([["float32"]])) == ["float32"]


def test_kernels_are_timed_on_all_ranks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The median over ranks counts; a kernel that one rank cannot execute has no time."""
    group = Ranks([[3.0, 1.0], [5.0, None]])
    started: list[int] = []

    def seconds(operation: object, device: torch.device, budget_s: float) -> float:
        started.append(group.barriers)
        return 1.0

    monkeypatch.setattr(isolated_kernels, "seconds_alone", seconds)
    operation = SimpleNamespace()
    kernels = time_alone([CONVOLUTION, RELU], [operation, operation], group, 1.0)  # type: ignore[list-item]
    assert [kernel.alone_s for kernel in kernels] == [3.0, None]
    assert started == [1, 2]
