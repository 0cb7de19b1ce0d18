"""The options of the command ``stage``: what they are, which go together, and how they configure a staging."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from staging.errors import InputError
from staging.number_options import MOST_FILES, MOST_NODES, add_real, add_whole

if TYPE_CHECKING:
    from staging.options import StageOptions

USED_BY = {
    "--clean": frozenset({"--clean", "--simulated-nodes"}),
    "--verify-only": frozenset({"--verify-only", "--simulated-nodes", "--threads", "--report"}),
}
"""What the two commands about one folder use of the options; they refuse all others, which they would ignore."""

DESCRIPTION = """\
Bring a dataset from a shared filesystem to storage of each node's own, and measure it.

  hpcbench stage /project/cosmoflow /tmp/cosmoflow
      copies the folder; run again after an interruption, it brings only what is missing
  srun -N 16 --ntasks-per-node 4 hpcbench stage /project/set /local/set --path exchange
      every byte is read once in the job, and then travels between the nodes by MPI
  mpiexec -n 8 hpcbench stage /project/set '/local/{node}/part' --placement shard --seed 1
      each node gets its part, balanced by bytes
  hpcbench stage /project/set /local/set --plan-only
      says what would go where, and whether it fits; nothing is touched
  srun -N 16 --ntasks-per-node 4 hpcbench stage /project/set /local/set --probe
      measures what storage, network and decoding can do here; later reports compare with it
  hpcbench stage /project/set /local/inflated --include '*.tfrecord' --transform gunzip
      decompresses on the way
  srun -N 16 --ntasks-per-node 4 hpcbench stage --verify-only /local/set
      reads again what staging put there and lists every file that is not what landed
  srun -N 16 --ntasks-per-node 4 hpcbench stage /project/set /local/set --repair
      does that, and brings just the bad files again
  srun -N 16 --ntasks-per-node 4 hpcbench stage /project/set /local/set --update --drop-vanished
      follows a source that changed, and removes what vanished from it
  srun -N 16 --ntasks-per-node 4 hpcbench stage --clean /local/set
      removes what staging put there, and nothing else
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.add_argument("source", nargs="?", metavar="SRC", help="folder, or one HDF5 file")
    parser.add_argument(
        "destination", nargs="?", metavar="DST", help="folder on each node; {node}, {rank} and $VARIABLES are filled in"
    )
    parser.add_argument(
        "--placement",
        choices=("replicate", "shard"),
        default="replicate",
        help="all to every node (default), or a part to each",
    )
    parser.add_argument(
        "--contiguous",
        action="store_true",
        help="with --placement shard: each node gets a run of the sorted names, instead of a draw by --seed",
    )
    parser.add_argument(
        "--replicate-also",
        action="append",
        default=[],
        metavar="PATTERN",
        help="names that every node gets with --placement shard, too; repeatable",
    )
    parser.add_argument(
        "--path",
        choices=("direct", "exchange"),
        default="direct",
        help="each node reads what it needs (default), or all is read once, then sent by MPI",
    )
    parser.add_argument(
        "--transform",
        default="",
        metavar="NAME",
        help="gunzip, tfrecord-to-npy, hdf5-to-npy, npy-rows, tfrecord-index, untar, package.module:function; a+b "
        "chains",
    )
    parser.add_argument(
        "--plain",
        action="append",
        default=[],
        metavar="PATTERN",
        help="names that the transform leaves as they are, or auto: all without an ending that it knows; repeatable",
    )
    add_ways(parser)
    add_modes(parser)


def add_ways(parser: argparse.ArgumentParser) -> None:
    """Add the options for how data are moved, checked and chosen."""
    add_whole(parser, "--threads", 1, 256, "streams of each rank (default: 4)", default=4)
    add_whole(
        parser,
        "--piece-bytes",
        1,
        2**40,
        "buffer for whole files and for parts of larger ones (default: 8 MiB); what exchange sends at a time",
        default=8 << 20,
    )
    parser.add_argument(
        "--verify",
        choices=("none", "transfer", "reread"),
        default="transfer",
        help="no checksums; CRC32C from the read on (default); and read again at the end",
    )
    parser.add_argument(
        "--write-way",
        choices=("auto", "buffered", "early", "uncached"),
        default="auto",
        help="large files: stored when the system wants; at once; at once and out of memory; as probed (default)",
    )
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="stage only names that match; repeatable"
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="leave out names that match; repeatable"
    )
    add_whole(parser, "--first", 1, MOST_FILES, "only the first N files by name")
    parser.add_argument("--follow-links", action="store_true", help="treat links to folders as folders")
    parser.add_argument("--hidden", action="store_true", help="take names that begin with a dot, too")
    parser.add_argument("--index", type=Path, metavar="FILE", help="dataset index of `hpcbench data index`")
    add_whole(parser, "--seed", 0, 2**62, "seed of the placement (default: 0)", default=0)
    parser.add_argument("--cold", action="store_true", help="drop the source's cached pages first, where allowed")
    add_whole(parser, "--simulated-nodes", 1, MOST_NODES, "pretend that the ranks are on N nodes")


