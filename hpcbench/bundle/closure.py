"""What a package needs on a target: every dependency, and what it asks of the packages that the site has itself.

pip evaluates environment markers for the Python that it runs on, even if it looks for wheels of another one
(``--python-version``, ``--platform``). So this module follows the fetched set from requirement to requirement, with
the markers of the target: what is missing is asked for without a marker, and what the target does not need is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from hpcbench.bundle.target import Target
from hpcbench.bundle.wheels import Wheel

OF_SITE = ("torch", "numpy")
"""Packages that a site has itself and that no bundle holds."""


@dataclass
class Closure:
    """The result of following all requirements."""

    needed: dict[str, Wheel] = field(default_factory=dict)
    """The wheels that the target needs, by name."""
    missing: list[str] = field(default_factory=list)
    """Requirements that no wheel meets, without their markers."""
    of_site: dict[str, SpecifierSet] = field(default_factory=lambda: {name: SpecifierSet() for name in OF_SITE})
    """The versions of the site's own packages that meet every requirement."""


def follow(root: str, extras: tuple[str, ...], wheels: Mapping[str, Wheel], target: Target) -> Closure:
    """Everything that ``root`` with ``extras`` needs on ``target``, as far as ``wheels`` have it."""
    closure = Closure()
    asked = [Requirement(f"{root}[{','.join(extras)}]")]
    seen: set[tuple[str, frozenset[str]]] = set()
    while asked:
        requirement = asked.pop()
        name = canonicalize_name(requirement.name)
        if name in OF_SITE:
            closure.of_site[name] &= requirement.specifier
            continue
        wheel = wheels.get(name)
        if wheel is None or not requirement.specifier.contains(wheel.version, prereleases=True):
            closure.missing.append(without_marker(requirement))
            continue
        closure.needed[name] = wheel
        if (name, frozenset(requirement.extras)) not in seen:
            seen.add((name, frozenset(requirement.extras)))
            asked += [
                dependency for dependency in wheel.requirements if applies(dependency, requirement.extras, target)
            ]
    closure.needed = dict(sorted(closure.needed.items()))
    closure.missing = sorted(set(closure.missing))
    closure.of_site = {name: tightest(versions) for name, versions in closure.of_site.items()}
    return closure


def applies(requirement: Requirement, extras: set[str], target: Target) -> bool:
    """Whether a requirement of a package that was asked for with ``extras`` holds on the target."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**target.markers(), "extra": extra}) for extra in (extras or {""}))


def without_marker(requirement: Requirement) -> str:
    """The requirement without its marker, such as ``fsspec[http]>=2022.5``."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def tightest(versions: SpecifierSet) -> SpecifierSet:
    """The same range without the bounds that others imply: ``>=1.21,>=1.26,<2.7`` is ``>=1.26,<2.7``."""

    def bound(specifier: Specifier) -> Version:
        return Version(specifier.version)

    lows = sorted((specifier for specifier in versions if specifier.operator == ">="), key=bound)
    highs = sorted((specifier for specifier in versions if specifier.operator == "<"), key=bound)
    others = [specifier for specifier in versions if specifier.operator not in (">=", "<")]
    return SpecifierSet(",".join(map(str, [*lows[-1:], *highs[:1], *others])))
