"""Facts of a machine: accelerators, memory, links, storage and charge, each with its source and date.

A machine is a YAML file with the fields of ``Machine``. Those of the suite are in ``hpcbench/machines``; a user's own,
and those of another package, are in the folder ``machines`` of the folder with their profiles. A profile of a site
names its machine. What a file leaves out, or has as null, is unknown: nothing is guessed, and nothing is refused
because of it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from hpcbench.config.bounds import within
from hpcbench.config.read_dataclass import from_values
from hpcbench.config.read_yaml import read_yaml
from hpcbench.suggest import suggest, suggest_by_title
from staging.errors import InputError

MACHINES = Path(__file__).parents[1] / "machines"
MEMORY_PATH = "/dev/shm"  # noqa: S108 - where Linux has memory of the node as a folder
MOST_GB = 1e9
NOT_FACTS = ("name", "title", "features", "storage", "published_as", "sources")


@dataclass(frozen=True)
class Storage:
    """A place on each node that jobs may write to."""

    path: str | None
    """Its folder, as in ``local_path`` of a profile, where further folders and variables may follow. ``None`` if no
    page names it."""
    gb: float | None = field(default=None, metadata=within(0, MOST_GB, open_low=True))
    """Room for a job, in 10^9 bytes."""
    in_memory: bool | None = None
    """Whether it is memory of the node, of which the job then has less."""
    shared: bool | None = None
    """Whether other jobs may use it at the same time."""
    read_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """What a node reads from it, in 10^9 bytes/s."""
    write_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))

    @property
    def fact(self) -> str:
        """Its name among the facts of a machine."""
        return "storage" if self.path is None else f"storage.{self.path}"


@dataclass(frozen=True)
class Feature:
    """Nodes that a job asks for by a feature (``--constraint``), and what they have that others have not."""

    name: str
    """Such as ``hbm80g``."""
    accelerator_memory_gib: float = field(metadata=within(0, 10**6, open_low=True))
    """Memory of each of their accelerators."""


@dataclass(frozen=True)
class PublishedName:
    """The name of a machine in the results of a published round."""

    organization: str
    """The folder of the submitter."""
    system: str
    """The name of the system description, with ``*`` for anything."""

    def names(self, organization: str, system: str) -> bool:
        """Whether an entry is of this machine. Rounds differ in upper and lower case of submitters' names."""
        same = self.organization.casefold() == organization.casefold()
        return same and fnmatchcase(system.casefold(), self.system.casefold())


@dataclass(frozen=True)
class Source:
    """A page or a measurement, its date, and the facts that it holds."""

    url: str
    """Address of the page; or ``measured: `` and by what and where."""
    read: str
    """YYYY-MM-DD, when the page was read, or the measurement made."""
    facts: tuple[str, ...]
    """Names of fields of ``Machine``; for storage ``storage.PATH``, or ``storage`` if no page names its path."""


