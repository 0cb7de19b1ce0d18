"""Installs the wheels of a bundle beside the site's own torch, numpy and MPI, which stay as they are.

In a bundle this file is ``install.py``. It runs on the site's Python and needs nothing but the bundle: no hpcbench, no
network. ``install.sh`` has already verified the checksums and the version of Python.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DESCRIPTION = """\
Install hpcbench without a network, beside the torch, numpy and MPI of the site. They are
never replaced: no package of the bundle has their name, and nothing outside DIR is written.

  sh install.sh --venv DIR      a virtual environment on top of the site's Python
  sh install.sh --target DIR    a folder for PYTHONPATH
  sh install.sh --prefix DIR    DIR/bin and DIR/lib, as for a module of the site (below
                                DIR/local with the Python of Debian and Ubuntu)
  sh install.sh --check         only say whether this Python has what is needed

Load the site's modules first, so that `python3` has torch. DIR must be new or empty.
"""


@dataclass(frozen=True)
class Found:
    """What the site has, and what does not fit: a line each."""

    lines: list[str]
    problems: list[str]
    absent: list[str]
    """Packages that the site may have itself but does not: the bundle's are installed."""


def main(argv: list[str]) -> int:
    """Look, install, and look at what was installed; returns 0, or 2 if something does not fit."""
    args = parse(argv)
    facts = json.loads((HERE / "bundle.json").read_text(encoding="utf-8"))
    site = look(facts)
    for line in site.lines:
        print(line)
    for problem in site.problems:
        print(f"install.sh: error: {problem}", file=sys.stderr)
    if site.problems:
        return 2
    if args.check:
        print("the bundle fits; install it with --venv, --target or --prefix")
        return 0
    kind, folder = next((kind, getattr(args, kind)) for kind in ("venv", "target", "prefix") if getattr(args, kind))
    try:
        install(kind, Path(folder).absolute(), facts, site)
    except InstallError as error:
        print(f"install.sh: error: {error}", file=sys.stderr)
        return 2
    return 0


class InstallError(Exception):
    """What ends the installation, in one line."""


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; ``--python`` was for install.sh."""
    parser = argparse.ArgumentParser("install.sh", description=DESCRIPTION, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--venv", metavar="DIR", help="make a virtual environment")
    where.add_argument("--target", metavar="DIR", help="install into a folder")
    where.add_argument("--prefix", metavar="DIR", help="install below a folder")
    where.add_argument("--check", action="store_true", help="install nothing")
    parser.add_argument("--python", metavar="PYTHON", help="the site's Python (default: python3)")
    return parser.parse_args(argv)


def look(facts: dict[str, Any]) -> Found:
    """What this Python has of what the bundle needs."""
    lines, problems, absent = [], machine_problems(facts), []
    for name, needed in facts["site"].items():
        version, place = installed(name)
        if version is None:
            problems.append(f"{sys.executable} cannot import {name} ({place}); load the site's module that has it")
        elif not in_range(version, needed):
            change = f", or make a bundle with --numpy {version}" if name == "numpy" else ""
            problems.append(
                f"{name} {version} of the site ({place}) is not {needed}; load a module with another one{change}"
            )
        else:
            lines.append(f"{name} {version} of the site: {place}")
    for name, needed in facts["site_or_bundle"].items():
        version, place = installed(name)
        if version is not None and in_range(version, needed):
            lines.append(f"{name} {version} of the site: {place}")
        else:
            absent.append(name)
            why = "the site has none" if version is None else f"that of the site, {version}, is not {needed}"
            lines.append(f"{name} {facts['packages'].get(name, '')} of the bundle: {why}")
    return Found(lines, problems, absent)


def machine_problems(facts: dict[str, Any]) -> list[str]:
    """The properties of the machine that the wheels are not made for."""
    problems = []
    machine, needed = platform.machine(), facts["architecture"]
    if machine != needed:
        problems.append(f"this machine is {machine}, and the bundle is for {needed}; make one with --arch {machine}")
    library, version = platform.libc_ver()
    oldest = ".".join(map(str, facts["glibc"]))
    if library != "glibc" or [int(part) for part in version.split(".")[:2]] < facts["glibc"]:
        here = f"{library} {version}".strip() or "unknown"
        problems.append(f"the C library is {here}, and the wheels need glibc {oldest} or newer; use a container")
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        problems.append(f"{sys.executable} is no CPython with its global lock, which the wheels are for")
    if importlib.util.find_spec("pip") is None:
        problems.append(f"{sys.executable} has no pip; run: {sys.executable} -m ensurepip")
    return problems


def installed(name: str) -> tuple[str | None, str]:
    """Version and folder of a package that can be imported here; otherwise no version and the reason."""
    try:
        module = importlib.import_module(name)
        return str(module.__version__), str(Path(str(module.__file__)).parent)
    except Exception as error:  # a broken build of torch may raise anything
        return None, " ".join(f"{type(error).__name__}: {error}".split())[:200]


def in_range(version: str, needed: str) -> bool:
    """Whether the release of a version is in a range; a site's build may be ``2.6.0a0+nv25.1``."""
    sys.path.insert(0, str(next((HERE / "wheels").glob("packaging-*.whl"))))
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    sys.path.pop(0)
    return SpecifierSet(needed).contains(Version(version).base_version)


