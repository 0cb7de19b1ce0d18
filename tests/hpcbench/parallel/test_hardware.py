"""Threads, number formats and devices of a rank."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hpcbench.config.schema import RunConfig, TrainConfig
from hpcbench.parallel.environment import TorchAccelerator, choose_device, make_fabric
from hpcbench.parallel.group import connect, default_backend
from hpcbench.parallel.precision import processor_flags, resolve_precision
from hpcbench.parallel.threads import core_share, cpu_quota, openmp_threads, threads_per_rank
from staging.errors import InputError
from staging.ranks.launch import Launch


def test_ranks_that_share_cores_divide_them() -> None:
    everyone = set(range(12))
    assert core_share(everyone, [everyone] * 4) == pytest.approx(3)
    assert int(core_share(everyone, [everyone] * 12)) == 1
    assert int(core_share({0, 1, 2}, [{0, 1, 2}] * 3)) == 1


def test_ranks_that_are_bound_keep_their_cores() -> None:
    bound = [set(range(8 * rank, 8 * rank + 8)) for rank in range(4)]
    assert [core_share(cores, bound) for cores in bound] == pytest.approx([8] * 4)


def test_two_ranks_per_socket() -> None:
    low, high = set(range(6)), set(range(6, 12))
    assert core_share(low, [low, low, high]) == pytest.approx(3)
    assert core_share(high, [low, low, high]) == pytest.approx(6)


def test_one_process_takes_what_the_system_allows_or_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    group = connect(Launch())
    quota = cpu_quota()
    allowed = len(os.sched_getaffinity(0))
    assert threads_per_rank(group) == max(1, int(allowed if quota is None else min(allowed, quota)))
    assert threads_per_rank(group, 7) == 7
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert (threads_per_rank(group), threads_per_rank(group, 7)) == (3, 7)


@pytest.mark.parametrize(("value", "threads"), [("5", 5), ("6,2", 6), (" 4 ", 4), ("0", None), ("", None), ("-2", None),
                                                ("many", None), ("\u0663", None)])  # fmt: skip
def test_what_openmp_is_told(value: str, threads: int | None) -> None:
    assert openmp_threads({"OMP_NUM_THREADS": value}) == threads


def test_torchruns_own_choice_is_nobodys() -> None:
    """It sets one thread where nobody said how many."""
    assert openmp_threads({}) is None
    assert openmp_threads({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "none"}) is None
    assert openmp_threads({"OMP_NUM_THREADS": "2", "TORCHELASTIC_RUN_ID": "none"}) == 2


@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
        ({"cpu.max": "odd"}, None),
    ],
)
def test_control_group_quota(tmp_path: Path, files: dict[str, str], processors: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == processors


def cpuinfo(tmp_path: Path, flags: str) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\nmodel name\t: A\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\nflags\t\t: other\n")
    return path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("avx2 avx512f avx512_bf16", "bf16-mixed"),
        ("avx512f amx_bf16 amx_tile", "bf16-mixed"),
        ("avx2 avx512f avx512_vnni", "32-true"),
        ("avx2", "32-true"),
    ],
)
def test_auto_precision_on_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, expected: str
) -> None:
    found = processor_flags(cpuinfo(tmp_path, flags))
    assert "other" not in found
    monkeypatch.setattr("hpcbench.parallel.precision.processor_flags", lambda: found)
    assert resolve_precision("auto", torch.device("cpu")) == expected


@pytest.mark.parametrize(("new", "expected"), [(False, "32-true"), (True, "bf16-mixed")])
def test_auto_precision_on_a_gpu(monkeypatch: pytest.MonkeyPatch, new: bool, expected: str) -> None:
    """A GPU of NVIDIA before Ampere, such as V100, only emulates bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or new)
    assert resolve_precision("auto", torch.device("cuda")) == expected


def test_precision_elsewhere(tmp_path: Path) -> None:
    assert resolve_precision("auto", torch.device("meta")) == "bf16-mixed"
    assert resolve_precision("16-mixed", torch.device("cpu")) == "16-mixed"
    assert processor_flags(tmp_path / "nothing") == frozenset()


def pretend_accelerators(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch, "accelerator", SimpleNamespace(
        is_available=lambda: True, device_count=lambda: count, current_accelerator=lambda: torch.device("xpu")
    ))  # fmt: skip


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_allowed_or_forbidden_in_products_and_convolutions_alike(allowed: bool) -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        make_fabric(Launch(), RunConfig(train=TrainConfig(precision="32-true", tf32=allowed)))
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (allowed, allowed)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_the_local_rank_chooses_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_accelerators(monkeypatch, 4)
    assert choose_device(Launch(6, 8, 2, 4), "auto") == torch.device("xpu", 2)
    assert choose_device(Launch(6, 8, 2, 4), "cpu") == torch.device("cpu")
    # A launcher that shows each rank one accelerator of its own.
    pretend_accelerators(monkeypatch, 1)
    assert choose_device(Launch(6, 8, 2, 4), "auto") == torch.device("xpu", 0)


def test_each_rank_computes_on_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch does without naming a device (streams, events, Triton's kernels) belongs to the chosen one."""
    pretend_accelerators(monkeypatch, 4)
    chosen: list[int] = []
    torch.accelerator.set_device_index = chosen.append  # type: ignore[method-assign]  # of the pretended module
    fabric, _ = make_fabric(Launch(6, 8, 2, 4), RunConfig(train=TrainConfig(precision="32-true")))
    assert (fabric.device, chosen) == (torch.device("xpu", 2), [2])


def test_more_ranks_than_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_accelerators(monkeypatch, 2)
    with pytest.raises(InputError, match="4 ranks on a node with 2 accelerators; start at most 2 ranks per node"):
        choose_device(Launch(2, 4, 2, 4), "auto")


def test_the_backend_follows_the_device() -> None:
    assert default_backend(torch.device("cpu")) == "gloo"
    assert default_backend(torch.device("cuda:1")) == "cpu:gloo,cuda:nccl"


@pytest.mark.parametrize(
    ("precision", "inside"),
    [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)],
)
def test_fabric_gets_device_and_precision_and_detects_nothing(
    monkeypatch: pytest.MonkeyPatch, precision: str, inside: torch.dtype
) -> None:
    # What a batch script's own step under Slurm shows, which Fabric by itself takes for four ranks.
    for name, value in {
        "SLURM_NTASKS": "4",
        "SLURM_PROCID": "0",
        "SLURM_JOB_NAME": "train",
        "SLURM_NODEID": "0",
    }.items():
        monkeypatch.setenv(name, value)
    config = RunConfig()
    config.train.precision = precision  # type: ignore[assignment]
    config.parallel.accelerator = "cpu"
    fabric, policy = make_fabric(Launch(), config)
    model = torch.nn.Linear(2, 2)
    with policy.autocast():
        assert model(torch.ones(1, 2)).dtype == inside
    assert fabric.device == torch.device("cpu")
    assert fabric.world_size == 1
    assert isinstance(fabric.strategy.accelerator, TorchAccelerator)  # not Fabric's own
