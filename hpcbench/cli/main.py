"""``hpcbench``: finds the command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

from hpcbench import __version__
from hpcbench.cli.commands import COMMANDS, command, takes_settings
from hpcbench.exits import BAD_INPUT, Aborted
from hpcbench.suggest import suggest
from hpcbench.train.huge_pages import use_huge_pages
from staging.bounds import shown
from staging.cli import check_locale, said_once
from staging.errors import InputError
from staging.print_line import print_line
from staging.ranks.process_exit import keep_exit_code

HEADER = """\
usage: hpcbench COMMAND [options]

A benchmark suite for scientific deep learning on supercomputers: simulate or bring
the data, stage it, train to a stated quality, and report time to solution.

commands:
"""

FOOTER = """
Start with `hpcbench demo`. `hpcbench COMMAND --help` explains a command.
Exit codes: 0 done, 1 aborted, 2 bad input, 3 target not reached, 128+n ended by signal n;
of a job, 4 if another job holds its run folder (a training by hand is refused with 2).
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code. If a shell asks for completion, complete the line instead."""
    if argv is None and "_ARGCOMPLETE" in os.environ:
        complete_for_shell()
    tokens = list(sys.argv[1:] if argv is None else argv)
    use_huge_pages(os.environ)
    return keep_exit_code(run_command(tokens))


def complete_for_shell() -> None:
    """Answer the shell and end this process, with exit code 1 if there is no answer."""
    with suppress(Exception):  # a shell does not show the error, and falls back to file names
        from hpcbench.cli.completers import complete

        complete(os.environ)
    os._exit(1)


def run_command(tokens: list[str]) -> int:
    """Run a command; every foreseen error becomes one line and an exit code."""
    try:
        return dispatch(tokens)
    except InputError as error:
        if error.speaks:
            print_line(f"hpcbench: error: {' '.join(str(error).split())}")
        return BAD_INPUT
    except Aborted as error:
        if error.speaks:
            print_line(f"hpcbench: aborted: {' '.join(str(error).split())}")
        return error.exit_code
    except KeyboardInterrupt:
        print_line("hpcbench: interrupted")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except (OSError, RuntimeError) as error:
        if not (problem := problem_of_name(error)):
            raise
        print_line(f"hpcbench: error: {problem}; give another path")
        return BAD_INPUT


def problem_of_name(error: OSError | RuntimeError) -> str:
    """What is wrong with a path that no file can have, that loops, or that may not be read; empty for any other error.

    Each command uses the paths that it is given in many places; the system refuses such a path at the first of them.
    """
    if isinstance(error, OSError):
        of_name = error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES) and error.filename is not None
        return f"{shown(str(error.filename))}: {(error.strerror or '').lower()}" if of_name else ""
    loop = str(error).removeprefix("Symlink loop from ")  # of `Path.resolve` before Python 3.13
    return f"{shown(loop.strip(chr(39)))}: too many levels of symbolic links" if loop != str(error) else ""


def dispatch(tokens: list[str]) -> int:
    """Hand the command line to its command."""
    if not tokens or tokens[0] in ("-h", "--help", "help"):
        print(HEADER + "\n".join(f"  {name:12} {COMMANDS[name]}" for name in COMMANDS) + "\n" + FOOTER, end="")
        return 0
    if tokens[0] == "--version":
        print(f"hpcbench {__version__}")
        return 0
    name, *rest = tokens
    if name not in COMMANDS:
        raise InputError(f"unknown command '{shown(name)}'; {suggest(name, list(COMMANDS))}")
    module = command(name)
    args, overrides = said_once(lambda: parse(name, rest))
    said_once(check_locale)
    return int(module.run_with_overrides(args, overrides) if takes_settings(module) else module.run(args))


def parse(name: str, words: list[str]) -> tuple[Namespace, dict[str, str]]:
    """The parsed command line of a command, and its dotted settings. Raises ``InputError``."""
    from hpcbench.cli.arguments import Parser

    module = command(name)
    parser = Parser(f"hpcbench {name}", module.DESCRIPTION)
    module.add_arguments(parser)
    return parser.parse_with_settings(words) if takes_settings(module) else (parser.parse_strictly(words), {})


if __name__ == "__main__":
    sys.exit(main())
