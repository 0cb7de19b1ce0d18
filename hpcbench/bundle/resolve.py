"""Finds and fetches the wheels of a bundle with pip's own resolver, on behalf of the machine that they are for."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hpcbench.bundle.closure import OF_SITE, Closure, follow
from hpcbench.bundle.target import Target
from hpcbench.bundle.wheels import Wheel, read_wheels, write_stand_in
from staging.bounds import shown
from staging.errors import InputError

ROUNDS = 5
"""How many times pip is asked for requirements that it overlooked; a round may reveal new ones."""
LABEL = "+site"
"""Part of a stand-in's version, so that it is not confused with the package of that version on the index."""
UNREACHABLE = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|Connection refused|connection broken|Max retries exceeded|"
    r"Name or service not known|Temporary failure in name resolution|ProxyError|timed out|not a valid index|SSLError",
    re.IGNORECASE,
)


def fetch_wheels(
    suite_wheel: Wheel, extras: tuple[str, ...], target: Target, site: Mapping[str, str], folder: Path
) -> Closure:
    """Fetch every wheel that ``suite_wheel`` needs on ``target`` into a folder below ``folder``.

    Args:
        suite_wheel: the wheel of hpcbench itself, which is part of the result.
        extras: optional groups of dependencies.
        site: a version of each package that the site has itself, which the others must agree with.

    Raises ``InputError`` if no index can be reached, or if there is no such set.
    """
    more: list[str] = []
    for number in range(ROUNDS):
        place = folder / f"round-{number}"
        place.mkdir()
        download(suite_wheel, extras, more, target, site, place)
        closure = follow(suite_wheel.name, extras, read_wheels(place), target)
        if not closure.missing:
            return closure
        more += closure.missing
    raise InputError(f"pip found no set of wheels for {target} that holds {', '.join(map(shown, closure.missing))}")


def download(
    suite_wheel: Wheel, extras: tuple[str, ...], more: list[str], target: Target, site: Mapping[str, str], place: Path
) -> None:
    """Let pip resolve and fetch, from the indexes of its configuration and environment (``PIP_INDEX_URL``, ...)."""
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        stand_ins = Path(scratch)
        for name in OF_SITE:
            write_stand_in(stand_ins, name, site[name] + LABEL)
        constraints = stand_ins / "constraints.txt"
        constraints.write_text("".join(f"{name}=={site[name]}{LABEL}\n" for name in OF_SITE), encoding="utf-8")
        wanted = f"{suite_wheel.name}{extras_text(extras)} @ {suite_wheel.path.absolute().as_uri()}"
        run_pip([
            "download", "--dest", str(place), "--only-binary", ":all:", *target.pip_options(),
            "--find-links", stand_ins.absolute().as_uri(), "--constraint", str(constraints), wanted, *more,
        ], str(target))  # fmt: skip
    for name in OF_SITE:
        for path in place.glob(f"{name}-*.whl"):
            path.unlink()


def extras_text(extras: tuple[str, ...]) -> str:
    """The extras as a requirement has them, such as ``[energy,fast]``."""
    return f"[{','.join(extras)}]" if extras else ""


def run_pip(words: list[str], what: str, variables: Mapping[str, str] | None = None) -> None:
    """Run pip quietly, with further environment ``variables``; ``what`` is what the call is for.

    Raises a one-line ``InputError`` for what it cannot do.
    """
    if importlib.util.find_spec("pip") is None:
        raise InputError(f"{sys.executable} has no pip, which finds the wheels; run: python -m ensurepip")
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *words]
    environment = os.environ | (variables or {})
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
    if done.returncode:
        raise InputError(explain(f"{done.stdout}\n{done.stderr}", what))


def explain(output: str, what: str) -> str:
    """One line for the failure that pip reported in many lines."""
    errors = [line.removeprefix("ERROR: ").strip() for line in output.splitlines() if line.startswith("ERROR: ")]
    if UNREACHABLE.search(output):
        return (
            "no package index can be reached; run this where one can, or name a mirror in PIP_INDEX_URL, or a folder "
            "of wheels in PIP_FIND_LINKS with PIP_NO_INDEX=1"
        )
    absent = [
        match[1] for line in errors if (match := re.search(r"No matching distribution found for ([^;\s]+)", line))
    ]
    if absent:
        return f"no wheel of {shown(absent[-1])} for {what} is on the package index; choose another --python or --arch"
    last = errors[-1] if errors else (output.strip().splitlines() or ["it said nothing"])[-1]
    return f"pip failed for {what}: {last[:300]}"
