"""``hpcbench sites``: the machines that jobs can be written for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcbench.batch.machine import Machine, Storage

HELP = "list the sites that `submit` knows, or show one"
DESCRIPTION = """\
The sites that `hpcbench submit --site` knows: scheduler, launcher, nodes.

  hpcbench sites
  hpcbench sites perlmutter-gpu             its profile, to copy and change, and its machine's facts

A profile says how to submit, and names the file with the facts of the machine: memory,
accelerators, node-local storage, links, charge, each with the page and the date that it is
from. What is not known is unknown; nothing is guessed. `submit` and `study` compare with them.

A profile of your own is a YAML file in ~/.config/hpcbench/sites, or in the folder that
HPCBENCH_SITES names; machines are in its folder machines. It hides one of the same name. Begin
with a copy of the nearest.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this site's profile")


def run(args: argparse.Namespace) -> int:
    """Print the list, or one profile as it lies there with the facts of its machine."""
    from hpcbench.batch.site import find_site, known_sites, read_site
    from hpcbench.results.tables import table

    if args.name is not None:
        found = find_site(args.name)
        path = known_sites().get(args.name, args.name)
        print(f"# {path}\n{Path(path).read_text(encoding='utf-8').rstrip()}")
        if found.machine is not None:
            print(f"\n{facts_page(found.machine)}")
        return 0
    rows = []
    for name, path in known_sites().items():
        site = read_site(path)
        cores = "?" if site.node.cores is None else str(site.node.cores)
        gpus = f"{site.node.gpus} {site.node.gpu}" if site.node.gpus else "-"
        rows.append([name, site.scheduler, site.launcher, cores, gpus, site.title])
    print(table(("site", "scheduler", "launcher", "cores", "GPUs of a node", "what"), rows, ("cores",)))
    return 0


def facts_page(machine: Machine) -> str:
    """The facts of a machine with their units and sources, unknown ones too."""
    known = {name for name, _ in machine.facts()}
    facts = {
        "cores": ("cores of a node", ""), "threads_per_core": ("threads of a core", ""),
        "memory_gib": ("memory of a node", "GiB"), "accelerators": ("accelerators of a node", ""),
        "accelerator": ("accelerator", ""), "accelerator_memory_gib": ("its memory", "GiB"),
        "accelerator_link_gb_s": ("link between two of them", "GB/s each way"),
        "network_gb_s": ("network of a node", "GB/s"), "charge": ("a node-hour costs", machine.charge_unit or ""),
    }  # fmt: skip
    values = {
        words: (name, f"{value_words(getattr(machine, name))} {unit}".rstrip() if name in known else "unknown")
        for name, (words, unit) in facts.items()
    }  # fmt: skip
    storage = {f"storage {each.path}": (f"storage.{each.path}", storage_words(each)) for each in machine.storage}
    values |= storage or {"node-local storage": ("", "unknown")}
    numbers = {name: number for number, source in enumerate(machine.sources, 1) for name in source.facts}
    rows = [[words, value, f"[{numbers[name]}]" if name in numbers else ""] for words, (name, value) in values.items()]
    width = max(len(value) for _, value, _ in rows)
    lines = [f"{words:26} {value:{width}} {source}".rstrip() for words, value, source in rows]
    sources = [f"[{number}] {source.url}, read {source.read}" for number, source in enumerate(machine.sources, 1)]
    head = f"{machine.title}: facts of the machine, and the pages that they are from"
    return "\n".join(f"# {line}" for line in [head, *lines, *sources])


def value_words(value: object) -> str:
    """A number without needless decimals, or a text."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def storage_words(storage: Storage) -> str:
    """Room, and what kind of storage it is."""
    room = "room unknown" if storage.gb is None else f"{storage.gb:g} GB"
    kind = {True: ", memory of the node", False: "", None: ""}[storage.in_memory]
    return room + kind + (", shared with other jobs" if storage.shared else "")
