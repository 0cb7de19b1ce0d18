"""Observers are called for what they override alone; a profiler and TensorBoard stand on them."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcbench.measure.step_times import Mark, StepTimes
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.loss_buffer import LossBuffer
from hpcbench.train.noise_scale import NoiseScale
from hpcbench.train.observers import Observers, StepInfo, StepObserver
from hpcbench.train.profiler import StepProfiler
from hpcbench.train.trust_ratios import TrustRatios

Train = Callable[..., int]
INFO = StepInfo(1, 8, 8, 0.1)


class Noting(StepObserver):
    name, table = "noting", "noted.csv"

    def __init__(self) -> None:
        self.noted: list[str] = []

    def after_backward(self, step: int, share: float) -> None:
        self.noted.append(f"backward {step} {share}")

    def after_optimizer(self, info: StepInfo, loss: torch.Tensor) -> None:
        self.noted.append(f"optimizer {info.number} {float(loss)}")

    def flush(self, epoch: int) -> list[dict[str, Any]]:
        found, self.noted = [{"epoch": epoch, "what": each} for each in self.noted], []
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"noted": list(self.noted)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.noted = state["noted"]

    def summary(self) -> dict[str, Any]:
        return {"noise_scale": 7.0}


def test_an_observer_is_called_for_what_it_overrides_and_its_rows_have_its_table() -> None:
    observers = Observers([StepObserver(), noting := Noting()])
    observers.before_backward(1)
    observers.after_backward(1, 0.5)
    observers.before_update(INFO)
    observers.before_optimizer(INFO)
    observers.after_optimizer(INFO, torch.tensor(2.0))
    observers.after_step(INFO)
    other = Noting()
    Observers([other]).load_state_dict(observers.state_dict())
    rows = [{"epoch": 3, "what": "backward 1 0.5"}, {"epoch": 3, "what": "optimizer 1 2.0"}]
    assert observers.flush(3) == {"noted.csv": rows} == Observers([other]).flush(3)
    assert observers.flush(3) == {}
    assert noting.noted == []
    assert (observers.tables, observers.summary()) == (["noted.csv"], {"noise_scale": 7.0})
    assert observers._before_backward == observers._before_update == observers._after_step == []


@pytest.mark.slow
def test_the_profiler_traces_as_many_steps_as_were_asked_for(train: Train, tmp_path: Path) -> None:
    asked = ("--measure.profile_steps", "2", "--measure.warmup_steps", "1", "--train.max_epochs", "2")
    assert train(tmp_path / "run", *asked) == 0
    with gzip.open(tmp_path / "run" / "trace.json.gz", "rt") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert sum(name.startswith("Optimizer.step#") for name in names) == 2
    assert any("convolution" in name for name in names)


@pytest.mark.slow
def test_a_resumed_run_keeps_the_trace_of_the_attempt_before(train: Train, tmp_path: Path) -> None:
    asked = ("--measure.profile_steps", "1", "--measure.warmup_steps", "1")
    assert train(tmp_path / "run", *asked, "--train.max_epochs", "1") == 0
    first = (tmp_path / "run" / "trace.json.gz").read_bytes()
    assert train(tmp_path / "run", "--resume", "--train.max_epochs", "2") == 0
    assert (tmp_path / "run" / "trace.json.gz").read_bytes() == first
    assert optimizer_steps(tmp_path / "run" / "trace-2.json.gz") == 1


@pytest.mark.slow
def test_traced_steps_are_in_no_figure_of_a_step(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the writing of the trace, which holds up the rank as long as it takes."""
    seen: list[str] = []
    begin = StepTimes._start

    def noted_begin(times: StepTimes) -> Mark:
        seen.append("figures begin")
        return begin(times)

    monkeypatch.setattr(StepTimes, "_start", noted_begin)
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", lambda *words: seen.append("trace"))
    common = ("--measure.warmup_steps", "1", "--train.max_epochs", "2")
    assert train(tmp_path / "plain", *common) == 0
    assert seen.pop(0) == "figures begin"
    seen.clear()
    assert train(tmp_path / "traced", *common, "--measure.profile_steps", "2") == 0
    assert seen[:2] == ["trace", "figures begin"]
    plain, traced = (RunFolder(tmp_path / name).read_ranks()["steps"].item() for name in ("plain", "traced"))
    assert traced == plain - 2 > 0


def optimizer_steps(trace: Path) -> int:
    with gzip.open(trace, "rt") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    return sum(name.startswith("Optimizer.step#") for name in names)


@pytest.mark.parametrize(("kind", "looks"), [(NoiseScale, True), (TrustRatios, True), (Noting, True),
                                             (LossBuffer, False), (StepProfiler, False)])  # fmt: skip
def test_an_observer_looks_at_gradients_if_it_is_called_before_the_end_of_the_update(
    kind: type[StepObserver], looks: bool
) -> None:
    assert kind.looks_at_gradients() is looks


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs TensorBoard (pip install tensorboard)")
def test_tensorboard_has_the_losses_and_metrics_of_the_tables(train: Train, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert train(tmp_path / "run", "--measure.tensorboard", "true", "--train.max_epochs", "2") == 0
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    folder = RunFolder(tmp_path / "run")
    for tag, table, column in (
        ("train/loss", folder.read_steps(), "loss"),
        ("train/lr", folder.read_steps(), "lr"),
        ("evaluation/mae", folder.read_epochs(), "mae"),
    ):
        scalars = found.Scalars(tag)
        assert [scalar.step for scalar in scalars] == table["step"].tolist()
        assert [scalar.value for scalar in scalars] == pytest.approx(table[column].tolist(), rel=1e-6)


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs TensorBoard (pip install tensorboard)")
def test_a_run_that_is_refused_to_resume_leaves_nothing_for_tensorboard(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(run, "--measure.tensorboard", "true", "--train.max_epochs", "1", "--train.target", "null") == 0
    before = sorted(run.rglob("*"))
    assert train(run, "--resume", "--train.max_epochs", "2", "--parallel.threads", "2") == 2
    assert sorted(run.rglob("*")) == before


def test_tensorboard_that_is_not_installed_is_bad_input(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "hpcbench.train.tensorboard.find_spec",
        lambda name: None if name == "tensorboard" else importlib.util.find_spec(name),
    )
    assert train(tmp_path / "run", "--measure.tensorboard", "true") == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert 'pip install "hpcbench-ml[tensorboard]", or set measure.tensorboard false' in said[0]
    assert not (tmp_path / "run").exists()
