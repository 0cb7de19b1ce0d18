"""Samples of everything that the suite draws, with data that have something to show."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from apps.cosmoflow import plots as cosmoflow_plots
from apps.deepcam import plots as deepcam_plots
from hpcbench.analysis.analysis import Question, analyze
from hpcbench.analysis.write_analysis import write_analysis
from hpcbench.batch.machine import known_machines
from hpcbench.campaign.plots import metric_plot
from hpcbench.campaign.response import FIGURES, ResponseRow, row_of_reference
from hpcbench.characterisation.plots import figures as characterisation_figures
from hpcbench.mlperf.beside_published import beside_published
from hpcbench.prediction.plots import parts_figure
from hpcbench.prediction.tables import PARTS
from hpcbench.results.report import write_report
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.staging_plots import timelines
from hpcbench.study import convergence
from hpcbench.study.definition import Study
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.fit import fit_epochs
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.gains.study import report as gains_report
from hpcbench.study.plots import epochs as epochs_plot
from hpcbench.study.published import draw as draw_published
from hpcbench.study.rates import Rate
from hpcbench.study.results import read_rows
from hpcbench.study.scaling.concurrency import InstanceClock
from hpcbench.study.scaling.page import write_scaling
from hpcbench.train.noise_scale import COLUMNS
from tests.hpcbench.analysis.made_runs import run as made_run
from tests.hpcbench.campaign.made_up import shipped
from tests.hpcbench.characterisation.made import made
from tests.hpcbench.conftest import build
from tests.hpcbench.results.test_staging_plots import made_up
from tests.hpcbench.study.conftest import FakeLauncher, make
from tests.hpcbench.study.gains import conftest as gains_runs
from tests.hpcbench.study.scaling.test_page import PLAIN, ROWS
from tests.hpcbench.study.scaling.test_table import point, run, solved
from tests.hpcbench.study.test_layer_plots import record

Sample = Callable[[Path], list[Path]]
"""Draws into a folder, and returns the pages that it writes."""


def run_pages(folder: Path) -> list[Path]:
    """Pages of three runs beside published ones, and the page that compares two of them."""
    runs = [
        build(folder / "a", noise_scale=100.0),
        build(folder / "b", epochs=12, samples_per_s=150.0, time_to_solution_s=80.0),
    ]
    first = RunFolder(runs[0])
    steps = first.read_steps()
    steps.assign(loss=10.0 * np.exp(-np.arange(len(steps)) / 50) + 1e-4).to_csv(first.steps, index=False)
    rows = [f"1,{step},{8 * step},4,8,1.0,{40.0 * step},200" for step in range(1, 5)]
    first.noise_scale.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n", encoding="utf-8")
    record(first)
    second = RunFolder(runs[1])
    table = pd.DataFrame([(1, step, f"layer{number}", 0.1 + 0.01 * number)
                          for step in (1, 2) for number in range(9)])  # fmt: skip
    table.to_csv(second.trust_ratios, index=False, header=["epoch", "step", "layer", "trust_ratio"])
    alone = write_report([build(folder / "deepcam", application="deepcam")], find_beside=beside_published)
    return [*alone, *write_report(runs, find_beside=beside_published)]


def stagings(folder: Path) -> list[Path]:
    """Of few nodes and of many."""
    for nodes in (3, 40):
        timelines(made_up(nodes))
    return []


def convergence_page(folder: Path) -> list[Path]:
    """Two series that search their rates; one misses the target at the largest batch."""
    rates = {"sgd": Rate(0.01, 64), "lars": Rate(0.1, 64)}
    study = Study("cosmoflow", "smoke", (8, 32, 128), ("sgd", "lars"), 2, 4, rates, lr_search=(0.5, 1.0, 2.0))
    place = StudyFolder(folder / "study")

    def epochs(settings: dict[str, str]) -> float:
        batch = int(settings["train.local_batch_size"]) * int(settings.get("parallel.simulated_ranks", 1))
        lars = settings["optim.name"] == "lars"
        return 99.0 if lars and batch == 128 else 4 + math.log2(batch) + lars + int(settings["train.seed"]) % 2

    with held(place):
        place.write(study.as_dict())
        make(study, place, FakeLauncher(epochs))
        for path in sorted(place.runs.glob("*lars*seed1")):
            record(RunFolder(path))
        convergence.report(place)
    rows = read_rows(study, convergence.read_statuses(study, place))
    batches = [2**power for power in range(3, 10)]
    fit = fit_epochs(
        [EpochRun(batch, 4 + batch / 64 + seed / 8, 5 + batch / 64) for batch in batches for seed in (0, 1)]
    )
    epochs_plot(study, rows, {"sgd": fit})  # with enough batches for a band
    return [place.page]


def scaling_pages(folder: Path) -> list[Path]:
    """Two variants with staging and a wide range of times, and instances of a throughput study."""
    rows = [replace(row, variant=name, runs=[replace(one, staging_bytes_per_s=1e9 * row.nodes) for one in row.runs])
            for name in ("a", "b") for row in ROWS]  # fmt: skip
    solutions = {name: [solved(1, 40_000.0), solved(4, 1300.0)] for name in ("a", "b")}
    both = replace(PLAIN, rows=rows, solutions=solutions, fits={"a": PLAIN.fits[""]})
    clocks = [InstanceClock(f"run-{number}", 5.0 * number, 3600.0 + number) for number in range(4)]
    known = {"clocks": clocks, "together": 0.9, "span_s": 3604.0, "last_start_s": 15.0, "instances": 4}
    instances = replace(point(4, instances=4), runs=[run(100.0, **known)])
    many = replace(PLAIN, mode="throughput", rows=[point(1, 30.0), instances], solutions={}, fits={}, proposal=None)
    for content, name in ((both, "both"), (many, "many"), (PLAIN, "plain")):
        write_scaling(content, folder / name)
    return [folder / name / "scaling.html" for name in ("both", "many", "plain")]


def gains_page(folder: Path) -> list[Path]:
    """An option that is faster and one that is not."""
    study = gains_runs.gains(("bf16", "channels_last"))
    place = StudyFolder(folder / "gains")

    def arithmetic(settings: dict[str, str]) -> gains_runs.Run:
        seed, fast = int(settings["train.seed"]), settings["train.precision"].startswith("bf16")
        return gains_runs.Run({"compute": (50.0 if fast else 80.0) + seed / 10, "optimizer": 20.0}, 0.4 + seed / 100)

    gains_runs.make(study, place, gains_runs.FakeLauncher(arithmetic))
    gains_report(place)
    return [place.path / "gains.html"]


def analysis_page(folder: Path) -> list[Path]:
    """Two systems of DeepCAM, one of them with large batches, on known machines."""
    runs = [made_run(number, 100.0 + 9 * number, system=system, epochs=4.0 + number, nodes=nodes,
                     global_batch_size=batch, accelerators=4 * nodes)
            for number in range(4) for system, nodes, batch in (("a", 2, 256), ("b", 8, 2048))]  # fmt: skip
    return [write_analysis(analyze(runs, known_machines(), Question()), folder / "analysis")]


def campaign_plots(folder: Path) -> list[Path]:
    """References alone, and figures of two sizes that lie close together."""
    scenario = next(each for each in shipped("nersc10-deepcam").scenarios if each.references)
    rows = [row_of_reference(scenario, reference) for reference in scenario.references]
    value = float(str(rows[0].cells[FIGURES[scenario.metric.what]]))
    own = [ResponseRow("result", {"category": "baseline", "accelerators": size,
                                  FIGURES[scenario.metric.what]: value * size / 4}) for size in (4, 8)]  # fmt: skip
    metric_plot(scenario, own, False)
    far = {"category": "baseline", "accelerators": 64, FIGURES[scenario.metric.what]: 100 * value}
    metric_plot(scenario, [*rows, ResponseRow("result", far)], False)  # type: ignore[arg-type]
    return []


def other_plots(folder: Path) -> list[Path]:
    """A characterisation, a prediction, the published points of convergence, and a run of each application."""
    characterisation_figures(made())
    forecast = SimpleNamespace(parts=dict.fromkeys(PARTS, 60.0), time=SimpleNamespace(low=300.0, central=480.0,
                               high=700.0), training=SimpleNamespace(nodes=4))  # fmt: skip
    sizes = [SimpleNamespace(forecast=forecast)]
    parts_figure(SimpleNamespace(sizes=sizes, request=SimpleNamespace(application="cosmoflow")))  # type: ignore[arg-type]
    draw_published()
    cosmoflow_plots.figures(build(folder / "cosmos"))
    deepcam_plots.figures(build(folder / "climate", application="deepcam"))
    return []


SAMPLES: dict[str, Sample] = {
    "runs": run_pages, "staging": stagings, "convergence": convergence_page, "scaling": scaling_pages,
    "gains": gains_page, "analysis": analysis_page, "campaign": campaign_plots, "others": other_plots,
}  # fmt: skip
