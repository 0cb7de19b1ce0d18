"""``hpcbench app``: start an application of your own."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.cli.arguments import Parser, Subcommand, resolve_arguments, run_subcommand

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


WRAP_DESCRIPTION = """\
Write a Python package that turns your model and your dataset into an application. Both stay
where they are, in modules that Python can import; the package names them. The suite does the
rest: order of samples, ranks, optimizer, schedule, precision, staging, logs and pages.

A LightningModule with its LightningDataModule (pip install "hpcbench-ml[lightning]"):

  hpcbench app wrap lit_tones --module tones.lit:ToneModule --data tones.lit:ToneData \\
      --metric val_accuracy --better higher --target 0.95

A torch.nn.Module, a function that makes the training and validation sets of a folder, and a loss:

  hpcbench app wrap plain_tones --module tones.lab:ToneNet --dataset tones.sets:make_datasets \\
      --loss torch.nn.functional:cross_entropy --metric tones.sets:accuracy --better higher

A Hugging Face datasets.Dataset after with_format("torch") is such a set; --keys names two
entries of its samples. docs/your-own-model.md says what is used of each, and what is refused.
"""

SHAPES_DESCRIPTION = """\
Read the first sample of a dataset, and write its shapes into the application's package, as the
module `shapes`. With it `--train.compile true` compiles on made-up samples before the clock
starts, not on the clock in the first steps, and `hpcbench plan` needs no dataset.

  hpcbench app shapes plain_tones --data.root data/tones

What the package has already is not overwritten. If settings change the shapes, edit the file.
"""

MOST_TARGET = 1e9
"""Largest absolute value of ``train.target``."""


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


def add_wrap_arguments(parser: Parser) -> None:
    """Options of ``wrap``."""
    path = "PACKAGE.MODULE:NAME"
    parser.add_argument("name", metavar="NAME", help="name of the application and of its Python package")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="write DIR/NAME (default: here)")
    parser.add_argument("--module", required=True, metavar=path, help="class of the model, or a function that makes it")
    parser.add_argument("--data", metavar=path, help="class of a LightningDataModule")
    parser.add_argument(
        "--dataset", metavar=path, help="function that takes a folder and returns (training set, validation set)"
    )
    parser.add_argument(
        "--keys", nargs=2, metavar=("INPUTS", "TARGETS"), help="the two entries of a sample, if samples are dicts"
    )
    parser.add_argument("--loss", metavar=path, help="function of output and target; a LightningModule has its own")
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME",
        help="what validation_step logs (default: val_loss); repeatable, the target is for the first. For a plain "
        "module, a function of output and target (default: the loss)",
    )  # fmt: skip
    parser.add_argument(
        "--better",
        choices=("lower", "higher"),
        default="lower",
        help="which values of the metric are better (default: lower)",
    )
    parser.add_argument(
        "--target", type=metric_value, metavar="X", help="value of the metric at which training stops, for the preset"
    )


def metric_value(text: str) -> float:
    """Parse a number that the setting ``train.target`` accepts."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= MOST_TARGET:
        raise argparse.ArgumentTypeError(f"({text}) must be a number from {-MOST_TARGET:g} to {MOST_TARGET:g}")
    return number


def wrap(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write the package and say what to type next."""
    from hpcbench.skeleton.wrap import wrap as write
    from hpcbench.skeleton.wrapping import Wrapping

    keys = None if args.keys is None else (args.keys[0], args.keys[1])
    folder = write(
        args.name, args.out,
        Wrapping(args.module, args.data, args.dataset, args.loss, tuple(args.metric), args.better, keys, args.target),
    )  # fmt: skip
    print(f"wrote {folder}. Next:\n")
    print(f"  pip install --no-deps --editable {folder}")
    print(f"  hpcbench app shapes {args.name} --data.root DIR")
    print(f"  hpcbench train {args.name} --data.root DIR\n")
    print(f"{folder / 'src' / args.name / 'configs' / 'smoke.yaml'} holds optimizer, batch and target.")
    return 0


def add_shapes_arguments(parser: Parser) -> None:
    """Options of ``shapes``."""
    parser.add_argument("app", metavar="APP", help="application; `hpcbench apps` lists them")
    parser.add_argument("--preset", help="smoke, laptop, node, mlperf, ... (default: smoke)")
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="FILE", help="YAML file of settings; repeatable"
    )


def shapes(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write the module and say where it is."""
    application = find_application(args.app)
    from hpcbench.skeleton.shapes_file import write_shapes_file

    print(f"wrote {write_shapes_file(application, resolve_arguments(application, args, overrides, 'data'))}")
    return 0


SUBCOMMANDS = (
    Subcommand(
        "wrap", "wrap a model and a dataset", WRAP_DESCRIPTION, add_wrap_arguments, wrap, takes_settings=False
    ),
    Subcommand("new", "write the package of a new one", DESCRIPTION, add_new_arguments, new, takes_settings=False),
    Subcommand(
        "shapes", "write the shapes of a batch, from a dataset", SHAPES_DESCRIPTION, add_shapes_arguments, shapes
    ),
)  # fmt: skip
run_with_overrides = run_subcommand
