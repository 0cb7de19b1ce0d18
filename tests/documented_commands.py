"""The command lines of pages and help texts, as somebody would type them, in their order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from hpcbench.cli.commands import COMMANDS
from tests.command_lines import FENCED, INLINE, OPERATORS, refusal

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/*/README.md"),
                *ROOT.glob("b*/README.md")])  # fmt: skip
BLOCK = re.compile(r"^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELL = ("", "sh", "bash")
"""Languages of blocks whose lines are commands. Any other block names its language; output is ``text``."""
PROGRAMS = ("hpcbench", "mpiexec", "srun", "torchrun", "python", "pip")
"""What the commands in sentences and help texts begin with."""
PLACEHOLDER = re.compile(r"^(\.\.\.|[A-Z][A-Z_|0-9]*(\.\.\.)?)$")
"""A word that a sentence leaves to its reader."""
ASSIGNMENT = re.compile(r"^[A-Z_]+=")
EXPLAINED = re.compile(r"(?<=\S)  +(?=[a-z`])")
"""In a help text, behind two spaces stands what the command does."""


@dataclass(frozen=True)
class Command:
    """One program with its words, and the page or help text that has it."""

    source: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.words)


def every() -> dict[str, list[Command]]:
    """The commands of each page and of the help of each command."""
    pages = {str(path.relative_to(ROOT)): of_page(path) for path in PAGES}
    return pages | {f"{name} --help": list(of_help(name)) for name in COMMANDS}


def of_page(path: Path) -> list[Command]:
    """The commands of a page: of its blocks, and those of its sentences that can be typed as they stand."""
    page, source = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    found = [(block.start(), program) for block in BLOCK.finditer(page) if block["language"] in SHELL
             for program in programs(block["text"])]  # fmt: skip
    sentences = FENCED.sub(lambda block: " " * len(block[0]), page)
    for inline in INLINE.finditer(sentences):
        found += [(inline.start(), program) for program in programs(" ".join(inline[1].split())) if is_whole(program)]
    return [Command(source, tuple(words)) for _, words in sorted(found, key=lambda each: each[0])]


def of_help(name: str) -> Iterator[Command]:
    """The commands in the help texts of a command and its subcommands, each once."""
    module = import_module(f"hpcbench.cli.{name}")
    texts = [module.DESCRIPTION, *(each.description for each in getattr(module, "SUBCOMMANDS", ()))]
    lines = [line for text in texts for line in text.replace("\\\n", " ").splitlines() if line.startswith("  ")]
    typed = [EXPLAINED.split(line.strip())[0] for line in lines if line.split()[0] in PROGRAMS]
    for line in dict.fromkeys(typed):
        yield from (Command(f"{name} --help", tuple(words)) for words in programs(line))


def programs(text: str) -> Iterator[list[str]]:
    """The words of every program of a shell's lines; lines that end with a backslash are joined, comments left out."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=OPERATORS)
        lexer.whitespace_split = True
        words: list[str] = []
        try:
            typed = [*lexer, ";"]
        except ValueError:  # a quote that is never closed: no command
            continue
        for word in typed:
            if not word or not set(word) <= set(OPERATORS):
                words += [] if not words and ASSIGNMENT.match(word) else [word]
            elif words:
                yield words
                words = []


def is_whole(words: list[str]) -> bool:
    """Whether a sentence gives a command that can be typed as it stands, and does not only name it."""
    if words[0] not in PROGRAMS or len(words) == 1 or any(PLACEHOLDER.match(word) for word in words):
        return False
    return refusal(words[1:]) is None if words[0] == "hpcbench" else True