@dataclass(frozen=True)
class Machine:
    """Nodes of one kind. ``None`` and empty: unknown.

    Peaks and memory bandwidth are those of each accelerator; if a node has none (``accelerators`` is 0), they are those
    of the node, which counts as one, as in the records of published runs.
    """

    name: str
    title: str
    organization: str | None = None
    """Who runs it."""
    nodes: int | None = field(default=None, metadata=within(1, 10**7))
    """Nodes of this kind."""
    processor: str | None = None
    """Model of the processors of a node, with their number if there are several."""
    cores: int | None = field(default=None, metadata=within(1, 10**6))
    """Physical cores of a node that a job may use."""
    threads_per_core: int | None = field(default=None, metadata=within(1, 64))
    """How many the scheduler counts for each core."""
    memory_gib: int | None = field(default=None, metadata=within(1, 10**7))
    """Memory of a node, for a job."""
    accelerators: int | None = field(default=None, metadata=within(0, 1024))
    """Accelerators of a node, as programs count them (an AMD MI250X is two)."""
    accelerator: str | None = None
    """Their model."""
    accelerator_memory_gib: float | None = field(default=None, metadata=within(0, 10**6, open_low=True))
    """Memory of each accelerator."""
    accelerator_memory_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """The vendor's bandwidth of that memory, in 10^9 bytes/s."""
    peak_16bit_tflop_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """The vendor's peak in float16 or bfloat16, dense, on matrix units if it has them; 10^12 operations/s."""
    peak_tf32_tflop_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """The same in TF32."""
    peak_32bit_tflop_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """The same in float32, without TF32."""
    accelerator_link_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """Slowest link between two linked accelerators of a node, in each direction; 10^9 bytes/s."""
    host_link_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """From the memory of a node to each of its accelerators; 10^9 bytes/s."""
    network: str | None = None
    """Its kind, and the number of ports of a node."""
    network_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """What a node sends to others, in 10^9 bytes/s. Storage may have ports of its own."""
    local_disk: bool | None = None
    """Whether a node has a storage device of its own. ``storage`` has its size, and where jobs write to it."""
    filesystem: str | None = None
    """Name and kind of the shared filesystem from which jobs read large data."""
    filesystem_tb: float | None = field(default=None, metadata=within(0, 1e9, open_low=True))
    """Its capacity, in 10^12 bytes."""
    filesystem_read_gb_s: float | None = field(default=None, metadata=within(0, 1e6, open_low=True))
    """What all nodes together read from it, in 10^9 bytes/s; for both directions if its page has one figure."""
    charge: float | None = field(default=None, metadata=within(0, 1e6))
    """What a node-hour costs, in units of ``charge_unit``."""
    charge_unit: str | None = None
    features: tuple[Feature, ...] = ()
    storage: tuple[Storage, ...] = ()
    published_as: tuple[PublishedName, ...] = ()
    """Its names in rounds of MLPerf HPC; empty if no round has it."""
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``InputError`` for a fact without a source or with two, and for a source of an unknown fact."""
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
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if attribute.name not in NOT_FACTS and value is not None:
                yield attribute.name, value
        if self.features:
            yield "features", self.features
        for storage in self.storage:
            yield storage.fact, storage
        if self.published_as:
            yield "published_as", self.published_as

    def source_of(self, name: str) -> Source:
        """The source of a fact."""
        return next(source for source in self.sources if name in source.facts)

    def memory_of_accelerator(self, constraint: str) -> float | None:
        """GiB of an accelerator of a job's nodes, by the features that ``constraint`` asks for; ``None``: unknown.

        Of alternatives (``a|b``) those with the least memory count; features that are excluded (``!a``, ``^a``) do not.
        """
        required = re.sub(r"[(\[]([^()\[\]]*)[)\]]", lambda group: "" if "|" in group[1] else group[1], constraint)
        memories_gib = [self._memory_with(alternative) for alternative in required.split("|")]
        if memories_gib == [None] and (groups := re.findall(r"[(\[]([^()\[\]]*\|[^()\[\]]*)[)\]]", constraint)):
            memories_gib = [self._memory_with(alternative) for alternative in groups[0].split("|")]
        known = [self.accelerator_memory_gib if memory_gib is None else memory_gib for memory_gib in memories_gib]
        return None if None in known else min(memory_gib for memory_gib in known if memory_gib is not None)

    def _memory_with(self, asked: str) -> float | None:
        """GiB of an accelerator of nodes with one of the features in ``asked``; ``None`` if it names none of them."""
        names = set(re.findall(r"(?<![!^\w.-])[\w.-]+", asked))
        return min((feature.accelerator_memory_gib for feature in self.features if feature.name in names), default=None)

    def storage_at(self, path: str) -> Storage | None:
        """The storage that the folder ``path`` of a job is on; ``None`` if it is not known."""
        folder = PurePosixPath(path)
        candidates = [
            (storage.path, storage) for storage in self.storage if storage.path and folder.is_relative_to(storage.path)
        ]
        return max(candidates, key=lambda pair: len(pair[0]), default=("", None))[1]

    @property
    def devices(self) -> int | None:
        """What trains in a node: its accelerators; a node without any counts as one."""
        return None if self.accelerators is None else max(self.accelerators, 1)

    @property
    def disks(self) -> tuple[Storage, ...]:
        """The storage of a node that is not its memory."""
        return tuple(storage for storage in self.storage if storage.in_memory is False)

    @property
    def local_disk_gb(self) -> float | None:
        """Room on the storage devices of a node, in 10^9 bytes; 0 if it has none, ``None`` if that is unknown."""
        if self.local_disk is False:
            return 0.0
        rooms = [disk.gb for disk in self.disks if disk.gb is not None]
        return max(rooms, default=None)


def check_source(machine: str, source: Source) -> None:
    """Raise ``InputError`` for a source that is neither a page nor a measurement, or that has no valid date."""
    if not re.fullmatch(r"https?://\S+|measured: \S.*", source.url):
        raise InputError(
            f"machine {machine}: the source {source.url!r} must be an address that begins with https://, "
            "or 'measured: ' and by what"
        )
    try:
        datetime.date.fromisoformat(source.read)
    except ValueError:
        raise InputError(
            f"machine {machine}: read ({source.read!r}) of {source.url} must be a date such as 2026-11-23"
        ) from None


def find_machine(name: str, folders: Sequence[Path]) -> Machine:
    """The machine ``name`` (see ``the_file``), or that of the file ``name``, which then ends with .yaml.

    Raises ``InputError`` for none, two or a bad one.
    """
    if name.endswith(".yaml"):
        return read_machine(Path(name))
    known = yaml_files(folders)
    if name in known:
        return read_machine(the_file(name, "machine", folders))
    hint = suggest_by_title(name, titles_of(known))
    end = "" if hint.endswith("?") else "."
    raise InputError(f"unknown machine '{name}'; {hint}{end} Your own would be {folders[0] / name}.yaml")


def yaml_files(folders: Sequence[Path]) -> dict[str, Path]:
    """The YAML files of ``folders`` by name, sorted; of two with the same name, the one in the first folder."""
    path_by_name = {path.stem: path for folder in reversed(folders) for path in folder.glob("*.yaml")}
    return dict(sorted(path_by_name.items()))


def the_file(name: str, thing: str, folders: Sequence[Path]) -> Path:
    """The file ``name`` in the first of ``folders``, the user's own, else in the one other folder that has it.

    Raises ``InputError`` if the first lacks it and two of the others have it.
    """
    own_file, *others = [folder / f"{name}.yaml" for folder in folders]
    existing = [path for path in others if path.is_file()]
    if not own_file.is_file() and len(existing) > 1:
        both = " and ".join(str(path) for path in existing)
        raise InputError(f"{thing} '{name}' has two files, {both}; rename that of the package, or uninstall it")
    return own_file if own_file.is_file() else existing[0]


def titles_of(known: Mapping[str, Path]) -> dict[str, str]:
    """The titles of files of machines or profiles by name; empty where a file cannot be read or has none."""
    titles: dict[str, str] = {}
    for name, path in sorted(known.items()):
        titles[name] = ""
        with suppress(InputError):
            titles[name] = str(read_yaml(path).get("title", ""))
    return titles


def known_machines(folders: Sequence[Path] = (MACHINES,)) -> list[Machine]:
    """All machines of ``folders`` by name; see ``the_file``. Raises ``InputError``."""
    return [read_machine(the_file(name, "machine", folders)) for name in yaml_files(folders)]


def published_machine(machines: Iterable[Machine], organization: str | None, system: str | None) -> Machine | None:
    """The machine that an entry of a published round ran on; ``None`` if none of ``machines`` says so."""
    return next(
        (
            machine
            for machine in machines
            for name in machine.published_as
            if name.names(organization or "", system or "")
        ),
        None,
    )


def read_machine(path: Path) -> Machine:
    """The machine of a file. Raises ``InputError`` in one line that names the file, the key and what it takes."""
    return from_values(Machine, {"name": path.stem, **read_yaml(path)}, f"{path}: ")
