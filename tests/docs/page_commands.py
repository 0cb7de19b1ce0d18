"""Which documented commands tests type, on what machine, in what order, and what they leave."""

from __future__ import annotations

from pathlib import Path

from tests.documented_commands import Command, every

COMMANDS = every()
NOT_RUN = {
    "pip ": "changes the environment of the tests",
    "python -m pip ": "changes the environment of the tests",
    "python -m pytest": "runs this test",
    "python -m tests.": "takes minutes to an hour; tests/staging runs a part of it",
    "python -m staging": "tests/staging/cli runs it",
    "hpcbench demo": "tests/docs/test_first_hour.py runs it with --preset smoke",
    "hpcbench bundle hpcbench.tar.gz": "tests/hpcbench/bundle installs one",
    "hpcbench data split": "tests/hpcbench/cli/test_data.py cuts a universe",
    "hpcbench train cosmoflow --run-dir runs/mine --resume": "tests/hpcbench/train/test_interrupted.py",
    "hpcbench study report studies/strong --convergence ": "tests/hpcbench/study/scaling/test_joined.py",
    "hpcbench study execute ": "in jobs alone; tests/slurm/test_convergence.py",
    "hpcbench check results/": "a folder of others' logs; tests/hpcbench/cli/test_check.py",
    "hpcbench check hpc_results": "the logs of others; tests/hpcbench/cli/test_check.py",
    "hpcbench results hpc_results": "the logs of others; tests/hpcbench/cli/test_results.py",
    "hpcbench analyze hpc_results": "the logs of others; tests/hpcbench/cli/test_analyze.py",
    "hpcbench campaign plan ": "for accelerators; tests/hpcbench/cli/test_campaign.py",
    "hpcbench campaign run esif-hpc-4 ": "needs the published dataset; tests/hpcbench/campaign/test_rehearsal.py",
    "hpcbench campaign show --rules ": "a file of the reader's; tests/hpcbench/campaign/test_read_rules.py",
    "hpcbench package LAB": "needs runs of a supercomputer; tests/hpcbench/submission makes some",
    "hpcbench project runs/": "the same",
    "hpcbench train cosmoflow --recipe-from": "tests/hpcbench/submission/test_borrowed_recipe.py",
    "hpcbench submit cosmoflow --recipe-from": "the same",
    "hpcbench predict cosmoflow --machine selene --nodes 64,128 --software v1.0 --calibrate": "a run on that machine; "
    "tests/hpcbench/cli/test_predict.py",
    "hpcbench doctor --job ": "in jobs alone; tests/hpcbench/measure/test_job_check.py",
}
"""Beginnings of commands that are not run here, and why."""
ENDS = {"hpcbench check runs/": 1}
"""Beginnings of commands that end with another code than 0: runs of small presets have targets of their own."""
ONLY_NAMED = {
    "apps/cosmoflow/README.md": ["hpcbench train cosmoflow --preset laptop"],
    "apps/deepcam/README.md": ["hpcbench train deepcam --preset laptop"],
    "docs/characterisation.md": ["hpcbench characterize"],
    "docs/schedules.md": ["hpcbench train deepcam --preset mlperf-2048"],
    "docs/running-on-a-supercomputer.md": ["hpcbench doctor --job"],
}
"""Commands in sentences that leave the dataset, or the job around them, to their reader."""
ELSEWHERE = {
    "docs/your-own-model.md": "tests/docs/test_your_own_model.py",
    "docs/extending.md": "tests/docs/test_extending.py",
    "docs/first-hour.md": "tests/docs/test_first_hour.py",
    "docs/contrib.md": "tests/contrib",
    "docs/installing.md": "tests/docs/test_installing.py",
    "bundle --help": "tests/hpcbench/bundle",
    "app --help": "tests/hpcbench/cli/test_app.py",
    "environment --help": "tests/hpcbench/test_environment_copy.py",
    "completion --help": "tests/hpcbench/cli/test_completion.py",
}
"""Sources whose commands other tests run, since they install packages."""
ON_A_CLUSTER = (
    "docs/running-on-a-supercomputer.md", "docs/scaling.md", "docs/staging.md", "docs/tutorials/first-job.md",
    "stage --help", "submit --help", "jobs --help", "doctor --help",
)  # fmt: skip
"""Sources whose commands are typed where there is a scheduler; of all others only those that submit jobs."""
BEFORE = {"jobs --help": "submit --help", "report --help": "train --help", "check --help": "train --help",
          "results --help": "train --help", "analyze --help": "train --help"}  # fmt: skip
