"""``hpcbench campaign``: runs by the rules of a benchmark or a procurement."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.cli.arguments import Parser, Subcommand, run_subcommand
from hpcbench.cli.submit import add_job_options, job_request
from hpcbench.config.schema import MOST_SAMPLES
from staging.errors import InputError
from staging.number_options import MOST_NODES, MOST_PER_NODE, add_whole

if TYPE_CHECKING:
    from hpcbench.batch.site import Site
    from hpcbench.campaign.entry import Entry
    from hpcbench.campaign.rules import Campaign, Scenario

DESCRIPTION = """\
A campaign is a file of rules: what is fixed and free in each category, sizes, replicates, the
metric, and reference results. MLPerf HPC v3.0, NERSC-10's DeepCAM and ESIF-HPC-4 are included.

  hpcbench campaign list
  hpcbench campaign show nersc10-deepcam
  hpcbench campaign run nersc10-deepcam --rehearsal --campaign-dir campaigns/rehearsal
  hpcbench campaign report campaigns/rehearsal

`hpcbench campaign COMMAND --help` shows the options of a command, with an example.
"""
LIST = """\
List the available campaigns, your own included.

  hpcbench campaign list

Your own are YAML files in ~/.config/hpcbench/campaigns, or in the folder that
HPCBENCH_CAMPAIGNS names; --rules FILE reads one from anywhere.
"""
SHOW = """\
Show the rules of a campaign: categories, settings, sizes, metric, reference results, sources.

  hpcbench campaign show esif-hpc-4
"""
PLAN = """\
Show what will run and what cannot, before a job starts: batch, memory of an accelerator, counts
of the dataset. Exit code 2 if a size cannot run.

  hpcbench campaign plan nersc10-deepcam --site perlmutter-gpu --nodes 256,512

--machine takes a machine file that has no site profile. Settings that the category forbids are
refused, and the rule is named.
"""
RUN = """\
Make the runs of a campaign: as batch jobs of a site, or on simulated nodes here. Repeat the
command to make the runs that are missing.

  hpcbench campaign run nersc10-deepcam --rehearsal --campaign-dir campaigns/rehearsal
  hpcbench campaign run esif-hpc-4 --scenario s1 --site perlmutter-gpu --nodes 1 \\
      --data.root /pscratch/deepcam --campaign-dir campaigns/esif

--rehearsal makes all scenarios at sizes that take seconds, with simulated data, and says so
everywhere. The categories baseline and closed need unchanged packages: those of a wheel, or
of a commit.
"""
REPORT = """\
Write the response of a campaign from its run folders: table, CSV and page, with the reference
results beside.

  hpcbench campaign report campaigns/rehearsal

Exit code 3 if a committed value of the rules (acceptance) is not met, or not known to be met.
"""


def add_arguments(parser: Parser) -> None:
    """The subcommands."""
    parser.add_subcommands(SUBCOMMANDS)


def add_nothing(parser: Parser) -> None:
    """No options."""


def add_rules(parser: Parser) -> None:
    """Add the options that choose a campaign."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="campaign; `hpcbench campaign list` lists them")
    parser.add_argument("--rules", type=Path, metavar="FILE", help="your own file of rules, instead of NAME")


def add_plan_arguments(parser: Parser) -> None:
    """Options of ``plan``."""
    add_rules(parser)
    add_entry(parser).add_argument(
        "--machine", metavar="NAME", help="name or path of a machine file, instead of --site"
    )


def add_run_arguments(parser: Parser) -> None:
    """Options of ``run``."""
    add_rules(parser)
    parser.add_argument("--campaign-dir", required=True, type=Path, metavar="DIR",
                        help="folder of the campaign, new or to be continued")  # fmt: skip
    parser.add_argument("--rehearsal", action="store_true", help="all scenarios here, at sizes that take seconds")
    add_entry(parser)
    running = parser.add_argument_group("running")
    add_whole(running, "--jobs", 1, MOST_PER_NODE, "how many at once: runs here (default: 1), or jobs in a queue")
    running.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    running.add_argument("--wait", action="store_true", help="stay until all jobs have ended")
    running.add_argument("--retry", action="store_true", help="repeat the runs that failed")


def add_entry(parser: Parser) -> argparse._ArgumentGroup:
    """Add the options for what a user chooses in a campaign."""
    entry = parser.add_argument_group("the entry")
    entry.add_argument("--category", metavar="NAME", help="baseline, closed, ... (default: the campaign's first)")
    entry.add_argument("--scenario", metavar="NAME", help="which one; `run` without --rehearsal needs it if there are "
                       "several")  # fmt: skip
    entry.add_argument("--nodes", metavar="N,N,...", help="sizes, in nodes; N alone gives all multiples of N that the "
                       "rules ask for")  # fmt: skip
    add_whole(entry, "--instance-nodes", 1, MOST_NODES, "nodes of each instance of a throughput scenario")
    add_whole(entry, "--global-batch-size", 1, MOST_SAMPLES, "samples per optimizer step, if the rules leave them open "
              "(default: the recipe's)")  # fmt: skip
    entry.add_argument("--preset", help="another recipe, as far as the rules allow it (default: the scenario's)")
    entry.add_argument("--config", action="append", default=[], type=Path, metavar="FILE",
                       help="YAML file of settings; repeatable")  # fmt: skip
    entry.add_argument("--stage", action="store_true", help="stage the dataset to the nodes first")
    jobs = parser.add_argument_group("each job")
    jobs.add_argument("--site", default="local", metavar="NAME|FILE",
                      help="`hpcbench sites` lists them (default: local, where nodes are simulated)")  # fmt: skip
    add_job_options(jobs)
    return entry


