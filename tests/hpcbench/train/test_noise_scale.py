"""The gradient noise scale: right where it is known, the same for any split of a step, and free when it is off."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hpcbench.config.schema import RunConfig
from hpcbench.parallel.group import Group
from hpcbench.results.plots import noise_scale as draw_noise_scale
from hpcbench.results.records import read_run
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.noise_scale import Measurements, NoiseScale, check_noise_scale, estimate
from hpcbench.train.observers import StepInfo
from staging.errors import InputError
from staging.ranks.launch import Launch

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]

DIMENSION, ERROR, NOISE = 6, 0.5, 0.8
GRADIENT_SQ = DIMENSION * ERROR**2
TR_SIGMA = (DIMENSION + 1) * GRADIENT_SQ + DIMENSION * NOISE**2
"""Of linear regression on standard normal x, at weights that are off by ERROR in each component.

The gradient of a sample is x (x e - n): its mean is e, its second moment 2 e e' + (|e|^2 + var n) I.
"""


@pytest.fixture
def alone() -> Group:
    return Group(
        Launch(rank=0, world_size=1, local_rank=0, local_size=1, node_rank=0, nodes=1, source="none"),
        torch.device("cpu"),
        None,
    )


def linear() -> nn.Linear:
    model = nn.Linear(DIMENSION, 1, bias=False).double()
    nn.init.constant_(model.weight, ERROR)
    return model


def backward(model: nn.Module, inputs: Tensor, targets: Tensor, share: float) -> None:
    (share * 0.5 * (model(inputs) - targets).square().mean()).backward()


def take_step(
    scale: NoiseScale, model: nn.Module, step: int, sizes: Sequence[int], generator: torch.Generator, factor: float = 1
) -> None:
    """One step of parts of these sizes, at weights that stay; ``factor`` scales the loss."""
    for size in sizes:
        inputs = torch.randn(size, DIMENSION, dtype=torch.float64, generator=generator)
        targets = NOISE * torch.randn(size, 1, dtype=torch.float64, generator=generator)
        scale.before_backward(step)
        backward(model, inputs, targets, factor * size / sum(sizes))
        scale.after_backward(step, size / sum(sizes))
    scale.before_update(StepInfo(step, step * sum(sizes), sum(sizes), 0.1))


@pytest.mark.parametrize("sizes", [(4, 4), pytest.param((1, 2, 5), marks=pytest.mark.slow)])
def test_the_estimate_is_the_known_noise_scale(alone: Group, sizes: Sequence[int]) -> None:
    model, generator = linear(), torch.Generator().manual_seed(1)
    scale = NoiseScale(model.parameters(), alone, every=1)
    for step in range(1, 4001):
        take_step(scale, model, step, sizes, generator)
        model.zero_grad()
    rows = scale.flush(epoch=1)
    found = {name: np.array([row[name] for row in rows]) for name in ("gradient_sq", "tr_sigma")}
    for name, expected in (("gradient_sq", GRADIENT_SQ), ("tr_sigma", TR_SIGMA)):
        deviation = found[name].mean() - expected
        assert abs(deviation) < 4 * found[name].std() / math.sqrt(len(rows)), name
        assert abs(deviation) < 0.06 * expected, name
    ratio = found["tr_sigma"].mean() / found["gradient_sq"].mean()
    assert ratio == pytest.approx(TR_SIGMA / GRADIENT_SQ, rel=0.08)
    summary = scale.summary()
    assert summary["noise_scale"] == pytest.approx(ratio, rel=1e-9)
    assert summary["noise_scale_low"] < TR_SIGMA / GRADIENT_SQ < summary["noise_scale_high"]
    assert {(row["small_batch"], row["big_batch"]) for row in rows} == {(8 / len(sizes), 8)}


def test_the_parts_are_solved_from_the_two_means() -> None:
    # |G|^2 = 3 and tr(Sigma) = 40 in a step of 8 samples in 4 parts.
    assert estimate(4, 8, small_sq=3 + 4 * 40 / 8, big_sq=3 + 40 / 8) == (3, 40)


def test_gradients_that_are_zeroed_in_place_give_the_same(alone: Group) -> None:
    """As a captured graph needs them."""
    found = []
    for set_to_none in (True, False):
        model, generator = linear(), torch.Generator().manual_seed(2)
        scale = NoiseScale(model.parameters(), alone, every=2)
        for step in range(1, 7):
            take_step(scale, model, step, (2, 2, 2), generator)
            model.zero_grad(set_to_none=set_to_none)
        found.append(scale.flush(epoch=1))
    assert found[0] == found[1]
    assert [row["step"] for row in found[0]] == [2, 4, 6]


def test_the_factor_of_mixed_precision_is_taken_out(alone: Group) -> None:
    found = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=1024)):
        model, generator = linear(), torch.Generator().manual_seed(3)
        scale = NoiseScale(model.parameters(), alone, 1, scaler)
        take_step(scale, model, 1, (2, 2), generator, factor=1 if scaler is None else 1024)
        found += scale.flush(epoch=1)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_a_step_does_not_wait_for_the_device(alone: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    model, generator = linear(), torch.Generator().manual_seed(3)
    scale = NoiseScale(model.parameters(), alone, every=1)

    def wait(*_: Any) -> Any:
        raise AssertionError("a value was fetched from the device")

    with monkeypatch.context() as patched:
        for name in ("item", "tolist", "__bool__", "__float__", "__int__", "numpy", "cpu"):
            patched.setattr(torch.Tensor, name, wait)
        take_step(scale, model, 1, (2, 2), generator)
    assert len(scale.flush(epoch=1)) == 1


def test_an_empty_last_part_leaves_nothing_for_the_next_step(alone: Group) -> None:
    """Its copy of the gradients is not subtracted from those of the next step's first part."""
    found = []
    for before in ((2, 2, 0), ()):
        model, generator = linear(), torch.Generator().manual_seed(3)
        scale = NoiseScale(model.parameters(), alone, every=1)
        if before:
            take_step(scale, model, 1, before, torch.Generator().manual_seed(4))
            model.zero_grad()
        take_step(scale, model, 2, (2, 2), generator)
        found.append(scale.flush(epoch=1)[-1])
    assert {found[0][name] == found[1][name] for name in ("gradient_sq", "tr_sigma")} == {True}


