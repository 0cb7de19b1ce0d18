"""``hpcbench submit``: a training as a batch job."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hpcbench.application import find_application
from hpcbench.cli.arguments import add_run_options, preset_of, resolve_arguments
from hpcbench.cli.recipe_from import add_recipe_option, borrow, settings_of
from hpcbench.environment_copy import own_parts
from staging.errors import InputError
from staging.number_options import MOST_NODES, MOST_PER_NODE, add_whole

if TYPE_CHECKING:
    from hpcbench.application import Application
    from hpcbench.batch.job_request import JobRequest
    from hpcbench.batch.site import Site
    from hpcbench.config.schema import RunConfig

DESCRIPTION = """\
Write a job script for a site and submit it to Slurm, PBS, LSF or Flux, or run it here.

  hpcbench submit cosmoflow --site perlmutter-gpu --account m1234 --nodes 16 --time 02:00:00 \\
      --preset mlperf --data.root /pscratch/cosmoflow --no-stage
  hpcbench submit deepcam --site polaris --account myproject --queue prod --nodes 10 \\
      --preset mlperf --data.root /eagle/deepcam --staging.placement shard
  hpcbench submit deepcam --site generic-slurm --nodes 2 --cores-per-rank 8 \\
      --preset laptop --data.root data/deepcam --dry-run
      prints the script and touches nothing
  hpcbench sites                            the sites that are known; add your own as YAML
  hpcbench jobs runs/*                      the status of jobs; --cancel ends them

The dataset is staged to node-local storage inside the scored time, unless --no-stage. Before
anything else the ranks check their number, cores, devices and storage. Shortly before
its time limit the run writes a checkpoint, and the job is queued again and continues.
Dotted settings are those of `hpcbench train`.

First the command says what the job needs and what the site's machine has: global batch and peak
learning rate, bytes staged to each node, memory of a rank, node-hours. It warns from 70 % of a
limit, and refuses a job beyond the limit, with what would fit. If the dataset is not on this
machine, its size is that of the samples asked for (--samples, or the preset's).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; dotted settings come on top."""
    add_run_options(parser)
    add_recipe_option(parser)
    parser.add_argument("--run-dir", type=Path, help="folder of run, script and log (default: runs/APP-PRESET-TIME)")
    parser.add_argument("--dry-run", action="store_true", help="print the script, and on stderr what it needs")
    parser.add_argument("--no-stage", action="store_true", help="read the dataset where it is")
    size = parser.add_argument_group("the job")
    size.add_argument("--site", required=True, metavar="NAME|FILE", help="`hpcbench sites` lists them; or a YAML file")
    add_whole(size, "--nodes", 1, MOST_NODES, "nodes (default: 1)", default=1)
    add_job_options(size)


def add_job_options(size: argparse._ArgumentGroup, *, ranks: bool = True) -> None:
    """Add what a job asks for besides site and nodes; ``ranks``: whether the user says how many a node has."""
    if ranks:
        add_whole(size, "--ranks-per-node", 1, MOST_PER_NODE, "default: one for each GPU, else 1")
    add_whole(size, "--cores-per-rank", 1, MOST_PER_NODE, "physical cores (default: an equal share)")
    add_whole(size, "--gpus-per-rank", 0, MOST_PER_NODE, "default: 1 if the site has GPUs")
    add_whole(size, "--memory-gib", 1, 10**9, "memory of each node (default: what the site gives)")
    size.add_argument("--time", default="01:00:00", help="time limit: 01:30:00, 90m, 2h (default: 01:00:00)")
    size.add_argument("--account", default="", help="project to charge")
    size.add_argument("--queue", default="", help="partition or queue (default: the site's)")
    size.add_argument("--qos", default="", help="quality of service")
    size.add_argument("--constraint", default="", help="kind of node, in the scheduler's words")
    size.add_argument("--reservation", default="", help="reservation to run in")
    size.add_argument("--module", action="append", default=[], metavar="NAME", help="module to load; repeatable")
    size.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variable to set; $NAME in the "
                      "value is replaced in the job; repeatable")  # fmt: skip
    size.add_argument("--image", default="", help="container image that the ranks run in")
    size.add_argument("--local-path", default="", metavar="DIR", help="node-local folder; $NAME is replaced in the job")
    add_whole(
        size,
        "--warn-s",
        0,
        31_536_000,
        "seconds before the limit at which the run writes its checkpoint and ends (default: 120)",
        default=120,
        metavar="S",
    )
    add_whole(size, "--attempts", 1, 100_000, "starts in total (default: 10)", default=10)
    size.add_argument("--bring-environment", action="store_true", help="first copy the Python environment to each "
                      "node's own storage, and run from there")  # fmt: skip


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Check everything here, then print or submit."""
    from hpcbench.batch.job import make_job
    from hpcbench.batch.schedulers import find_scheduler
    from hpcbench.batch.script import job_script
    from hpcbench.batch.site import find_site
    from hpcbench.batch.submission import submit
    from hpcbench.planning.job_fit import doctor_gib, job_fit, settings_of_script
    from hpcbench.results.run_folder import default_path
    from hpcbench.results.units import counted

    site = find_site(args.site)
    scheduler = find_scheduler(site.scheduler)
    application = find_application(args.app)
    stages = not args.no_stage and "staging.destination" not in overrides
    request = job_request(args, args.nodes)
    preset = preset_of(args)
    folder = args.run_dir or default_path(application.name, preset)
    title = f"{application.name}, preset {preset},"
    job = make_job(site, request, folder, own_command(bool(args.image)), (), title, stages)
    told = sys.stderr if args.dry_run else sys.stdout
    overrides = with_recipe(application, args, overrides, settings_of_script(job), job.ranks, told)
    job = replace(job, arguments=train_words(args, overrides))
    config = resolve_arguments(application, args, overrides | settings_of_script(job), "train")
    if not args.dry_run:
        check_data(application, config, site)
    fit = job_fit(application, config, job, site)
    fit.check()
    job = replace(job, local_gib=doctor_gib(fit.staged))
    print("\n".join(fit.lines), file=told)
    if args.dry_run:
        print(job_script(job, site, scheduler), end="")
        return 0
    done = submit(job, site)
    size = f"{counted(job.nodes, 'node')}, at most {job.node_hours:.3g} node-hours an attempt"
    print(f"job {done.job_id} of {site.scheduler} submitted: {size}")
    print(f"run folder: {folder}\nstatus: hpcbench jobs {shlex.quote(str(folder))}")
    return 0


def check_data(application: Application, config: RunConfig, site: Site) -> None:
    """Raise ``InputError`` if no dataset is named, or if a job that runs on this machine cannot open it.

    A dataset elsewhere is left to the job. So is a missing one in a dry run, which queues nothing.
    """
    if not config.data.root or site.scheduler == "local":
        from hpcbench.train.build import open_data

        open_data(application, config)


def with_recipe(
    application: Application, args: argparse.Namespace, overrides: dict[str, str], of_script: dict[str, str],
    ranks: int, told: TextIO,
) -> dict[str, str]:  # fmt: skip
    """The dotted settings with those of a borrowed recipe, so that the job needs no log; prints the recipe to ``told``.

    ``of_script``: the settings that the job's script makes.
    """
    recipe = borrow(application, args, overrides)
    if recipe is None:
        return overrides
    from hpcbench.submission.borrowed_recipe import recipe_lines

    before = resolve_arguments(application, args, {**recipe.settings, **overrides, **of_script}, "train")
    borrowed = settings_of(recipe, before, ranks, overrides)
    print("\n".join(recipe_lines(recipe, borrowed, overrides)), file=told)
    return {**borrowed, **overrides}


def job_request(args: argparse.Namespace, nodes: int) -> JobRequest:
    """What the options of a job ask for."""
    from hpcbench.batch.job_request import JobRequest

    if args.bring_environment:
        own_parts()  # to refuse what cannot be brought before anything is submitted
    return JobRequest(
        nodes=nodes, ranks_per_node=getattr(args, "ranks_per_node", None), cores_per_rank=args.cores_per_rank,
        gpus_per_rank=args.gpus_per_rank, memory_gib=args.memory_gib, time=args.time, account=args.account,
        queue=args.queue, qos=args.qos, constraint=args.constraint, reservation=args.reservation,
        modules=tuple(args.module), environment=variables(args.env), image=args.image, local_path=args.local_path,
        warn_s=args.warn_s, attempts=args.attempts, bring_environment=args.bring_environment,
    )  # fmt: skip


def own_command(in_image: bool) -> tuple[str, ...]:
    """The command that starts this program, wherever the job runs; in an image it is the image's own."""
    return ("hpcbench",) if in_image else (sys.executable, "-m", "hpcbench")


def train_words(args: argparse.Namespace, overrides: dict[str, str]) -> tuple[str, ...]:
    """The words of ``hpcbench train`` that ask for the same run."""
    words = [args.app, "--preset", preset_of(args)]
    for path in args.config:
        words += ["--config", str(path)]
    for option in ("seed", "samples"):
        if getattr(args, option) is not None:
            words += [f"--{option}", str(getattr(args, option))]
    return (*words, *(f"--{key}={value}" for key, value in overrides.items()))


def variables(given: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` as names and values. Raises ``InputError`` for anything else."""
    values = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f"--env ({assignment!r}) must be NAME=VALUE")
        values[name] = value
    return values
