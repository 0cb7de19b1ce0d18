"""Studies of hundreds of runs, as ``hpcbench study`` leaves them, made from the folder of one real run."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.definition import Study
from hpcbench.study.folder import LARGE, StudyFolder
from hpcbench.study.plan import geometry, points, seed_runs
from hpcbench.study.rates import Rate
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.run_matrix import (
    PlannedRun,
    all_runs,
    data_parallel_size,
    local_batch_size,
    run_nodes,
    seed_of,
)

CLUSTER = "title: A cluster\nscheduler: slurm\nlauncher: srun\nnode: {cores: 64, gpus: 4}\n"
FAKE = "#!/bin/bash\necho {name} >> {folder}/asked\n[ {name} = squeue ] || exit 0\ncat {folder}/queue\n"
"""A scheduler's command that records each call; the queue answers, the accounting knows nothing."""
RATES = {"sgd": Rate(0.01, 64), "adamw": Rate(0.001, 64, "sqrt"), "lars": Rate(1.0, 64), "lamb": Rate(0.002, 64),
         "nvlamb": Rate(0.002, 64)}  # fmt: skip
START_MS = 1_700_000_000_000
EXAMPLE = Scaling(
    mode="weak", application="cosmoflow", preset="smoke", site="cluster", nodes=tuple(2**k for k in range(10)),
    ranks_per_node=4, cores_per_rank=16, gpus_per_rank=1, local_batch_size=4, repeats=10, steps=60,
    vary={"data.prefetch": ("1", "2", "4", "8", "16")}, settings={"data.root": "data"},
    commands=("hpcbench study weak cosmoflow",),
)  # fmt: skip
"""Ten sizes from 1 to 512 nodes, five variants, ten repeats: 500 runs, 204,600 ranks."""
INSTANCES = replace(EXAMPLE, mode="throughput", nodes=(20, 40, 60, 80), instance_nodes=2, repeats=5, vary={},
                    steps=None)  # fmt: skip
"""Ten to forty instances of two nodes, five repeats: 500 runs."""
CONVERGENCE = Study(
    application="cosmoflow", preset="smoke", batch_sizes=tuple(2**k for k in range(2, 12)), optimizers=tuple(RATES),
    seeds=10, local_batch_size=4, rates=RATES, settings={"data.root": "data"},
    commands=("hpcbench study convergence cosmoflow",),
)  # fmt: skip
"""Ten batches, five optimizers, ten seeds: 500 runs."""


def make_scaling(study: Scaling, path: Path, source: Path, under_way: int = 0) -> Path:
    """Make the folder of ``study``, whose runs are copies of the run ``source`` with other numbers; the last
    ``under_way`` runs have only been submitted."""
    folder, runs = StudyFolder(path), all_runs(study)
    folder.runs.mkdir(parents=True)
    folder.write(study.as_dict())
    for number, run in enumerate(runs):
        target = folder.run(run.name)
        target.mkdir()
        write_job(target, number + 1, run_nodes(study, run))
        if number < len(runs) - under_way:
            copy_files(source, target)
            write_scaled(study, run, source, target)
    return path


def make_convergence(study: Study, path: Path, source: Path) -> Path:
    """Make the folder of ``study``, whose runs are copies of the run ``source`` with other numbers."""
    folder = StudyFolder(path)
    folder.runs.mkdir(parents=True)
    folder.write(study.as_dict())
    before, random = RunFolder(source).read_summary(), Random(2019)
    for point in points(study):
        ranks, local = geometry(study, point)
        for run in seed_runs(study, point, {}):
            target = folder.run(run.name)
            target.mkdir()
            copy_files(source, target)
            epochs = round(4 * (1 + point.batch / 200) * random.lognormvariate(0, 0.1), 2)
            changed = replace(
                before, seed=run.seed, status="success", epochs=epochs, epochs_to_target=epochs, local_batch_size=local,
                global_batch_size=point.batch, simulated_ranks=ranks, time_to_solution_s=20 * epochs, resumed=0,
                steps=round(epochs * before.train_samples / point.batch), noise_scale=random.uniform(100, 300),
            )  # fmt: skip
            write(target / "summary.json", changed.to_json())
            scatter_losses(target / "epochs.csv", random)
    return path


def scatter_losses(table: Path, random: Random) -> None:
    """Give a run losses of its own: runs that trained alike would count as one."""
    header, *rows = [line.split(",") for line in table.read_text(encoding="utf-8").splitlines()]
    place = header.index("train_loss")
    for row in rows:
        row[place] = f"{float(row[place]) * random.lognormvariate(0, 0.01):.6f}"
    write(table, "".join(",".join(line) + "\n" for line in (header, *rows)))