def test_steps_of_one_part_and_overflows_are_left_out(alone: Group) -> None:
    model, generator = linear(), torch.Generator().manual_seed(3)
    scale = NoiseScale(model.parameters(), alone, every=1)
    take_step(scale, model, 1, (2,), generator)
    model.zero_grad()
    take_step(scale, model, 2, (2, 2), generator, factor=math.inf)
    model.zero_grad()
    take_step(scale, model, 3, (0, 2, 2), generator)
    assert [(row["step"], row["small_batch"]) for row in scale.flush(epoch=1)] == [(3, 2)]
    assert scale.flush(epoch=1) == []


def test_sums_and_averages_are_taken_before_the_ratio() -> None:
    measured = Measurements()
    for _ in range(200):
        measured.add(-1.0, 30.0)
        last = measured.add(3.0, 10.0)
    assert last == pytest.approx(20, rel=0.1)
    found = measured.ratio()
    assert found is not None
    assert found.value == 20
    lost = Measurements()
    assert lost.ratio() is None
    assert lost.add(-1.0, 30.0) == math.inf


COMMON = ("--train.max_epochs", "2", "--train.precision", "64-true", "--train.local_batch_size", "4")


@pytest.mark.slow
def test_ranks_and_micro_batches_give_the_same(train: Train, start: Callable[..., Any], tmp_path: Path) -> None:
    asked = (*COMMON, "--train.noise_scale_every", "1")
    assert train(tmp_path / "one", *asked, "--train.accumulation", "2") == 0
    assert train(tmp_path / "simulated", *asked, "--parallel.simulated_ranks", "2") == 0
    process = start(tmp_path / "two", *asked, "--parallel.devices", "2")
    said, _ = process.communicate()
    assert process.returncode == 0, said
    one, simulated, two = (RunFolder.open(tmp_path / name).read_noise_scale() for name in ("one", "simulated", "two"))
    assert list(one["step"]) == [1, 2, 3, 4, 5, 6]
    assert set(one["big_batch"]) == {8}
    assert one.equals(simulated)
    np.testing.assert_allclose(one, two, rtol=1e-9)


