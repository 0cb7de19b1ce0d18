"""The file of a characterisation: JSON with its version, checked value by value when it is read."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from pathlib import Path
from typing import Any

from hpcbench.characterisation.model import SCHEMA, WHAT, Characterisation
from hpcbench.suggest import suggest
from staging.atomic import replacing
from staging.bounds import shown
from staging.errors import InputError
from staging.formats.regular import open_regular

MOST_BYTES = 256 << 20
NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def write_characterisation(found: Characterisation, path: Path) -> None:
    """Write the file by a temporary name. Raises ``InputError`` where that cannot be."""
    text = json.dumps({"what": WHAT, "schema": SCHEMA, **dataclasses.asdict(found)}, indent=1, allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); give another --out") from error


def read_characterisation(path: Path) -> Characterisation:
    """The characterisation of a file. Raises ``InputError`` in one line that names the file and what is wrong there."""
    values = read_object(path)
    if values.pop("what", None) != WHAT:
        raise InputError(f"{path} is no characterisation; `hpcbench characterize APP --out FILE` writes one")
    schema = values.pop("schema", None)
    if schema != SCHEMA:
        raise InputError(
            f"{path} has schema {shown(schema)} where this hpcbench reads {SCHEMA}; characterise the machine again"
        )
    made: Characterisation = _made(Characterisation, values, f"{path}: ")
    return made


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. Raises ``InputError``."""
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"{path} has more than {MOST_BYTES:,} bytes, which no file of this kind has")
        found = json.loads(content)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold a JSON object, not {shown(found)}")
    return found


def _made(kind: type, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise InputError(f"{where.rstrip('. ')} must hold keys and values, not {shown(values)}")
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in hints:
            raise InputError(f"{where}unknown key '{shown(key)}'; {suggest(key, list(hints))}")
    for each in dataclasses.fields(kind):
        needed = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        if needed and each.name not in values:
            raise InputError(f"{where.rstrip('. ').rstrip(':')} lacks '{each.name}'")
    return kind(**{key: _value(hints[key], value, f"{where}{key}") for key, value in values.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    """One value as its field's type says. Raises ``InputError``."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if value is None else _value(next(each for each in inner if each is not type(None)), value, where)
    if dataclasses.is_dataclass(hint):
        return _made(typing.cast("type", hint), value, f"{where}.")
    if origin is tuple and isinstance(value, list):
        return tuple(_value(inner[0], each, f"{where}[{number}]") for number, each in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {str(key): _value(inner[1], each, f"{where}.{key}") for key, each in value.items()}
    return _plain(hint, value, where)


def _plain(hint: Any, value: Any, where: str) -> Any:
    """A word or a number. Raises ``InputError``."""
    words = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    if hint is Any or value in words or (hint in (bool, str) and isinstance(value, hint)):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if number and (hint is float or (hint is int and value == int(value))):
        return hint(value)
    said = f"one of {', '.join(map(str, words))}" if words else NAMES.get(hint, "of another type")
    raise InputError(f"{where} ({shown(value)}) must be {said}")