def write_scaled(study: Scaling, run: PlannedRun, source: Path, target: Path) -> None:
    """Write summary, ranks and log of a run for its size and instance, with the scatter of a repeat."""
    random, nodes = Random(run.name), run_nodes(study, run)
    local, before = local_batch_size(study, nodes), RunFolder(source).read_summary()
    batch, steps = local * study.accumulation * data_parallel_size(study, nodes), study.steps or 100
    step_s = (0.1 + 0.01 * nodes**0.25) * random.lognormvariate(0, 0.01)
    start_ms = START_MS + 4_000_000 * run.repeat + round(2000 * random.random())
    seconds = 60 + steps * step_s
    changed = replace(
        before, status="success", seed=seed_of(study, run), nodes=nodes, ranks_per_node=study.ranks_per_node,
        world_size=nodes * study.ranks_per_node, simulated_nodes=None, local_batch_size=local, global_batch_size=batch,
        steps=steps, samples=steps * batch, warm_samples_per_s=batch / step_s, time_to_solution_s=seconds,
        epochs_to_target=None if study.steps else 10.0, wall_s=seconds + 30,
    )  # fmt: skip
    write(target / "summary.json", changed.to_json())
    first = (run.instance or 1) * nodes - nodes
    write_ranks(source, target, changed, step_s, first)
    lines = (source / "mllog.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    times = {"run_start": start_ms, "run_stop": start_ms + round(1000 * seconds)}
    write(target / "mllog.txt", "".join(line_at(line, times) for line in lines))


def write_ranks(source: Path, target: Path, summary: Summary, step_s: float, first: int) -> None:
    """Write a row for every rank, made from that of the first rank of ``source``."""
    text = (source / "ranks.csv").read_text(encoding="utf-8")
    row = next(csv.DictReader(io.StringIO(text)))
    steps = summary.steps - 5
    scale = steps * step_s / float(row["wall_s"])
    seconds = {key: f"{float(value) * scale:.6f}" for key, value in row.items() if key.endswith("_s") and value}
    row |= seconds | {"steps": str(steps), "samples": str(steps * summary.global_batch_size)}
    rows = [
        row | {"rank": str(rank), "node": f"nid{first + rank // summary.ranks_per_node:06d}",
               "local_rank": str(rank % summary.ranks_per_node)}
        for rank in range(summary.world_size)
    ]  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write(target / "ranks.csv", out.getvalue())


def line_at(line: str, times: Mapping[str, int]) -> str:
    """Return a line of the official log with the time of its event changed, if the event is one of ``times``."""
    head, mark, text = line.partition(":::MLLOG ")
    if not mark:
        return line
    entry = json.loads(text)
    entry["time_ms"] = times.get(entry["key"], entry["time_ms"])
    return f"{head}{mark}{json.dumps(entry)}\n"


def write_job(target: Path, number: int, nodes: int) -> None:
    """Write the record of a job submitted now."""
    record = {
        "job_id": str(number), "mark": f"hpcbench-{number}", "scheduler": "slurm", "site": "cluster", "nodes": nodes,
        "ranks_per_node": 4, "cores_per_rank": 16, "gpus_per_rank": 1, "time_s": 3600,
        "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    write(target / "job.json", json.dumps(record))
    write(target / "job.sh", "#!/bin/bash\n")


def copy_files(source: Path, target: Path) -> None:
    """Copy the files that a study keeps of a run."""
    for path in source.iterdir():
        if path.is_file() and path.name not in (*LARGE, "job.json", "job.sh"):
            shutil.copyfile(path, target / path.name)


def write(path: Path, text: str) -> None:
    """Write a file, without waiting for the disk."""
    path.write_text(text, encoding="utf-8")


def make_cluster(folder: Path, waiting: Sequence[int]) -> dict[str, str]:
    """Make commands of a Slurm with the jobs ``waiting`` in its queue; return an environment that finds them.

    ``folder/asked`` has a line for each call of one of these commands.
    """
    for name in ("bin", "sites"):
        (folder / name).mkdir(parents=True)
    write(folder / "sites" / "cluster.yaml", CLUSTER)
    write(folder / "queue", "".join(f"{number}|PENDING|Priority\n" for number in waiting))
    for name in ("squeue", "sacct", "sbatch", "scontrol"):
        write(folder / "bin" / name, FAKE.format(name=name, folder=folder))
        (folder / "bin" / name).chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HPCBENCH_SITES": str(folder / "sites")}


def asked(folder: Path) -> dict[str, Any]:
    """Return how often each command of the cluster was called."""
    path = folder / "asked"
    names = path.read_text(encoding="utf-8").split() if path.exists() else []
    return {name: names.count(name) for name in dict.fromkeys(names)}
