"""A job gets what its script says, whatever the shell has set in which it is submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch import submission
from tests.hpcbench.batch.conftest import a_job, a_site

OVERRIDES = {
    "SBATCH_ACCOUNT": "other", "SBATCH_TIMELIMIT": "5", "SBATCH_JOB_NAME": "mine", "SBATCH_COMMENT": "mine",
    "SBATCH_NO_REQUEUE": "1", "SBATCH_MEM_PER_CPU": "1G", "SBATCH_SIGNAL": "INT", "SBATCH_WAIT": "1",
    "HPCBENCH_ATTEMPT": "3", "SQUEUE_PARTITION": "cpu",
}  # fmt: skip
OF_A_JOB = {"SLURM_JOB_ID": "5", "SLURM_CPU_BIND": "mask_cpu:0x1", "SLURM_MEM_PER_CPU": "1", "SLURM_RESTART_COUNT": "2",
            "PMI_RANK": "0", "PMI_SIZE": "1"}  # fmt: skip


@pytest.mark.parametrize("within_a_job", [False, True])
def test_variables_of_the_shell_change_no_option_of_the_script(
    within_a_job: bool, programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("sbatch", "17\n")
    script = programs.folder / "sbatch"
    script.write_text(script.read_text().replace("#!/bin/bash\n", f"#!/bin/bash\nexport -p > {tmp_path}/exported\n"))
    kept = {"SBATCH_PARTITION": "gpu", "SBATCH_EXPORT": "ALL", "SLURM_CONF": "/etc/x", "SLURM_CLUSTERS": "c"}
    given = OF_A_JOB if within_a_job else {"SLURM_CPU_BIND": "cores"}
    for name, value in {**OVERRIDES, **kept, **given}.items():
        monkeypatch.setenv(name, value)
    site = a_site()
    submission.submit(a_job(site, tmp_path / "run", account="mine", memory_gib=8), site)
    exported = {line.split("=")[0].split()[-1] for line in (tmp_path / "exported").read_text().splitlines()}
    assert not exported & set(OVERRIDES)
    assert set(kept) <= exported, "the script says nothing about these"
    assert ("SLURM_CPU_BIND" in exported) is not within_a_job
    assert not within_a_job or not exported & set(OF_A_JOB)
