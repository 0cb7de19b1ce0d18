"""What does not fit into memory is refused in a line before anything is written, or told where it ran out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcbench.train import memory_limits, training_step
from hpcbench.train.memory_limits import is_out_of_memory

Train = Callable[..., int]
GIB = 2**30


def test_a_model_that_is_too_large_is_refused(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limits, "free_memory", lambda: GIB)
    assert train(tmp_path / "run", "--model.base_channels", "1024", "--model.conv_layers", "4") == 2
    said = capsys.readouterr().err
    assert said.startswith("hpcbench: error: the model (")
    assert "GiB for weights and gradients, and a rank of this node has 1.0 GiB; lower its model.* settings" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_batch_that_is_too_large_is_refused(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limits, "free_memory", lambda: 5 * 2**20)
    # 24 samples of 4 x 16^3 numbers in double precision are 3 MiB, and the model is smaller.
    assert train(tmp_path / "fits", "--train.local_batch_size", "24", "--train.max_epochs", "1") == 0
    monkeypatch.setattr(memory_limits, "free_memory", lambda: 2**20)
    capsys.readouterr()
    assert train(tmp_path / "run", "--train.local_batch_size", "24") == 2
    assert "train.local_batch_size (24) makes inputs of 0.0 GiB" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("epochs", [0, 1])
def test_memory_that_runs_out_in_a_step_ends_the_run_in_a_line(
    epochs: int, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = training_step.TrainingStep.forward_backward, [0]

    def short(step: Any, *tensors: Any) -> Any:
        calls[0] += 1
        if calls[0] > 3 * epochs:
            torch.empty(2**60)  # of which torch's own allocator says what it does
        return real(step, *tensors)

    monkeypatch.setattr(training_step.TrainingStep, "forward_backward", short)
    assert train(tmp_path / "run", "--train.max_epochs", "3") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    again = "resume with --resume where more is free, or " if epochs else ""
    smaller = "start a new run with a smaller batch or model"
    assert said == f"hpcbench: aborted: the memory of the host ran out; {again}{smaller}\n"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["cause"]) == ("aborted", "error")


def test_memory_that_runs_out_before_the_run_leaves_nothing(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.train.setup.build_model", lambda *_: torch.empty(2**60))
    assert train(tmp_path / "run") == 1
    said = capsys.readouterr().err
    assert said.startswith("hpcbench: aborted: memory ran out before the run began; lower the size of the model")
    assert not (tmp_path / "run").exists()


def test_other_errors_are_none_of_memory() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronous"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert is_out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert not is_out_of_memory(ValueError("not enough memory"))
