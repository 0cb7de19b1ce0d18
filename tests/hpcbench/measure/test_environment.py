"""The record of what a run ran with."""

import json
import os
import subprocess
import sys
from importlib import metadata

import torch

from hpcbench import __version__
from hpcbench.measure.environment import cores_allowed, environment_record, launcher_variables, source


def test_it_holds_command_versions_and_cores():
    record = environment_record(["hpcbench", "train", "cosmoflow"], {})
    assert record["command"] == ["hpcbench", "train", "cosmoflow"]
    assert record["versions"]["torch"] == torch.__version__
    assert record["versions"]["hpcbench-ml"] == __version__
    for package in ("numpy", "h5py", "mpi4py", "mlperf-logging"):
        assert record["versions"][package] == metadata.version(package)
    assert record["cores_allowed"] == sorted(os.sched_getaffinity(0))
    assert json.loads(json.dumps(record)) == record


def test_cores_follow_the_affinity_of_the_process():
    code = """if True:
    import os, sys
    os.sched_setaffinity(0, {int(sys.argv[1])})
    from staging.cores import cores_allowed
    print(cores_allowed())"""
    core = str(cores_allowed()[-1])
    done = subprocess.run([sys.executable, "-c", code, core], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[{core}]"


def test_launcher_variables_hold_ranks_and_no_secrets():
    environ = {
        "SLURM_PROCID": "3", "SLURM_JOB_ID": "17", "PMI_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMP_NUM_THREADS": "4",
        "ANY_VISIBLE_DEVICES": "0,1", "WORLD_SIZE": "8",
        "SLURM_JWT": "secret", "SLURM_JOB_USER": "ada", "SLURM_SUBMIT_DIR": "/home/ada", "PMI_AUTH_TOKEN": "secret",
        "OMPI_COMM_WORLD_KEY": "secret", "HOME": "/home/ada", "AWS_SECRET_ACCESS_KEY": "secret", "USER": "ada",
    }  # fmt: skip
    assert launcher_variables(environ) == {
        "ANY_VISIBLE_DEVICES": "0,1", "OMPI_COMM_WORLD_SIZE": "8", "OMP_NUM_THREADS": "4", "PMI_RANK": "3",
        "SLURM_JOB_ID": "17", "SLURM_PROCID": "3", "WORLD_SIZE": "8",
    }  # fmt: skip


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_source_is_the_commit_and_whether_it_was_changed(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "file.py").write_text("1\n")
    git(tmp_path, "add", "file.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert source(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "file.py").write_text("2\n")
    assert source(tmp_path) == {"commit": commit, "dirty": True}


def test_source_of_an_installed_package_is_unknown_even_inside_another_checkout(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "site-packages").mkdir()
    assert source(tmp_path / "site-packages") == {"commit": None, "dirty": None}
