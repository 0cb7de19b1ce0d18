"""``commands.py PLAN``: a rank that runs commands of hpcbench one after the other, each in an environment of its own.

PLAN is JSON: environments, commands, and what to call before the first (``rank_processes.py``).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from hpcbench.cli.main import main
from hpcbench.exits import DONE, TARGET_NOT_REACHED
from hpcbench.train.loop import Trainer
from staging.ranks.process_exit import keep_exit_code

sys.path.insert(0, str(Path(__file__).parents[4]))


def stop_clock(trainer: Trainer, *args: Any) -> None:
    """Write down the collectives of a run when its clock stops."""
    if trainer.run.is_first and hasattr(trainer.step.reducer, "collectives"):
        (trainer.run.folder.path / "collectives").write_text(str(trainer.step.reducer.collectives))
    real_stop(trainer, *args)


def run(environments: list[dict[str, str]], commands: list[list[str]], prepare: tuple[str, list[Any]] | None) -> int:
    """The exit code of the first command that fails, else of the last."""
    if prepare is not None:
        os.environ.update(environments[0])
        module, _, name = prepare[0].partition(":")
        getattr(importlib.import_module(module), name)(*prepare[1])
    code = DONE
    for environ, words in zip(environments, commands, strict=True):
        os.environ.clear()
        os.environ.update(environ)
        sys.argv = ["hpcbench", *words]
        code = main(words)
        if code not in (DONE, TARGET_NOT_REACHED):
            break
    return code if len(commands) == 1 or code != TARGET_NOT_REACHED else DONE


if __name__ == "__main__":
    real_stop, Trainer.stop_clock = Trainer.stop_clock, stop_clock  # type: ignore[method-assign]
    sys.exit(keep_exit_code(run(*json.loads(sys.argv[1]))))
