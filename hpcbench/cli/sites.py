"""``hpcbench sites``: the machines that jobs can be written for."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "list the sites that `submit` knows, or show one"
DESCRIPTION = """\
The sites that `hpcbench submit --site` knows: scheduler, launcher, nodes.

  hpcbench sites
  hpcbench sites perlmutter-gpu             its profile, to copy and change

A profile of your own is a YAML file in ~/.config/hpcbench/sites, or in the folder that
HPCBENCH_SITES names. It hides one of the same name. Begin with a copy of the nearest.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this site's profile")


def run(args: argparse.Namespace) -> int:
    """Print the list, or one profile as it lies there."""
    from hpcbench.batch.site import find_site, known_sites, read_site
    from hpcbench.results.tables import table

    if args.name is not None:
        find_site(args.name)
        path = known_sites().get(args.name, args.name)
        print(f"# {path}\n{Path(path).read_text(encoding='utf-8')}", end="")
        return 0
    rows = []
    for name, path in known_sites().items():
        site = read_site(path)
        cores = "?" if site.node.cores is None else str(site.node.cores)
        gpus = f"{site.node.gpus} {site.node.gpu}" if site.node.gpus else "-"
        rows.append([name, site.scheduler, site.launcher, cores, gpus, site.title])
    print(table(("site", "scheduler", "launcher", "cores", "GPUs of a node", "what"), rows, ("cores",)))
    return 0
