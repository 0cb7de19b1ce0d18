"""Complete a command line for a shell: the words possible at the cursor, from the parsers of the commands.

The script of ``hpcbench completion`` starts hpcbench with the line in the environment, and argcomplete answers. Only
the command that the line names gets its options, and only the values of the argument at the cursor are looked up.
"""

from __future__ import annotations

import argparse
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from hpcbench.application import find_application, installed
from hpcbench.cli.arguments import Parser
from hpcbench.cli.commands import COMMANDS, command, takes_settings
from hpcbench.config.schema import RunConfig
from staging.errors import InputError

Words = list[str]
Names = Callable[[Words], Iterable[str]]
"""Returns the names possible at the cursor, from the words before it."""
SHORTEST_OF_A_SETTING = 3
"""Fewest characters of a word that is also completed to settings; there are many, so ``--`` gives only options."""


def complete(environ: Mapping[str, str]) -> None:
    """Answer the shell and end this process."""
    from argcomplete.finders import CompletionFinder
    from argcomplete.lexers import split_line

    line, point = environ["COMP_LINE"], int(environ["COMP_POINT"])
    _, word, _, words, _ = split_line(line, point)
    finder = CompletionFinder()
    finder(
        parser_of(words),
        always_complete_options=False,
        print_suppressed=len(word) >= SHORTEST_OF_A_SETTING,
    )


def parser_of(words: Words) -> Parser:
    """The parser for everything that may follow ``words``, the line up to the word at the cursor."""
    root = Parser("hpcbench", "")
    root.add_argument("--version", action="store_true", help="print the version")
    group = root.add_subparsers(parser_class=Parser)
    named = words[1] if len(words) > 1 else None
    for name in COMMANDS:
        if named is None:
            group.add_parser(name, help=COMMANDS[name], description="")
        elif name == named:
            parser = group.add_parser(name, description="")
            command(name).add_arguments(parser)
            prepare(parser, words, takes_settings(command(name)))
    return root


def prepare(parser: Parser, words: Words, settings: bool) -> None:
    """Give a parser and its subcommands completers and, if they take settings, the dotted settings."""
    for subcommand, inner in parser.subcommands.items():
        if subcommand in words[2:3]:
            prepare(inner, words, settings and inner.get_default("subcommand").takes_settings)
    if settings and not parser.subcommands:
        add_settings(parser, words)
    for action in parser._actions:
        names = NAMES.get(key_of(parser, action))
        if names is not None:
            action.completer = completer(names, words)  # type: ignore[attr-defined]


def add_settings(parser: Parser, words: Words) -> None:
    """Add the dotted settings as hidden options, which complete only a word that begins like one of them."""
    application = application_of(words)
    kind: type = RunConfig
    if application is not None:
        from hpcbench.config.resolve import config_class

        kind = config_class(find_application(application))
    for key, values in setting_values(kind):
        switch = "?" if values == SWITCH else None
        option = parser.add_argument(f"--{key}", nargs=switch, help=argparse.SUPPRESS)
        if values:
            option.choices = values


SWITCH = ("true", "false")


def setting_values(kind: type, prefix: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every dotted setting of a configuration with its possible values; none if they cannot be listed."""
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        hint, key = hints[field.name], f"{prefix}{field.name}"
        if is_dataclass(hint):
            yield from setting_values(typing.cast("type", hint), f"{key}.")
        elif prefix and field.init:
            yield key, words_of(hint)


def words_of(hint: Any) -> tuple[str, ...]:
    """The possible values of a type, as words; none if it may be anything."""
    if hint is bool:
        return SWITCH
    if typing.get_origin(hint) is Literal:
        return tuple(str(choice) for choice in typing.get_args(hint))
    if type(None) in typing.get_args(hint):
        return tuple(word for member in typing.get_args(hint) for word in words_of(member))
    return ()


def application_of(words: Words) -> str | None:
    """The application that a line names; ``None`` if it names none."""
    known = installed()
    return next((word for word in words if word in known), None)


def presets(words: Words) -> Iterable[str]:
    """The presets of the application that the line names, else those of all."""
    named = application_of(words)
    return dict.fromkeys(
        preset for name in ([named] if named else installed()) for preset in find_application(name).presets()
    )


def sites(words: Words) -> Iterable[str]:
    """The sites that jobs can be written for."""
    from hpcbench.batch.site import known_sites

    return known_sites()


def machines(words: Words) -> Iterable[str]:
    """The machines with facts."""
    from hpcbench.batch.machine import yaml_files
    from hpcbench.batch.site import machine_folders

    return yaml_files(machine_folders())


def campaigns(words: Words) -> Iterable[str]:
    """The campaigns with rules."""
    from hpcbench.campaign.read_rules import known_campaigns

    return known_campaigns()


def optimizers(words: Words) -> Iterable[str]:
    """The optimizers."""
    from hpcbench.config.optimizers import optimizer_names

    return optimizer_names()


def applications(words: Words) -> Iterable[str]:
    """The installed applications."""
    return installed()


NAMES: dict[str, Names] = {
    "APP": applications, "APP|DIR": applications, "APP|PATH": applications, "--app": applications,
    "--application": applications, "--preset": presets, "--site": sites, "--machine": machines,
    "--optim.name": optimizers, "hpcbench sites NAME": lambda words: [*sites(words), *machines(words)],
    **dict.fromkeys((f"hpcbench campaign {name} NAME" for name in ("show", "plan", "run")), campaigns),
}  # fmt: skip
"""Names by option, by the metavar of a positional argument, or by command and metavar."""


def key_of(parser: Parser, action: argparse.Action) -> str:
    """The key of an argument in ``NAMES``."""
    if action.option_strings:
        return action.option_strings[-1]
    return f"{parser.prog} NAME" if action.metavar == "NAME" else str(action.metavar)


def completer(names: Names, words: Words) -> Callable[..., Iterable[str]]:
    """The function that argcomplete calls: it returns the names, and files if the argument may be one."""

    def names_and_files(prefix: str, action: argparse.Action, **_: object) -> Iterable[str]:
        from argcomplete.completers import FilesCompleter

        files = FilesCompleter()(prefix) if "|" in str(action.metavar) else []
        try:
            return [*names(words), *files]
        except InputError:  # such as an application that cannot be imported
            return files

    return names_and_files
