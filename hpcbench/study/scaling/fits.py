"""What the runs of a scaling study need of the nodes of their jobs, and whether the nodes have it."""

from __future__ import annotations

from pathlib import Path

from hpcbench.application import find_application
from hpcbench.batch.job import Job
from hpcbench.batch.site import Site
from hpcbench.config.schema import RunConfig
from hpcbench.planning.fits import UNMEASURED, UP_TO_LOW
from hpcbench.planning.job_fit import Fit, job_fit, settings_of_script
from hpcbench.results.tables import table, wrapped
from hpcbench.study.preset_values import study_config
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.jobs import job_of, run_settings
from hpcbench.study.scaling.run_matrix import PlannedRun, groups, run_nodes


def run_config(study: Scaling, site: Site, run: PlannedRun) -> RunConfig:
    """The configuration of a run as its job trains it, with what the job script adds. Raises ``InputError``."""
    return config_of(study, run, job_of(study, site, run, Path(run.name)))


def config_of(study: Scaling, run: PlannedRun, job: Job) -> RunConfig:
    """The configuration of a run in a job."""
    settings = run_settings(study, run) | settings_of_script(job)
    return study_config(study, settings, study.files)


def fit_of(study: Scaling, site: Site, run: PlannedRun) -> Fit:
    """What the job of a run needs against what the site has."""
    job = job_of(study, site, run, Path(run.name))
    return job_fit(find_application(study.application), config_of(study, run, job), job, site)


def different_runs(study: Scaling) -> list[PlannedRun]:
    """One run for each size of a job and each variant."""
    first_runs = {(run_nodes(study, group[0]), group[0].point.variant): group[0] for group in reversed(groups(study))}
    return list(reversed(first_runs.values()))


def check_fits(study: Scaling, site: Site) -> None:
    """Raise ``InputError`` in one line for the first size that its nodes cannot hold."""
    for run in different_runs(study):
        label = f", {run.point.label}" if run.point.label else ""
        fit_of(study, site, run).check(f"--nodes {run_nodes(study, run)}{label}: ")


def fit_page(study: Scaling, site: Site) -> str:
    """Peak rate, staged bytes, memory of a rank and node-hours of each size, with notes and warnings."""
    headers = ["nodes", *(["variant"] if study.vary else []), "peak rate", "staged to a node", "memory of a rank",
               "node-hours"]  # fmt: skip
    rows, notes, warnings = [], dict[str, None](), dict[str, None]()
    for run in different_runs(study):
        fit, nodes = fit_of(study, site, run), run_nodes(study, run)
        rows.append([str(nodes), *([run.point.label] if study.vary else []), *fit.cells])
        notes[f"batch {fit.global_batch:,}: {fit.rate}; recipe: {fit.recipe}"] = None
        warnings |= dict.fromkeys(f"warning: --nodes {nodes}: {text}" for text in fit.warnings)
    about = f"memory of a rank: counted as by `hpcbench plan`, of accelerators {UNMEASURED}, of processors {UP_TO_LOW}"
    below = [wrapped(line) for line in (*notes, about, *warnings)]
    return "\n".join(["Each job:", "", table(headers, rows, right=headers), "", *below])
