"""``hpcbench stage``: the same as ``python -m staging``."""

from __future__ import annotations

from staging.cli import DESCRIPTION, HELP, add_arguments, run

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]
