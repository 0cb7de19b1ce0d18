"""Command lines of the suite: argparse with one-line errors, and dotted overrides of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hpcbench.application import Application, find_application, installed
from hpcbench.config.schema import RunConfig
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError

LONGEST_MESSAGE = 500
"""Most characters kept of argparse's own message, which repeats the arguments."""


HELP_OPTIONS = ("-h", "--help")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with subcommands or without."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.subcommands: dict[str, Parser] = {}
        self.siblings: dict[str, Parser] = {}
        """For a subcommand: all subcommands of its group by name, itself included."""

    def error(self, message: str) -> NoReturn:
        words = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."
        raise InputError(f"{words}; see {self.prog} --help")

    def add_subcommands(self, subcommands: Sequence[Subcommand]) -> None:
        """Make this the parser of a group; the first word of a command line names the subcommand."""
        lines = [f"  {subcommand.name:12} {subcommand.help}" for subcommand in subcommands]
        self.epilog = "\n".join(["commands:", *lines])
        self.usage = f"{self.prog} COMMAND [options]"
        group = self.add_subparsers(prog=self.prog, help=argparse.SUPPRESS, parser_class=Parser)
        for subcommand in subcommands:
            parser = group.add_parser(subcommand.name, help=subcommand.help, description=subcommand.description)
            subcommand.add_arguments(parser)
            parser.set_defaults(subcommand=subcommand)
            parser.siblings = self.subcommands
            self.subcommands[subcommand.name] = parser

    def parse_with_settings(self, tokens: Sequence[str]) -> tuple[argparse.Namespace, dict[str, str]]:
        """Parse a command line that may have dotted settings. Raises ``InputError`` if the subcommand takes none."""
        words, overrides = split_overrides(tokens)
        args = self.parse_strictly(words)
        subcommand: Subcommand | None = getattr(args, "subcommand", None)
        if overrides and subcommand is not None and not subcommand.takes_settings:
            name = shown(next(iter(overrides)))
            raise InputError(f"{self.prog} {subcommand.name} takes no dotted settings; leave out --{name}")
        return args, overrides

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse a command line that has no dotted settings; an unknown option gets a suggestion."""
        words = list(argv)
        if self.subcommands:
            return self.subcommand_of(words).parse_strictly(words[1:])
        self.refuse_unknown_options(words)
        args, rest = self.parse_known_intermixed_args(words)
        if rest:
            hint = suggest(rest[0], self.options()) if rest[0].startswith("-") else f"see {self.prog} --help"
            raise InputError(f"{self.prog}: unknown argument '{shown(rest[0])}'; {hint}")
        return args

    def subcommand_of(self, words: Sequence[str]) -> Parser:
        """The parser of the subcommand that a command line begins with. Raises ``InputError`` if there is none."""
        names = list(self.subcommands)
        if words and words[0] in names:
            return self.subcommands[words[0]]
        later = next((word for word in words if word in names), None)
        if later is not None:
            raise InputError(f"{self.prog}: name the command first: {self.prog} {later} ...")
        if any(option in words for option in HELP_OPTIONS):
            self.print_help()
            self.exit()
        if not words or words[0].startswith("-"):
            raise InputError(f"{self.prog} needs a command: {', '.join(names)}; see {self.prog} --help")
        raise InputError(f"{self.prog}: unknown command '{shown(words[0])}'; {suggest(words[0], names)}")

    def refuse_unknown_options(self, words: Sequence[str]) -> None:
        """Raise ``InputError`` for the first option that this command lacks, and say which sibling has it."""
        known = self.options()
        for word in words:
            if word == "--":
                return
            option = word.partition("=")[0]
            if not word.startswith("--") or " " in option or option in known:
                continue
            owners = [name for name, sibling in self.siblings.items() if option in sibling.options()]
            if owners:
                group = self.prog.rpartition(" ")[0]
                raise InputError(f"{self.prog} has no {option}; it is an option of {group} {', '.join(owners)}")
            raise InputError(f"{self.prog}: unknown argument '{shown(word)}'; {suggest(option, known)}")

    def options(self) -> list[str]:
        """All options of this command."""
        return [option for action in self._actions for option in action.option_strings]


@dataclass(frozen=True)
class Subcommand:
    """One command of a group, such as ``hpcbench study strong``."""

    name: str
    help: str
    """Its line in the help of the group."""
    description: str
    """What its own help says above the options, with an example."""
    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace, dict[str, str]], int]
    """Runs it with the parsed command line and the dotted settings; returns the exit code."""
    takes_settings: bool = True
    """Whether it takes dotted settings."""


def run_subcommand(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Run the subcommand that the command line names."""
    subcommand: Subcommand = args.subcommand
    return subcommand.run(args, overrides)


