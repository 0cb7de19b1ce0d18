"""``hpcbench optimizers``: the available optimizers and their options."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

DESCRIPTION = """\
List the optimizers with their options (`--optim.OPTION VALUE`) and the options' defaults.

  hpcbench optimizers
  hpcbench train deepcam --preset laptop --data.root data/deepcam --optim.name lamb --optim.lr 0.004

Every optimizer also has optim.lr, optim.weight_decay, optim.scaling and optim.base_batch_size.
`hpcbench train APP --list` says what each option means. A package of your own can add an
optimizer; docs/extending.md shows how.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This command has no options."""


def run(args: argparse.Namespace) -> int:
    """Print a paragraph per optimizer."""
    from hpcbench.config.optimizers import optimizer_info, optimizer_names

    for info in map(optimizer_info, optimizer_names()):
        print(f"{info.name:8} {info.description}")
        options = ", ".join(f"{name} {shown(value)}" for name, value in info.options.items())
        print(textwrap.fill(options, 98, initial_indent=" " * 9, subsequent_indent=" " * 9, break_on_hyphens=False))
    return 0


def shown(value: Any) -> str:
    """A default as you would give it on a command line."""
    if isinstance(value, tuple):
        return f"[{','.join(shown(part) for part in value)}]"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
