"""``hpcbench sites``: the machines that jobs can be written for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = """\
List the sites that `hpcbench submit --site` knows: scheduler, launcher, nodes.

  hpcbench sites
  hpcbench sites perlmutter-gpu             its profile, to copy and change, and its machine's facts
  hpcbench sites --machines                 every machine with facts, those of published rounds too
  hpcbench sites fugaku                     the facts of a machine that has no profile

A profile says how to submit, and names the file with the facts of the machine: accelerators,
their peak and memory, links, network, node-local storage, file system, charge, each with its
source page and date. A fact that is not known is unknown; nothing is guessed. `submit` and
`study` compare jobs with these facts.

A profile of your own is a YAML file in ~/.config/hpcbench/sites, or in the folder that
HPCBENCH_SITES names; files of your own machines go into its subfolder machines. Your files hide
others of the same name. Start from a copy of the most similar one. A package can also provide
profiles and machines; docs/extending.md shows how.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this site's profile, or this machine's facts")
    parser.add_argument("--machines", action="store_true", help="list the machines, and what a node of each has")


def run(args: argparse.Namespace) -> int:
    """Print the list, or one profile as its file has it, with the facts of its machine.

    The exit code is 2 if a file in the list cannot be read.
    """
    from hpcbench.batch.machine import find_machine, titles_of, yaml_files
    from hpcbench.batch.machine_facts import facts_page
    from hpcbench.batch.site import check_packages, known_sites, machine_folders
    from hpcbench.suggest import suggest_by_title
    from staging.errors import InputError

    if args.machines and args.name is not None:
        raise InputError(f"give --machines or a name ({args.name}), not both")
    check_packages()
    folders = machine_folders()
    machines = yaml_files(folders)
    if args.machines:
        return list_machines(folders)
    if args.name is None:
        return list_sites()
    if args.name in (sites := known_sites()) or args.name.endswith((".yaml", ".yml")):
        print(profile_page(args.name))
    elif args.name in machines:
        print(facts_page(find_machine(args.name, folders)))
    else:
        titles = titles_of({**machines, **sites})
        hint = suggest_by_title(args.name, titles, "'hpcbench sites' and its --machines list them", sites)
        raise InputError(f"unknown site or machine '{args.name}'; {hint}")
    return 0


def profile_page(name: str) -> str:
    """A profile as its file has it, and the facts of its machine."""
    from hpcbench.batch.machine_facts import facts_page
    from hpcbench.batch.site import find_site, known_sites

    site = find_site(name)
    path = known_sites().get(name, name)
    text = f"# {path}\n{Path(path).read_text(encoding='utf-8').rstrip()}"
    return text if site.machine is None else f"{text}\n\n{facts_page(site.machine)}"


def list_sites() -> int:
    """Print the profiles, a line each, and below them why any cannot be read; returns the exit code."""
    from hpcbench.batch.site import known_sites, read_site
    from hpcbench.results.tables import table, wrapped
    from staging.errors import InputError

    rows, damaged = [], []
    for name, path in known_sites().items():
        try:
            site = read_site(path)
        except InputError as error:
            rows.append([name, "damaged", *"---", "see below"])
            damaged.append(wrapped(f"{name}: {error}"))
            continue
        cores = "?" if site.node.cores is None else str(site.node.cores)
        gpus = f"{site.node.gpus} {site.node.gpu}" if site.node.gpus else "-"
        rows.append([name, site.scheduler, site.launcher, cores, gpus, site.title])
    print(table(("site", "scheduler", "launcher", "cores", "GPUs of a node", "what"), rows, ("cores",)))
    return exit_code(damaged)


def list_machines(folders: Sequence[Path]) -> int:
    """Print the machines, a line each, and below them why any file cannot be read; returns the exit code."""
    from hpcbench.batch.machine import find_machine, yaml_files
    from hpcbench.batch.machine_facts import machines_table
    from hpcbench.results.tables import wrapped
    from staging.errors import InputError

    machines, damaged = [], []
    for name in yaml_files(folders):
        try:
            machines.append(find_machine(name, folders))
        except InputError as error:
            damaged.append(wrapped(f"{name}: damaged: {error}"))
    print(machines_table(machines))
    return exit_code(damaged)


def exit_code(damaged: Sequence[str]) -> int:
    """Print what is said about files that cannot be read; returns the exit code of a list without them."""
    from hpcbench.exits import BAD_INPUT, DONE

    for text in damaged:
        print(f"\n{text}")
    return BAD_INPUT if damaged else DONE