def add_modes(parser: argparse.ArgumentParser) -> None:
    """Add the options for what is done, and what is kept of it."""
    parser.add_argument("--plan-only", action="store_true", help="say what would move, and stop")
    parser.add_argument("--probe", action="store_true", help="measure what the parts can do here, and stop")
    parser.add_argument("--probe-first", action="store_true", help="the same, and then stage")
    add_real(parser, "--probe-seconds", 0.01, 86_400, "seconds for a probe (default: 10)", default=10.0, metavar="S")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write all figures as JSON, of a plan, a probe, a staging or --verify-only",
    )
    parser.add_argument(
        "--repair", action="store_true", help="read again what is there first, and bring bad files again"
    )
    parser.add_argument("--update", action="store_true", help="follow a source that changed; what it lost stays here")
    parser.add_argument("--drop-vanished", action="store_true", help="with --update: remove here what it lost")
    parser.add_argument(
        "--verify-only", metavar="DST", help="read again what staging put into DST and list all bad files"
    )
    parser.add_argument("--clean", metavar="DST", help="remove what staging put into DST, and nothing else")


def check(args: argparse.Namespace) -> None:
    """Raise ``InputError`` for missing arguments, and for arguments that do not go together."""
    of_one_folder = {"--clean": args.clean, "--verify-only": args.verify_only}
    given = [name for name, folder in of_one_folder.items() if folder is not None]
    if not given and (args.source is None or args.destination is None):
        raise InputError("stage needs SRC and DST; see --help")
    for what, folder in {
        "SRC": args.source,
        **{f"the folder of {name}": of_one_folder[name] for name in given},
    }.items():
        if folder == "":
            raise InputError(f"{what} is empty: perhaps a variable that is not set; write . for the current folder")
    if given and args.source is not None:
        raise InputError(f"{given[0]} takes one folder and no SRC or DST ({args.source})")
    if args.clean is not None and args.report is not None:
        raise InputError(f"--clean has no figures for --report {args.report}; leave it out")
    modes = {
        **of_one_folder,
        "--plan-only": args.plan_only,
        "--probe": args.probe,
        "--probe-first": args.probe_first,
    }
    if len(both := [name for name, value in modes.items() if value]) > 1:
        raise InputError(f"{' and '.join(both)} exclude one another; give one of them")
    if given and (idle := idle_options(args, USED_BY[given[0]])):
        raise InputError(f"{idle[0]} is for a staging, and {given[0]} is none; leave one of them out")
    if args.contiguous and args.placement != "shard":
        raise InputError("--contiguous is for shards; give --placement shard, too, or leave it out")
    if args.drop_vanished and not args.update:
        raise InputError("--drop-vanished is for a staging that follows its source: give --update, too")


def idle_options(args: argparse.Namespace, used: frozenset[str]) -> list[str]:
    """Options that are given, other than by their defaults, and not ``used``."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    defaults = vars(parser.parse_args([]))
    names = [name for name, default in defaults.items() if getattr(args, name) != default]
    return [option for name in names if (option := f"--{name.replace('_', '-')}") not in used]


def options_of(args: argparse.Namespace) -> StageOptions:
    """The options that a command line gives."""
    from staging.options import StageOptions

    return StageOptions(
        source=Path(args.source), destination=args.destination, placement=args.placement, path=args.path,
        transform=args.transform, plain=tuple(args.plain), threads=args.threads, piece_bytes=args.piece_bytes,
        verify=args.verify, include=tuple(args.include), exclude=tuple(args.exclude), first=args.first,
        index=args.index, seed=args.seed, cold=args.cold, follow_links=args.follow_links, hidden=args.hidden,
        replicate_also=tuple(args.replicate_also), repair=args.repair, update=args.update,
        drop_vanished=args.drop_vanished, write_way=args.write_way,
        contiguous=args.contiguous,
    )  # fmt: skip
