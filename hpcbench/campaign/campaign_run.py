"""What a command does on a campaign: check all entries before the first is made, make them, and write the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.site import find_site
from hpcbench.campaign.content import REHEARSAL
from hpcbench.campaign.entry import Entry
from hpcbench.campaign.folder import CampaignFolder
from hpcbench.campaign.report import report
from hpcbench.campaign.runs import check_entry, make_entry
from hpcbench.campaign.show import filled
from hpcbench.campaign.sizes import instance_nodes
from hpcbench.exits import DONE, Aborted
from hpcbench.study.progress import say
from hpcbench.study.runner import ExecutionOptions
from staging.errors import InputError

SIMULATED = (
    "Sizes of several nodes are simulated on this machine, so that their runs do not count as results of the campaign; "
    "give --site for real nodes."
)


def run_campaign(entries: Sequence[Entry], path: Path, options: ExecutionOptions, *, dry_run: bool) -> int:
    """Make the missing runs of the entries in the folder ``path``, and the report if none is under way.

    Returns the exit code. Raises ``InputError`` for what the rules or the machine forbid, before anything is made, and
    ``Aborted`` for a signal.
    """
    folder, first = CampaignFolder(path), entries[0]
    if first.rehearsal:
        say(REHEARSAL)
    for entry in entries:
        site = find_site(entry.site)
        _, sizes = check_entry(entry, site)
        if site.scheduler == "local" and not entry.rehearsal and any(instance_nodes(entry, s.nodes) > 1 for s in sizes):
            say("\n".join(filled(SIMULATED)))
    if not dry_run:
        folder.begin(first.campaign, first.rehearsal)
    try:
        under_way = make_entries(entries, folder, options, dry_run=dry_run)
    except (InputError, Aborted):
        if not dry_run:
            folder.withdraw()
        raise
    if dry_run:
        return DONE
    if under_way:
        status = folder.study(first.category, first.scenario).path
        say(f"\nstatus: hpcbench study status {status}\nwhen they are done: hpcbench campaign report {path}")
        return DONE
    say("")
    return report(folder)


def make_entries(entries: Sequence[Entry], folder: CampaignFolder, options: ExecutionOptions, *, dry_run: bool) -> bool:
    """Make the missing runs of all entries; returns whether any is still under way. See ``make_entry``."""
    under_way = False
    for entry in entries:
        mark = "rehearsal of " if entry.rehearsal else ""
        say(f"\n{mark}{entry.campaign.name}, {entry.category.name}, {entry.scenario.name}: {entry.scenario.title}\n")
        under_way = make_entry(entry, folder, options, dry_run=dry_run) or under_way
    return under_way
