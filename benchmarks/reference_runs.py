"""Make reference runs of a preset: several seeds to the target, recorded in the application's folder and README.

    python benchmarks/reference_runs.py cosmoflow laptop --claims mae mae_omega_m mae_sigma_8

Every seed is one `hpcbench train` on the same simulated dataset. The points have the form of MLPerf's reference
convergence points; runs that exist below --out are reused, so that an interrupted series continues.

    python benchmarks/reference_runs.py deepcam laptop --refit-baselines

trains nothing: it fits the baselines of the record again, and writes record and table with the network's figures as
they are. ``Baseline commit`` of the record says which code fitted them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _baselines import Baselines, fitted
from _common import commit

from hpcbench.application import Application, find_application
from hpcbench.results.references import markdown_table
from hpcbench.results.summary import Summary

BEGIN, END = "<!-- reference runs -->", "<!-- end of reference runs -->"


def main() -> None:
    """Make the runs that are missing, and record all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("app")
    parser.add_argument("preset")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument(
        "--claims", nargs="+", metavar="METRIC",
        help="metrics in which the preset beats the baseline; required, except to refit baselines",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("runs/reference"))
    parser.add_argument("--refit-baselines", action="store_true", help="fit the baselines of the record again only")
    args = parser.parse_args()
    if args.refit_baselines == bool(args.claims):
        parser.error("give either --claims or --refit-baselines, which takes the metrics of the record")
    application = find_application(args.app)
    data = args.out / "data" / f"{args.app}-{args.preset}"
    hpcbench("data", "simulate", args.app, "--preset", args.preset, "--out", str(data))
    if args.refit_baselines:
        refit(application, args.preset, data)
        update_readme(application)
        return
    summaries = [run(args, data, seed) for seed in args.seeds]
    record(application, args.preset, summaries, args.claims)
    update_readme(application)


def run(args: argparse.Namespace, data: Path, seed: int) -> Summary:
    """Make one run to the target, or use an existing one as it is."""
    folder = args.out / f"{args.app}-{args.preset}-seed{seed}"
    if not (folder / "summary.json").exists():
        words = ["train", args.app, "--preset", args.preset, "--data.root", str(data), "--run-dir", str(folder)]
        hpcbench(*words, "--seed", str(seed))
    summary = Summary.from_json((folder / "summary.json").read_text(encoding="utf-8"), folder)
    if summary.status != "success":
        raise SystemExit(f"{folder}: {summary.status} ({summary.reason}); remove it to try again")
    return summary


def record(application: Application, preset: str, runs: list[Summary], claims: list[str]) -> None:
    """Write ``references/<preset>.json``."""
    first = runs[0]
    point: dict[str, Any] = {
        "Benchmark": application.benchmark,
        "BS": first.global_batch_size,
        "Epochs to converge": [run.epochs_to_target for run in runs],
        "Hyperparams": hyperparameters(application, preset, first.global_batch_size),
        "Hardware": f"{first.threads} cores of {first.device}, {first.precision}",
        "Seconds": [round(run.time_to_solution_s, 1) for run in runs],
        "Seeds": [run.seed for run in runs],
        "Target": first.target,
        "Quality": {name: [round(run.metrics[name], 5) for run in runs] for name in claims},
        "Better": first.better,
        "Baselines": claimed(first.baselines, claims),
        "Commit": commit(),
        "Command": f"hpcbench train {application.name} --preset {preset}",
    }
    path = record_of(application, preset)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({f"{application.name}_{preset}_{first.global_batch_size}": point}, indent=1) + "\n")


def record_of(application: Application, preset: str) -> Path:
    """The file of a preset's reference runs."""
    return application.folder() / "references" / f"{preset}.json"


def claimed(baselines: Baselines, claims: Iterable[str]) -> Baselines:
    """The metrics of the ``claims`` of each baseline, as they are recorded."""
    metrics = tuple(claims)
    return {
        name: {metric: round(scores[metric], 5) for metric in metrics if metric in scores}
        for name, scores in baselines.items()
    }


def refit(application: Application, preset: str, data: Path) -> None:
    """Fit the baselines of the preset's record to the dataset ``data`` again, and write it."""
    path = record_of(application, preset)
    if not path.exists():
        raise SystemExit(f"{path} is missing; make the runs first, without --refit-baselines")
    points = json.loads(path.read_text(encoding="utf-8"))
    baselines = fitted(application, preset, data)
    for point in points.values():
        point |= {"Baselines": claimed(baselines, point["Quality"]), "Baseline commit": commit()}
    path.write_text(json.dumps(points, indent=1) + "\n", encoding="utf-8")


def hyperparameters(application: Application, preset: str, batch: int) -> dict[str, Any]:
    """Return the official hyperparameters of a preset at a global batch."""
    from hpcbench.config.resolve import resolve
    from hpcbench.optim.lr_scaling import scale_to_batch

    config = resolve(application, preset)
    scale_to_batch(config, batch)
    steps = config.simulate.train_samples // batch
    keys: dict[str, Any] = application.module("task").build_task(config).log_keys(steps)
    return keys


def update_readme(application: Application) -> None:
    """Write the table of all reference points between its marks in the application's README."""
    path = application.folder() / "README.md"
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n{markdown_table(application)}\n{END}{after}", encoding="utf-8")


def hpcbench(*words: str) -> None:
    """Run a command of the suite."""
    subprocess.run([sys.executable, "-m", "hpcbench", *words], check=False)


if __name__ == "__main__":
    main()
