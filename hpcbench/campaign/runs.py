"""Make the runs of a campaign: a scaling study for each scenario and category, continued as any study is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.batch.site import Site, find_site
from hpcbench.campaign.entry import Entry, given_settings, global_batch_of, run_config, run_settings
from hpcbench.campaign.folder import CampaignFolder
from hpcbench.campaign.sizes import SizePlan, counts_problem, plan_sizes
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.data.simulate import simulate_dataset
from hpcbench.exits import Aborted
from hpcbench.measure.installation import installation, installation_words
from hpcbench.study.folder import StudyFolder, held, nothing_began
from hpcbench.study.progress import say
from hpcbench.study.run_status import RunStatus
from hpcbench.study.runner import ExecutionOptions
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.request import ScalingRequest, define
from hpcbench.study.scaling.study import grown, make_runs, plan, read_study
from staging.errors import InputError

LARGEST_FIRST_SEED = 2**31
"""Bound of the first seed; the seeds of repeats and instances are larger than the first."""


def check_entry(entry: Entry, site: Site) -> tuple[RunConfig, list[SizePlan]]:
    """The configuration and the sizes of an entry. Raises ``InputError`` with the first reason why it cannot run."""
    config = run_config(entry)
    sizes = plan_sizes(entry, config, site)
    problem = next((size.problem for size in sizes if size.problem), "") or counts_problem(entry, config)
    if problem:
        raise InputError(f"{entry.campaign.name}, scenario {entry.scenario.name}: {problem}")
    check_released(entry)
    return config, sizes


def check_released(entry: Entry) -> None:
    """Raise ``InputError`` if the category asks for the released packages but others are installed."""
    if not entry.category.released or entry.rehearsal:
        return
    installed = installation()
    if not installed["unchanged"]:
        others = [category.name for category in entry.campaign.categories if not category.released]
        instead = f", or take --category {' or '.join(others)}" if others else ""
        raise InputError(
            f"category {entry.category.name} of {entry.campaign.name} needs the released packages: "
            f"{installation_words(installed)}; install the release, or commit{instead}"
        )


def make_entry(entry: Entry, folder: CampaignFolder, options: ExecutionOptions, *, dry_run: bool) -> bool:
    """Make the missing runs of an entry; returns whether any is still under way.

    Raises ``InputError`` for what the rules or the machine forbid, before anything is made, and ``Aborted``.
    """
    site = find_site(entry.site)
    config, sizes = check_entry(entry, site)
    lacks_data = False
    if entry.rehearsal and "data.root" not in given_settings(entry):
        entry = with_simulated_data(entry, folder, dry_run=dry_run)
        root = Path(entry.settings["data.root"])
        lacks_data = dry_run and not root.exists()
        if lacks_data:
            say(f"data: would be simulated in {root}\n")
    place = folder.study(entry.category, entry.scenario)
    study = study_of(entry, config, sizes, place, may_lack_data=lacks_data)
    if dry_run:
        say(plan(study))
        return False
    return any(state.under_way for state in bring_forward(study, place, options).values())


def with_simulated_data(entry: Entry, folder: CampaignFolder, *, dry_run: bool) -> Entry:
    """The entry with a dataset of its own, which is simulated if it does not exist."""
    root, data = folder.data / entry.scenario.application, entry.scenario.dataset
    if not dry_run:
        sizes = {"simulate.train_samples": data.train_samples, "simulate.validation_samples": data.validation_samples}
        simulate_dataset(entry.application, resolve(entry.application, "smoke", None, sizes), root, 1, quiet=True)
    return replace(entry, settings={**entry.settings, "data.root": str(root)})


def study_of(
    entry: Entry, config: RunConfig, sizes: Sequence[SizePlan], place: StudyFolder, *, may_lack_data: bool = False
) -> Scaling:
    """The study that makes the runs. Raises ``InputError`` for what the site cannot give.

    ``may_lack_data``: whether the dataset is made after this.
    """
    settings = run_settings(entry)
    whole = global_batch_of(entry, config)
    if entry.mode != "strong":
        settings["train.local_batch_size"] = str(sizes[0].local_batch)
    asked = ScalingRequest(
        mode=entry.mode, preset=entry.own_preset, site=entry.site, nodes=",".join(map(str, entry.nodes)),
        request=entry.request, repeats=1 if entry.scenario.throughput else entry.scenario.replicates,
        global_batch_size=whole if entry.mode == "strong" else None,
        instance_nodes=entry.instance_nodes if entry.scenario.throughput else None, files=entry.files,
        stages=entry.stages, seed=first_seed(place), command=entry.command, may_lack_target=True,
        may_lack_data=may_lack_data,
    )  # fmt: skip
    return define(entry.application, asked, settings)


def first_seed(place: StudyFolder) -> int:
    """The seed of the first run: that of the study if there is one, else from the clock."""
    return read_study(place).seed if place.definition.exists() else time.time_ns() // 1000 % LARGEST_FIRST_SEED


def bring_forward(study: Scaling, place: StudyFolder, options: ExecutionOptions) -> dict[str, RunStatus]:
    """Make the missing runs of a study; returns all statuses. See ``hpcbench.study.scaling.study.run_study``."""
    with held(place):
        study = grown(study, place)
        is_new = place.read() is None
        place.write(study.as_dict())
        say(plan(study))
        try:
            return make_runs(study, place, options)
        except (InputError, Aborted):
            if is_new and nothing_began(place):
                place.definition.unlink()
            raise
