"""``hpcbench doctor``: what works on this machine, and what is missing for the rest."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.config.schema import MOST_RANKS
from hpcbench.exits import DONE
from staging.errors import InputError
from staging.number_options import MOST_NODES, MOST_PER_NODE, add_real, add_whole
from staging.ranks.launch import is_first_rank
from staging.ranks.mpi import start_early

if TYPE_CHECKING:
    from hpcbench.measure.diagnosis import Diagnosis, Row, State

DESCRIPTION = """\
Look at the machine as a run would: versions, processor and devices, the precision that
`auto` chooses, MPI, ranks, cores, memory, where files can be written, and plug-ins.

  hpcbench doctor
  hpcbench doctor --data-root /lustre/cosmoflow --run-dir /scratch/runs
  mpiexec -n 4 hpcbench doctor --ranks 4      do four processes know that they are four?
  hpcbench doctor --json                      for a site's own tests
  srun -N 4 -n 16 hpcbench doctor --job --ranks 16 --nodes 4 --cores 16 --gpus 1
      did the job get what it asked for? All ranks check, one reports, within a minute

Run it where training will run: the login node and the compute nodes often differ.
Exit code 0: a run can start. 1: something that a run needs is broken. 2: bad input.
With --job, 0: the job got what it asked for. 1: something is not as asked. 2: bad input, or the
number of ranks is not --ranks, or the ranks do not meet.
"""

WIDTH = 100
COLORS = {"ok": "green", "note": "yellow", "broken": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--run-dir", type=Path, default=Path("runs"), help="where run folders go (default: runs)")
    parser.add_argument("--data-root", type=Path, help="folder of a dataset, to check that it can be read")
    add_whole(parser, "--ranks", 1, MOST_RANKS, "ranks that the launcher was asked to start")
    parser.add_argument("--json", action="store_true", help="print JSON")
    job = parser.add_argument_group("inside a job")
    job.add_argument("--job", action="store_true", help="check on all ranks that the job got what it asked for")
    add_whole(job, "--nodes", 1, MOST_NODES, "nodes that the job asked for (default: 1)")
    add_whole(job, "--cores", 1, MOST_PER_NODE, "cores of each rank (default: 1)")
    add_whole(job, "--gpus", 0, MOST_PER_NODE, "GPUs of each rank (default: 0)")
    job.add_argument("--local", metavar="DIR", help="node-local folder that must be writable; {node} and $NAME are "
                     "filled in")  # fmt: skip
    add_real(job, "--local-gib", 0, 1e12, "GiB that must be free there (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Check, print (on rank 0 only, if the ranks know each other), and return the exit code."""
    if args.job:
        return look_at_job(args)
    for option in ("nodes", "cores", "gpus", "local", "local_gib"):
        if getattr(args, option) is not None:
            raise InputError(f"--{option.replace('_', '-')} is for a look at a job; add --job")
    from hpcbench.measure.import_check import ImportChecks

    checks = ImportChecks()  # started before anything else is imported, which takes time as well
    from hpcbench.measure.diagnose import diagnose

    plugins = plugin_rows()
    diagnosis = diagnose(os.environ, checks, args.run_dir, args.data_root, args.ranks)
    diagnosis.sections["Plug-ins"] = plugins
    first = is_first_rank(os.environ)
    if first and args.json:
        print(json.dumps(asdict(diagnosis) | {"ok": diagnosis.ok}, indent=2))
    elif first:
        show(diagnosis)
    return 0 if diagnosis.ok else 1


def plugin_rows() -> list[Row]:
    """Rows for the parts that other packages provide, and why one cannot be used; a run needs none of them."""
    from hpcbench.installed_plugins import installed_plugins
    from hpcbench.measure.diagnosis import Row

    return [
        Row(f"{plugin.thing} {plugin.name}", plugin.wrong or plugin.origin, "note" if plugin.wrong else "ok")
        for plugin in installed_plugins()
    ]


def look_at_job(args: argparse.Namespace) -> int:
    """Check the job on all ranks; the first one reports."""
    from hpcbench.measure.job_check import Asked, check_job
    from staging.cli import said_once

    if args.ranks is None:
        raise InputError("doctor --job needs --ranks, the number that the launcher was asked to start")
    asked = Asked(args.ranks, args.nodes or 1, args.cores or 1, args.gpus or 0, args.local or "", args.local_gib or 0.0)
    start_early(os.environ)
    said_once(lambda: check_job(asked, os.environ))
    return DONE


def show(diagnosis: Diagnosis) -> None:
    """Print all sections, then what works and what is missing for the rest."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=min(Console().width, WIDTH) if Console().is_terminal else WIDTH, highlight=False)
    blocks = [(title, section_lines(rows)) for title, rows in diagnosis.sections.items() if rows]
    for title, lines in [*blocks, ("What works here", need_lines(diagnosis))]:
        console.print(Text(title, style="bold"))
        for line, state in lines:
            console.print(Text(line, style="" if state == "ok" else COLORS[state]), soft_wrap=True)
        console.print()
    good = "a run can start here" if diagnosis.ok else "something that a run needs is broken, see above"
    console.print(Text(good, style=COLORS["ok" if diagnosis.ok else "broken"]))


def section_lines(rows: list[Row]) -> list[tuple[str, State]]:
    """Lines of a section with the state of each: name, value, and a word if it is broken."""
    width = max(len(row.name) for row in rows)
    lines: list[tuple[str, State]] = []
    for row in rows:
        mark = "broken: " if row.state == "broken" else ""
        start = f"  {row.name:<{width}}  "
        wrapped = textwrap.wrap(mark + row.value, WIDTH - len(start)) or [""]
        lines += [((start if n == 0 else " " * len(start)) + text, row.state) for n, text in enumerate(wrapped)]
    return lines


def need_lines(diagnosis: Diagnosis) -> list[tuple[str, State]]:
    """Lines of the table of purposes."""
    width = max(len(need.purpose) for need in diagnosis.needs)
    lines: list[tuple[str, State]] = []
    for need in diagnosis.needs:
        state: State = "ok" if need.works else "broken" if need.required else "note"
        word = "yes" if need.works else "NO" if need.required else "no"
        text = f"  {need.purpose:<{width}}  {word:<3}" + ("" if need.works else f"  needs: {need.missing}")
        lines.append((text.rstrip(), state))
    return lines
