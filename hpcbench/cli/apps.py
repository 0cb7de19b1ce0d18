"""``hpcbench apps``: which applications and presets are installed."""

from __future__ import annotations

import argparse
import textwrap

from hpcbench.application import applications

DESCRIPTION = """\
List the installed applications, what they learn, and their presets.

  hpcbench apps

Applications are found through the entry-point group `hpcbench.apps`, so that another
package can add one; `hpcbench app new NAME` writes such a package.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This command has no options."""


def run(args: argparse.Namespace) -> int:
    """Print one paragraph per application."""
    for application in applications().values():
        print(f"{application.name:12} {application.title}")
        presets = application.presets()
        width = max([10, *map(len, presets)])
        for name, path in presets.items():
            first = next(iter(path.read_text(encoding="utf-8").splitlines()), "")
            said = first.removeprefix("#").strip() if first.startswith("#") else "(its first line is no comment)"
            text = f"  {name:{width}} {said}"
            print(textwrap.fill(text, 100, subsequent_indent=" " * (width + 3), break_on_hyphens=False))
    return 0
