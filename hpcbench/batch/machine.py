"""Facts of a machine: memory, accelerators, node-local storage, links and charge, each with its source and date.

A machine is a YAML file with the fields of ``Machine``. Those of the suite lie in ``hpcbench/machines``; a user's own
lie in the folder ``machines`` of the folder with their profiles. A profile of a site names its machine. What a file
leaves out, or has as null, is unknown: nothing is guessed, and nothing is refused because of it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath

from hpcbench.batch.read_dataclass import from_values
from hpcbench.config.bounds import within
from hpcbench.config.read_yaml import read_yaml
from hpcbench.suggest import suggest
from staging.errors import InputError

MACHINES = Path(__file__).parents[1] / "machines"
MOST_GB = 1e9


@dataclass(frozen=True)
class Storage:
    """A place on each node that jobs may write to."""

    path: str
    """Its folder, as in ``local_path`` of a profile; further folders and variables may follow there."""
    gb: float | None = field(default=None, metadata=within(0, MOST_GB, open_low=True))
    """Room for a job, in 10^9 bytes."""
    in_memory: bool | None = None
    """Whether it is memory of the node, which a job then has less of."""
    shared: bool | None = None
    """Whether other jobs may use it at the same time."""


@dataclass(frozen=True)
class Source:
    """A page, when it was read, and the facts that it holds."""

    url: str
    read: str
    """YYYY-MM-DD."""
    facts: tuple[str, ...]
    """Names of fields of ``Machine``; of storage ``storage.PATH``."""


@dataclass(frozen=True)
class Machine:
    """Nodes of one kind. ``None`` and empty: unknown."""

    name: str
    title: str
    cores: int | None = field(default=None, metadata=within(1, 10**6))
    """Physical cores of a node that a job may use."""
    threads_per_core: int | None = field(default=None, metadata=within(1, 64))
    """What the scheduler counts for each of them."""
    memory_gib: int | None = field(default=None, metadata=within(1, 10**7))
    """Of a node, for a job."""
    accelerators: int | None = field(default=None, metadata=within(0, 1024))
    """Of a node, as programs count them (an AMD MI250X is two)."""
    accelerator: str | None = None
    """Their model."""
    accelerator_memory_gib: float | None = field(default=None, metadata=within(0, 10**6, open_low=True))
    """Of each."""
    accelerator_link_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """Between two accelerators of a node that are linked, in each direction; the least of them. 10^9 bytes/s."""
    network_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """What a node sends to others, in 10^9 bytes/s."""
    charge: float | None = field(default=None, metadata=within(0, 1e6))
    """What a node-hour costs, in units of ``charge_unit``."""
    charge_unit: str | None = None
    storage: tuple[Storage, ...] = ()
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``InputError`` for a fact without a source, or with two, and a source of none."""
        known = [name for name, _ in self.facts()]
        given = [name for source in self.sources for name in source.facts]
        for source in self.sources:
            check_source(self.name, source)
        for name in given:
            if name not in known:
                raise InputError(f"machine {self.name}: a source has '{name}', which is no fact here; "
                                 f"{suggest(name, known)}")  # fmt: skip
            if given.count(name) > 1:
                raise InputError(f"machine {self.name}: two sources have '{name}'; name one")
        missing = [name for name in known if name not in given]
        if missing:
            raise InputError(f"machine {self.name}: '{missing[0]}' has no source; add it to the facts of one")

    def facts(self) -> Iterator[tuple[str, object]]:
        """Names and values of what is known."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in ("name", "title", "storage", "sources") and value is not None:
                yield each.name, value
        for storage in self.storage:
            yield f"storage.{storage.path}", storage

    def source_of(self, name: str) -> Source:
        """Where a fact is from."""
        return next(source for source in self.sources if name in source.facts)

    def storage_at(self, path: str) -> Storage | None:
        """The storage that the folder ``path`` of a job lies on, where it is known."""
        own = PurePosixPath(path)
        found = [each for each in self.storage if own.is_relative_to(each.path)]
        return max(found, key=lambda each: len(each.path), default=None)


def check_source(machine: str, source: Source) -> None:
    """Raise ``InputError`` for a source that is no page, or was read on no day."""
    if not re.fullmatch(r"https?://\S+", source.url):
        raise InputError(f"machine {machine}: the source {source.url!r} must be an address that begins with https://")
    try:
        datetime.date.fromisoformat(source.read)
    except ValueError:
        raise InputError(
            f"machine {machine}: read ({source.read!r}) of {source.url} must be a date such as 2026-11-23"
        ) from None


def find_machine(name: str, folders: Sequence[Path]) -> Machine:
    """The machine ``name`` in the first of ``folders`` that has it. Raises ``InputError`` for none or a bad one."""
    for folder in folders:
        path = folder / f"{name}.yaml"
        if path.is_file():
            return read_machine(path)
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    raise InputError(f"unknown machine '{name}'; {suggest(name, known)}. Your own would be {folders[0] / name}.yaml")


def read_machine(path: Path) -> Machine:
    """The machine of a file. Raises ``InputError`` in one line that names the file, the key and what it takes."""
    return from_values(Machine, {"name": path.stem, **read_yaml(path)}, f"{path}: ")
