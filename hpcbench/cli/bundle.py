"""``hpcbench bundle``: an archive that installs hpcbench on a machine without a network."""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

from hpcbench.bundle.target import ARCHITECTURES, PYTHONS, Target
from staging.errors import InputError
from staging.print_line import print_line
from staging.ranks.signals import Interrupts

DESCRIPTION = """\
Make an archive that installs hpcbench on a machine without a network, beside the torch,
numpy and MPI of the site, which it leaves as they are: wheels of hpcbench and of all its
dependencies, each with its version and checksum, the source, and a script that installs them.

  hpcbench bundle hpcbench.tar.gz
  hpcbench bundle hpcbench-arm.tar.gz --python 3.12 --arch aarch64
  hpcbench bundle hpcbench.tar.gz --extra energy --numpy 2.1.3

Then, on the machine, load the module that provides torch and run:

  tar -xzf hpcbench.tar.gz && sh hpcbench-ml-*/install.sh --venv DIR

Making the archive needs pip, a package index (or the mirror that PIP_INDEX_URL names), and a
clone of the repository, such as the current folder. docs/installing.md says more.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("out", metavar="OUT.tar.gz", type=Path, help="the archive, a new file")
    parser.add_argument("--python", choices=PYTHONS, default=here if here in PYTHONS else PYTHONS[-1],
                        help="version of the site's Python (default: this one's)")  # fmt: skip
    parser.add_argument(
        "--arch", choices=ARCHITECTURES, help="architecture of the site's processors (default: this one's)"
    )
    parser.add_argument("--extra", action="append", default=[], metavar="NAME",
                        help="optional group of dependencies, such as energy; repeatable")  # fmt: skip
    parser.add_argument("--numpy", metavar="VERSION", help="the site's numpy, if it is newer than the wheels allow")
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="clone of the repository (default: the one that this command runs from, or this folder)",
    )


def run(args: argparse.Namespace) -> int:
    """Make the bundle, and say what it holds and what it needs."""
    architecture = args.arch or platform.machine()
    if architecture not in ARCHITECTURES:
        raise InputError(f"no bundle is made for {architecture}; name {' or '.join(ARCHITECTURES)} with --arch")
    from hpcbench.bundle.archive import BundleRequest, make_bundle
    from hpcbench.results.units import counted

    target = Target(args.python, architecture)
    extras = tuple(dict.fromkeys(args.extra))
    with Interrupts():
        bundle = make_bundle(BundleRequest(args.out, target, extras, args.numpy, args.source), print_line)
    print(f"{args.out}: {bundle.bytes / 1e6:.1f} MB, {counted(len(bundle.wheels), 'wheel')} for {target}")
    print(f"SHA-256 {bundle.sha256}")
    needs = ", ".join(f"{name} {versions}" for name, versions in bundle.of_site.items())
    print(f"The site must have {needs}, and MPI for more than one process.")
    return 0