def install(kind: str, folder: Path, facts: dict[str, Any], site: Found) -> None:
    """Install into a new folder, whole or not at all. Raises ``InstallError``."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InstallError(f"{folder} exists and is not empty; choose another folder, or remove it")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as with nohup
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    new_parents = [parent for parent in folder.parents if not parent.exists()]
    done = False
    try:
        python = prepare(kind, folder)
        run_pip(python, kind, folder, site.absent, facts)
        path = search_path(kind, folder)
        verify(python, path, facts, site)
        done = True
    except OSError as error:
        raise InstallError(f"{folder}: cannot write there ({error.strerror}); choose another folder") from None
    finally:
        if not done:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)  # a second signal would leave half of the folder
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # another program may have put something there
                for parent in new_parents:
                    parent.rmdir()
    say_how_to_use(folder, path)


def prepare(kind: str, folder: Path) -> Path:
    """Make the folder; returns the Python that pip runs on and that the installed packages will run on."""
    if kind != "venv":
        folder.mkdir(parents=True, exist_ok=True)
        return Path(sys.executable)
    venv.EnvBuilder(system_site_packages=True, with_pip=False, symlinks=True).create(folder)
    if sys.prefix != sys.base_prefix:  # a virtual environment of the site: the new one builds on it, too
        below = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        lines = [f"import site; site.addsitedir({path!r})\n" for path in below]
        site_packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (site_packages / "of-the-site.pth").write_text("".join(lines), encoding="utf-8")
    return folder / "bin" / "python"


def search_path(kind: str, folder: Path) -> str:
    """What ``PYTHONPATH`` must begin with; empty for an environment. Systems differ in where a prefix has packages."""
    folders = sorted({str(path.parent) for path in folder.rglob("*.dist-info")})
    return "" if kind == "venv" else os.pathsep.join(folders)


def script_folder(folder: Path) -> Path:
    """Where the command ``hpcbench`` is; Debian's own Python has that of a prefix in ``local/bin``."""
    scripts = folder / "local" / "bin"
    return scripts if (scripts / "hpcbench").exists() else folder / "bin"


def run_pip(python: Path, kind: str, folder: Path, absent: list[str], facts: dict[str, Any]) -> None:
    """Install what is pinned, each file checked against its hash, from the bundle's wheels alone."""
    from_site = [name for name in facts["site_or_bundle"] if name not in absent]
    pinned = (HERE / "pinned.txt").read_text(encoding="utf-8").splitlines()
    lines = [line for line in pinned if line.partition("==")[0] not in from_site]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment |= {"PIP_CONFIG_FILE": os.devnull}  # a site's settings may name indexes, or their own folder
    with tempfile.TemporaryDirectory() as scratch:
        listed = Path(scratch) / "pinned.txt"
        listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
        place = [] if kind == "venv" else [f"--{kind}", str(folder)]
        command = [
            str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "install",
            "--no-index", "--no-deps", "--ignore-installed", "--only-binary", ":all:", "--require-hashes",
            "--no-warn-script-location", "--find-links", (HERE / "wheels").as_uri(), *place, "-r", str(listed),
        ]  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise InstallError(f"pip failed: {' '.join(errors[:2])[:400] or 'without a word'}")


LOOK_AGAIN = """
import importlib, json, sys
from importlib.metadata import version
pinned, of_site = json.loads(sys.argv[1])
places = {name: importlib.import_module(name).__file__ for name in of_site}
import hpcbench.cli.main
print(json.dumps([{name: version(name) for name in pinned}, places]))
"""


def verify(python: Path, path: str, facts: dict[str, Any], site: Found) -> None:
    """Look at the installation with the Python that runs it: the site's packages are where they were.

    Raises ``InstallError`` if hpcbench cannot be imported, or torch or numpy is another one.
    """
    pinned = [name for name in facts["packages"] if name in site.absent or name not in facts["site_or_bundle"]]
    words = [str(python), "-c", LOOK_AGAIN, json.dumps([pinned, list(facts["site"])])]
    variables = dict(os.environ)
    if path:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        raise InstallError(f"what was installed does not run: {' '.join(done.stderr.split())[-300:]}")
    versions, places = json.loads(done.stdout.splitlines()[-1])
    for name, place in places.items():
        before = str(sys.modules[name].__file__)
        if place != before:
            raise InstallError(f"{name} would come from {place}, and not from {before} as without the bundle")
    for name, version in versions.items():
        if version != facts["packages"][name]:
            print(
                f"note: {name} {version} of the site comes before {facts['packages'][name]} of the bundle (PYTHONPATH)"
            )
    print(f"installed {len(pinned)} packages, {facts['distribution']} {facts['version']} among them")


def say_how_to_use(folder: Path, path: str) -> None:
    """What to type next."""
    if path:
        scripts = shlex.quote(str(script_folder(folder)))
        print(f'use it:  export PYTHONPATH={shlex.quote(path)}:"$PYTHONPATH" PATH={scripts}:"$PATH"')
    else:
        print(f"use it:  . {shlex.quote(f'{folder}/bin/activate')}")
    print("then:    hpcbench doctor     (on a compute node)")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
