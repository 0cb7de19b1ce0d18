"""The job of a run: its words decide the point and nothing else does; where it stages to; nodes that are simulated."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.application import find_application
from hpcbench.batch import job as jobs
from hpcbench.batch.job import Job
from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.batch.script import job_script
from hpcbench.batch.site import PROFILES, Site, read_site
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import StagingConfig
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.jobs import job_of, study_run
from hpcbench.study.scaling.run_matrix import all_runs
from tests.hpcbench.batch.conftest import a_site

STUDY = Scaling(
    mode="strong", application="cosmoflow", preset="smoke", site="here", nodes=(1, 2, 4), ranks_per_node=2,
    local_batch_size=8, global_batch_size=16, accumulation=1, repeats=2, steps=60, files=("own.yaml",),
    settings={"data.root": "/set", "optim.lr": "0.1"}, request={"time": "00:20:00", "cores_per_rank": 2},
)  # fmt: skip
LOCAL = read_site(PROFILES / "local.yaml")


def job(study: Scaling, site: Site, number: int = 0, folder: str = "/studies/mine/run") -> Job:
    """The job of the run ``number``."""
    return job_of(study, site, all_runs(study)[number], Path(folder))


def script(study: Scaling, site: Site, number: int = 0) -> str:
    """Its script."""
    return job_script(job(study, site, number), site, SCHEDULERS[site.scheduler])


def test_the_words_hold_what_decides_the_point() -> None:
    study = replace(STUDY, vary={"tier": ("shared",), "parallel.overlap": ("true", "false")})
    run = next(run for run in all_runs(study) if run.name == "n0004-tier_shared-overlap_false-r2")
    assert study_run(study, run).words == (
        "cosmoflow", "--preset", "smoke", "--config", "own.yaml", "--train.page=false", "--data.root=/set",
        "--optim.lr=0.1", "--parallel.overlap=false", "--train.seed=10001", "--train.local_batch_size=2",
        "--train.accumulation=1", "--measure.probe=true", "--train.baselines=false", "--train.max_steps=60",
        "--train.target=null",
    )  # fmt: skip


def test_to_the_target_there_is_no_number_of_steps() -> None:
    words = study_run(replace(STUDY, steps=None), all_runs(STUDY)[0]).words
    assert not [word for word in words if "max_steps" in word or "target" in word]


def test_a_value_of_an_axis_comes_before_the_setting_of_all_runs() -> None:
    study = replace(STUDY, vary={"optim.lr": ("0.5",)})
    assert [word for word in study_run(study, all_runs(study)[0]).words if "lr" in word] == ["--optim.lr=0.5"]


def test_a_job_asks_for_the_nodes_of_its_point() -> None:
    site = a_site("slurm")
    for number, nodes in enumerate(STUDY.nodes):
        made = job(STUDY, site, number)
        assert (made.nodes, made.ranks_per_node, made.cores_per_rank, made.gpus_per_rank) == (nodes, 2, 2, 1)
        assert (made.time_s, made.simulated_nodes) == (1200, None)
        assert made.command == (sys.executable, "-m", "hpcbench")
    assert job(replace(STUDY, request={"image": "x.sif", "cores_per_rank": 2}),
               replace(site, container="run {image}")).command == ("hpcbench",)  # fmt: skip


def test_an_instance_is_a_job_of_its_own() -> None:
    study = replace(STUDY, mode="throughput", global_batch_size=None, instance_nodes=2, nodes=(4,))
    made = [job_of(study, a_site("slurm"), run, Path("x") / run.name) for run in all_runs(study)]
    assert [each.nodes for each in made] == [2] * 4
    assert len({each.folder for each in made}) == 4


@pytest.mark.parametrize(
    ("tier", "stages", "path"),
    [("shared", False, "/nvme"), ("node", True, "/nvme"), ("memory", True, "/dev/shm"), ("/fast/me", True, "/fast/me")],
)
def test_a_tier_says_where_samples_are_read(tier: str, stages: bool, path: str) -> None:
    study = replace(STUDY, vary={"tier": (tier,)}, request={"local_path": "/nvme", "cores_per_rank": 2})
    made = job(study, a_site("slurm"))
    assert (made.stages, made.local_path) == (stages, path)
    assert job(replace(study, stages=False), a_site("slurm")).stages == stages, "the axis wins"
    text = script(study, a_site("slurm"))
    assert f'local_path="{path}/hpcbench-${{job_id}}"' in text
    assert ("--staging.destination" in text) == stages


@pytest.mark.parametrize("vary", [{}, {"staging.placement": ("shard",)}], ids=["setting", "axis"])
def test_settings_of_staging_are_for_the_tiers_that_stage(vary: dict[str, tuple[str, ...]]) -> None:
    settings = STUDY.settings | ({} if vary else {"staging.placement": "shard"}) | {"staging.threads": "4"}
    study = replace(STUDY, vary={"tier": ("shared", "node", "memory"), **vary}, settings=settings)
    for run in all_runs(study):
        words = [word for word in study_run(study, run).words if word.startswith("--staging.")]
        assert sorted(words) == (
            [] if "tier_shared" in run.name else ["--staging.placement=shard", "--staging.threads=4"]
        )


def test_settings_of_staging_in_a_file_are_undone_where_nothing_is_staged(tmp_path: Path) -> None:
    asked = {"placement": "shard", "transform": "gunzip", "threads": 8, "timed": False}
    (tmp_path / "a.yaml").write_text(json.dumps({"staging": asked, "data": {"prefetch": 2}}))
    (tmp_path / "b.yaml").write_text("train: {max_epochs: 3}")
    files = tuple(str(tmp_path / name) for name in ("a.yaml", "b.yaml"))
    study = replace(STUDY, vary={"tier": ("shared", "node")}, files=files)
    for run in all_runs(study):
        made = study_run(study, run)
        here = {} if "tier_shared" in run.name else {"staging.destination": "/nvme"}
        found = resolve(find_application("cosmoflow"), study.preset, [*map(Path, files)], made.settings | here)
        staging = StagingConfig(destination="/nvme", **asked) if here else StagingConfig()
        assert (found.staging, found.data.prefetch, found.train.max_epochs) == (staging, 2, 3)


def test_without_a_tier_the_study_says_whether_it_stages() -> None:
    assert job(STUDY, a_site("slurm")).stages
    assert not job(replace(STUDY, stages=False), a_site("slurm")).stages


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has eight."""
    monkeypatch.setattr(jobs, "cores_allowed", lambda: set(range(8)))


