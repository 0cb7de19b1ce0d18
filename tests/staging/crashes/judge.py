"""What holds after a kill or a crash: nothing whole is lost, nothing half is taken, and the next command ends well."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crc32c import crc32c

from staging.atomic import is_temporary
from staging.bookkeeping import BOOKKEEPING
from staging.cli import UNFINISHED
from staging.errors import InputError
from staging.ledger.clean import clean
from staging.ledger.journal import Journal
from staging.ledger.jsonl import read_header
from staging.ledger.manifest import has_manifest, load_records, manifest_path
from staging.ledger.records import is_as_landed
from tests.staging.crashes.scenarios import FOREIGN, STRANGER, Scenario
from tests.staging.processes import contents, run, unfinished

COLUMNS = ("lost", "wrong", "refused", "hung")
"""Bytes that are gone or not what they were declared to be; what is left and should not be, or is not written down; a
command that fails; one that does not end."""
HUNG_S = 60
"""A command that is still there after so long hangs; it takes less than two seconds."""


@dataclass(frozen=True)
class Fault:
    """What does not hold."""

    column: str
    text: str


class Commands(Protocol):
    """How to go on: in processes, as a user does, or in this one. Both return what went wrong."""

    def stage(self, scenario: Scenario, place: Path, root: Path) -> str:
        """Stage again."""

    def clean(self, scenario: Scenario, place: Path, destination: Path) -> tuple[str, list[str]]:
        """``--clean``; and what it says that it left."""


class Processes:
    """The commands themselves."""

    def stage(self, scenario: Scenario, place: Path, root: Path) -> str:
        """``python -m staging SRC DST``."""
        code, _, error = run(scenario.stage_command(place, root.name))
        return "" if code == 0 else f"staging again ended with {code}: {error.strip()[-300:]}"

    def clean(self, scenario: Scenario, place: Path, destination: Path) -> tuple[str, list[str]]:
        """``python -m staging --clean DST``."""
        code, said, error = run(scenario.clean_command(place, destination.parent.name, destination.name))
        lines = [line for line in (said + error).splitlines() if line.startswith("left ")]
        left = sorted(line.removeprefix("left ").partition(", which is not")[0] for line in lines)
        return "" if code == 0 or UNFINISHED in error else f"--clean ended with {code}: {error.strip()[-300:]}", left


class InThisProcess:
    """The functions behind the commands, which take hundredths of a second."""

    def stage(self, scenario: Scenario, place: Path, root: Path) -> str:
        """``staging.stage.stage``."""
        try:
            scenario.stage(place, root.name)
        except InputError as error:
            return f"staging again: {error}"
        return ""

    def clean(self, scenario: Scenario, place: Path, destination: Path) -> tuple[str, list[str]]:
        """``staging.ledger.clean.clean``."""
        try:
            return "", clean(destination).left
        except InputError as error:
            return f"--clean: {error}", []


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise ``TimeoutError`` in the main thread where what is inside takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"nothing came of it in {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Judge:
    """Looks at what is left of ``scenario`` in ``place``, and goes on from it by ``commands``."""

    scenario: Scenario
    place: Path
    commands: Commands
    crashed: bool
    """Whether the node crashed, so that what was not synced may hold anything."""

    def faults(self, root: Path, *, ended: bool = False) -> list[Fault]:
        """What does not hold of the state below ``root``, which is used up; ``ended`` once the command had."""
        try:
            with within(HUNG_S):
                return self._faults(root, ended)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            return [Fault("hung", str(error))]
        except InputError as error:
            return [Fault("refused", str(error))]

    def _faults(self, root: Path, ended: bool) -> list[Fault]:
        copy = root.with_name(f"{root.name}-copy")
        shutil.copytree(root, copy)
        try:
            if self.scenario.what == "clean":
                return [*self.after_clean(root), *self.stage_after_clean(copy)]
            faults = [*self.headed(root), *self.sound(root), *self.everywhere(root)]
            faults += self.done(root) if ended else []
            return [*faults, *self.stage(root), *self.clean(copy)]
        finally:
            shutil.rmtree(root)
            shutil.rmtree(copy)

    def headed(self, root: Path) -> list[Fault]:
        """Where a file has its name, a header says of what source it is."""
        faults = []
        for destination in self.destinations(root):
            named = [name for name in contents(destination) if not is_temporary(Path(name).name)]
            try:
                if named:
                    read_header(manifest_path(destination))
            except InputError as error:
                faults.append(Fault("wrong", f"{named[0]} has its name, and the manifest no header: {error}"))
        return faults

    def sound(self, root: Path) -> list[Fault]:
        """Everything that a manifest names, and does not doubt, is there and whole, or is seen not to be."""
        faults = []
        for destination in self.destinations(root):
            if not has_manifest(destination):
                continue
            records = load_records(destination)
            for file in records:
                path = destination / file.name
                if records.is_doubted(file.name):
                    continue
                if not path.is_file() or not is_as_landed(path.lstat(), file.size, file.landed_ns):
                    if not self.scenario.lands_again and self.scenario.what == "stage":
                        faults.append(Fault("lost", f"{file.name} is named and not there as it landed"))
                elif crc32c(data := path.read_bytes()) != file.checksum and data != self.before(path, root):
                    faults.append(Fault("lost", f"{file.name} is named, and its bytes are not those that landed"))
        return faults

    def everywhere(self, root: Path) -> list[Fault]:
        """Between re-shuffled nodes every file is whole and named on one at least."""
        if self.scenario.what != "reshuffle":
            return []
        held = set()
        for destination in self.destinations(root):
            for file in load_records(destination):
                path = destination / file.name
                if path.is_file() and crc32c(path.read_bytes()) == file.checksum:
                    held.add(file.name)
        gone = {name.partition("/")[2] for name in self.scenario.wanted(self.place)} - held
        return [Fault("lost", f"no node has {name}") for name in sorted(gone)]

    def done(self, root: Path) -> list[Fault]:
        """A staging that ended stays so."""
        if contents(root) != self.scenario.wanted(self.place):
            return [Fault("lost", "the command had ended, and its files are not there")]
        wanted = [name.partition("/")[2] for name in self.scenario.wanted(self.place)]
        if sorted(wanted) != sorted(name for each in self.destinations(root) for name in load_records(each).position):
            return [Fault("lost", "the command had ended, and its manifests do not name its files")]
        undone = [destination.name for destination in self.destinations(root) if not Journal(destination).is_done()]
        return [Fault("refused", f"the command had ended, and {name} is refused as not staged") for name in undone]

    def stage(self, root: Path) -> list[Fault]:
        """The same command again ends well; ``--clean`` then removes all of it."""
        if said := self.commands.stage(self.scenario, self.place, root):
            return [Fault("refused", said)]
        wanted, found = self.scenario.wanted(self.place), contents(root)
        faults = [
            Fault("lost", f"{name} is not as in the source") for name in wanted if found.get(name) != wanted[name]
        ]
        faults += [Fault("wrong", f"{name} is left over") for name in sorted(set(found) - set(wanted))]
        faults += [Fault("wrong", f"{name} is unfinished") for name in unfinished(root)]
        for destination in self.destinations(root):
            here = {name.partition("/")[2] for name in wanted if name.startswith(f"{destination.name}/")}
            if set(load_records(destination).position) != here:
                faults.append(Fault("wrong", f"the manifest of {destination.name} names other files than are wanted"))
        return faults + [fault for each in self.destinations(root) for fault in self.clean_all(each)]

    def clean_all(self, destination: Path) -> list[Fault]:
        """After a whole staging nothing but a stranger's file stays."""
        (destination / STRANGER).write_bytes(FOREIGN)
        said, _ = self.commands.clean(self.scenario, self.place, destination)
        return [Fault("refused", said)] if said else self.only_the_stranger(destination)

    def only_the_stranger(self, destination: Path) -> list[Fault]:
        """Nothing of staging's is there, and the file of somebody else is as it was."""
        found = {str(path.relative_to(destination)) for path in destination.rglob("*")}
        faults = [Fault("wrong", f"--clean leaves {name}") for name in sorted(found - {STRANGER})]
        if STRANGER not in found or (destination / STRANGER).read_bytes() != FOREIGN:
            faults.append(Fault("lost", "--clean took a stranger's file"))
        return faults

    def clean(self, root: Path) -> list[Fault]:
        """``--clean`` at once: what stays was landed and not named yet, and is said to stay, and the books with it."""
        faults = []
        for destination in self.destinations(root):
            if not (destination / BOOKKEEPING).is_dir():
                left = list(contents(destination)) if destination.exists() else []
                faults += [Fault("refused", f"{name} is there, and no books are") for name in left]
                continue
            before, is_done = contents(destination), Journal(destination).is_done()
            (destination / STRANGER).write_bytes(FOREIGN)
            said, told = self.commands.clean(self.scenario, self.place, destination)
            if said:
                faults.append(Fault("refused", said))
                continue
            left = sorted(set(contents(destination)) - {STRANGER})
            if [name for name in told if name != STRANGER] != left:
                faults.append(Fault("wrong", f"--clean leaves {left}, and says {told}"))
            if (destination / BOOKKEEPING).exists() is is_done or unfinished(destination):
                what = f"which was {'' if is_done else 'not '}done, --clean leaves {sorted(destination.iterdir())}"
                faults.append(Fault("wrong", f"of a staging {what}"))
            if (destination / STRANGER).read_bytes() != FOREIGN:
                faults.append(Fault("lost", "--clean took a stranger's file"))
            whole = self.scenario.wanted(self.place)
            for name in left if not self.crashed else ():
                old = self.before(destination / name, root)
                if before[name] not in (whole.get(f"{destination.name}/{name}"), old):
                    faults.append(Fault("lost", f"{name} has its name, and is not whole"))
        return faults

    def after_clean(self, root: Path) -> list[Fault]:
        """``--clean`` again removes the rest."""
        destination = root / "node0"
        if (destination / BOOKKEEPING).exists():
            said, _ = self.commands.clean(self.scenario, self.place, destination)
            if said:
                return [Fault("refused", said)]
        return self.only_the_stranger(destination)

    def stage_after_clean(self, root: Path) -> list[Fault]:
        """A staging brings back what was removed; where the books are gone, the stranger's file alone forbids it."""
        destination = root / "node0"
        if not manifest_path(destination).exists():
            return []
        if said := self.commands.stage(self.scenario, self.place, root):
            return [Fault("refused", said)]
        wanted = self.scenario.wanted(self.place) | {f"node0/{STRANGER}": FOREIGN}
        return (
            [] if contents(root) == wanted else [Fault("lost", "a staging after --clean brings other than the source")]
        )

    def before(self, path: Path, root: Path) -> bytes | None:
        """What was under the name of ``path``, below ``root``, before the command; what was bad then is no fault."""
        old = self.place / "root" / path.relative_to(root)
        return old.read_bytes() if old.is_file() else None

    def destinations(self, root: Path) -> list[Path]:
        """The destinations that there are."""
        return [root / node for node in self.scenario.nodes]