def add_folder(parser: Parser) -> None:
    """Add the folder of a campaign."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a campaign, its --campaign-dir")


def list_campaigns(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Print a line for each campaign."""
    from hpcbench.campaign.read_rules import known_campaigns, read_campaign
    from hpcbench.campaign.show import campaigns_table

    print(campaigns_table([read_campaign(path) for path in known_campaigns().values()]))
    return 0


def show(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Print the rules."""
    from hpcbench.campaign.show import rules_page

    print(rules_page(campaign_of(args)))
    return 0


def plan(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Print what each size needs; exit code 2 if one cannot run."""
    from hpcbench.campaign.plan import plan_page

    campaign = campaign_of(args)
    site = site_of(args)
    scenarios = scenarios_of(args, campaign, every=True)
    planned = scenarios
    if args.instance_nodes is None:  # the user did not say how large an instance is
        planned = [scenario for scenario in scenarios if not scenario.throughput] or scenarios
    left_out = [scenario.name for scenario in scenarios if scenario not in planned]
    return plan_page([entry_of(args, overrides, campaign, scenario) for scenario in planned], site, left_out)


def run(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Make the runs, then the report if no run is left."""
    from hpcbench.campaign.campaign_run import run_campaign
    from hpcbench.study.runner import ExecutionOptions

    campaign = campaign_of(args)
    if args.rehearsal:
        refuse_with_rehearsal(args)
    scenarios = scenarios_of(args, campaign, every=args.rehearsal)
    entries = [entry_of(args, overrides, campaign, scenario) for scenario in scenarios]
    options = ExecutionOptions(args.jobs, args.wait, args.retry)
    return run_campaign(entries, args.campaign_dir, options, dry_run=args.dry_run)


def report(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write the response."""
    from hpcbench.campaign.folder import CampaignFolder
    from hpcbench.campaign.report import report as write_report

    return write_report(CampaignFolder(args.folder))


def campaign_of(args: argparse.Namespace) -> Campaign:
    """The campaign that a command line names. Raises ``InputError``."""
    from hpcbench.campaign.read_rules import campaign_path, read_campaign

    if (args.name is None) == (args.rules is None):
        raise InputError(
            "name a campaign, or give its file with --rules; `hpcbench campaign list` lists those there are"
        )
    return read_campaign(args.rules if args.rules is not None else campaign_path(args.name))


def scenarios_of(args: argparse.Namespace, campaign: Campaign, *, every: bool) -> list[Scenario]:
    """The scenario that the user names; else all, if ``every`` allows that or there is one. Raises ``InputError``."""
    from hpcbench.campaign.categories import scenario_of

    if args.scenario is not None:
        return [scenario_of(campaign, args.scenario)]
    if len(campaign.scenarios) > 1 and not every:
        names = ", ".join(scenario.name for scenario in campaign.scenarios)
        raise InputError(f"campaign {campaign.name} has several scenarios; give one with --scenario: {names}")
    return list(campaign.scenarios)


def refuse_with_rehearsal(args: argparse.Namespace) -> None:
    """Raise ``InputError`` for options that a rehearsal sets itself."""
    for name in ("nodes", "instance_nodes", "global_batch_size", "preset"):
        if getattr(args, name) is not None:
            raise InputError(
                f"--{name.replace('_', '-')} is not for a rehearsal, which has its own sizes; leave it out"
            )
    if args.site != "local":
        raise InputError(f"--site {args.site} is not for a rehearsal, which runs here on simulated nodes; leave it out")


def site_of(args: argparse.Namespace) -> Site:
    """The site or machine to plan for. Raises ``InputError``."""
    from hpcbench.batch.machine import find_machine
    from hpcbench.batch.site import Site, find_site, machine_folders, node_of

    if args.machine is None:
        return find_site(args.site)
    if args.site != "local":
        raise InputError("--site and --machine are both given; name one")
    machine = find_machine(args.machine, machine_folders())
    return Site(machine.name, machine.title, "slurm", "srun", node_of(machine), machine)


def entry_of(args: argparse.Namespace, overrides: dict[str, str], campaign: Campaign, scenario: Scenario) -> Entry:
    """A scenario with what the user chose. Raises ``InputError``."""
    from hpcbench.campaign.categories import category_of
    from hpcbench.campaign.entry import Entry, ladder, rehearsed
    from hpcbench.study.scaling.run_matrix import nodes_list

    rehearsal = getattr(args, "rehearsal", False)
    sized = rehearsed(scenario) if rehearsal else scenario
    if rehearsal:
        nodes = scenario.rehearsal.nodes
    else:
        nodes = () if args.nodes is None else ladder(sized, nodes_list(args.nodes))
    return Entry(
        campaign, sized, category_of(campaign, args.category), rehearsal, args.site, nodes,
        instance_nodes=1 if rehearsal and sized.throughput else args.instance_nodes, preset=args.preset,
        global_batch=args.global_batch_size, settings=overrides, files=tuple(args.config),
        request=job_request(args, 1), stages=args.stage,
        command="hpcbench " + " ".join(shlex.quote(word) for word in sys.argv[1:]),
    )  # fmt: skip


SUBCOMMANDS = (
    Subcommand("list", "list the available campaigns", LIST, add_nothing, list_campaigns, takes_settings=False),
    Subcommand("show", "show the rules of a campaign", SHOW, add_rules, show, takes_settings=False),
    Subcommand("plan", "show what will run on a machine and what cannot", PLAN, add_plan_arguments, plan),
    Subcommand("run", "make the runs, as jobs or here", RUN, add_run_arguments, run),
    Subcommand("report", "write the response: table, CSV and page", REPORT, add_folder, report, takes_settings=False),
)
run_with_overrides = run_subcommand
