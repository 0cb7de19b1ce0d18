"""Which documented commands tests type, on what machine, in what order, and what they leave."""

from __future__ import annotations

from pathlib import Path

from tests.documented_commands import Command, every

COMMANDS = every()
INSTALLS = "tests/docs/test_installing.py::test_what_any_page_installs_is_there"
NOT_RUN = {
    "pip list": "of the machine; tests/docs/test_installing.py::test_what_is_installed_is_listed",
    "pip install": f"changes the environment of the tests; {INSTALLS}",
    "python -m pip install": f"changes the environment of the tests; {INSTALLS}",
    "python -m pytest": "runs this test; tests/docs/test_pages.py::test_the_commands_of_a_page_work_in_order",
    "python -m tests.": "takes minutes to an hour; tests/docs/test_programs.py::test_a_program_works_at_a_small_size",
    "python -m staging": "a bare name; tests/staging/cli/test_output.py::test_figures_are_printed_and_written",
    "python benchmarks/accelerator.py wheels": "needs a network; "
    "tests/benchmarks/test_accelerator.py::test_packages_of_the_machine_are_never_carried",
    "python benchmarks/accelerator.py tests": "for accelerators; tests/benchmarks/test_accelerator.py::"
    "test_tests_that_need_an_accelerator_are_tried_on_a_processor_of_a_bare_machine",
    "python benchmarks/characterisation.py": "takes a while; "
    "tests/benchmarks/test_characterisation.py::test_the_page_has_the_tables_of_today",
    "python benchmarks/staging_sizes.py": "takes a while; "
    "tests/staging/test_staging_sizes.py::test_the_page_has_the_tables_of_the_script",
    "python docs/studies/ordered_set.py": "a set of the reader; "
    "tests/docs/test_ordered_set.py::test_the_training_samples_are_in_the_order_of_the_parameter",
    "python benchmarks/": "takes minutes and records its result; "
    "tests/docs/test_programs.py::test_a_program_works_at_a_small_size",
    "hpcbench demo": "with --preset smoke; tests/docs/test_first_hour.py::test_a_section_works_as_it_stands",
    "hpcbench bundle hpcbench.tar.gz": "needs a network, or an index of the test; "
    "tests/hpcbench/bundle/test_offline_installation.py::"
    "test_a_bundle_trains_without_a_network_on_the_torch_that_is_there",
    "hpcbench data split": "a universe is the reader's; "
    "tests/hpcbench/cli/test_data.py::test_a_universe_is_split_into_samples_that_verify",
    "hpcbench train cosmoflow --run-dir runs/mine --resume": "of an interrupted run; tests/hpcbench/train/"
    "test_interrupted.py::test_a_run_whose_epochs_are_longer_than_its_time_comes_to_its_target_bit_for_bit",
    "hpcbench study report studies/strong --convergence ": "two studies of the reader; tests/hpcbench/study/scaling/"
    "test_joined.py::test_a_report_remembers_the_convergence_study_until_it_is_told_to_forget_it",
    "hpcbench study execute ": "in jobs alone; "
    "tests/slurm/test_convergence.py::test_runs_packed_in_jobs_from_the_command_to_the_report",
    "hpcbench check results/": "a folder of others' logs; "
    "tests/hpcbench/cli/test_check.py::test_a_folder_of_runs_keeps_the_rules_of_a_package",
    "hpcbench check hpc_results": "the logs of others; "
    "tests/hpcbench/cli/test_check.py::test_a_round_is_checked_by_its_own_rules",
    "hpcbench results hpc_results": "the logs of others; "
    "tests/hpcbench/cli/test_results.py::test_a_round_is_shown_by_folder",
    "hpcbench analyze hpc_results": "the logs of others; "
    "tests/hpcbench/cli/test_analyze.py::test_page_plots_and_tables",
    "hpcbench campaign plan ": "one ends with 2, as its page says; "
    "tests/hpcbench/cli/test_campaign.py::test_plan_says_what_cannot_run",
    "hpcbench campaign run esif-hpc-4 ": "needs the published dataset; "
    "tests/hpcbench/campaign/test_rehearsal.py::test_a_shipped_campaign_runs_here",
    "hpcbench campaign show --rules ": "a file of the reader's; "
    "tests/hpcbench/cli/test_campaign.py::test_rules_in_a_file_are_shown",
    "hpcbench package LAB runs/* --write-facts": "needs runs of a supercomputer; "
    "tests/hpcbench/submission/test_package_input.py::test_the_template_is_read_back_and_nothing_overwritten",
    "hpcbench package LAB runs/* --facts": "needs runs of a supercomputer; "
    "tests/hpcbench/submission/test_package.py::test_the_official_tools_accept_it_in_a_process_of_their_own",
    "hpcbench package LAB runs/* --throughput": "needs runs of a supercomputer; "
    "tests/hpcbench/submission/test_package.py::test_throughput_prunes_and_asks_for_time_to_train",
    "hpcbench project runs/": "needs runs of a supercomputer; "
    "tests/hpcbench/submission/test_projection.py::test_the_command",
    "hpcbench train cosmoflow --recipe-from": "a log of others; "
    "tests/hpcbench/submission/test_borrowed_recipe.py::test_batch_norm_over_other_samples_is_told",
    "hpcbench submit cosmoflow --recipe-from": "a log of others; "
    "tests/hpcbench/submission/test_borrowed_recipe.py::test_a_log_of_a_published_round",
    "hpcbench predict cosmoflow --machine selene --nodes 64,128 --software v1.0 --calibrate": "a run on that machine; "
    "tests/hpcbench/cli/test_predict.py::test_a_run_on_the_machine_calibrates",
    "hpcbench doctor --job ": "in jobs alone; "
    "tests/hpcbench/measure/test_job_check.py::test_two_ranks_look_and_one_tells",
}
"""Beginnings of commands that are not run here; why, and the test that runs them as far as that is possible. The first
that fits counts."""
ENDS = {"hpcbench check runs/": 1}
"""Beginnings of commands that end with another code than 0: runs of small presets have targets of their own."""
ONLY_NAMED = {
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
