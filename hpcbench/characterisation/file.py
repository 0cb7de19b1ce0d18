"""The file of a characterisation: JSON with its version, and each value checked when it is read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from hpcbench.characterisation.model import SCHEMA, WHAT, Characterisation
from hpcbench.characterisation.new_file import write_new
from hpcbench.config.read_dataclass import from_json
from hpcbench.parallel.mesh_shape import mesh_shape
from staging.bounds import shown
from staging.errors import InputError
from staging.formats.regular import open_regular

MOST_BYTES = 256 << 20


def write_characterisation(characterisation: Characterisation, path: Path) -> Path:
    """Write the file by way of a temporary name; returns its path. Raises ``InputError`` where it cannot be written."""
    text = json.dumps(
        {"what": WHAT, "schema": SCHEMA, **dataclasses.asdict(characterisation)}, indent=1, allow_nan=False
    )
    return write_new(path, "--out", lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))


def read_characterisation(path: Path) -> Characterisation:
    """Read a characterisation from a file. Raises ``InputError`` in one line with the file and what is wrong in it."""
    values = read_object(path)
    if values.pop("what", None) != WHAT:
        raise InputError(f"{path} is no characterisation; `hpcbench characterize APP --out FILE` writes one")
    schema = values.pop("schema", None)
    if schema != SCHEMA:
        raise InputError(
            f"{path} has schema {shown(schema)} where this hpcbench reads {SCHEMA}; characterise the machine again"
        )
    characterisation = from_json(Characterisation, values, f"{path}: ")
    check_consistent(characterisation, f"{path}: ")
    return characterisation


def check_consistent(characterisation: Characterisation, where: str) -> None:
    """Raise ``InputError`` that begins with ``where`` for values that do not go together, or that are not there."""
    if not characterisation.kernels:
        raise InputError(f"{where}kernels must not be empty; characterise again")
    for number, steps in enumerate(characterisation.steps):
        for name in ("rank_s", "flop_per_s"):
            entries = len(getattr(steps, name))
            if entries != steps.ranks:
                raise InputError(
                    f"{where}steps[{number}].{name} has {entries} values where steps[{number}].ranks is {steps.ranks}; "
                    "give one for each rank"
                )
    parallel = characterisation.configuration.get("parallel", {})
    if not isinstance(parallel, dict):
        raise InputError(f"{where}configuration.parallel ({shown(parallel)}) must hold keys and values")
    for ranks in (characterisation.host.ranks, *(steps.ranks for steps in characterisation.steps)):
        try:
            mesh_shape(ranks, str(parallel.get("spatial", "1")))
        except InputError as error:
            raise InputError(f"{where}configuration.{error}") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. Raises ``InputError`` where it cannot be read or holds none."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the file that `hpcbench characterize --out FILE` wrote")
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"{path} has more than {MOST_BYTES:,} bytes, which no file of this kind has")
        parsed = json.loads(content)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise InputError(f"{path} must hold a JSON object, not {shown(parsed)}")
    return parsed
