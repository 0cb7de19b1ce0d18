"""The plan of a campaign on a machine, for people: each size of each scenario, and what cannot run."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.batch.site import Site
from hpcbench.campaign.cost import recipe_line
from hpcbench.campaign.entry import Entry, run_config
from hpcbench.campaign.show import filled
from hpcbench.campaign.sizes import SizePlan, counts_problem, plan_sizes
from hpcbench.exits import BAD_INPUT, DONE
from hpcbench.measure.installation import installation, installation_words
from hpcbench.results.tables import table
from hpcbench.study.progress import say

HEADERS = ("nodes", "instances", "ranks", "local batch", "accumulation", "global batch", "memory of a rank", "runs",
           "")  # fmt: skip


def plan_page(entries: Sequence[Entry], site: Site) -> int:
    """Print the plan of each entry; 2 where something of it cannot run. Raises ``InputError`` for what is forbidden."""
    campaign, category = entries[0].campaign, entries[0].category
    problems: list[str] = []
    say(f"{campaign.title}, {category.name}, on {site.title}")
    for entry in entries:
        config = run_config(entry)
        sizes = plan_sizes(entry, config, site)
        say(f"\n{entry.scenario.name}: {entry.scenario.title}\n\n{sizes_table(sizes)}")
        found = [f"cannot run: {each.problem}" for each in sizes if each.problem]
        counts = counts_problem(entry, config)
        found += [f"cannot run: {counts}"] if counts else []
        cost = recipe_line(entry.scenario)
        lines = [*found, f"metric: {entry.scenario.metric.text}", *([cost] if cost else [])]
        say("\n" + "\n".join(part for line in lines for part in filled(line, "", "  ")))
        problems += found
    if category.released:
        say(f"\npackages: {category.name} needs the released ones; here {installation_words(installation())}")
    return BAD_INPUT if problems else DONE


def sizes_table(sizes: Sequence[SizePlan]) -> str:
    """A line for each size."""
    rows = [
        [f"{each.nodes:,}", f"{each.instances:,}", f"{each.ranks:,}", str(each.local_batch or "-"),
         str(each.accumulation), f"{each.global_batch:,}", each.memory, str(each.runs),
         "cannot run" if each.problem else "runs"]
        for each in sizes
    ]  # fmt: skip
    return table(HEADERS, rows, right=HEADERS[:-1])
