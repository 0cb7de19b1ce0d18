"""The plan of a campaign on a machine, for people: each size of each scenario, and what cannot run."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.batch.site import Site
from hpcbench.campaign.cost import recipe_line
from hpcbench.campaign.entry import Entry, run_config
from hpcbench.campaign.show import filled
from hpcbench.campaign.sizes import SizePlan, counts_problem, plan_sizes
from hpcbench.exits import BAD_INPUT, DONE
from hpcbench.measure.installation import installation, packages_words
from hpcbench.results.tables import table
from hpcbench.study.progress import say

HEADERS = ("nodes", "instances", "ranks", "local batch", "micro-batches", "global batch", "memory", "runs", "")


def plan_page(entries: Sequence[Entry], site: Site, left_out: Sequence[str] = ()) -> int:
    """Print the plan of each entry; returns 2 if a part cannot run. Raises ``InputError`` for what is forbidden.

    ``left_out``: throughput scenarios that are not planned, since nothing says how large an instance is.
    """
    campaign, category = entries[0].campaign, entries[0].category
    blocks, runs = [f"{campaign.title}, {category.name}, on {site.title}"], True
    for entry in entries:
        text, fits = plan_entry(entry, site)
        blocks.append(text)
        runs = runs and fits
    if left_out:
        words = f"not planned: {', '.join(left_out)}; give --instance-nodes, the nodes of each instance"
        blocks.append("\n".join(filled(words, "", "  ")))
    if category.released:
        words = f"packages: {category.name} needs the released ones; here {packages_words(installation())}"
        blocks.append("\n".join(filled(words, "", "  ")))
    say("\n\n".join(blocks))
    return DONE if runs else BAD_INPUT


def plan_entry(entry: Entry, site: Site) -> tuple[str, bool]:
    """The plan of one scenario, and whether all of it can run. Raises ``InputError`` for what is forbidden."""
    config = run_config(entry)
    sizes = plan_sizes(entry, config, site)
    problems = [size.problem for size in sizes if size.problem]
    counts = counts_problem(entry, config)
    problems += [counts] if counts else []
    cost = recipe_line(entry.scenario)
    lines = [f"cannot run: {problem}" for problem in problems] + [f"metric: {entry.scenario.metric.text}"]
    told = "\n".join(part for line in [*lines, *([cost] if cost else [])] for part in filled(line, "", "  "))
    return f"{entry.scenario.name}: {entry.scenario.title}\n\n{sizes_table(sizes)}\n\n{told}", not problems


def sizes_table(sizes: Sequence[SizePlan]) -> str:
    """A line for each size; memory is that of a rank."""
    rows = [
        [f"{size.nodes:,}", f"{size.instances:,}", f"{size.ranks:,}", str(size.local_batch or "-"),
         str(size.accumulation), f"{size.global_batch:,}", size.memory, str(size.runs),
         "cannot run" if size.problem else "runs"]
        for size in sizes
    ]  # fmt: skip
    shown = [number for number, name in enumerate(HEADERS)
             if name not in ("instances", "micro-batches") or any(row[number] != "1" for row in rows)]  # fmt: skip
    headers = [HEADERS[number] for number in shown]
    return table(headers, [[row[number] for number in shown] for row in rows], right=headers[:-1])
