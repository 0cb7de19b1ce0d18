"""``hpcbench sites``: the machines that jobs can be written for."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "list the sites that `submit` knows and the machines with facts, or show one"
DESCRIPTION = """\
The sites that `hpcbench submit --site` knows: scheduler, launcher, nodes.

  hpcbench sites
  hpcbench sites perlmutter-gpu             its profile, to copy and change, and its machine's facts
  hpcbench sites --machines                 every machine with facts, those of published rounds too
  hpcbench sites fugaku                     the facts of a machine that has no profile

A profile says how to submit, and names the file with the facts of the machine: accelerators,
their peak and memory, links, network, node-local storage, file system, charge, each with the
page and the date that it is from. What is not known is unknown; nothing is guessed. `submit`
and `study` compare with them.

A profile of your own is a YAML file in ~/.config/hpcbench/sites, or in the folder that
HPCBENCH_SITES names; machines are in its folder machines. It hides one of the same name. Begin
with a copy of the nearest.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this site's profile, or this machine's facts")
    parser.add_argument("--machines", action="store_true", help="list the machines, and what a node of each has")


def run(args: argparse.Namespace) -> int:
    """Print the list, or one profile as it lies there with the facts of its machine."""
    from hpcbench.batch.machine import find_machine, known_machines
    from hpcbench.batch.machine_facts import facts_page, machines_table
    from hpcbench.batch.site import find_site, known_sites, machine_folders
    from staging.errors import InputError

    if args.machines and args.name is not None:
        raise InputError(f"give --machines or a name ({args.name}), not both")
    if args.machines:
        print(machines_table(known_machines(machine_folders())))
    elif args.name is None:
        print(sites_table())
    elif args.name not in known_sites() and any(each.name == args.name for each in known_machines(machine_folders())):
        print(facts_page(find_machine(args.name, machine_folders())))
    else:
        found = find_site(args.name)
        path = known_sites().get(args.name, args.name)
        print(f"# {path}\n{Path(path).read_text(encoding='utf-8').rstrip()}")
        if found.machine is not None:
            print(f"\n{facts_page(found.machine)}")
    return 0


def sites_table() -> str:
    """The profiles, a line each."""
    from hpcbench.batch.site import known_sites, read_site
    from hpcbench.results.tables import table

    rows = []
    for name, path in known_sites().items():
        site = read_site(path)
        cores = "?" if site.node.cores is None else str(site.node.cores)
        gpus = f"{site.node.gpus} {site.node.gpu}" if site.node.gpus else "-"
        rows.append([name, site.scheduler, site.launcher, cores, gpus, site.title])
    return table(("site", "scheduler", "launcher", "cores", "GPUs of a node", "what"), rows, ("cores",))
