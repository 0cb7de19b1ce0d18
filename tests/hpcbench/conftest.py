"""Run folders made by arithmetic, for tests of what reads them, a small dataset, and packages of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from tests.plugin_packages import Groups, installed, write_distribution

BuildRun = Callable[..., Path]
Install = Callable[..., Path]

COSMOFLOW: dict[str, Any] = {
    "application": "cosmoflow", "title": "Regression of cosmological parameters from 3-D matter density",
    "metric": "mae", "better": "lower", "target": 0.3, "parameters": 351_236, "flops_forward_per_sample": 138_412_032,
    "flops_training_per_sample": 401_604_608, "baselines": {
        "predict the mean": {"mae": 0.4987, "mae_omega_m": 0.5016, "mae_sigma_8": 0.4958, "mae_n_s": 0.5003,
                             "mae_h_0": 0.4971},
        "ridge regression on power spectra": {"mae": 0.3216, "mae_omega_m": 0.3391, "mae_sigma_8": 0.1127,
                                              "mae_n_s": 0.4302, "mae_h_0": 0.4044},
    },
}  # fmt: skip
DEEPCAM: dict[str, Any] = {
    "application": "deepcam", "title": "Segmentation of extreme weather in global climate fields",
    "metric": "iou", "better": "higher", "target": 0.62, "parameters": 1_302_944,
    "flops_forward_per_sample": 1_204_000_000, "flops_training_per_sample": 3_590_000_000, "baselines": {
        "predict background": {"iou": 0.4318, "iou_background": 0.9851, "iou_tropical_cyclone": 0.0,
                       "iou_atmospheric_river": 0.0},
        "thresholds on single pixels": {"iou": 0.5177, "iou_background": 0.9868, "iou_tropical_cyclone": 0.2214,
                       "iou_atmospheric_river": 0.3391},
    },
}  # fmt: skip
PHASES = {
    "init": 1.912, "staging": 0.0, "input_wait": 1.204, "compute": 37.66, "communication": 0.0, "optimizer": 0.871,
    "evaluation": 4.402, "checkpoint": 0.533, "other": 0.318,
}  # fmt: skip


def build(folder: Path, application: str = "cosmoflow", epochs: int = 9, seed: int = 2019, **changes: Any) -> Path:
    """A run of ``epochs`` epochs that reaches its target in the last, or what ``changes`` of its summary say."""
    rng = np.random.default_rng(seed)
    facts = COSMOFLOW if application == "cosmoflow" else DEEPCAM
    run = RunFolder.create(folder)
    metrics = _metrics(rng, facts, epochs)
    summary = Summary(
        **(
            facts
            | {
                "preset": "laptop", "status": "success", "reason": "target reached", "seed": seed, "epochs": epochs,
                "steps": 102 * epochs, "samples": 816 * epochs, "epochs_to_target": epochs,
                "wall_s": sum(PHASES.values()),
                "time_to_solution_s": 44.87, "phases_s": dict(PHASES), "threads": 2, "local_batch_size": 8,
                "global_batch_size": 8, "train_samples": 816, "validation_samples": 204, "samples_per_s": 194.3,
                "metrics": {name: float(values[-1]) for name, values in metrics.items()},
                "best": float(metrics[facts["metric"]][-1]), "peak_memory_bytes": 1_431_044_096,
                "started": "2026-03-14T09:26:53+00:00",
            }
            | changes
        )
    )  # fmt: skip
    run.write_summary(summary)
    _tables(run, rng, metrics, epochs)
    _descriptions(run, application, seed)
    (_cosmoflow_arrays if application == "cosmoflow" else _deepcam_arrays)(run, rng)
    run.release()
    return folder


def _metrics(rng: np.random.Generator, facts: dict[str, Any], epochs: int) -> dict[str, np.ndarray]:
    decay = np.exp(-np.arange(epochs) / (epochs / 3.2)) + rng.normal(0, 0.02, epochs)
    decay[-1] = min(decay[-1], 0.02)
    if facts["better"] == "lower":
        ends = {"mae_omega_m": 0.301, "mae_sigma_8": 0.088, "mae_n_s": 0.409, "mae_h_0": 0.377}
        parts = {name: end + (0.5 - end) * decay for name, end in ends.items()}
        return {"mae": np.mean(list(parts.values()), axis=0), **parts, "mse": 0.14 + 0.19 * decay}
    ends = {"iou": (0.43, 0.641), "iou_background": (0.975, 0.9886), "iou_tropical_cyclone": (0.0, 0.486),
            "iou_present_tropical_cyclone": (0.0, 0.451), "iou_atmospheric_river": (0.12, 0.5627),
            "iou_present_atmospheric_river": (0.1, 0.548)}  # fmt: skip
    curves = {name: end - (end - start) * np.clip(decay, 0, 1) for name, (start, end) in ends.items()}
    return curves | {
        "share_tropical_cyclone": np.full(epochs, 0.734),
        "share_atmospheric_river": np.full(epochs, 0.906),
    }


def _tables(run: RunFolder, rng: np.random.Generator, metrics: dict[str, np.ndarray], epochs: int) -> None:
    per_epoch, steps = 102, 102 * epochs
    step = np.arange(1, steps + 1)
    rate = np.minimum(step / 150, 1) * 0.004 * (0.5 + 0.5 * np.cos(np.pi * step / steps))
    loss = (0.14 + 0.22 * np.exp(-step / 260)) * rng.lognormal(0, 0.22, steps)
    epoch = (step - 1) // per_epoch + 1
    pd.DataFrame({"epoch": epoch, "step": step, "samples": 8 * step, "lr": rate, "loss": loss}).to_csv(
        run.steps, index=False
    )
    train_s = 816 / np.concatenate(([158.2], rng.normal(194.3, 2.5, epochs - 1)))
    eval_s = np.full(epochs, 0.489)
    last = np.arange(1, epochs + 1) * per_epoch
    columns = {"epoch": np.arange(1, epochs + 1), "step": last, "samples": 8 * last, "lr": rate[last - 1]}
    columns["train_loss"] = loss.reshape(epochs, per_epoch).mean(axis=1)
    columns |= metrics | {"train_s": train_s, "eval_s": eval_s, "elapsed_s": np.cumsum(train_s + eval_s)}
    pd.DataFrame(columns | {"samples_per_s": 816 / train_s}).to_csv(run.epochs, index=False)


def _descriptions(run: RunFolder, application: str, seed: int) -> None:
    run.write_config(
        {
            "preset": "laptop",
            "data": {"root": "data/set", "format": "tfrecord"},
            "optim": {"name": "sgd", "lr": 0.004, "momentum": 0.9},
            "train": {"max_epochs": 30, "local_batch_size": 8},
            "simulate": {"redshifts": [3.0, 1.5, 0.5, 0.0]},
        }
    )
    run.write_json(
        "system.json",
        {
            "system_name": "laptop-17", "number_of_nodes": "1", "host_processors_per_node": "1",
            "host_processor_model_name": "Intel(R) Core(TM) i7-1370P", "host_processor_core_count": "2",
            "host_memory_capacity": "32 GB", "accelerators_per_node": "0", "accelerator_model_name": "N/A",
            "framework": "PyTorch 2.11.0", "operating_system": "Ubuntu 24.04", "sw_notes": "",
        },
    )  # fmt: skip
    command = ["hpcbench", "train", application, "--preset", "laptop", "--train.seed", str(seed)]
    run.write_json(
        "environment.json",
        {
            "command": command,
            "versions": {"python": "3.11.9", "torch": "2.11.0", "numpy": "2.2.1", "hpcbench-ml": "0.1.0"},
            "git": {"commit": "3f0c2d1", "dirty": False},
            "host": "laptop-17",
            "launcher": {"PMI_RANK": "0"},
        },
    )
    run.mllog.write_text(":::MLLOG {}\n", encoding="utf-8")


def _cosmoflow_arrays(run: RunFolder, rng: np.random.Generator) -> None:
    names = ("omega_m", "sigma_8", "n_s", "h_0")
    true = rng.uniform(-1, 1, (204, 4))
    predicted = true * [0.62, 0.96, 0.3, 0.42] + rng.normal(0, [0.27, 0.1, 0.4, 0.35], (204, 4))
    columns = [f"{kind}_{name}" for kind in ("error", "predicted", "true") for name in names]
    scores = np.concatenate((np.abs(predicted - true), predicted, true), axis=1)
    np.savez(run.scores, scores=scores, columns=np.array(columns))
    waves = np.fft.fftfreq(64)
    scale = 1 / (0.02 + np.hypot(waves[:, None], waves[None, :])) ** 1.6
    fields = np.fft.ifft2(np.fft.fft2(rng.normal(size=(3, 1, 64, 64))) * scale).real
    fields /= fields.std(axis=(2, 3), keepdims=True)
    growth = np.array([0.25, 0.45, 0.8, 1.15]).reshape(1, 4, 1, 1)
    counts = rng.poisson(2 * np.exp(growth * fields - growth**2 / 2))
    np.savez(run.examples, slice=np.log1p(counts).astype(np.float32))


def _deepcam_arrays(run: RunFolder, rng: np.random.Generator) -> None:
    rows, columns = 96, 144
    lat = (np.arange(rows)[:, None] + 0.5) * 180 / rows - 90
    lon = (np.arange(columns)[None, :] + 0.5) * 360 / columns
    moisture, pressure, wind, label, prediction = [], [], [], [], []
    for _ in range(3):
        noise = np.fft.ifft2(np.fft.fft2(rng.normal(size=(rows, columns))) / (0.03 + np.hypot(
            np.fft.fftfreq(rows)[:, None], np.fft.fftfreq(columns)[None, :])) ** 2).real  # fmt: skip
        noise /= noise.std()
        river = np.abs(lat - 30 - 0.35 * (lon - 180)) < 5
        river &= (lon > 150) & (lon < 230)
        storm = np.hypot(lat - 17, lon - rng.uniform(90, 330)) < 6
        truth = np.where(storm, 1, np.where(river, 2, 0)).astype(np.uint8)
        guess = np.roll(truth, (1, 2), axis=(0, 1))
        guess[:, 95:] = np.where(guess[:, 95:] == 2, 0, guess[:, 95:])
        moisture.append(48 * np.exp(-((lat / 32) ** 2)) + 4 * noise + 14 * (truth > 0))
        pressure.append(1012 + 6 * noise - 25 * storm)
        wind.append(np.abs(8 + 3 * noise + 25 * storm))
        label.append(truth)
        prediction.append(guess)
    np.savez(
        run.examples, TMQ=np.float32(moisture), PSL=np.float32(pressure), wind=np.float32(wind),
        label=np.stack(label), prediction=np.stack(prediction),
    )  # fmt: skip
    counts = rng.integers(0, 50, (204, 9)).astype(np.float64)
    np.savez(run.scores, scores=counts, columns=np.array([f"c{i}" for i in range(9)]))


@pytest.fixture
def build_run(tmp_path: Path) -> BuildRun:
    """``build_run(name="run", application="cosmoflow", epochs=9, seed=2019, **summary)`` makes a run folder."""

    def make(name: str = "run", **options: Any) -> Path:
        return build(tmp_path / name, **options)

    return make


@pytest.fixture(scope="session")
def small_cosmos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 training and 4 validation samples of 16^3 x 4."""
    root = tmp_path_factory.mktemp("data") / "cosmoflow"
    small = ["--simulate.train_samples", "16", "--simulate.validation_samples", "4", "--processes", "1"]
    assert main(["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", str(root), *small]) == 0
    return root


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """``install(groups, name={file: text})`` lays out a package and makes it importable."""
    with ExitStack() as stack:

        def call(groups: Groups, files: dict[str, str], name: str = "strange-parts") -> Path:
            folder = tmp_path / f"site-{name}"
            write_distribution(folder, name, groups, files)
            stack.enter_context(installed(folder))
            return folder

        yield call


def line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command ends that refuses its input."""
    capsys.readouterr()
    assert main(list(words)) == 2
    (said,) = capsys.readouterr().err.splitlines()
    return said
