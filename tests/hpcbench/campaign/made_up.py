"""Folders of campaigns whose runs are made up: logs, tables and summaries with times that a test names."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hpcbench.application import find_application
from hpcbench.campaign.categories import category_of, scenario_of
from hpcbench.campaign.entry import Entry, rehearsed, run_settings
from hpcbench.campaign.folder import CampaignFolder
from hpcbench.campaign.read_rules import campaign_path, read_campaign
from hpcbench.campaign.rules import Campaign
from hpcbench.config.read_yaml import read_yaml
from hpcbench.config.resolve import as_tree, resolve
from hpcbench.config.schema import RunConfig
from hpcbench.phase_names import PHASES
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.folder import StudyFolder
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.run_matrix import all_runs, run_nodes, seed_of

UNCHANGED = {"distribution": "hpcbench-ml", "version": "0.1.0", "basis": "RECORD", "unchanged": True, "files": 500,
             "differing": 0, "names": []}  # fmt: skip
START_MS = 1_700_000_000_000


@cache
def shipped(name: str) -> Campaign:
    """A campaign of the suite."""
    return read_campaign(campaign_path(name, {}))


def entry_of(campaign: Campaign, scenario: str, category: str, *, small: bool = False, **chosen: Any) -> Entry:
    """A scenario in a category with what a user chose; ``small``: as in a rehearsal."""
    own = scenario_of(campaign, scenario)
    return Entry(campaign, rehearsed(own) if small else own, category_of(campaign, category), small, **chosen)


def make_size(
    root: Path, campaign: Campaign, scenario: str, category: str, nodes: int, runs: Sequence[dict[str, Any]],
    instance_nodes: int | None = None,
) -> CampaignFolder:  # fmt: skip
    """The study of one size, each of its ``runs`` with what ``write_run`` takes; accelerators are four a node."""
    entry = entry_of(campaign, scenario, category, nodes=(nodes,))
    folder = CampaignFolder(root)
    folder.begin(campaign, rehearsal=False)
    place = folder.study(entry.category, entry.scenario)
    throughput = entry.scenario.throughput
    before = place.read()
    known = () if before is None else Scaling.from_dict(before, place.definition).nodes
    study = Scaling(
        mode=entry.mode, application=entry.scenario.application, preset=entry.own_preset, site="local",
        nodes=tuple(sorted({*known, nodes})), ranks_per_node=4, local_batch_size=1,
        repeats=1 if throughput else len(runs), instance_nodes=instance_nodes if throughput else None,
    )  # fmt: skip
    place.path.mkdir(parents=True, exist_ok=True)
    place.write(study.as_dict())
    planned = [run for run in all_runs(study) if run.point.nodes == nodes]
    for run, values in zip(planned, runs, strict=True):
        write_run(place, entry, run.name, run_nodes(study, run), **{"seed": seed_of(study, run), **values})
    return folder


def write_run(
    place: StudyFolder, entry: Entry, name: str, nodes: int, *, local: int, epochs: int, epoch_s: float,
    evaluation_s: float = 0.0, staging_s: float = 0.0, start_s: float = 0.0, seed: int = 1, best: float | None = None,
    status: str = "success", installation: dict[str, Any] | None = None, settings: dict[str, str] | None = None,
    **changes: Any,
) -> None:  # fmt: skip
    """A run of ``epochs`` epochs, each with ``epoch_s`` seconds of training and an evaluation after it."""
    scenario, application = entry.scenario, entry.application
    path = place.run(name)
    path.mkdir(parents=True)
    run, ranks = RunFolder(path), 4 * nodes
    batch = local * ranks
    training, validation = scenario.dataset.train_samples or 1, scenario.dataset.validation_samples or 1
    given = {**run_settings(entry), "train.local_batch_size": str(local), **(settings or {})}
    config = resolved(application.name, entry.own_preset, tuple(given.items()))
    run.write_config(as_tree(config))
    best = (scenario.stop.target or 0.5) if best is None else best
    total = staging_s + epochs * (epoch_s + evaluation_s)
    summary = Summary(**{
        "application": application.name, "title": application.title, "preset": entry.own_preset, "status": status,
        "cause": "target" if status == "success" else "epochs", "metric": "iou", "better": "higher",
        "target": scenario.stop.target, "best": best, "epochs": epochs, "seed": seed,
        "epochs_to_target": epochs if status == "success" else None, "time_to_solution_s": total, "wall_s": total,
        "phases_s": dict.fromkeys(PHASES, 1.0), "world_size": ranks, "nodes": nodes, "ranks_per_node": 4,
        "local_batch_size": local, "global_batch_size": batch, "train_samples": training,
        "validation_samples": validation, "precision": config.train.precision, **changes,
    })  # fmt: skip
    run.write_summary(summary)
    steps = training // batch
    lines = [f"{e},{e * steps},{epoch_s}" for e in range(1, epochs + 1)]
    run.epochs.write_text("\n".join(["epoch,step,train_s", *lines]) + "\n")
    run.write_json("environment.json", {"installation": UNCHANGED if installation is None else installation})
    write_log(run, entry, summary, (epoch_s, evaluation_s, staging_s, start_s))


@cache
def resolved(application: str, preset: str, settings: tuple[tuple[str, str], ...]) -> RunConfig:
    """A configuration; runs of a size have the same."""
    return resolve(find_application(application), preset, None, dict(settings))


def write_log(run: RunFolder, entry: Entry, summary: Summary, seconds: tuple[float, float, float, float]) -> None:
    """The official log of the run, which begins in a microsecond of its own: no two runs have the same."""
    epoch_s, evaluation_s, staging_s, start_s = seconds
    start_s += zlib.crc32(run.path.name.encode()) % 1000 / 1e6
    division = read_yaml(run.config)["submission"]["division"]
    lines: list[str] = []

    def line(at_s: float, key: str, value: Any = None, **metadata: Any) -> None:
        record = {"namespace": "", "time_ms": START_MS + 1000 * at_s, "event_type": "", "key": key, "value": value,
                  "metadata": metadata}  # fmt: skip
        lines.append(f":::MLLOG {json.dumps(record)}")

    now = start_s
    line(now - 20, "init_start")
    for key, value in (("submission_benchmark", entry.application.benchmark), ("submission_division", division),
                       ("train_samples", summary.train_samples),
                       ("eval_samples", summary.validation_samples), ("seed", summary.seed),
                       ("global_batch_size", summary.global_batch_size), ("number_of_nodes", summary.nodes),
                       ("accelerators_per_node", 4)):  # fmt: skip
        line(now - 19, key, value)
    line(now, "init_stop")
    line(now, "run_start")
    if staging_s:
        line(now, "staging_start")
        line(now + staging_s, "staging_stop")
    now += staging_s
    for epoch in range(1, int(summary.epochs) + 1):
        line(now, "epoch_start", epoch_num=epoch)
        line(now + epoch_s, "epoch_stop", epoch_num=epoch)
        line(now + epoch_s, "eval_start", epoch_num=epoch)
        now += epoch_s + evaluation_s
        line(now, "eval_accuracy", summary.best, epoch_num=epoch)
        line(now, "eval_stop", epoch_num=epoch)
    line(now, "run_stop", status="success" if summary.status == "success" else "aborted")
    run.mllog.write_text("\n".join(lines) + "\n")
