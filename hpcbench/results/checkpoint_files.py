"""Names of checkpoints in a run folder, which of them are complete, and how old ones are removed. Imports no torch.

A checkpoint is a file ``epoch-0003-step-00000120.pt`` and its marker, a JSON file of the same name with the checksum.
The marker appears last and is removed first, and each time the code waits for the disk in between. So at every instant,
even after a crash of the machine, a marker means that the file is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from staging.atomic import is_temporary, replacing, sync_folder
from staging.errors import InputError

NAME = re.compile(r"epoch-(\d+)-step-(\d+)(?:-(\d+))?")
REFUSED = "cannot resume: "
"""How the message begins if a run cannot continue from its checkpoint, whatever else is right."""


def new_path(folder: Path, epoch: int, step: int) -> Path:
    """A name that no checkpoint of ``folder`` has, and that is newer than those of the same step.

    A resumed run may reach a step that has one. It is not replaced, since file and marker do not change atomically.
    """
    ages = [_age(path) for path in folder.glob("epoch-*") if NAME.fullmatch(path.stem)]
    number = 1 + max((number for *of, number in ages if of == [epoch, step]), default=0)
    return folder / f"epoch-{epoch:04d}-step-{step:08d}{f'-{number}' if number > 1 else ''}.pt"


def complete(folder: Path) -> list[Path]:
    """The complete checkpoints of ``folder``, oldest first: by epoch, step, and number where a step has several."""
    paths = [path for path in folder.glob("epoch-*.pt") if NAME.fullmatch(path.stem) and marker(path).exists()]
    return sorted(paths, key=_age)


def marker(path: Path) -> Path:
    """The file that says that the checkpoint ``path`` is complete."""
    return path.with_suffix(".json")


def write_marker(path: Path, facts: Mapping[str, Any]) -> None:
    """Declare the checkpoint ``path`` complete, durably; the disk must have it already."""
    with replacing(marker(path), durable=True) as temporary:
        temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def remove_old(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` complete checkpoints, and what killed writers left behind."""
    newest = {path.stem for path in complete(folder)[-keep:]}
    files = [path for path in folder.iterdir() if path.is_file()]
    markers = [path for path in files if path.suffix == ".json" and _is_old(path, newest)]
    for path in markers:
        path.unlink()
    if markers:
        sync_folder(folder)
    for path in files:
        if (path.suffix == ".pt" and _is_old(path, newest)) or _is_left_behind(path):
            path.unlink()


def resume_advice(folder: Path) -> str:
    """What a user whose run has ended can do next, given its checkpoint folder: resume only if it has a checkpoint."""
    if complete(folder):
        return "resume with --resume"
    return "start again with another --run-dir, since this run has no checkpoint yet"


def advice_if_unusable(path: Path) -> str:
    """What a user who cannot resume from the checkpoint ``path`` can do: use another one only if there is one."""
    if any(other != path for other in complete(path.parent)):
        return f"remove it and its .json to resume from the one before (in {path.parent})"
    return "start again with another --run-dir, since this run has no other checkpoint"


def refusal(problem: str) -> InputError:
    """The error of a run that cannot continue from its checkpoint."""
    return InputError(f"{REFUSED}{problem}")


def is_refusal(reason: str) -> bool:
    """Whether a run that ended for ``reason`` could not continue from its checkpoint."""
    return reason.startswith(REFUSED)


def _age(path: Path) -> tuple[int, int, int]:
    match = NAME.fullmatch(path.stem)
    assert match is not None
    return int(match[1]), int(match[2]), int(match[3] or 1)


def _is_old(path: Path, newest: set[str]) -> bool:
    return NAME.fullmatch(path.stem) is not None and path.stem not in newest


def _is_left_behind(path: Path) -> bool:
    return is_temporary(path.name) and NAME.match(path.name[1:]) is not None
