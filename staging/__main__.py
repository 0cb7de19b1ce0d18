"""``python -m staging``: the staging layer on its own."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from staging.cli import check_locale, run, said_once
from staging.cli_options import DESCRIPTION, add_arguments
from staging.errors import InputError
from staging.print_line import print_line


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see {self.prog} --help")


def main() -> int:
    """Run one command line; returns the exit code."""
    parser = Parser(
        prog="python -m staging",
        description=DESCRIPTION.replace("hpcbench stage", "python -m staging"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_arguments(parser)
    try:
        args = said_once(parser.parse_args)
        said_once(check_locale)
        return run(args)
    except InputError as error:
        if error.speaks:
            print_line(f"staging: error: {' '.join(str(error).split())}")
        return 2
    except KeyboardInterrupt:
        print_line("staging: aborted: signal SIGINT; run it again to continue")
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # otherwise the interpreter complains there about what it can't flush
        return 141


if __name__ == "__main__":
    sys.exit(main())
