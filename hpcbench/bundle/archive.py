"""Makes a bundle: the wheels, the source, what installs them, and their checksums, in one archive."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from hpcbench import DISTRIBUTION
from hpcbench.bundle.closure import OF_SITE, Closure
from hpcbench.bundle.resolve import fetch_wheels
from hpcbench.bundle.source import build_wheel, copy_source, find_source, lowest_version, pack, read_project, version_of
from hpcbench.bundle.target import GLIBC, Target
from hpcbench.bundle.wheels import Wheel, sha256
from staging.atomic import TEMPORARY_SUFFIX, sync_file, take_name
from staging.bounds import shown
from staging.errors import InputError

LARGEST = 120_000_000
"""The most bytes of an archive: what a site's mail, web form or home quota takes without asking."""
SITE_OR_BUNDLE = ("mpi4py",)
"""Packages whose version at the site is used if it is in range, since it knows the site's MPI."""
CHECKSUMS = "SHA256SUMS"
MPI_LIBRARIES = ("mpich", "openmpi", "impi-rt")
SUFFIX = ".tar.gz"


@dataclass(frozen=True)
class BundleRequest:
    """What is asked of a bundle."""

    out: Path
    """The archive, a new file whose name ends with ``.tar.gz``."""
    target: Target
    extras: tuple[str, ...] = ()
    """Optional groups of dependencies of the project."""
    numpy: str | None = None
    """A version of the site's numpy that the wheels must agree with; ``None``: the lowest that the project allows."""
    source: Path | None = None
    """A source tree; ``None``: the one that this package runs from, or the current folder."""


@dataclass(frozen=True)
class Bundle:
    """An archive that was made."""

    bytes: int
    sha256: str
    wheels: tuple[Wheel, ...]
    of_site: dict[str, str]
    """The versions of the site's own packages that it goes with."""


def make_bundle(request: BundleRequest, tell: Callable[[str], None]) -> Bundle:
    """Make the archive, whole or not at all; ``tell`` gets a line about each step.

    Raises ``InputError`` for a request that cannot be met, if no package index can be reached, and for an archive
    above ``LARGEST``.
    """
    check_out(request.out)
    source = find_source(request.source)
    project = read_project(source)
    check_extras(project, request.extras)
    site = site_versions(project, request.numpy)
    version = version_of(source)
    name = f"{DISTRIBUTION}-{version}"
    with tempfile.TemporaryDirectory(prefix="hpcbench-bundle-") as scratch:
        work = Path(scratch)
        top = work / f"{name}-{request.target.tag}-{request.target.architecture}"
        (top / "source").mkdir(parents=True)
        tell(f"building {name} from {source}")
        copy_source(source, work / name)
        pack(work / name, top / "source" / f"{name}{SUFFIX}")
        (work / "own").mkdir()
        own_wheel = build_wheel(work / name, work / "own", version)
        tell(f"fetching the wheels that it needs for {request.target}")
        closure = fetch_wheels(own_wheel, request.extras, request.target, site, work)
        fill(top, closure, request)
        bytes_, digest = write_archive(top, request.out, tuple(closure.needed.values()))
    ranges = {name: str(versions) for name, versions in closure.of_site.items()}
    return Bundle(bytes_, digest, tuple(closure.needed.values()), ranges)


def check_out(out: Path) -> None:
    """Refuse a name that is taken, or a place where no file can be made, before anything is fetched."""
    if not out.name.endswith(SUFFIX) or out.name == SUFFIX:
        raise InputError(f"OUT ({out}) must be a file name that ends with {SUFFIX}")
    if out.exists() or out.is_symlink():
        raise InputError(f"OUT ({out}) exists; remove it, or choose another name")
    if not out.absolute().parent.is_dir():
        raise InputError(f"OUT ({out}) lies in no folder that exists; make it, or choose another")
    part = part_of(out)
    try:
        part.touch(exist_ok=False)
        part.unlink()
    except OSError as error:
        raise cannot_write(out, error) from None


def part_of(out: Path) -> Path:
    """A name beside ``out`` that no other process has."""
    return out.with_name(f".{out.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")


def cannot_write(out: Path, error: OSError) -> InputError:
    """The error for a folder that takes no file, or not all of it."""
    return InputError(f"OUT ({out}): cannot write there ({error.strerror}); choose another folder")


