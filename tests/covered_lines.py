"""How much of what all tests cover the default tests cover: ``nox -s coverage`` runs both, and then this.

``python tests/covered_lines.py DEFAULT SLOW`` reads two data files of coverage. Exit code 1 where the default tests
cover less than 90 % of the lines, or less than half of a module's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PACKAGES = ("staging", "hpcbench", "apps")
LEAST, LEAST_OF_A_MODULE = 0.9, 0.5


def covered(file: Path) -> dict[str, set[int]]:
    """The lines of each file of the project that ran."""
    from coverage import CoverageData

    data = CoverageData(str(file))
    data.read()
    found: dict[str, set[int]] = {}
    for path in map(Path, data.measured_files()):
        top = path.parent
        while (top.parent / "__init__.py").exists():
            top = top.parent
        if top.name in PACKAGES:  # of a clone, or of an installed copy
            found.setdefault(str(path.relative_to(top.parent)), set()).update(data.lines(str(path)) or ())
    return found


def compared(default: Mapping[str, set[int]], slow: Mapping[str, set[int]]) -> list[tuple[str, int, int]]:
    """Of each file the lines that the default tests cover, and those that any test covers; fewest first."""
    rows = []
    for name in {*default, *slow}:
        ours = default.get(name, set())
        if every := ours | slow.get(name, set()):
            rows.append((name, len(ours), len(every)))
    return sorted(rows, key=lambda row: (row[1] / row[2], row[0]))


def main(words: Sequence[str]) -> int:
    """Print the share and the modules with the least."""
    rows = compared(*(covered(Path(word)) for word in words))
    ours, every = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"default tests: {ours:,} of {every:,} lines that any test covers, {ours / every:.1%} (at least {LEAST:.0%})")
    for name, part, whole in rows[:10]:
        print(f"{part / whole:8.1%} {name} ({part} of {whole})")
    few = [name for name, part, whole in rows if part < LEAST_OF_A_MODULE * whole]
    print(f"{len(few)} of {len(rows)} modules below {LEAST_OF_A_MODULE:.0%}")
    return int(bool(few) or ours < LEAST * every)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
