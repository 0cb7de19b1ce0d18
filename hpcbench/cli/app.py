"""``hpcbench app``: start an application of your own."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcbench.cli.arguments import Parser, Subcommand, run_subcommand

HELP = "write the skeleton of an application of your own"
DESCRIPTION = """\
Write a Python package that holds a small application: it simulates data, trains to a
target, evaluates and logs from the first minute. Then replace its parts with yours.

  hpcbench app new waves
  pip install --no-deps --editable waves
  hpcbench data simulate waves --out data/waves
  hpcbench train waves --data.root data/waves

The package is found through the entry-point group `hpcbench.apps`, which its
pyproject.toml names, so that nothing in hpcbench itself has to change.
docs/your-own-model.md shows how to wrap a model and a dataset that exist already.
"""


def add_arguments(parser: Parser) -> None:
    """The subcommands."""
    parser.add_subcommands(SUBCOMMANDS)


def add_new_arguments(parser: Parser) -> None:
    """Options of ``new``."""
    parser.add_argument("name", metavar="NAME", help="name of the application and of its Python package")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="write DIR/NAME (default: here)")


def new(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write the package and say what to type next."""
    from hpcbench.skeleton import write_package

    folder = write_package(args.name, args.out)
    data = f"data/{args.name}"
    print(f"wrote {folder}. Next:\n")
    print(f"  pip install --no-deps --editable {folder}")
    print(f"  hpcbench data simulate {args.name} --preset smoke --out {data}")
    print(f"  hpcbench train {args.name} --preset smoke --data.root {data}\n")
    print(f"Then read {folder / 'README.md'}: it says what to replace, and in what order.")
    return 0


SUBCOMMANDS = (
    Subcommand("new", "write the package", DESCRIPTION, add_new_arguments, new, takes_settings=False),
)  # fmt: skip
run_with_overrides = run_subcommand
