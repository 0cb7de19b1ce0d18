"""The promises of a job script, on every scheduler, with programs that only write down how they are called."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.examples import example_scripts
from hpcbench.batch.job import Job
from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.packed_runs import PackedRuns
from hpcbench.batch.refusals import REFUSED
from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.batch.script import job_script
from hpcbench.batch.site import Node
from staging.errors import InputError
from tests.hpcbench.batch.conftest import a_job, a_site

ROOT = Path(__file__).parents[3]
IDS = {"SLURM_JOB_ID": "17", "PBS_JOBID": "17.server", "LSB_JOBID": "17"}
NOTE = """\
#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >> "$NOTES"
"""
LAUNCHER = NOTE + 'while [ $# -gt 0 ] && [ "$1" != hpcbench ] && [ "$1" != rmdir ]; do shift; done\nexec "$@"\n'
HPCBENCH = (
    NOTE
    + '[ "$1 $2" != "jobs --take" ] || { echo "$NOTES.hold${HOLDS:+$5}"; exit "${TAKE:-0}"; }\n'
    + 'env > "$NOTES.environment"\n[ "$1" != train ] || [ -z "${CANCEL:-}" ] || kill -TERM "$SCRIPT"\n'
    + '[ "$1" != train ] || exit "${TRAIN:-0}"\n'
    + 'case " $* " in " jobs "*" --last-attempt "*) exit 1 ;; esac\n'
    + '[ "$1 $3" != "jobs --cancelled" ] || exit "${CANCELLED:-1}"\n[ "$1" != jobs ] || exit "${INTERRUPTED:-1}"\n'
)
FLUX = (
    NOTE
    + 'case "$1 $2" in "getattr jobid") echo f17 ;; "job id") echo 17 ;; run*) shift; while [ "$1" != hpcbench ] && '
)
FLUX += '[ "$1" != rmdir ]; do shift; done; exec "$@" ;; esac\n'


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A folder of programs that write down how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    launchers = dict.fromkeys(("srun", "mpiexec", "mpirun", "jsrun"), LAUNCHER)
    notes = dict.fromkeys(("scontrol", "sbatch", "qsub", "bsub", "sleep", "rmdir", "module", "bash-again"), NOTE)
    for name, text in {**launchers, **notes, "hpcbench": HPCBENCH, "flux": FLUX}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def run_script(job: Job, site: Any, fakes: Path, **environ: str) -> tuple[int, list[str]]:
    """Exit code of the job's script, and what was called."""
    job.folder.mkdir(exist_ok=True)
    script = job.folder / "job.sh"
    script.write_text(job_script(job, site, SCHEDULERS[site.scheduler]))
    notes = fakes.parent / "notes"
    notes.unlink(missing_ok=True)
    known = {"PATH": f"{fakes}:{os.environ['PATH']}", "HOME": "/home/me", "NOTES": str(notes), **IDS, **environ}
    command = ["bash", "-c", 'SCRIPT=$$ exec bash "$0"', str(script)]
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, notes.read_text().splitlines() if notes.exists() else [done.stderr]


def of(calls: list[str], *words: str) -> list[str]:
    """The calls that begin with these words."""
    return [call for call in calls if call.startswith(" ".join(words))]


def test_the_example_scripts_are_what_the_code_writes() -> None:
    folder = ROOT / "batch_scripts"
    found = {path.name: path.read_text() for path in folder.glob("*.sh")}
    assert found == example_scripts(), "python -m hpcbench.batch.examples batch_scripts"


@pytest.mark.parametrize("name", example_scripts())
def test_the_example_scripts_are_scripts(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / "batch_scripts" / name)], check=True)


