"""Command lines of the suite: argparse with one-line errors, and dotted overrides of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hpcbench.application import Application, find_application, installed
from hpcbench.config.schema import RunConfig
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError

LONGEST_MESSAGE = 500
"""Characters of argparse's own message, which repeats what it was given."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        words = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."
        raise InputError(f"{words}; see {self.prog} --help")

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse a command line that has no dotted overrides; an unknown option gets a suggestion."""
        args, rest = self.parse_known_intermixed_args(list(argv))
        if rest:
            raise InputError(f"{self.prog}: unknown argument '{shown(rest[0])}'; {suggest(rest[0], self.options())}")
        return args

    def options(self) -> list[str]:
        """All options of this command."""
        return [option for action in self._actions for option in action.option_strings]


BOOLEANS = ("true", "false", "yes", "no", "null")


def switch_names(tokens: Sequence[str]) -> frozenset[str]:
    """The dotted settings that are true or false, of the application that the command line names."""
    from hpcbench.config.resolve import config_class, known_keys

    names = installed()
    application = next((token for token in tokens if token in names), None)
    kind = config_class(find_application(application)) if application else RunConfig
    return frozenset(key for key, value in known_keys(kind) if isinstance(value, bool))


def split_overrides(tokens: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take dotted settings, wherever they stand, out of a command line.

    ``["--train.compile", "app", "--optim.lr", "0.1"]`` gives ``["app"]`` and
    ``{"optim.lr": "0.1", "train.compile": "true"}``: what is true or false needs no value.
    """
    dotted = any(token.startswith("--") and "." in token for token in tokens)
    switches = switch_names(tokens) if dotted else frozenset()
    rest: list[str] = []
    overrides: dict[str, str] = {}
    position = 0
    while position < len(tokens):
        token = tokens[position]
        name, equals, value = token.removeprefix("--").partition("=")
        position += 1
        if not token.startswith("--") or "." not in name:
            rest.append(token)
            continue
        if not equals:
            alone = position == len(tokens) or tokens[position].startswith("--")
            alone = alone or (name in switches and tokens[position].lower() not in BOOLEANS)
            value = "true" if alone else tokens[position]
            position += 0 if alone else 1
        overrides[name] = value
    return rest, overrides


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Options that select the configuration of a run."""
    parser.add_argument("app", metavar="APP", help="application; `hpcbench apps` lists them")
    parser.add_argument("--preset", help="smoke, laptop, node, mlperf, ... (default: smoke)")
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="FILE", help="YAML file of settings; repeatable"
    )
    parser.add_argument("--seed", type=int, help="seed of every random draw")
    parser.add_argument("--samples", type=int, metavar="N", help="number of training samples")


def resolve_arguments(
    application: Application, args: argparse.Namespace, dotted: Mapping[str, str], prefix: str
) -> RunConfig:
    """The configuration that a command line asks for; ``--seed`` and ``--samples`` set keys of group ``prefix``."""
    from hpcbench.config.resolve import resolve

    overrides: dict[str, str | int] = dict(dotted)
    if args.samples is not None:
        overrides["simulate.train_samples" if prefix == "simulate" else "data.train_samples"] = args.samples
    if args.seed is not None:
        overrides["simulate.seed" if prefix == "simulate" else "train.seed"] = args.seed
    if getattr(args, "resume", False):
        return resume_configuration(application, args.run_dir, args.config, overrides)
    return resolve(application, args.preset or "smoke", args.config, overrides)


MAY_CHANGE = (
    "train.max_epochs", "train.max_steps", "train.target", "train.checkpoint_every", "train.keep_checkpoints",
    "train.baselines", "train.local_batch_size", "train.accumulation", "data.root", "data.workers", "data.prefetch",
    "measure.", "parallel.", "staging.",
)  # fmt: skip
"""Settings that a resumed run may change; every other one decides what is computed.

Whether another sharing out of the global batch may go on is for the checkpoint to say.
"""


def resume_configuration(
    application: Application, run_dir: Path | None, files: list[Path], overrides: Mapping[str, Any]
) -> RunConfig:
    """The configuration in the run folder, with the changes that resuming allows."""
    from hpcbench.cli.settings import lookup
    from hpcbench.config.resolve import known_keys, resolve
    from hpcbench.results.run_folder import RunFolder

    if run_dir is None:
        raise InputError("--resume needs --run-dir, the folder of the run to continue")
    stored = RunFolder.open(run_dir).config
    before = resolve(application, None, [stored])
    config = resolve(application, None, [stored, *files], overrides)
    for key, _ in known_keys(type(config)):
        if lookup(config, key) != lookup(before, key) and not key.startswith(MAY_CHANGE):
            raise InputError(
                f"cannot resume with {key} {lookup(config, key)}: the run has {lookup(before, key)}; "
                "leave it out, or start a new run"
            )
    return config