@pytest.mark.usefixtures("eight_cores")
def test_without_a_scheduler_ranks_of_this_machine_are_the_nodes() -> None:
    study = replace(STUDY, request={"cores_per_rank": 1})
    for number, nodes in enumerate(study.nodes):
        made = job(study, LOCAL, number)
        assert (made.nodes, made.ranks_per_node, made.cores_per_rank) == (1, 2 * nodes, 1)
        assert made.simulated_nodes == (nodes if nodes > 1 else None)
        text = script(study, LOCAL, number)
        assert ("--parallel.simulated_nodes" in text) == (nodes > 1)
        assert f"launch=(mpiexec -n {2 * nodes})" in text
        assert f"--check-job ranks={2 * nodes},nodes=1,cores=1,gpus=0 " in text
    assert '--staging.destination "$local_path/{node}" --parallel.simulated_nodes 4' in script(study, LOCAL, 2)


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 1", 1), ("kill -TERM 0; sleep 60", 143)])
def test_storage_of_every_simulated_node_is_emptied(tmp_path: Path, end: str, code: int) -> None:
    """The end of the script, with a program in place of hpcbench that removes what the real one does.

    Who cancels a job here signals its whole process group.
    """
    study = replace(STUDY, request={"cores_per_rank": 1, "local_path": str(tmp_path / "local storage")})
    run = job(study, LOCAL, 1, str(tmp_path / "run"))
    program = tmp_path / "program"
    program.write_text(
        '#!/bin/bash\nset -e\ncase "$1" in\n'
        'train) for node in a b; do mkdir -p "${!#}/$node"; touch "${!#}/$node/sample"; done; '
        f"{end} ;;\n"
        'stage) rm "$3/sample" ;;\njobs) [ "$2" = --take ] && echo "${!#}/hold" || exit 1 ;;\nesac\n'
    )
    program.chmod(0o755)
    text = job_script(replace(run, command=(str(program),), arguments=()), LOCAL, SCHEDULERS["local"])
    text = re.sub(r"launch=\(.*\)", "launch=()", text).replace(" --parallel.simulated_nodes 2", ' -- "$local_path"')
    run.folder.mkdir()
    done = subprocess.run(["bash", "-c", text], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
                          start_new_session=True, check=False)  # fmt: skip
    assert done.returncode == code, done.stderr
    assert not list((tmp_path / "local storage").iterdir())


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("mode", ["strong", "throughput"])
def test_every_script_is_a_script(scheduler: str, mode: Any) -> None:
    throughput = {"global_batch_size": None, "instance_nodes": 2, "nodes": (2, 4)} if mode == "throughput" else {}
    study = replace(STUDY, mode=mode, vary={"tier": ("shared", "node", "/a 'b/$USER")}, request={"cores_per_rank": 1},
                    **throughput)  # fmt: skip
    site = LOCAL if scheduler == "local" else a_site(scheduler)
    for number, run in enumerate(all_runs(study)):
        text = script(study, site, number)
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{run.name}: {done.stderr}"
        title = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
        assert f"{mode} scaling, {run.name}: cosmoflow, preset smoke, on {site.title}." in title