def test_a_job_of_packed_runs_starts_python_as_the_readme_says(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    site = a_site(scheduler)
    job = replace(a_job(site, tmp_path / "0001", nodes=1, ranks_per_node=1, stages=False), packed=PackedRuns({}, 1))
    code, calls = run_script(job, site, fakes)
    assert code == 0, calls
    after_hold = of(calls, "hpcbench")[1:]
    check = f"--check-job ranks=1,nodes=1,cores={job.cores_per_rank},gpus={job.gpus_per_rank}"
    assert after_hold == [f"hpcbench study execute {job.folder} {check}"], "one process, which checks the job, too"
    promises = (ROOT / "batch_scripts" / "README.md").read_text().partition("## What every script promises")[2]
    third = promises.partition("\n3. ")[2].partition("\n4. ")[0]
    assert "`hpcbench study execute --check-job`" in third


def test_a_job_looks_first_then_trains_and_leaves_nothing(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    site = a_site(scheduler)
    job = a_job(site, tmp_path / "a run", arguments=("--data.root=/x y/$HOME",))
    code, calls = run_script(job, site, fakes)
    assert code == 0, calls
    local = re.search(r"--staging.destination (/tmp/hpcbench-(\d+))$", of(calls, "hpcbench train")[0])
    assert local is not None
    if scheduler != "local":
        assert local[2] == "17"
    taken, *hpcbench = of(calls, "hpcbench")
    number = local[2] if scheduler == "local" else "17"
    assert re.fullmatch(
        rf"hpcbench jobs --take {number} --attempt 1 --process \d+ --scheduler {scheduler} --nodes 2 --mark "
        rf"{re.escape(job.mark)} {re.escape(str(tmp_path))}/a run", taken,
    )  # fmt: skip
    assert hpcbench[0] == (
        f"hpcbench train cosmoflow --data.root=/x y/$HOME "
        f"--check-job ranks=4,nodes=2,cores={job.cores_per_rank},gpus=1 "
        f"--run-dir {tmp_path}/a run --hold {tmp_path}/notes.hold --resume-or-start "
        f"--parallel.threads {job.cores_per_rank} --staging.destination {local[1]}"
    )
    assert hpcbench[1:] == [f"hpcbench stage --clean {local[1]}"]
    assert of(calls, "rmdir") == [f"rmdir {local[1]}"]
    assert re.fullmatch(r"\d{10,} 0\n", (tmp_path / "notes.hold.end").read_text())


LAUNCHES = {
    "slurm": "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=2 --cpu-bind=cores --kill-on-bad-exit=1",
    "pbs": "mpiexec -n 4 -ppn 2 -bind-to core:2",
    "lsf": "mpirun -np 4 --map-by ppr:2:node:PE=2 --bind-to core -x PATH -x OMP_NUM_THREADS -x HPCBENCH_WARN_S",
    "flux": "flux run --nodes=2 --ntasks=4 --cores-per-task=2 --setopt=mpibind=off --setopt=cpu-affinity=per-task "
    "--setopt=exit-on-error --gpus-per-task=1 --setopt=gpu-affinity=per-task",
    "local": "mpiexec -n 4",
}


def test_one_process_for_each_rank_with_cores_of_its_own(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    site = a_site(scheduler)
    _, calls = run_script(a_job(site, tmp_path / "run", cores_per_rank=1 if scheduler == "local" else 2), site, fakes)
    started = [call for call in calls if " hpcbench train " in call]
    assert len(started) == 1
    on_all_ranks = LAUNCHES[scheduler].split(" --cpus-per-task")[0] + " "
    assert [call for call in calls if call.startswith(on_all_ranks) and " hpcbench " in call] == started
    assert started[0].startswith(f"{LAUNCHES[scheduler]} hpcbench train cosmoflow")
    assert (fakes.parent / "notes.environment").read_text().count("OMP_NUM_THREADS=") == 1


@pytest.mark.parametrize("code", [0, 1, 2, 3, 137, 143])
def test_the_exit_code_is_the_training_s(scheduler: str, fakes: Path, tmp_path: Path, code: int) -> None:
    site = a_site(scheduler)
    found, calls = run_script(a_job(site, tmp_path / "run"), site, fakes, TRAIN=str(code))
    assert found == code
    assert not of(calls, "scontrol") + of(calls, "qsub") + of(calls, "bsub") + of(calls, "flux --parent")
    assert (tmp_path / "notes.hold.end").read_text().split()[1] == str(code)


def test_a_job_that_finds_its_folder_held_ends_and_touches_nothing(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    site = a_site(scheduler)
    code, calls = run_script(a_job(site, tmp_path / "run"), site, fakes, TAKE="4")
    assert code == 4
    assert [call.split()[:3] for call in calls if not call.startswith("flux")] == [["hpcbench", "jobs", "--take"]]
    assert not (tmp_path / "notes.hold.end").exists()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["job.sh"]


AGAIN = {
    "slurm": "scontrol requeue 17",
    "pbs": "qsub -v HPCBENCH_ATTEMPT=3,HPCBENCH_MARK= -W depend=afterany:17.server job.sh",
    "lsf": "bsub -w ended(17)",
    "flux": "flux --parent batch --env=HPCBENCH_ATTEMPT=3 --dependency=afterany:17 job.sh",
}


def test_each_attempt_without_a_scheduler_writes_down_its_end(fakes: Path, tmp_path: Path) -> None:
    """It becomes the next one, and keeps its process number."""
    site = a_site("local")
    job = a_job(site, tmp_path / "run", attempts=3)
    code, calls = run_script(job, site, fakes, TRAIN="75", INTERRUPTED="0", HOLDS="numbered")
    assert code == 75
    assert len(of(calls, "hpcbench train")) == 3
    for attempt in (1, 2, 3):
        assert re.fullmatch(r"\d{10,} 75\n", (tmp_path / f"notes.hold{attempt}.end").read_text())


@pytest.mark.parametrize("scheduler", AGAIN)
def test_a_job_that_was_cancelled_does_not_come_back(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    """The script gets SIGTERM while it trains, clears the nodes, and says so when it asks whether to continue."""
    site = a_site(scheduler)
    job = a_job(site, tmp_path / "run")
    _, calls = run_script(job, site, fakes, TRAIN="143", CANCEL="yes")
    assert f"hpcbench jobs --interrupted --cancelled --hold {tmp_path}/notes.hold {tmp_path}/run" in calls
    assert of(calls, "hpcbench stage --clean")
    assert AGAIN[scheduler].replace("=3", "=2") not in calls


def test_the_last_attempt_asks_why_it_ended_and_is_not_queued_again(
    scheduler: str, fakes: Path, tmp_path: Path
) -> None:
    site = a_site(scheduler)
    _, calls = run_script(a_job(site, tmp_path / "run", attempts=1), site, fakes, TRAIN="75", INTERRUPTED="0")
    assert f"hpcbench jobs --interrupted --last-attempt --hold {tmp_path}/notes.hold {tmp_path}/run" in calls
    if scheduler in AGAIN:
        assert AGAIN[scheduler].replace("=3", "=2") not in calls


def test_the_signal_comes_before_the_time_limit(scheduler: str, tmp_path: Path) -> None:
    """By the scheduler itself, or by ``timeout``, which counts from the start of the script."""
    site = a_site(scheduler)
    text = job_script(a_job(site, tmp_path / "run", warn_s=100), site, SCHEDULERS[scheduler])
    if scheduler == "slurm":
        assert "#SBATCH --signal=USR1@100\n" in text
        assert "timeout" not in text
    else:
        assert "left_s=$((500 - SECONDS))\n" in text
        assert 'timeout --foreground --signal=USR1 --preserve-status "$left_s" "${launch[@]}"' in text


RESOURCES = {
    "slurm": ["--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=4", "--gpus-per-node=2", "--mem=32G",
              "--time=00:10:00", "--account=acc", "--partition=q", "--qos=fast", "--constraint=a&b",
              "--reservation=res", "--requeue", "--extra"],
    "pbs": ["-l select=2:ncpus=8:mpiprocs=2:ompthreads=2:ngpus=2:mem=32gb:a&b", "-l walltime=00:10:00",
            "-l place=scatter", "-A acc", "-q q", "-l qos=fast", "--extra"],
    "lsf": ["-n 8", '-R "span[ptile=4]"', '-gpu "num=2:mode=shared"', '-R "rusage[mem=8192MB]"', "-W 0:10", "-P acc",
            "-q q", "-sla fast", '-R "select[a&b]"', "-U res", "--extra"],
    "flux": ["--nodes=2", "--nslots=2", "--cores-per-slot=4", "--gpus-per-slot=2", "--time-limit=600s", "--queue=q",
             "--bank=acc", "--requires=a&b", "--extra"],
}  # fmt: skip


@pytest.mark.parametrize("scheduler", RESOURCES)
def test_everything_that_was_asked_for_stands_in_the_directives(scheduler: str, tmp_path: Path) -> None:
    site = a_site(scheduler, node=Node(cores=4, threads_per_core=2, gpus=2), directives=("--extra",))
    asked = {"account": "acc", "queue": "q", "qos": "fast", "constraint": "a&b", "reservation": "res", "memory_gib": 32}
    refused = {"reservation"} if scheduler == "pbs" else set(REFUSED.get(scheduler, {}))  # in PBS it is the queue
    job = a_job(site, tmp_path / "run", **{k: v for k, v in asked.items() if k not in refused})
    text = job_script(job, site, SCHEDULERS[scheduler])
    prefix = SCHEDULERS[scheduler].PREFIX
    found = [line.removeprefix(f"{prefix} ") for line in text.splitlines() if line.startswith(prefix)]
    assert [line for line in RESOURCES[scheduler] if line not in found] == []


WITHIN = (
    ("slurm", "srun"), ("slurm", "openmpi"), ("slurm", "mpich"), ("pbs", "pals"), ("pbs", "mpich"), ("pbs", "openmpi"),
    ("lsf", "jsrun"), ("lsf", "openmpi"), ("lsf", "mpich"), ("flux", "flux"), ("local", "mpich"),
)  # fmt: skip
OTHERS: dict[str, Any] = {
    "nodes": 3, "ranks_per_node": 1, "cores_per_rank": 1, "gpus_per_rank": 0, "memory_gib": 32, "time": "00:11:00",
    "account": "acc", "queue": "q7", "qos": "fast", "constraint": "big", "reservation": "res", "modules": ("m17",),
    "environment": {"A17": "b17"}, "image": "x17.sif", "local_path": "/x17", "warn_s": 77, "attempts": 7,
    "bring_environment": True,
}  # fmt: skip
"""A value for each option of a request that is not its default."""


def test_every_option_of_a_request_is_tried() -> None:
    assert set(OTHERS) == {each.name for each in fields(JobRequest)}


@pytest.mark.parametrize(("scheduler", "launcher"), WITHIN)
@pytest.mark.parametrize("whole", [False, True])
def test_every_option_reaches_the_script_or_is_refused(
    scheduler: str, launcher: str, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is dropped without a word, whatever the scheduler, the launcher, and the share of a node."""
    monkeypatch.setattr("hpcbench.batch.job.cores_allowed", lambda: range(4))
    site = a_site(scheduler, launcher=launcher, whole_nodes=whole, container="run {image}")

    def lines(**asked: Any) -> set[str]:
        job = replace(a_job(site, tmp_path / "run", **{"cores_per_rank": 2, **asked}), mark="m")
        text = job_script(job, site, SCHEDULERS[scheduler])
        # Comments are for people, and do not count.
        return {line for line in text.splitlines() if not line.startswith("# ") or line.startswith("# flux:")}

    refused = {**REFUSED.get(scheduler, {}), **REFUSED.get(launcher, {})}
    plain = lines()
    for option, value in OTHERS.items():
        if option in refused:
            with pytest.raises(InputError, match=rf"--{option.replace('_', '-')} \({value}\) is not for site here: "):
                lines(**{option: value})
            continue
        new = lines(**{option: value}) - plain
        assert new, f"{option} is dropped"
        if isinstance(value, str) and option != "time":
            assert any(value in line for line in new), option


@pytest.mark.parametrize(
    ("scheduler", "launcher", "asked", "words"),
    [
        ("flux", "flux", {"memory_gib": 8}, r"--memory-gib \(8\) is not for site here: Flux counts no memory"),
        ("flux", "flux", {"qos": "x"}, r"--qos \(x\) .* Flux has no quality of service; name the --queue"),
        ("flux", "flux", {"reservation": "x"}, r"--reservation \(x\) .* name the --queue that holds the nodes"),
        ("pbs", "mpich", {"queue": "q", "reservation": "R"}, r"--queue \(q\) .* \(R\) on site here: .*out --queue$"),
        ("lsf", "jsrun", {"memory_gib": 8}, r"--memory-gib \(8\) .* jobs with jsrun have whole nodes"),
        ("local", "mpich", {"account": "x"}, r"--account \(x\) .* this machine has no scheduler; leave it out"),
    ],
)
def test_what_a_scheduler_has_no_use_for_is_refused(
    scheduler: str, launcher: str, asked: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        a_job(a_site(scheduler, launcher=launcher), tmp_path / "run", **asked)


def test_a_reservation_of_pbs_is_the_queue_in_place_of_the_sites(tmp_path: Path) -> None:
    site = a_site("pbs", queue="workq")
    lines = SCHEDULERS["pbs"].directives(a_job(site, tmp_path / "run", reservation="R7"), site)
    assert [line for line in lines if line.startswith("-q")] == ["-q R7"]


def test_the_ranks_look_for_the_space_that_staging_needs(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    site = a_site(scheduler)
    _, calls = run_script(replace(a_job(site, tmp_path / "run"), local_gib=172.7), site, fakes)
    assert ",local_gib=172.7 " in of(calls, "hpcbench train")[0]


@pytest.mark.parametrize(("request_", "lines"), [("gres", ["--gres=gpu:2"]), ("gpus-per-task", ["--gpus-per-task=1"])])
def test_other_ways_to_ask_slurm_for_gpus(tmp_path: Path, request_: str, lines: list[str]) -> None:
    site = a_site("slurm", gpu_request=request_)
    found = SCHEDULERS["slurm"].directives(a_job(site, tmp_path / "run"), site)
    assert [line for line in found if "gpu" in line] == lines


def test_no_text_of_a_user_is_run(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    """Whatever stands in arguments, variables, modules and paths, no file appears that they would make."""
    site = a_site(scheduler, module_paths=("/x;touch made1",), modules=("`touch made2`",))
    evil = "'; touch made3; '\"; touch made4; \"$(touch made5)\\"
    job = a_job(
        site, tmp_path / "r'un", arguments=(f"--data.root={evil}",), environment={"A": "`touch made6`\"$HOME'"},
        local_path="/tmp/\"; touch made7; \"'x y", modules=("a b; touch made8",),
    )  # fmt: skip
    job = replace(job, title="# a title")
    code, calls = run_script(job, site, fakes)
    assert code == 0, calls
    assert not list(tmp_path.rglob("made*"))
    assert f"--data.root={evil} " in of(calls, "hpcbench train")[0]
    environment = (fakes.parent / "notes.environment").read_text()
    assert "\nA=`touch made6`\"/home/me'\n" in environment
