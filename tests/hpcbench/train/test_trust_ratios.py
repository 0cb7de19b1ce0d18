"""Trust ratios recorded while a run trains: those of the steps, without changing them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.optim.lamb import LAMB
from hpcbench.optim.lars import LARS
from hpcbench.results.layer_plots import MOST_LINES, trust_ratios
from hpcbench.results.records import read_run
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.run_page import FILE_WORDS, file_pairs
from hpcbench.train.observers import StepInfo
from hpcbench.train.trust_ratios import TrustRatios
from staging.errors import InputError

SMALL = ("--samples", "8", "--train.max_epochs", "3", "--train.baselines", "false", "--train.checkpoint_every", "0")


def test_ratios_are_norms_of_weights_over_updates_every_other_step() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    optimizer = LAMB(model.parameters(), lr=0.1, betas=(0.0, 0.0), eps=0.0)
    recorder = TrustRatios(optimizer, model, 2)
    for step in range(1, 6):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter) * step
        # Without averaging every element of the update is 1, and so the change is rate x ratio x the root of the count.
        before = {name: float(p.detach().norm()) for name, p in model.named_parameters()}
        expected = {name: before[name] / p.numel() ** 0.5 for name, p in model.named_parameters()}
        info = StepInfo(step, 8 * step, 8, 0.1)
        recorder.before_optimizer(info)
        optimizer.step()
        recorder.after_optimizer(info, torch.zeros(()))
        rows = recorder.flush(7)
        assert {row["layer"]: row["trust_ratio"] for row in rows} == (
            pytest.approx(expected, rel=1e-12) if step % 2 == 0 else {}
        )
        assert all((row["epoch"], row["step"], row["lr"]) == (7, step, 0.1) for row in rows)
        for row in rows:
            assert row["weight_norm"] == pytest.approx(before[row["layer"]], rel=1e-12)
            assert row["update_norm"] == pytest.approx(0.1 * before[row["layer"]], rel=1e-9)


@pytest.mark.parametrize("clip_rate", [False, True])
def test_a_layer_moves_at_the_rate_times_its_trust_ratio(clip_rate: bool) -> None:
    """A bound on the layer's rate (larc) counts, too: for one layer it holds, and the other one is below it."""
    torch.manual_seed(0)
    layers = {"weight": 50.0, "bias": 0.01}
    model = nn.Linear(3, 2).double()
    optimizer = LARS(model.parameters(), lr=0.1, momentum=0.0, trust_coefficient=0.02, clip_rate=clip_rate)
    recorder = TrustRatios(optimizer, model, 1)
    for name, parameter in model.named_parameters():
        parameter.grad = torch.full_like(parameter, 1 / (layers[name] * parameter.numel() ** 0.5))
    before = {name: float(parameter.detach().norm()) for name, parameter in model.named_parameters()}
    info = StepInfo(1, 8, 8, 0.1)
    recorder.before_optimizer(info)
    optimizer.step()
    recorder.after_optimizer(info, torch.zeros(()))
    rows = {row["layer"]: row for row in recorder.flush(1)}
    for name, length in layers.items():
        local = 0.02 * before[name] * length
        rate = min(local, 0.1) if clip_rate else local * 0.1
        assert rows[name]["lr"] * rows[name]["trust_ratio"] == pytest.approx(rate, rel=1e-12)
        assert rows[name]["update_norm"] == pytest.approx(rate / length, rel=1e-9)
    if clip_rate:
        assert rows["weight"]["trust_ratio"] == 1 > rows["bias"]["trust_ratio"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "cosmos"
    words = ("simulate", "cosmoflow", "--preset", "smoke", "--samples", "8", "--simulate.validation_samples", "2")
    assert main(["data", *words, "--out", str(folder)]) == 0
    return folder


def train(data: Path, folder: Path, *words: str) -> RunFolder:
    arguments = ["train", "cosmoflow", "--preset", "smoke", "--data.root", str(data), "--run-dir", str(folder)]
    options = ["--seed", "1", "--data.validation_samples", "2", "--train.target", "null", *SMALL, *words]
    assert main([*arguments, *options]) == 0
    return RunFolder.open(folder)


@pytest.mark.slow
def test_a_run_records_and_draws_them_and_trains_the_same(data: Path, tmp_path: Path) -> None:
    words = ("--optim.name", "lars", "--optim.lr", "1", "--optim.weight_decay", "0.001")
    plain = train(data, tmp_path / "plain", *words)
    assert not plain.trust_ratios.exists()
    recorded = train(data, tmp_path / "recorded", *words, "--train.trust_ratios_every", "2")
    assert plain.read_steps()["loss"].tolist() == recorded.read_steps()["loss"].tolist()
    table = recorded.read_trust_ratios()
    assert sorted(set(table["step"])) == [2, 4, 6]
    adapted = table[table["layer"].str.endswith("weight")]
    assert (adapted["trust_ratio"] > 0).all()
    assert adapted["trust_ratio"].nunique() == len(adapted)
    assert (table[table["layer"].str.endswith("bias")]["trust_ratio"] == 1).all()
    drawn = trust_ratios(read_run(recorded.path))
    assert drawn is not None
    layers = adapted["layer"].nunique()
    assert layers <= MOST_LINES
    assert f"each of {layers} layers" in drawn.caption
    assert "Trust ratios of the layers" in recorded.report.read_text()


def test_many_layers_are_drawn_as_bands(data: Path, tmp_path: Path) -> None:
    folder = train(data, tmp_path / "run", "--optim.name", "lars", "--optim.lr", "1", "--train.trust_ratios_every", "2")
    rows = [{"epoch": 1, "step": s, "layer": f"l{n}", "trust_ratio": 0.1 + n * s} for s in (1, 2) for n in range(20)]
    pd.DataFrame(rows).to_csv(folder.trust_ratios, index=False)
    drawn = trust_ratios(read_run(folder.path))
    assert drawn is not None
    assert "median, middle half and range" in drawn.caption


def test_an_optimizer_without_them_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        resolve(find_application("cosmoflow"), "smoke", [], {"train.trust_ratios_every": "5"})
    assert str(caught.value) == (
        "train.trust_ratios_every (5) needs an optimizer with trust ratios, not adamw; set optim.name to lars, larc, "
        "lamb or nvlamb, or train.trust_ratios_every to 0"
    )


@pytest.mark.slow
def test_the_page_names_each_file_that_measurements_leave(data: Path, tmp_path: Path) -> None:
    every = ("--train.trust_ratios_every", "1", "--train.noise_scale_every", "1", "--measure.profile_steps", "1")
    ranks = ("--train.local_batch_size", "2", "--parallel.simulated_ranks", "2", "--measure.warmup_steps", "1")
    run = train(data, tmp_path / "run", "--optim.name", "lars", *every, *ranks)
    named = {name for name, _ in file_pairs(read_run(run.path))}
    left = {path.name for path in run.path.iterdir() if not path.name.startswith(".")}
    assert {"trust_ratios.csv", "noise_scale.csv", "trace.json.gz"} <= left
    assert left - named <= {"report.html", "figures", "interrupted"}, "the page itself, and its plots"
    assert set(FILE_WORDS) >= {"power", "tensorboard"}