def check_extras(project: dict[str, Any], extras: tuple[str, ...]) -> None:
    """Refuse groups of dependencies that do not exist, and those that bring what a site has itself."""
    known: dict[str, list[str]] = project["optional-dependencies"]
    usable = {
        name: texts for name, texts in known.items()
        if not {Requirement(text).name for text in texts} & {*OF_SITE, *MPI_LIBRARIES}
    }  # fmt: skip
    for extra in extras:
        if extra in known and extra not in usable:
            raise InputError(f"--extra {extra} brings torch or MPI, which a bundle leaves to the site; leave it out")
        if extra not in known:
            raise InputError(f"--extra {shown(extra)} is no extra of {DISTRIBUTION}; choose from {', '.join(usable)}")


def site_versions(project: dict[str, Any], numpy: str | None) -> dict[str, str]:
    """A version of each package of the site, with which those of the bundle must agree."""
    site = {name: lowest_version(project, name) for name in OF_SITE}
    if numpy is None:
        return site
    try:
        version = Version(numpy)
    except InvalidVersion:
        raise InputError(f"--numpy {shown(numpy)} is no version; give one such as 2.1.3") from None
    if version < Version(site["numpy"]):
        raise InputError(f"--numpy {numpy} is older than {site['numpy']}, the oldest that hpcbench runs with")
    return site | {"numpy": version.public}


def fill(top: Path, closure: Closure, request: BundleRequest) -> None:
    """Lay out all files of the bundle below ``top``, the checksums last."""
    (top / "wheels").mkdir()
    for wheel in closure.needed.values():
        shutil.move(wheel.path, top / "wheels" / wheel.path.name)
    wheels = {name: top / "wheels" / wheel.path.name for name, wheel in closure.needed.items()}
    versions = {name: str(wheel.version) for name, wheel in closure.needed.items()}
    pinned = [f"{name}=={versions[name]} --hash=sha256:{sha256(path)}" for name, path in wheels.items()]
    write(top / "pinned.txt", "\n".join(pinned) + "\n")
    write(top / "bundle.json", json.dumps(facts(closure, versions, request), indent=2) + "\n")
    here = Path(__file__).parent
    shutil.copyfile(here / "site_install.py", top / "install.py")
    write(top / "install.sh", install_script(versions[DISTRIBUTION], request.target))
    (top / "install.sh").chmod(0o755)
    files = sorted(path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file())
    write(top / CHECKSUMS, "".join(f"{sha256(top / name)}  {name}\n" for name in files))


def facts(closure: Closure, versions: dict[str, str], request: BundleRequest) -> dict[str, Any]:
    """What the installation must know, for ``bundle.json``."""
    requirements = closure.needed[DISTRIBUTION].requirements
    ranges = {
        requirement.name: str(requirement.specifier) for requirement in requirements if requirement.marker is None
    }
    return {
        "distribution": DISTRIBUTION,
        "version": versions[DISTRIBUTION],
        "python": request.target.python,
        "architecture": request.target.architecture,
        "glibc": list(GLIBC),
        "extras": list(request.extras),
        "site": {name: str(closure.of_site[name]) for name in OF_SITE},
        "site_or_bundle": {name: ranges[name] for name in SITE_OR_BUNDLE},
        "packages": versions,
    }


def install_script(version: str, target: Target) -> str:
    """``install.sh`` of a bundle."""
    text = (Path(__file__).parent / "install.sh.tmpl").read_text(encoding="utf-8")
    words = {"VERSION": version, "PYTHON": target.python, "ARCHITECTURE": target.architecture}
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    return text


def write_archive(top: Path, out: Path, wheels: tuple[Wheel, ...]) -> tuple[int, str]:
    """Pack ``top`` under the name ``out``, which appears when the archive is complete; its size and SHA-256."""
    part = part_of(out)
    try:
        pack(top, part, level=1)  # wheels are compressed already
        size, digest = part.stat().st_size, sha256(part)
        if size > LARGEST:
            raise InputError(too_large(size, top, wheels))
        sync_file(part)
        take_name(part, out)
    except FileExistsError:
        raise InputError(f"OUT ({out}) exists; remove it, or choose another name") from None
    except OSError as error:
        raise cannot_write(out, error) from None
    finally:
        part.unlink(missing_ok=True)
    return size, digest


def too_large(size: int, top: Path, wheels: tuple[Wheel, ...]) -> str:
    """The line about an archive above ``LARGEST``, with what takes the room."""
    sizes = sorted(((top / "wheels" / wheel.path.name).stat().st_size, wheel.name) for wheel in wheels)
    named = ", ".join(f"{name} {bytes_ / 1e6:.0f} MB" for bytes_, name in reversed(sizes[-3:]))
    return (
        f"the bundle has {size / 1e6:.0f} MB, and at most {LARGEST / 1e6:.0f} MB are allowed; leave out an --extra "
        f"(largest: {named})"
    )


def write(path: Path, text: str) -> None:
    """Write a text file."""
    path.write_text(text, encoding="utf-8")
