"""Which entries are compared, and which is the base: names that a user gives, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.machine_names import MachineOf, short_title
from hpcbench.application_names import application_name
from hpcbench.suggest import suggest
from staging.errors import InputError


def of_application(entries: Sequence[EntryRuns], application: str | None) -> list[EntryRuns]:
    """The entries of an application, or all.

    Raises ``InputError`` for an application of no run, and where no two entries with a score share application and
    mode.
    """
    known = sorted({entry.key[0] for entry in entries})
    if application is not None and application not in known:
        raise InputError(f"--application {application}: no run is of it; {suggest(application, known)}")
    chosen = [entry for entry in entries if application in (None, entry.key[0])]
    scored = [entry for entry in chosen if entry.score_s is not None]
    if not scored:
        first = chosen[0]
        raise InputError(f"no entry has a time to compare; of {first.name}: {first.why_not or 'its log has no times'}")
    keys = [entry.key for entry in scored]
    if all(keys.count(key) == 1 for key in keys):
        names = ", ".join(f"{entry.name} ({application_name(entry.key[0])})" for entry in scored[:3])
        raise InputError(
            f"nothing to compare: {len(scored)} {'entry' if len(scored) == 1 else 'entries of different benchmarks'} "
            f"({names}); give another system's results too, or add --published"
        )
    return chosen


def find_entry(option: str, name: str, entries: Sequence[EntryRuns], machines: MachineOf) -> list[EntryRuns]:
    """The entry that ``name`` means in each application and mode; the best one, where it may mean several.

    ``name`` is an entry's name, or words that all occur in it or in the title of its machine; case does not matter.
    Raises ``InputError`` for a name that no entry has.
    """
    scored = [entry for entry in entries if entry.score_s is not None]
    exact = [entry for entry in scored if entry.name.casefold() == name.casefold()]
    words = name.casefold().split()
    named = exact or [entry for entry in scored if words and all(word in searched(entry, machines) for word in words)]
    if not named:
        known = list(dict.fromkeys(part for entry in scored for part in names_of(entry, machines)))
        raise InputError(f"{option} {name}: no entry has this name; {suggest(name, known)}")
    best: dict[tuple[str, str], EntryRuns] = {}
    for entry in sorted(named, key=lambda entry: entry.score_s or 0.0):
        best.setdefault(entry.key, entry)
    return list(best.values())


def names_of(entry: EntryRuns, machines: MachineOf) -> list[str]:
    """The names by which an entry is known."""
    machine = machines(entry)
    names = [entry.name, entry.first.system, None if machine is None else short_title(machine)]
    return [name for name in names if name]


def searched(entry: EntryRuns, machines: MachineOf) -> str:
    """The text in which the words of a name are looked for."""
    machine = machines(entry)
    return f"{entry.name} {'' if machine is None else f'{machine.name} {machine.title}'}".casefold()


def find_pairs(
    base: str | None, against: str, entries: Sequence[EntryRuns], machines: MachineOf
) -> tuple[list[EntryRuns], list[EntryRuns]]:
    """The bases, where one is named, and the entries to show against them, one for each application and mode.

    Raises ``InputError`` for names of entries that have no application and mode in common, or of the same entry.
    """
    others = find_entry("--against", against, entries, machines)
    if base is None:
        return [], others
    bases = find_entry("--base", base, entries, machines)
    both = [(one, other) for one in bases for other in others if one.key == other.key]
    if not both:
        raise InputError(
            f"{bases[0].name} is {application_name(bases[0].key[0])}, {bases[0].key[1]}, and {others[0].name} is "
            f"{application_name(others[0].key[0])}, {others[0].key[1]}; a pair needs one benchmark and mode"
        )
    if all(one is other for one, other in both):
        raise InputError(f"--base and --against are both {both[0][0].name}; give two entries")
    return bases, [other for one, other in both if one is not other]
