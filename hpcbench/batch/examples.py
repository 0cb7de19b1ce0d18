"""The scripts in ``batch_scripts/``: both applications on a machine of each scheduler, as ``submit`` would write them.

``python -m hpcbench.batch.examples batch_scripts`` writes them again.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from hpcbench import __version__
from hpcbench.batch.job import make_job
from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.batch.script import job_script
from hpcbench.batch.site import PROFILES, read_site

SITES = {"slurm": "perlmutter-gpu", "pbs": "polaris", "lsf": "summit", "flux": "tuolumne"}
APPLICATIONS = ("cosmoflow", "deepcam")
WORK_DIR = Path("/project/me")


def example_scripts() -> dict[str, str]:
    """The texts of the scripts by file name."""
    scripts = {}
    for scheduler, name in SITES.items():
        site = read_site(PROFILES / f"{name}.yaml")
        for application in APPLICATIONS:
            folder = WORK_DIR / "runs" / application
            arguments = (application, "--preset", "node", f"--data.root={WORK_DIR / 'data' / application}")
            request = JobRequest(nodes=4, time="02:00:00", account="my-project")
            job = make_job(site, request, folder, ("hpcbench",), arguments, f"{application}, preset node,", stages=True)
            job = replace(job, work_dir=WORK_DIR, mark=f"hpcbench:me/{application}:0badf00d")
            text = job_script(job, site, SCHEDULERS[scheduler])
            scripts[f"{scheduler}-{application}.sh"] = text.replace(f"hpcbench {__version__};", "hpcbench;")
    return scripts


def main(folder: Path) -> None:
    """Write the scripts into ``folder``."""
    for name, text in example_scripts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
