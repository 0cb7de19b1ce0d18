"""A page for each command, made from its help and that of its subcommands."""

from __future__ import annotations

import os
from unittest.mock import patch

from hpcbench.cli.arguments import Parser
from hpcbench.cli.commands import COMMANDS, command
from hpcbench.cli.main import FOOTER

FOLDER = "reference/commands"
COLUMNS = "100"
"""How wide the help is written."""


def command_pages() -> dict[str, str]:
    """Path to text of every page, that of all commands first."""
    rows = [f"| [`hpcbench {name}`]({name}.md) | {COMMANDS[name]} |" for name in COMMANDS]
    table = "\n".join(["| command | does |", "|---|---|", *rows])
    first = f"# Commands\n\nEach page is what `hpcbench COMMAND --help` prints.\n\n{table}\n{FOOTER}"
    return {f"{FOLDER}/index.md": first} | {f"{FOLDER}/{name}.md": command_page(name) for name in COMMANDS}


def command_page(name: str) -> str:
    """The help of a command and of each of its subcommands, as Markdown."""
    module = command(name)
    parser = Parser(f"hpcbench {name}", module.DESCRIPTION)
    module.add_arguments(parser)
    summary = COMMANDS[name][0].upper() + COMMANDS[name][1:]
    parts = [f"# hpcbench {name}", f"{summary}.", as_block(parser)]
    for subcommand in parser.subcommands.values():
        parts += [f"## {subcommand.prog}", as_block(subcommand)]
    return "\n\n".join(parts) + "\n"


def as_block(parser: Parser) -> str:
    """The help of a parser as a block of text, equally wide wherever it is made."""
    with patch.dict(os.environ, COLUMNS=COLUMNS):
        return f"```text\n{parser.format_help().rstrip()}\n```"