"""Sources that begin where another one ends: its first command is typed before."""
LEAVES = {
    "docs/results.md": ["runs/mine/mllog.txt", "runs.csv"],
    "README.md": ["runs/*/report.html", "runs/*/summary.json", "runs/*/mllog.txt", "runs/*/steps.csv",
                  "runs/*/epochs.csv", "runs/*/config.yaml", "runs/*/system.json", "runs/*/environment.json",
                  "runs/comparison.html", "studies/strong/scaling.html", "mine/pyproject.toml"],
    "docs/convergence.md": ["studies/cosmoflow/study.json", "studies/cosmoflow/runs/*-x*-seed*",
                            "studies/cosmoflow/results.csv", "studies/cosmoflow/table.txt",
                            "studies/cosmoflow/study.html", "studies/cosmoflow/*.png"],
    "docs/critical_batch_size.md": ["docs/studies/published/critical_batch_size.png"],
    "docs/prediction.md": ["prediction.json", "prediction.html"],
    "docs/scaling.md": [f"studies/{name}/{file}" for name in ("strong", "deepcam-strong") for file in (
                        "table.txt", "results.csv", "*.svg", "scaling.html", "proposal.*")]
                       + ["docs/studies/deepcam-strong/study.json"],
    "docs/tutorials/laptop.md": ["runs/*/report.html", "comparison.html"],
    "docs/tutorials/first-job.md": ["runs/*/job-*.log", "runs/*/report.html"],
    "docs/tutorials/proposal.md": ["studies/epochs/table.txt", *(f"studies/nodes/{file}" for file in (
                                   "scaling.html", "proposal.txt", "proposal.tex", "proposal.csv"))],
    "docs/gains.md": [f"studies/gains/{file}" for file in ("study.json", "runs/*-r*", "table.txt", "results.csv",
                                                           "gains.html")],
    "docs/running-on-a-supercomputer.md": ["runs/*/job.sh", "runs/*/job.json", "runs/*/job-*.log", "runs/*/report.html",
                                           "studies/cosmoflow/scaling.html"],
    "docs/characterisation.md": ["cosmoflow-smoke-characterisation.json", "cosmoflow-smoke-characterisation.html",
                                 "two-ranks.json", "two-ranks.html", "mine.yaml", "kernels.json", "workload.yaml"],
    "docs/analysis.md": [f"why-selene/{name}" for name in (
                         "analysis.html", "figures/deepcam-time-to-train-waterfall.svg", "figures/tiers.png",
                         "tables/pairs.csv", "tables/deepcam-time-to-train-factors.csv")],
    "report --help": ["comparison.html", "runs/*/figures/*.png"],
}  # fmt: skip
"""Files that a page says its commands leave."""


def to_run(source: str) -> list[Command]:
    """The commands of a source that are run here."""
    return [each for each in COMMANDS[source]
            if not f"{each} ".startswith(tuple(NOT_RUN)) and str(each) not in ONLY_NAMED.get(source, [])]  # fmt: skip


def submits(command: Command) -> bool:
    """Whether a command is for a machine with a scheduler."""
    return "--site" in command.words


def needs_scheduler(source: str, command: Command) -> bool:
    """Whether a command is for a machine with a scheduler, or for a study that another one of the source has there."""
    studies = {each.words[each.words.index("--study-dir") + 1] for each in COMMANDS[source]
               if submits(each) and "--study-dir" in each.words}  # fmt: skip
    return submits(command) or not studies.isdisjoint(command.words)


HERE = [source for source in COMMANDS if to_run(source) and source not in (*ELSEWHERE, *ON_A_CLUSTER)]
CLUSTER = [source for source in COMMANDS if source in ON_A_CLUSTER
           or (source not in ELSEWHERE and any(map(submits, to_run(source))))]  # fmt: skip


def check_files(source: str) -> None:
    """What the source promises lies in the current folder."""
    assert [pattern for pattern in LEAVES.get(source, []) if not any(Path().glob(pattern))] == []
