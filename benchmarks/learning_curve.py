"""Error against the number of training samples, of a preset's network and of the baselines that know no network.

    python benchmarks/learning_curve.py cosmoflow --samples 512 1024 2048 4096 8192
    python benchmarks/learning_curve.py deepcam --samples 160 320 640 1280
    python benchmarks/learning_curve.py cosmoflow --samples 4096 --variant maxima --set model.pooling=max

Every point is one `hpcbench train` without a target on the first N samples of one simulated dataset. A run ends where
the preset's rate has descended. With fewer samples than the preset has, more epochs make the same number of steps; with
more samples, the epochs stay. Baselines are fitted to the same samples. Runs that exist below --out are reused. Writes
results/learning_curve_APP_PRESET.json, the table in the application's README, and, for several numbers of samples,
docs/pictures/APP-learning-curve.png. A variant of the preset only has a result file, APP_PRESET-VARIANT.

    python benchmarks/learning_curve.py deepcam --refit-baselines

trains nothing: it fits the baselines of the record again, to the same samples, and writes record, table and picture
with the network's figures as they are. ``baseline_commit`` of the record says which code fitted them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _baselines import fitted
from _common import RESULTS, ROOT, commit, write_results
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from hpcbench.application import Application, find_application
from hpcbench.config.resolve import resolve
from hpcbench.optim.schedule import warmup_in_epochs
from hpcbench.results import style
from hpcbench.results.summary import Summary

BEGIN, END = "<!-- learning curve {preset} -->", "<!-- end of learning curve {preset} -->"
SHOWN = {
    "cosmoflow": ("ridge regression on power spectra", ("mae", "mae_omega_m", "mae_sigma_8", "mae_n_s")),
    "deepcam": ("per-pixel thresholds", ("iou", "iou_tropical_cyclone", "iou_atmospheric_river")),
}
"""The baseline that a network of each application has to beat, and the metrics of the table."""


def main() -> None:
    """Make the runs that are missing, two at once by default, and record all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("app", choices=sorted(SHOWN))
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--samples", type=int, nargs="+", help="required, except to refit baselines")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--threads", type=int, default=1, help="threads of a run")
    parser.add_argument("--variant", default="", help="name of what --set changes")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the variant")
    parser.add_argument("--out", type=Path, default=Path("runs/learning-curve"))
    parser.add_argument("--refit-baselines", action="store_true", help="fit the baselines of the record again only")
    args = parser.parse_args()
    application = find_application(args.app)
    if args.refit_baselines:
        if args.samples or args.variant or args.set:
            parser.error("--refit-baselines takes the samples of the preset's record; leave out --samples and variants")
        show(application, args.preset, refit(application, args.preset, args.out))
        return
    if not args.samples:
        parser.error("--samples is required, except with --refit-baselines")
    data = simulated(application, args.preset, args.out, max(args.samples))
    pairs = [(samples, seed) for samples in sorted(args.samples, reverse=True) for seed in args.seeds]
    with ThreadPoolExecutor(args.jobs) as pool:
        summaries = list(pool.map(lambda pair: run(args, application, data, *pair), pairs))
    points = collect(args.app, dict(zip(pairs, summaries, strict=True)))
    name = f"{args.preset}-{args.variant}" if args.variant else args.preset
    record = {"preset": args.preset, "settings": args.set, "precision": summaries[0].precision, "points": points}
    write_results(f"learning_curve_{args.app}_{name}", record)
    if args.variant:
        return
    show(application, args.preset, points)


def simulated(application: Application, preset: str, out: Path, samples: int) -> Path:
    """The preset's dataset with so many training samples below ``out``; samples that it has are kept."""
    data = out / "data" / f"{application.name}-{preset}"
    most = ["--simulate.train_samples", str(samples)]
    hpcbench("data", "simulate", application.name, "--preset", preset, *most, "--out", str(data))
    return data


def refit(application: Application, preset: str, out: Path) -> list[dict[str, Any]]:
    """Fit the baselines of the preset's record again, and write it; returns its points."""
    path = RESULTS / f"learning_curve_{application.name}_{preset}.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing; make the runs first, without --refit-baselines")
    record = json.loads(path.read_text(encoding="utf-8"))
    points: list[dict[str, Any]] = record["results"]["points"]
    baseline, metrics = SHOWN[application.name]
    data = simulated(application, preset, out, max(point["samples"] for point in points))
    for point in points:
        scores = fitted(application, preset, data, point["samples"])[baseline]
        point["baseline"] = {name: round(scores[name], 5) for name in metrics}
    record["results"]["baseline_commit"] = commit()
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return points


