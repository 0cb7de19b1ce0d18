"""``hpcbench completion``: the script with which a shell completes hpcbench command lines."""

from __future__ import annotations

import argparse

from staging.errors import InputError

DESCRIPTION = """\
Print the completion script of a shell. With it the tab key completes commands, options,
applications, presets, sites, machines and settings, including those of other packages.

  hpcbench completion bash
  hpcbench completion zsh
  hpcbench completion fish

Add a line to the file that the shell reads when it starts:

  bash   ~/.bashrc                    eval "$(hpcbench completion bash)"
  zsh    ~/.zshrc, after compinit     eval "$(hpcbench completion zsh)"
  fish   ~/.config/fish/config.fish   hpcbench completion fish | source

If Python starts slowly, save the output to a file, and let the shell read that file instead.
"""
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise InputError("completion needs argcomplete, which is missing: pip install argcomplete") from None
    print(shellcode(["hpcbench"], shell=args.shell).strip())
    return 0