BOOLEANS = ("true", "false", "yes", "no", "null")


def switch_names(tokens: Sequence[str]) -> frozenset[str]:
    """The boolean dotted settings of the application that the command line names."""
    from hpcbench.config.resolve import config_class, known_keys

    names = installed()
    application = next((token for token in tokens if token in names), None)
    kind = config_class(find_application(application)) if application else RunConfig
    return frozenset(key for key, value in known_keys(kind) if isinstance(value, bool))


def split_overrides(tokens: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take the dotted settings out of a command line, wherever they are.

    ``["--train.compile", "app", "--optim.lr", "0.1"]`` gives ``["app"]`` and
    ``{"optim.lr": "0.1", "train.compile": "true"}``: a boolean setting needs no value.
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


def add_run_options(
    parser: argparse.ArgumentParser, word: str = "APP", meaning: str = "application; `hpcbench apps` lists them"
) -> None:
    """Add options that select the configuration of a run; ``word`` and ``meaning`` describe the first argument."""
    add_preset_options(parser, word, meaning)
    parser.add_argument("--seed", type=int, help="seed of every random draw")
    parser.add_argument("--samples", type=int, metavar="N", help="number of training samples")


def add_preset_options(
    parser: argparse.ArgumentParser, word: str = "APP", meaning: str = "application; `hpcbench apps` lists them"
) -> None:
    """Add options for the application, its preset and files of settings."""
    parser.add_argument("app", metavar=word, help=meaning)
    parser.add_argument("--preset", help="smoke, laptop, node, mlperf, ... (default: smoke)")
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="FILE", help="YAML file of settings; repeatable"
    )


def resolve_arguments(
    application: Application, args: argparse.Namespace, dotted: Mapping[str, str], prefix: str
) -> RunConfig:
    """The configuration that a command line asks for; ``--seed`` and ``--samples`` set keys of group ``prefix``."""
    from hpcbench.config.resolve import resolve

    overrides: dict[str, str | int] = dict(dotted)
    samples, seed = getattr(args, "samples", None), getattr(args, "seed", None)
    if samples is not None:
        overrides["simulate.train_samples" if prefix == "simulate" else "data.train_samples"] = samples
    if seed is not None:
        overrides["simulate.seed" if prefix == "simulate" else "train.seed"] = seed
    if getattr(args, "resume", False):
        named = {} if args.preset is None else {"preset": preset_of(args)}
        return resume_configuration(application, args.run_dir, args.config, named | overrides)
    return resolve(application, preset_of(args), args.config, overrides)


def preset_of(args: argparse.Namespace) -> str:
    """The preset that a command line or one of its settings files names; ``smoke`` if none does."""
    from hpcbench.config.resolve import preset_named

    return preset_named(args.config, args.preset)


MAY_CHANGE = (
    "train.max_epochs", "train.max_steps", "train.target", "train.checkpoint_every", "train.keep_checkpoints",
    "train.baselines", "train.page", "train.local_batch_size", "train.accumulation", "data.root", "data.workers",
    "data.prefetch", "measure.", "parallel.", "staging.",
)  # fmt: skip
"""Settings that a resumed run may change; all others decide what is computed.

Whether it may continue with its global batch divided differently is checked against its checkpoint.
"""


def resume_configuration(
    application: Application, run_dir: Path | None, files: list[Path], overrides: Mapping[str, Any]
) -> RunConfig:
    """The configuration in the run folder, with the changes that resuming allows."""
    from hpcbench.cli.settings import lookup
    from hpcbench.config.resolve import known_keys, resolve
    from hpcbench.measure.mllog_resume import logged_benchmark
    from hpcbench.results.run_folder import RunFolder

    if run_dir is None:
        raise InputError("--resume needs --run-dir, the folder of the run to continue")
    folder = RunFolder.open(run_dir)
    stored, benchmark = folder.config, logged_benchmark(folder.mllog)
    if benchmark not in (None, application.benchmark):
        raise InputError(
            f"the run in {run_dir} is of {benchmark}, not of {application.benchmark}; name its application to continue "
            "it, or give another --run-dir to start a new run"
        )
    before = resolve(application, None, [stored])
    config = resolve(application, None, [stored, *files], overrides)
    for key, _ in known_keys(type(config)):
        if lookup(config, key) != lookup(before, key) and not key.startswith(MAY_CHANGE):
            raise InputError(
                f"cannot resume with {key} {lookup(config, key)}: the run has {lookup(before, key)}; "
                "leave it out, or start a new run"
            )
    return config
