"""Where the ranks of a job script run: in a container, or from an environment on their nodes."""

from __future__ import annotations

from pathlib import Path

from hpcbench.batch.script import about
from tests.hpcbench.batch.conftest import a_job, a_site
from tests.hpcbench.batch.test_scripts import HPCBENCH, NOTE, fakes, of, run_script

__all__ = ["fakes"]


def test_a_script_counts_its_nodes_ranks_and_cores(tmp_path: Path) -> None:
    site = a_site("slurm")
    one = a_job(site, tmp_path, nodes=1, ranks_per_node=1, cores_per_rank=1, gpus_per_rank=1)
    assert about(one, site)[1].startswith("# 1 node x 1 rank of 1 core and 1 GPU, at most 00:10:00 an attempt, ")
    two = a_job(site, tmp_path, nodes=2, ranks_per_node=2, cores_per_rank=2, gpus_per_rank=0)
    assert about(two, site)[1].startswith("# 2 nodes x 2 ranks of 2 cores, at most ")


def test_ranks_in_a_container(fakes: Path, tmp_path: Path) -> None:
    site = a_site("slurm", container="env IMAGE={image}")
    _, calls = run_script(a_job(site, tmp_path / "run", image="my image.sif"), site, fakes)
    assert "IMAGE=my image.sif hpcbench train" in next(call for call in calls if call.startswith("srun"))


def test_the_script_asks_slurm_for_the_command_in_an_image(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    """The image does not have the commands of the scheduler; with SIGTERM, only Slurm knows what it meant."""
    site = a_site(scheduler, container="env IMAGE={image}")
    (fakes / "scontrol").write_text(NOTE + "echo JobState=COMPLETING Reason=TimeLimit\n")
    for image in ("", "my image.sif"):
        _, calls = run_script(a_job(site, tmp_path / "run", image=image), site, fakes, TRAIN="143", CANCEL="yes")
        told = "HPCBENCH_JOB_RECORD=JobState=COMPLETING Reason=TimeLimit" in read_environment(tmp_path)
        assert told is (bool(image) and scheduler == "slurm"), calls
    (fakes / "scontrol").write_text(NOTE + "exit 1\n")
    code, calls = run_script(a_job(site, tmp_path / "run", image="x.sif"), site, fakes, TRAIN="143", CANCEL="yes")
    assert code == 143
    assert of(calls, "hpcbench jobs --interrupted"), "an answer is no condition"


def read_environment(folder: Path) -> list[str]:
    """The environment of the last ``hpcbench`` of a script."""
    return (folder / "notes.environment").read_text().splitlines()


def test_ranks_run_from_the_environment_on_their_nodes(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    """It comes first, by one process a node, and goes last; the script itself then asks with the shared one."""
    site = a_site(scheduler, local_path=str(tmp_path / "node's"))
    job = a_job(site, tmp_path / "run", bring_environment=True)
    folder = "$2/environment/bin"
    copied = NOTE + f'[ "$1" != environment ] || {{ mkdir -p "{folder}"; cp {fakes}/python "{folder}"; }}\n'
    (fakes / "hpcbench").write_text(HPCBENCH.replace(NOTE, copied))
    (fakes / "python").write_text(NOTE + 'shift 3\nexec hpcbench "$@"\n')
    (fakes / "python").chmod(0o755)
    for launcher in ("srun", "mpiexec", "mpirun", "flux"):
        text = (fakes / launcher).read_text().replace('[ "$1" != rmdir ]', '[ "$1" != rmdir ] && [ "$1" != rm ]')
        words = '[ "$1" != hpcbench ] && [ "$(basename "$1")" != python ]'
        (fakes / launcher).write_text(text.replace('[ "$1" != hpcbench ]', words))
    code, calls = run_script(job, site, fakes, TRAIN="1")
    assert code == 1, calls
    started = [call.split(" ")[1] for call in calls if call.startswith("hpcbench ")]
    assert started == ["jobs", "environment", "train", "stage", "jobs"]
    assert [call.split(" ")[4] for call in of(calls, "python -P -m hpcbench")] == ["train", "stage"]
    assert not list((tmp_path / "node's").rglob("python"))


def test_an_environment_that_cannot_be_brought_ends_the_job(fakes: Path, tmp_path: Path) -> None:
    site = a_site("slurm")
    (fakes / "hpcbench").write_text(NOTE + "exit 2\n")
    code, calls = run_script(a_job(site, tmp_path / "run", bring_environment=True), site, fakes)
    assert (code, len(of(calls, "hpcbench"))) == (2, 1)


def test_without_staging_nothing_is_looked_for_on_the_nodes(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    site = a_site(scheduler)
    _, calls = run_script(a_job(site, tmp_path / "run", stages=False), site, fakes)
    assert not [call for call in calls if "--local" in call or "--staging." in call or "--clean" in call]