def show(application: Application, preset: str, points: Sequence[Mapping[str, Any]]) -> None:
    """Write the picture, for several numbers of samples, and the table of the README."""
    baseline, metrics = SHOWN[application.name]
    if len(points) > 1:
        task = application.module("task").build_task(resolve(application, preset))
        figure = drawn(points, baseline, metrics, task.better, application.module("plots").LABELS)
        style.save(figure, ROOT / "docs" / "pictures" / f"{application.name}-learning-curve.png")
    update_readme(application, preset, table(points, baseline, metrics))


def run(args: argparse.Namespace, application: Application, data: Path, samples: int, seed: int) -> Summary:
    """Make one run on the first ``samples`` samples, or use an existing one."""
    config = resolve(application, args.preset)
    rise = config.schedule.warmup if warmup_in_epochs(config.schedule) else 0
    epochs = (rise + config.schedule.t_max) * max(1, config.simulate.train_samples // samples)
    descent = epochs - rise
    variant = f"-{args.variant}" if args.variant else ""
    folder = args.out / f"{args.app}-{args.preset}{variant}-{samples}-seed{seed}"
    if not (folder / "summary.json").exists():
        hpcbench(
            "train", args.app, "--preset", args.preset, "--data.root", str(data), "--run-dir", str(folder),
            "--seed", str(seed), "--samples", str(samples), "--train.target", "null", "--train.max_epochs", str(epochs),
            "--schedule.t_max", str(descent), "--parallel.threads", str(args.threads), "--train.page", "false",
            "--train.baselines", str(seed == args.seeds[0]).lower(),
            *(word for pair in args.set for word in (f"--{pair.partition('=')[0]}", pair.partition("=")[2])),
        )  # fmt: skip
    return Summary.from_json((folder / "summary.json").read_text(encoding="utf-8"), folder)


def collect(app: str, runs: Mapping[tuple[int, int], Summary]) -> list[dict[str, Any]]:
    """One point for each number of samples: the metrics of each seed at the end of its run, and those of baselines."""
    baseline, metrics = SHOWN[app]
    points = []
    for samples in sorted({samples for samples, _ in runs}):
        runs_of_size = [run for (number, _), run in runs.items() if number == samples]
        points.append(
            {
                "samples": samples,
                "epochs": runs_of_size[0].epochs,
                "seeds": [seed for number, seed in runs if number == samples],
                "network": {name: [round(run.metrics[name], 5) for run in runs_of_size] for name in metrics},
                "baseline": {
                    name: round(run.baselines[baseline][name], 5)
                    for run in runs_of_size if run.baselines for name in metrics
                },
            }
        )  # fmt: skip
    return points


def table(points: Sequence[Mapping[str, Any]], baseline: str, metrics: Sequence[str]) -> str:
    """The points as a Markdown table, a column for each metric: mean over seeds, and the baseline in brackets."""
    rows = [
        f"| samples | epochs | seeds | {' | '.join(metrics)} |",
        f"|---:|---:|---:|{'---:|' * len(metrics)}",
    ]
    for point in points:
        cells = (f"{statistics.fmean(point['network'][name]):.3f} ({point['baseline'][name]:.3f})" for name in metrics)
        rows.append(f"| {point['samples']:,} | {point['epochs']} | {len(point['seeds'])} | {' | '.join(cells)} |")
    return "\n".join([*rows, "", f"The network's mean over seeds; in brackets {baseline}, fitted to the same samples."])


@style.styled
def drawn(
    points: Sequence[Mapping[str, Any]], baseline: str, metrics: Sequence[str], better: str, labels: Mapping[str, str]
) -> Figure:
    """A panel for each metric, titled by ``labels``: every seed a dot, their mean a line, the baseline a dashed one."""
    figure = style.canvas(2.6)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    counts = [point["samples"] for point in points]
    for panel, name in zip(panels, metrics, strict=True):
        network = [point["network"][name] for point in points]
        means = [statistics.fmean(values) for values in network]
        panel.plot(counts, means, color=style.BLUE, label="network, mean over seeds")
        for count, values in zip(counts, network, strict=True):
            panel.plot([count] * len(values), values, "o", markersize=3, color=style.BLUE, alpha=0.6)
        panel.plot(counts, [point["baseline"][name] for point in points], "--", color=style.VERMILLION, label=baseline)
        panel.set_title(labels[name].partition(", ")[0], fontsize=8)
        panel.set_xscale("log", base=2)
        panel.set_xticks(counts[:: 2 if len(counts) > 4 else 1])
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel(f"on validation samples ({better} is better)")
    figure.supxlabel(style.log_label("training samples"), fontsize=9, color=style.MUTED)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def update_readme(application: Application, preset: str, text: str) -> None:
    """Write the table between its marks in the application's README."""
    path, begin, end = application.folder() / "README.md", BEGIN.format(preset=preset), END.format(preset=preset)
    before, rest = path.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def hpcbench(*words: str) -> None:
    """Run a command of the suite; what it found is read from its folder."""
    subprocess.run([sys.executable, "-m", "hpcbench", *words], check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
