"""Words that are safe in a job script: quoted, or refused if a scheduler would read them unquoted."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

from staging.bounds import shown
from staging.errors import InputError

DIRECTIVE = re.compile(r"[A-Za-z0-9_.,:@%+=/&|!*()\[\]{}^~-]*")
"""What a scheduler's directive may hold: nothing that ends it, is expanded, or opens a quotation."""
VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

MOST_DAYS = 365
"""Longest time limit of a job."""


def check_text(what: str, text: str, *, spaces: bool = False) -> str:
    """``text``, if a scheduler may read it as it is. Raises ``InputError`` otherwise."""
    bare = text.replace(" ", "") if spaces else text
    if not DIRECTIVE.fullmatch(bare):
        bad = next(letter for letter in bare if not DIRECTIVE.fullmatch(letter))
        raise InputError(
            f"{what} ({text!r}) has the character {bad!r}, which a job script cannot hold there; leave it out"
        )
    return text


def check_name(what: str, text: str) -> str:
    """``text``, if it is the name of a variable. Raises ``InputError`` otherwise."""
    if not NAME.fullmatch(text):
        raise InputError(f"{what} ({text!r}) must be the name of a variable: letters, digits and _, no digit first")
    return text


def check_variables(what: str, text: str) -> str:
    """``text``, if every ``$`` in it begins the name of a variable. Raises ``InputError`` otherwise."""
    if "$" in VARIABLE.sub("", text):
        raise InputError(
            f"{what} ({text!r}) has a $ that begins no variable; write $NAME or ${{NAME}}, or leave it out"
        )
    if "\n" in text:
        raise InputError(f"{what} ({text!r}) has more than one line; give one")
    return text


def quoted(word: str | PurePath) -> str:
    """A word that the shell takes as it is."""
    return shlex.quote(str(word))


def expanded(text: str, *, unset: bool = False) -> str:
    """A word in which the shell replaces ``$NAME`` and nothing else; ``unset``: also if the variable is not set."""
    if not VARIABLE.search(text):
        return quoted(text)
    parts, last = [], 0
    for match in VARIABLE.finditer(text):
        parts += [escaped(text[last : match.start()]), f"${{{match[1] or match[2]}{':-' if unset else ''}}}"]
        last = match.end()
    return '"' + "".join([*parts, escaped(text[last:])]) + '"'


def escaped(text: str) -> str:
    """``text`` for the inside of double quotes."""
    return re.sub(r'([\\"`$])', r"\\\1", text)


def time_s(what: str, text: str) -> int:
    """Seconds of ``HH:MM:SS``, ``D-HH:MM:SS``, ``MM`` (minutes), ``90m`` or ``2h``, at most ``MOST_DAYS``.

    Raises ``InputError``.
    """
    if match := re.fullmatch(r"(?:(\d{1,99})-)?(\d{1,99}):([0-5]\d):([0-5]\d)", text):
        days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
        total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    elif match := re.fullmatch(r"(\d{1,99})([mh]?)", text):
        total_s = int(match[1]) * (3600 if match[2] == "h" else 60)
    else:
        raise InputError(
            f"{what} ({shown(text)!r}) must be a time such as 01:30:00, with minutes and seconds below 60, or 90m, 2h, "
            "or minutes"
        )
    if not total_s:
        raise InputError(f"{what} ({shown(text)!r}) must be longer than 0")
    if total_s > MOST_DAYS * 86_400:
        raise InputError(f"{what} ({shown(text)!r}) must be at most {MOST_DAYS} days; lower it")
    return total_s


def clock(seconds: int) -> str:
    """``HH:MM:SS``, as Slurm and PBS read it."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
