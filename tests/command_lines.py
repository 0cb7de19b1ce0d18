"""The ``hpcbench`` command lines in texts, and whether the suite's own parsers accept them."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator

from hpcbench.cli.commands import COMMANDS
from hpcbench.cli.main import parse
from staging.errors import InputError

FENCED = re.compile(r"^ *```.*?\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
OPERATORS = ";&|"
"""What parts the programs of a line."""
STARTS = ("hpcbench", "$", "mpiexec", "srun", "torchrun", "python")
"""How a line with a command begins."""
LEFT_OUT = ("the following arguments are required", "needs a command", "expected one argument")
"""What a parser says of a command that is only named, or that a text abbreviates."""


def in_blocks(page: str) -> Iterator[list[str]]:
    """The words of every command line in the fenced blocks of a page, after the name of the program."""
    for block in FENCED.finditer(page):
        yield from in_lines(block["text"])


def in_sentences(page: str) -> Iterator[list[str]]:
    """The words of every command line that a page has between single backquotes; it may go on in the next line."""
    for found in INLINE.finditer(FENCED.sub("", page)):
        yield from in_lines(" ".join(found[1].split()))


def in_lines(text: str) -> Iterator[list[str]]:
    """The words of every command line of a text; lines that end with a backslash are joined, comments left out."""
    for line in text.replace("\\\n", " ").splitlines():
        if "hpcbench" not in line:
            continue
        with contextlib.suppress(ValueError):  # a quote that is never closed: no command
            yield from programs(shlex.shlex(line, posix=True, punctuation_chars=OPERATORS))


def programs(words: shlex.shlex) -> Iterator[list[str]]:
    """The words after ``hpcbench`` of every program of a shell's line, also where a launcher starts it."""
    words.whitespace_split = True
    program: list[str] = []
    for word in (*words, ";"):
        if not set(word) <= set(OPERATORS):
            program.append(word)
            continue
        if "hpcbench" in program[:-1] and program[0] in STARTS:
            yield program[program.index("hpcbench") + 1 :]
        program = []


def refusal(words: list[str], *, may_be_cut: bool = False) -> str | None:
    """Why the parser of a command refuses its words; ``None`` where it accepts them.

    ``...`` stands for words that a text leaves out. With ``may_be_cut``, or where ``...`` is among them, required ones
    may be missing.
    """
    name, *rest = words
    if name in ("--help", "--version", "COMMAND"):
        return None
    if name not in COMMANDS:
        return f"no command {name}"
    given = ["1" if word == "N" else word for word in rest if word != "..."]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            args, _ = parse(name, given)
    except InputError as error:
        cut = may_be_cut or "..." in rest
        return None if cut and any(words in str(error) for words in LEFT_OUT) else str(error)
    except SystemExit:  # --help
        return None
    application = getattr(args, "app", None) or "none"
    if name == "data" and args.subcommand.name in ("inspect", "verify"):
        return None  # a dataset may stand in place of an application
    return None if application.isidentifier() else f"{application} is no name of an application"