@pytest.mark.slow
def test_measuring_changes_no_step_and_off_leaves_nothing(train: Train, tmp_path: Path) -> None:
    common = (*COMMON, "--train.accumulation", "2")
    assert train(tmp_path / "off", *common) == 0
    assert train(tmp_path / "on", *common, "--train.noise_scale_every", "2") == 0
    off, on = (RunFolder.open(tmp_path / name) for name in ("off", "on"))
    assert (off.read_steps()["loss"] == on.read_steps()["loss"]).all()
    assert not off.noise_scale.exists()
    assert off.read_summary().noise_scale is None
    summary, table = on.read_summary(), on.read_noise_scale()
    if (mean := table["gradient_sq"].sum()) > 0:
        assert summary.noise_scale == pytest.approx(table["tr_sigma"].sum() / mean)
    else:
        assert summary.noise_scale is None
    assert summary.noise_scale_low is not None
    assert "Gradient noise scale" not in off.report.read_text()
    assert "Gradient noise scale" in on.report.read_text()
    drawn = draw_noise_scale(read_run(tmp_path / "on"))
    assert drawn is not None
    curve = drawn.figure.axes[0].lines[0]
    assert list(curve.get_xdata()) == [2, 4, 6]
    assert list(curve.get_ydata()) == list(on.read_noise_scale()["b_simple"])


@pytest.mark.slow
def test_a_resumed_run_continues_its_averages(train: Train, tmp_path: Path) -> None:
    common = (*COMMON, "--train.accumulation", "2", "--train.noise_scale_every", "1", "--train.target", "1e-9")
    assert train(tmp_path / "whole", *common) == 3
    assert train(tmp_path / "parts", *common, "--train.max_epochs", "1") == 3
    assert train(tmp_path / "parts", "--resume", "--train.max_epochs", "2") == 3
    whole, parts = (RunFolder.open(tmp_path / name).noise_scale.read_text() for name in ("whole", "parts"))
    assert whole == parts


def test_a_run_where_the_gradient_is_lost_in_noise_has_no_noise_scale(build_run: Any) -> None:
    folder = RunFolder(build_run())
    assert draw_noise_scale(read_run(folder.path)) is None
    folder.noise_scale.write_text(
        "epoch,step,samples,small_batch,big_batch,gradient_sq,tr_sigma,b_simple\n1,2,8,1,4,-1,3,\n"
    )
    assert draw_noise_scale(read_run(folder.path)) is None
    summary = folder.read_summary()
    summary.noise_scale = math.inf
    assert json.loads(summary.to_json())["noise_scale"] is None


def test_sharded_gradients_are_refused() -> None:
    config = RunConfig()
    config.train.noise_scale_every = 3
    check_noise_scale(config, 2)
    config.parallel.shard_states = True
    with pytest.raises(InputError, match=r"train.noise_scale_every \(3\) needs whole parameters; set it 0"):
        check_noise_scale(config, 2)


def test_a_step_of_one_part_is_refused(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--train.noise_scale_every", "3") == 2
    message = capsys.readouterr().err
    assert "train.noise_scale_every (3) compares parts of a step, and a step has one" in message
    assert "raise train.accumulation or parallel.simulated_ranks, or set train.noise_scale_every 0" in message
    assert not (tmp_path / "run").exists()
